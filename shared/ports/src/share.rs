//! How several consumers share the shards of the due index.

use std::collections::BTreeSet;

use dueline_domain::{
    JobName, ScheduleName, WorkerId,
    hash::{fnv1a, mix64},
};

/// Number of groups that the shards are hashed into: enough to spread them over some dozens of consumers.
const GROUPS: u16 = 64;

/// Number of shards of the schedules: enough to write ten thousand of them within a few seconds where each shard takes a
/// thousand writes a second.
pub const SCHEDULE_SHARDS: u32 = 8;

/// The shard of a schedule. Stored index entries depend on it, so it never changes.
pub fn schedule_shard(job: &JobName, name: &ScheduleName) -> u32 {
    let text = job.as_str().bytes().chain([0]).chain(name.as_str().bytes());
    u32::try_from(mix64(fnv1a(text)) % u64::from(SCHEDULE_SHARDS)).unwrap_or(0)
}

/// The shards of the due index that one consumer reads.
///
/// Shares only save reads. While consumers know different members, their shares may overlap or leave a gap. Both are
/// harmless: every move is a compare-and-set, and a shard in a gap is read as soon as the members agree again.
///
/// ```
/// use dueline_domain::WorkerId;
/// use dueline_ports::Share;
/// let job = "mail".parse()?;
/// let members = [WorkerId::new("c", 7)?, WorkerId::new("c", 8)?, WorkerId::new("c", 9)?];
/// let reads = |me| Share::of(me, members.iter()).covers(&job, 0);
/// assert_eq!(members.iter().filter(|me| reads(*me)).count(), 1);
/// # Ok::<(), dueline_domain::IdError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share(BTreeSet<u16>);

impl Share {
    /// The share of `me` among `members`, by rendezvous hashing: each group belongs to the member with the highest
    /// weight for it, so a member that joins or leaves moves only its own groups. `me` counts as a member even if it
    /// is not listed.
    pub fn of<'a>(me: &WorkerId, members: impl IntoIterator<Item = &'a WorkerId>) -> Self {
        // The random incarnation in each id makes these hashes practically unique.
        let number = |member: &WorkerId| fnv1a(member.as_str().bytes());
        let me = number(me);
        let members: Vec<_> = members.into_iter().map(number).collect();
        let mine = |group: &u16| {
            let weight = |member: u64| (mix64(member ^ mix64(u64::from(*group) + 1)), member);
            members
                .iter()
                .all(|member| *member == me || weight(*member) < weight(me))
        };
        Self((0..GROUPS).filter(mine).collect())
    }

    /// Whether this shard of the job belongs to the share.
    pub fn covers(&self, job: &JobName, shard: u32) -> bool {
        self.covers_shard_of(job.as_str(), shard)
    }

    /// Whether this shard of all schedules belongs to the share.
    pub fn covers_schedules(&self, shard: u32) -> bool {
        // No job has a name with a space.
        self.covers_shard_of("all schedules", shard)
    }

    fn covers_shard_of(&self, name: &str, shard: u32) -> bool {
        let hash = fnv1a(name.bytes().chain(shard.to_be_bytes()));
        // Always below the number of groups.
        let group = u16::try_from(mix64(hash) % u64::from(GROUPS)).unwrap_or(0);
        self.0.contains(&group)
    }

    /// How large the share is, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        // At most the number of groups.
        let mine = u16::try_from(self.0.len()).unwrap_or(GROUPS);
        f64::from(mine) / f64::from(GROUPS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: usize) -> JobName {
        JobName::parse(&format!("job-{number}")).expect("a name")
    }

    fn member(number: u64) -> WorkerId {
        WorkerId::new("consumer", number).expect("a worker")
    }

    #[test]
    fn every_shard_has_one_reader_and_the_reads_are_spread() {
        let members = [3, 1_000, u64::MAX, 77].map(member);
        let shares = members.each_ref().map(|me| Share::of(me, &members));
        let mut read = [0; 4];
        for number in 0..1_000 {
            let readers = shares.iter().map(|share| share.covers(&job(number), 0));
            let readers: Vec<_> = readers.enumerate().filter(|(_, reads)| *reads).collect();
            assert_eq!(readers.len(), 1, "job {number}");
            read[readers[0].0] += 1;
        }
        assert!(read.iter().all(|count| *count > 100), "{read:?}");
        let sum: f64 = shares.iter().map(Share::fraction).sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_member_that_leaves_moves_only_its_own_shards() {
        let all = [1, 2, 3].map(member);
        let fewer = [1, 3].map(member);
        for number in 0..200 {
            let reads = |me, members: &[WorkerId]| Share::of(me, members).covers(&job(number), 1);
            for me in &fewer {
                assert!(!reads(me, &all) || reads(me, &fewer), "job {number}");
            }
        }
    }

    #[test]
    fn a_single_consumer_reads_all_shards() {
        for count in 0..3 {
            let members = vec![member(5); count];
            let share = Share::of(&member(5), &members);
            assert!((share.fraction() - 1.0).abs() < 1e-9);
        }
    }
}
