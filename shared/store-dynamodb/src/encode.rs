//! Encoding of a task: which attributes its item gets, and which values become blobs.
//!
//! DynamoDB charges each write for the whole item, by started kibibytes. So a payload, result, error or past run is
//! stored in the task's item only if it starts no further kibibyte. Otherwise it becomes a blob: an item that is
//! written once.

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use dueline_domain::{Task, Timestamp, Token, WorkerId};

use crate::{
    attr::{self, Item, id_bytes, num, size_of, text, write_units},
    row::{self, BlobKind, BlobRef, TaskRow, name},
    schema,
};

/// Bytes that are reserved for attributes of later states: owner, lease, token, start, count of tries, reference to an
/// error.
const LATER_BYTES: usize = WorkerId::MAX_LEN + 96;

/// A blob to write.
#[derive(Clone, Debug)]
pub(crate) struct NewBlob {
    pub(crate) name: BlobRef,
    pub(crate) bytes: Bytes,
}

/// A task ready to be written.
#[derive(Debug)]
pub(crate) struct EncodedTask {
    pub(crate) row: TaskRow,
    /// Blobs to write before the task.
    pub(crate) new_blobs: Vec<NewBlob>,
    /// Blobs of the previous version to which the task no longer refers.
    pub(crate) old_blobs: Vec<BlobRef>,
}

/// Where the task stands in the due index, and when DynamoDB may delete it.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexEntry {
    /// Partition of the index and hint; `None` for a task that is not in the index.
    pub(crate) due: Option<(String, Timestamp)>,
    pub(crate) expires_at: Option<Timestamp>,
}

struct TaskEncoder<'a> {
    task: &'a Task,
    before: Option<&'a TaskRow>,
    item: Item,
    bytes: usize,
    /// Largest size of the item: the end of the kibibyte that its small attributes have started.
    bytes_max: usize,
    new_blobs: Vec<NewBlob>,
}

/// Encodes `task`, whose previous version is `before`, for a partition whose name has `key_bytes`.
pub(crate) fn encode(
    task: Task,
    before: Option<&TaskRow>,
    index_entry: IndexEntry,
    key_bytes: usize,
) -> EncodedTask {
    let item = small_attributes(&task, index_entry);
    let foreign_bytes = before.map_or(0, |row| row.foreign_bytes);
    let later = if task.kind().is_final() {
        0
    } else {
        let lease = [
            name::OWNER,
            name::CLAIMED,
            name::HEARTBEAT,
            name::DEADLINE,
            name::TOKEN,
            name::STARTED,
            name::TRIES,
        ];
        let present = lease
            .iter()
            .filter_map(|name| item.get(*name).map(|value| size_of(name, value)));
        LATER_BYTES.saturating_sub(present.sum())
    };
    // The key: both names, the partition, and the sixteen bytes of the id.
    let keys = schema::PK.len() + key_bytes + schema::SK.len() + 16;
    let bytes = keys + attr::size(&item) + foreign_bytes + later;
    let mut encoder = TaskEncoder {
        task: &task,
        before,
        bytes,
        bytes_max: 1_024 * write_units(bytes),
        item,
        new_blobs: Vec::new(),
    };
    // Unchanged attributes are placed first; new ones use the remaining space.
    let runs = encoder.copy_unchanged();
    encoder.options();
    encoder.bytes_or_blob(
        name::PAYLOAD,
        BlobKind::Payload,
        (!task.payload.is_empty()).then_some(&task.payload),
    );
    encoder.bytes_or_blob(
        name::CHECKPOINT,
        BlobKind::Checkpoint,
        task.checkpoint.as_ref(),
    );
    encoder.history(runs);
    encoder.error();
    encoder.bytes_or_blob(name::RESULT, BlobKind::Result, task.result.as_ref());
    let TaskEncoder {
        item, new_blobs, ..
    } = encoder;
    let current = row::blob_refs(&item);
    let mut old_blobs = before
        .map(|row| row::blob_refs(&row.item))
        .unwrap_or_default();
    old_blobs.retain(|blob| !current.contains(blob));
    let row = TaskRow {
        task,
        item,
        foreign_bytes,
    };
    EncodedTask {
        row,
        new_blobs,
        old_blobs,
    }
}

