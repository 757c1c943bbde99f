//! The system clock and system randomness.

use std::time::{SystemTime, UNIX_EPOCH};

use dueline_domain::{TaskId, Timestamp};
use dueline_ports::{Clock, Rng, TaskIds};
use rand::RngExt as _;

/// The operating system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that reads the clock"
        )]
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = since_epoch.map_or(0, |elapsed| elapsed.as_millis());
        Timestamp::clamped(i64::try_from(millis).unwrap_or(i64::MAX))
    }
}

/// Unpredictable random numbers, seeded by the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        rand::rng().random()
    }

    fn task_id(&self, now: Timestamp) -> TaskId {
        // Shared by the whole process, so that all its ids ascend.
        static IDS: TaskIds = TaskIds::new();
        IDS.next(now, rand::rng().random())
    }
}

/// The random number of an incarnation: one start of a process.
pub fn incarnation() -> u64 {
    SystemRng.next_u64()
}
