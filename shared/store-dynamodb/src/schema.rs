//! The table: the names of its keys and attributes, and the keys of each kind of item.
//!
//! | item | `pk` | `sk` |
//! |---|---|---|
//! | program, version and slots of the table | `meta` | `schema` |
//! | counter of changed definitions | `meta` | `jobs` |
//! | job definition | `jobs` | name |
//! | generation of a deleted job | `gone` | name `#` generation |
//! | task | `t#` job `#` generation `#` slot | id |
//! | blob of a task | as its task | id, 1, kind, random number |
//! | idempotency key | `k#` job `#` generation `#` slot | key |
//! | schedule | `s#` job `#` generation `#` slot | name |
//! | edge to a task that waits for a task | `e#` job `#` generation `#` slot | id of the task that is waited for, kind, job and id of the one that waits |
//! | level of a job's quota | `q#` job `#` generation | `quota` |
//! | tasks that hold the places of a job with a limit | `q#` job `#` generation | `places`, or `lane places` |
//! | lane of a job with a fair share | `l#` job `#` generation | fairness key, 0, inverted priority |
//! | worker | `workers` | id |

use dueline_domain::{JobName, Priority, ScheduleName, TaskId, hash::fnv1a};

/// Partition key of the table (text).
pub const PK: &str = "pk";
/// Sort key of the table (bytes).
pub const SK: &str = "sk";
/// Name of the due index, which contains the tasks that are unfinished or owe an effect.
pub const DUE_INDEX: &str = "due";
/// Partition key of the index (text): job, generation and shard of those tasks; shard of a schedule that has something to
/// do. Only these have it.
pub const DUE_KEY: &str = "d";
/// Sort key of the index: the hint in milliseconds, never later than the trigger time; of a schedule, when it has to be
/// processed.
pub const DUE_HINT: &str = "h";
/// When DynamoDB may delete an item, in seconds since the Unix epoch.
pub const TTL: &str = "x";
/// Version of the schema that this program reads and writes.
pub const VERSION: u32 = 1;
/// Name of the program in the meta item of the table.
pub const APP: &str = "dueline";
/// Most slots of a table: a slot is written with two hexadecimal digits.
pub const SLOTS_MAX: u16 = 256;
/// Most shards that a job may have.
pub const SHARDS_MAX: u32 = 64;

pub(crate) const META: &str = "meta";
pub(crate) const META_SCHEMA: &[u8] = b"schema";
pub(crate) const META_JOBS: &[u8] = b"jobs";
pub(crate) const JOBS: &str = "jobs";
pub(crate) const DELETED_JOBS: &str = "gone";
pub(crate) const WORKERS: &str = "workers";
/// Separates the id of a task from the name of a blob in a sort key, so that blobs sort after their task.
pub(crate) const BLOB_MARK: u8 = 1;

/// The partitions of one generation of a job: of its tasks, its idempotency keys and its index entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobPartitions {
    pub(crate) job: JobName,
    pub(crate) generation: std::sync::Arc<str>,
    pub(crate) slots: u16,
}

impl JobPartitions {
    /// The partition of a slot.
    pub(crate) fn tasks(&self, slot: u16) -> String {
        format!("t#{}#{}#{slot:02x}", self.job, self.generation)
    }

    /// The partition of a task.
    pub(crate) fn of_task(&self, id: &TaskId) -> String {
        self.tasks(self.slot(id.as_bytes()))
    }

    /// The partition of idempotency keys of a slot.
    pub(crate) fn keys(&self, slot: u16) -> String {
        format!("k#{}#{}#{slot:02x}", self.job, self.generation)
    }

    /// The partition of an idempotency key.
    pub(crate) fn of_key(&self, key: &str) -> String {
        self.keys(self.slot(key.as_bytes()))
    }

    /// The partition of schedules of a slot.
    pub(crate) fn schedules(&self, slot: u16) -> String {
        format!("s#{}#{}#{slot:02x}", self.job, self.generation)
    }

    /// The partition of a schedule.
    pub(crate) fn of_schedule(&self, name: &ScheduleName) -> String {
        self.schedules(self.slot(name.as_str().as_bytes()))
    }

    /// The partition of the edges of a slot.
    pub(crate) fn edges(&self, slot: u16) -> String {
        format!("e#{}#{}#{slot:02x}", self.job, self.generation)
    }

