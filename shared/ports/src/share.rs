//! How several consumers share the due partitions.

use std::collections::BTreeSet;

use dueline_domain::{JobName, WorkerId};

/// Groups that partitions fall into: enough to spread over some dozens of consumers.
const GROUPS: u16 = 64;

/// The part of the due partitions that one consumer reads. A partition is a job and a shard of it.
///
/// Shares only save reads. Consumers that see different members overlap or leave a gap for a while; both are
/// harmless, because every move is a compare-and-set and an unread partition is read when the members agree again.
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
    /// The share of `me` among `members`, by incarnation: each group goes to the member with the highest weight for
    /// it, so a member that comes or goes moves only its own groups. `me` counts as a member whether listed or not.
    pub fn of<'a>(me: &WorkerId, members: impl IntoIterator<Item = &'a WorkerId>) -> Self {
        // The random part of an id makes its number as good as unique.
        let number = |member: &WorkerId| fnv(member.as_str().bytes());
        let me = number(me);
        let members: Vec<_> = members.into_iter().map(number).collect();
        let mine = |group: &u16| {
            let weight = |member: u64| (mix(member ^ mix(u64::from(*group) + 1)), member);
            members
                .iter()
                .all(|member| *member == me || weight(*member) < weight(me))
        };
        Self((0..GROUPS).filter(mine).collect())
    }

    /// Whether the partition belongs to this share.
    pub fn covers(&self, job: &JobName, shard: u32) -> bool {
        let hash = fnv(job.as_str().bytes().chain(shard.to_be_bytes()));
        // Always below the count of groups.
        let group = u16::try_from(mix(hash) % u64::from(GROUPS)).unwrap_or(0);
        self.0.contains(&group)
    }

    /// How large the share is, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        // At most the count of groups.
        let mine = u16::try_from(self.0.len()).unwrap_or(GROUPS);
        f64::from(mine) / f64::from(GROUPS)
    }
}

/// A number for some bytes, the same in every process (FNV-1a).
fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Spreads the bits of a number (the finaliser of splitmix64).
const fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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
    fn every_partition_has_one_reader_and_the_work_is_spread() {
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
    fn a_member_that_goes_moves_only_its_own_partitions() {
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
    fn a_consumer_alone_reads_everything() {
        for count in 0..3 {
            let members = vec![member(5); count];
            let share = Share::of(&member(5), &members);
            assert!((share.fraction() - 1.0).abs() < 1e-9);
        }
    }
}