/// The attributes whose values are always small.
fn small_attributes(task: &Task, index_entry: IndexEntry) -> Item {
    let mut item = Item::new();
    let mut set = |name: &str, value: Option<AttributeValue>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value);
        }
    };
    let time = |at: Timestamp| Some(num(at.millis()));
    let unless = |usual: i64, number: i64| (number != usual).then(|| num(number));
    let lease = task.lease();
    let trigger = lease
        .map(|lease| lease.expires_at)
        .or_else(|| task.trigger_at());
    set(name::STATE, Some(num(i64::from(task.kind().code()))));
    set(name::WRITE, Some(id_bytes(task.write.to_stored())));
    set(
        name::TOKEN,
        task.state
            .token()
            .map(|token: Token| id_bytes(token.to_stored())),
    );
    set(name::TRIGGER, trigger.and_then(time));
    set(
        name::OWNER,
        task.worker().map(|worker| text(worker.as_str())),
    );
    set(
        name::CLAIMED,
        lease.and_then(|lease| time(lease.claimed_at)),
    );
    set(
        name::HEARTBEAT,
        lease.and_then(|lease| time(lease.heartbeat_at)),
    );
    set(
        name::DEADLINE,
        lease.and_then(|lease| lease.deadline_at).and_then(time),
    );
    set(name::RUN_AT, time(task.run_at));
    set(name::CREATED, time(task.created_at));
    set(
        name::CHANGED,
        unless(task.created_at.millis(), task.changed_at.millis()),
    );
    set(name::STARTED, task.started_at.and_then(time));
    set(name::FINISHED, task.finished_at.and_then(time));
    let owed = task.owed.as_deref();
    set(
        name::OWED,
        owed.map(|owed| text(dueline_records::owed_to_json(owed))),
    );
    set(name::TRIES, unless(0, i64::from(task.tries)));
    set(name::LOSSES, unless(0, i64::from(task.losses)));
    set(
        name::CANCEL,
        task.cancel_requested.then_some(AttributeValue::Bool(true)),
    );
    set(name::PRIORITY, unless(0, i64::from(task.priority.get())));
    set(name::WEIGHT, unless(1, i64::from(task.weight.get())));
    let key = task
        .options
        .as_ref()
        .and_then(|options| options.key.as_deref());
    set(name::KEY, key.map(text));
    if let Some((key, hint)) = index_entry.due {
        set(schema::DUE_KEY, Some(text(key)));
        set(schema::DUE_HINT, time(hint));
    }
    // Rounded up, so that an item does not expire early.
    let expiry = index_entry
        .expires_at
        .map(|at| num(at.millis().div_euclid(1_000) + 1));
    set(schema::TTL, expiry);
    item
}

