//! What follows from a schedule and the nominal time of a firing: the id of its task, and its jitter.

use std::time::Duration;

use dueline_domain::{JobName, ScheduleName, TaskId, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::rule::Rule;

/// Which schedule: names are unique within a job.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleKey<'a> {
    /// The job whose tasks the schedule creates.
    pub job: &'a JobName,
    /// Its name.
    pub name: &'a ScheduleName,
}

impl ScheduleKey<'_> {
    /// The id of the task of the firing at `nominal`.
    ///
    /// Every process derives the same id, so two that handle the same firing create one task: the second create finds
    /// the task of the first. The id is a UUID of version 8:
    ///
    /// | bits | content |
    /// |---|---|
    /// | 0 to 47 | the nominal time in milliseconds since 1970, so that later firings sort later, among other task ids too |
    /// | 48 to 51 | the version, 8 |
    /// | 52 to 63 | bits of a SHA-256 over job, schedule and nominal time |
    /// | 64, 65 | the variant, binary 10 |
    /// | 66 to 127 | further bits of the SHA-256 |
    pub fn task_id(&self, nominal: Timestamp) -> TaskId {
        let digest = self.digest(nominal);
        let mut bytes = [0; 16];
        // The first two of the eight bytes are zero until the year 10889.
        bytes[..6].copy_from_slice(&nominal.millis().to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&digest[..10]);
        bytes[6] = 0x80 | bytes[6] & 0x0f;
        bytes[8] = 0x80 | bytes[8] & 0x3f;
        TaskId::from_bytes(bytes)
    }

    /// When the task of the firing at `nominal` is due: up to `jitter_max` later, and always before the next firing.
    ///
    /// The delay is the same each time it is computed, and spread evenly over the firings and over the schedules that
    /// fire at the same time.
    pub fn due_at(&self, rule: &Rule, nominal: Timestamp, jitter_max: Duration) -> Timestamp {
        if jitter_max.is_zero() {
            return nominal;
        }
        let next = rule.next_after(nominal).unwrap_or(Timestamp::MAX);
        let before_next = next.since(nominal).saturating_sub(Duration::from_millis(1));
        let bound_ms = before_next.min(jitter_max).as_millis();
        let mut bits = [0; 8];
        // Not the bytes of the id.
        bits.copy_from_slice(&self.digest(nominal)[16..24]);
        let share_ms = (u128::from(u64::from_be_bytes(bits)) * (bound_ms + 1)) >> 64;
        nominal.after(Duration::from_millis(u64::try_from(share_ms).unwrap_or(0)))
    }

    /// A hash of the firing. Stored ids depend on it, so it never changes.
    fn digest(&self, nominal: Timestamp) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(b"dueline firing 1\0");
        // No name contains a zero byte.
        hash.update(self.job.as_str());
        hash.update(b"\0");
        hash.update(self.name.as_str());
        hash.update(b"\0");
        hash.update(nominal.millis().to_be_bytes());
        hash.finalize().into()
    }
}
