//! Wall-clock time and randomness, so that a test can own both.

use dueline_domain::{Jitter, TaskId, Timestamp, Token, WriteId};

/// Tells the wall-clock time. It may jump in either direction: correctness never rests on it, only liveness does.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// Draws random numbers. In production they must be unpredictable, because tokens are made of them.
pub trait Rng: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// A new fencing token.
    fn token(&self) -> Token {
        Token::from_random(self.next_u64())
    }

    /// A name for a write.
    fn write_id(&self) -> WriteId {
        WriteId::from_random(self.next_u64())
    }

    /// Randomness for a backoff.
    fn jitter(&self) -> Jitter {
        Jitter::from_random(self.next_u64())
    }

    /// A new task id; ids made later sort later.
    fn task_id(&self, now: Timestamp) -> TaskId {
        let (high, low) = (self.next_u64(), self.next_u64());
        let mut random = [0; 10];
        random[..8].copy_from_slice(&high.to_be_bytes());
        random[8..].copy_from_slice(&low.to_be_bytes()[..2]);
        TaskId::from_time(now.millis(), random)
    }
}