    /// The partition of the edges of the tasks that wait for a task.
    pub(crate) fn edges_of(&self, id: &TaskId) -> String {
        self.edges(self.slot(id.as_bytes()))
    }

    /// The partition of what is stored for the job's quota.
    pub(crate) fn quota(&self) -> String {
        format!("q#{}#{}", self.job, self.generation)
    }

    /// The partition of the lanes.
    pub(crate) fn lanes(&self) -> String {
        format!("l#{}#{}", self.job, self.generation)
    }

    /// The partition of the index for the tasks of one priority that wait in a lane.
    pub(crate) fn due_in_lane(&self, lane: &str, priority: Priority) -> String {
        let hash = spread(lane.as_bytes());
        format!(
            "{}#{}#lane{hash:016x}#{}",
            self.job,
            self.generation,
            priority.get()
        )
    }

    /// The partition of the index for a shard.
    pub(crate) fn due(&self, shard: u32) -> String {
        format!("{}#{}#{shard}", self.job, self.generation)
    }

    /// The partition of the index for a new task, while the job has this many shards.
    pub(crate) fn due_of(&self, id: &TaskId, shards: u32) -> String {
        let shard = (spread(id.as_bytes()) >> 32) % u64::from(shards.max(1));
        self.due(u32::try_from(shard).unwrap_or(0))
    }

    fn slot(&self, bytes: &[u8]) -> u16 {
        let slot = (spread(bytes) & 0xffff_ffff) % u64::from(self.slots.max(1));
        u16::try_from(slot).unwrap_or(0)
    }
}

/// Whether a partition of the index is that of a lane.
pub(crate) fn is_lane(due_key: &str) -> bool {
    // Neither the name of a job nor a generation contains the separator.
    due_key
        .splitn(3, '#')
        .nth(2)
        .is_some_and(|name| name.starts_with("lane"))
}

/// The partition of the index for a shard of all schedules. That of a job's tasks has a second `#`.
pub(crate) fn due_schedules(shard: u32) -> String {
    format!("schedules#{shard}")
}

/// A hash that must never change, because the keys of stored items depend on it. FNV-1a with a final mix, because its
/// low bits are weak.
pub(crate) fn spread(bytes: &[u8]) -> u64 {
    let fnv = fnv1a(bytes.iter().copied());
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions() -> JobPartitions {
        JobPartitions {
            job: JobName::parse("mail").unwrap(),
            generation: "abc123".into(),
            slots: 16,
        }
    }

    #[test]
    fn keys_of_stored_items_never_change() {
        let id = TaskId::from_bytes([7; 16]);
        let partitions = partitions();
        assert_eq!(partitions.of_task(&id), "t#mail#abc123#0b");
        assert_eq!(partitions.of_key("k"), "k#mail#abc123#0e");
        assert_eq!(partitions.edges_of(&id), "e#mail#abc123#0b");
        assert_eq!(partitions.due_of(&id, 1), "mail#abc123#0");
        let nightly = ScheduleName::parse("nightly").unwrap();
        assert_eq!(partitions.of_schedule(&nightly), "s#mail#abc123#0a");
        assert_eq!(due_schedules(3), "schedules#3");
        let lane = partitions.due_in_lane("acme", Priority::default());
        assert_eq!(lane, "mail#abc123#lane3c6d1e950ef92351#0");
        assert!(is_lane(&lane) && !is_lane(&partitions.due(7)));
    }

    #[test]
    fn ids_made_in_a_row_spread_over_slots_and_shards() {
        let partitions = partitions();
        let (mut slots, mut shards) = (
            std::collections::BTreeMap::new(),
            std::collections::BTreeMap::new(),
        );
        for n in 0..4_000_u64 {
            let mut random = [0; 10];
            random[..8].copy_from_slice(&n.to_be_bytes());
            let id = TaskId::from_time(1_700_000_000_000, random);
            *slots.entry(partitions.of_task(&id)).or_insert(0) += 1;
            *shards.entry(partitions.due_of(&id, 8)).or_insert(0) += 1;
        }
        assert_eq!((slots.len(), shards.len()), (16, 8));
        assert!(
            slots.values().all(|count| (150..350).contains(count)),
            "{slots:?}"
        );
        assert!(
            shards.values().all(|count| (350..650).contains(count)),
            "{shards:?}"
        );
    }
}
