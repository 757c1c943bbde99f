//! Wall-clock time and randomness, as traits so that tests can control both.

use dueline_domain::{Jitter, TaskId, Timestamp, Token, WriteId};

/// The wall clock. It may jump in either direction: correctness does not depend on it, only liveness does.
pub trait Clock: Send + Sync + 'static {
    /// The present time.
    fn now(&self) -> Timestamp;
}

/// A source of random numbers. In production they must be unpredictable, because tokens are made from them.
pub trait Rng: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// A new fencing token.
    fn token(&self) -> Token {
        Token::from_random(self.next_u64())
    }

    /// A new name for a write.
    fn write_id(&self) -> WriteId {
        WriteId::from_random(self.next_u64())
    }

    /// Randomness for a backoff.
    fn jitter(&self) -> Jitter {
        Jitter::from_random(self.next_u64())
    }

    /// A new task id. Ids of a later millisecond sort later.
    fn task_id(&self, now: Timestamp) -> TaskId {
        let (high, low) = (self.next_u64(), self.next_u64());
        let mut random = [0; 10];
        random[..8].copy_from_slice(&high.to_be_bytes());
        random[8..].copy_from_slice(&low.to_be_bytes()[..2]);
        TaskId::from_time(now.millis(), random)
    }
}