impl TaskEncoder<'_> {
    /// Whether the item can take `bytes` more without starting a further kibibyte.
    const fn fits(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.bytes_max
    }

    fn set(&mut self, name: &str, value: AttributeValue) {
        self.bytes += size_of(name, &value);
        self.item.insert(name.to_owned(), value);
    }

    /// Adds a blob under a random name. Two processes may execute one command at the same time, and the one whose write
    /// is refused deletes its blobs: they must not be those of the other process.
    fn new_blob(&mut self, kind: BlobKind, bytes: Bytes) -> [u8; 8] {
        let write = fastrand::u64(..).to_be_bytes();
        let name = BlobRef { kind, write };
        self.new_blobs.push(NewBlob { name, bytes });
        write
    }

    /// Copies every attribute whose value is unchanged. Answers the stored value of each past run, if it has one.
    fn copy_unchanged(&mut self) -> Vec<Option<AttributeValue>> {
        let task = self.task;
        let runs = task
            .history
            .as_ref()
            .map_or(&[][..], |history| &history.runs);
        let Some(before) = self.before else {
            return vec![None; runs.len()];
        };
        let old = &before.task;
        let in_history = self.error_in_history();
        for (name, same) in [
            (name::OPTIONS, old.options == task.options),
            (name::PAYLOAD, old.payload == task.payload),
            (name::CHECKPOINT, old.checkpoint == task.checkpoint),
            (name::ERROR, !in_history && old.error == task.error),
            (name::RESULT, old.result == task.result),
        ] {
            match before.item.get(name) {
                // A number refers to the error of the latest past run, which may be another one now.
                Some(value) if same && !matches!(value, AttributeValue::N(_)) => {
                    self.set(name, value.clone());
                }
                _ => {}
            }
        }
        let (Some(history), Some(AttributeValue::L(values))) =
            (&old.history, before.item.get(name::HISTORY))
        else {
            return vec![None; runs.len()];
        };
        let stored = |run| {
            let at = history.runs.iter().position(|old| old == run)?;
            let value = values.get(at)?;
            self.bytes += size_of("", value);
            Some(value.clone())
        };
        runs.iter().map(stored).collect()
    }

    /// Sets an attribute to bytes, or to a reference to a blob with them.
    fn bytes_or_blob(&mut self, name: &str, kind: BlobKind, bytes: Option<&Bytes>) {
        let Some(bytes) = bytes.filter(|_| !self.item.contains_key(name)) else {
            return;
        };
        let value = if self.fits(name.len() + bytes.len()) {
            attr::bytes(bytes)
        } else {
            let write = self.new_blob(kind, bytes.clone());
            text(row::to_hex(write))
        };
        self.set(name, value);
    }

    fn options(&mut self) {
        let Some(options) = &self.task.options else {
            return;
        };
        if self.item.contains_key(name::OPTIONS) {
            return;
        }
        let json = dueline_records::options_to_json(options);
        let value = self.text_or_blob(BlobKind::TaskOptions, name::OPTIONS.len(), json);
        self.set(name::OPTIONS, value);
    }

    /// The value of a text, or a reference to a blob with it.
    fn text_or_blob(&mut self, kind: BlobKind, name_bytes: usize, value: String) -> AttributeValue {
        if self.fits(name_bytes + value.len()) {
            return text(value);
        }
        attr::bytes(self.new_blob(kind, value.into()))
    }

    /// Sets the past runs. `stored` contains the values of those that were stored before.
    fn history(&mut self, stored: Vec<Option<AttributeValue>>) {
        let Some(history) = &self.task.history else {
            return;
        };
        // The list itself and the brackets around each run.
        self.bytes += name::HISTORY.len() + 3 + history.runs.len();
        let mut values = Vec::with_capacity(stored.len());
        for (run, stored) in history.runs.iter().zip(stored) {
            values.push(stored.unwrap_or_else(|| {
                let value = self.text_or_blob(BlobKind::Run, 0, dueline_records::run_to_json(run));
                self.bytes += size_of("", &value);
                value
            }));
        }
        self.item
            .insert(name::HISTORY.to_owned(), AttributeValue::L(values));
        if history.dropped > 0 {
            self.set(name::DROPPED, num(i64::from(history.dropped)));
        }
    }

    /// Whether the error of the task is that of the latest past run.
    fn error_in_history(&self) -> bool {
        let history = self.task.history.as_ref();
        let latest = history.and_then(|history| history.runs.last());
        latest.is_some_and(|run| Some(&run.info) == self.task.error.as_ref())
    }

    fn error(&mut self) {
        let Some(error) = &self.task.error else {
            return;
        };
        if self.item.contains_key(name::ERROR) {
            return;
        }
        let value = if self.error_in_history() {
            num(0)
        } else {
            self.text_or_blob(
                BlobKind::Error,
                name::ERROR.len(),
                error.as_ref().to_owned(),
            )
        };
        self.set(name::ERROR, value);
    }
}
