//! A task as it is stored: the names of its attributes, and decoding.

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use dueline_domain::{
    History, JobName, Lease, Priority, RunRecord, State, StateKind, Task, TaskId, TaskOptions,
    Timestamp, Token, Weight, WorkerId, WriteId,
};

use crate::{
    attr::{self, InvalidData, Item, get_bytes, get_flag, get_num, get_text, required},
    schema,
};

/// Names of the attributes of a task. They are short, because DynamoDB stores and charges them with every item.
pub(crate) mod name {
    pub(crate) const STATE: &str = "s";
    pub(crate) const WRITE: &str = "w";
    pub(crate) const TOKEN: &str = "k";
    /// Due time, enqueue deadline, end of the lease, or time of the retry.
    pub(crate) const TRIGGER: &str = "t";
    pub(crate) const DEADLINE: &str = "z";
    /// The owner; of a finished task, the last one.
    pub(crate) const OWNER: &str = "o";
    pub(crate) const CLAIMED: &str = "a";
    pub(crate) const HEARTBEAT: &str = "b";
    pub(crate) const RUN_AT: &str = "r";
    pub(crate) const CREATED: &str = "c";
    pub(crate) const CHANGED: &str = "m";
    pub(crate) const STARTED: &str = "g";
    pub(crate) const FINISHED: &str = "f";
    pub(crate) const TRIES: &str = "n";
    pub(crate) const LOSSES: &str = "l";
    pub(crate) const CANCEL: &str = "q";
    pub(crate) const PRIORITY: &str = "i";
    pub(crate) const WEIGHT: &str = "j";
    pub(crate) const PAYLOAD: &str = "p";
    pub(crate) const CHECKPOINT: &str = "u";
    pub(crate) const RESULT: &str = "v";
    pub(crate) const ERROR: &str = "e";
    pub(crate) const HISTORY: &str = "y";
    pub(crate) const DROPPED: &str = "yd";
    pub(crate) const OPTIONS: &str = "ex";
    /// What a finished task owes; its trigger time is [`TRIGGER`].
    pub(crate) const OWED: &str = "od";
    /// Idempotency key. It is not part of the options, because those may be a blob.
    pub(crate) const KEY: &str = "ky";
    /// Number among the submits that one process made within a millisecond. It is written once and never updated.
    pub(crate) const SUBMIT_NUMBER: &str = "sq";

    /// The attributes that an update may set or remove: all but the submit number. Any other attribute belongs to a
    /// newer program and stays.
    pub(crate) const OWN: &[&str] = &[
        STATE, WRITE, TOKEN, TRIGGER, DEADLINE, OWNER, CLAIMED, HEARTBEAT, RUN_AT, CREATED,
        CHANGED, STARTED, FINISHED, TRIES, LOSSES, CANCEL, PRIORITY, WEIGHT, PAYLOAD, CHECKPOINT,
        RESULT, ERROR, HISTORY, DROPPED, OPTIONS, OWED, KEY,
    ];
}

/// What a blob contains; the value is part of its sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum BlobKind {
    Payload = b'p' as isize,
    Checkpoint = b'c' as isize,
    Result = b'r' as isize,
    Error = b'e' as isize,
    Run = b'h' as isize,
    TaskOptions = b'x' as isize,
}

/// The name of a blob: its kind, and a random number that was drawn for its write. A blob never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlobRef {
    pub(crate) kind: BlobKind,
    pub(crate) write: [u8; 8],
}

impl BlobRef {
    pub(crate) fn sort_key(&self, id: &TaskId) -> Vec<u8> {
        let mut key = id.as_bytes().to_vec();
        key.extend([schema::BLOB_MARK, self.kind as u8]);
        key.extend(self.write);
        key
    }
}

/// A task together with its item.
#[derive(Clone, Debug)]
pub(crate) struct TaskRow {
    pub(crate) task: Task,
    /// The attributes that this program knows, those of the index included, without the key.
    pub(crate) item: Item,
    /// Size of the attributes of newer programs.
    pub(crate) foreign_bytes: usize,
}

impl TaskRow {
    pub(crate) fn hint(&self) -> Option<Timestamp> {
        hint(&self.item)
    }

    /// The partition of its index entry.
    pub(crate) fn due_key(&self) -> Option<&str> {
        get_text(&self.item, schema::DUE_KEY).ok().flatten()
    }

    /// Whether its payload, checkpoint or result was not read. A blob is never empty.
    pub(crate) fn lacks_bodies(&self) -> bool {
        let task = &self.task;
        let is_empty = |bytes: &Option<Bytes>| bytes.as_ref().is_some_and(Bytes::is_empty);
        let bodies = [
            (name::PAYLOAD, task.payload.is_empty()),
            (name::CHECKPOINT, is_empty(&task.checkpoint)),
            (name::RESULT, is_empty(&task.result)),
        ];
        let is_blob = |name| matches!(self.item.get(name), Some(AttributeValue::S(_)));
        bodies
            .into_iter()
            .any(|(name, is_empty)| is_empty && is_blob(name))
    }

    /// Approximate size in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let bodies = [
            Some(&self.task.payload),
            self.task.checkpoint.as_ref(),
            self.task.result.as_ref(),
        ];
        let bodies = bodies.into_iter().flatten().map(Bytes::len).sum::<usize>();
        let history = self.task.history.as_ref().map_or(0, |history| {
            history.runs.iter().map(|run| run.info.len() + 128).sum()
        });
        bodies + history + 2 * attr::size(&self.item) + 512
    }
}

pub(crate) fn hint(item: &Item) -> Option<Timestamp> {
    let millis = get_num(item, schema::DUE_HINT).ok().flatten();
    millis.map(Timestamp::clamped)
}

/// The blobs to which an item refers. The type of an attribute marks a reference: it is binary where the value is text,
/// and text where the value is binary.
pub(crate) fn blob_refs(item: &Item) -> Vec<BlobRef> {
    let mut refs = Vec::new();
    let of_bytes = [
        (name::PAYLOAD, BlobKind::Payload),
        (name::CHECKPOINT, BlobKind::Checkpoint),
        (name::RESULT, BlobKind::Result),
    ];
    for (name, kind) in of_bytes {
        if let Some(AttributeValue::S(write)) = item.get(name) {
            refs.extend(from_hex(write).map(|write| BlobRef { kind, write }));
        }
    }
    for (name, kind) in [
        (name::ERROR, BlobKind::Error),
        (name::OPTIONS, BlobKind::TaskOptions),
    ] {
        if let Some(value @ AttributeValue::B(_)) = item.get(name) {
            refs.extend(text_blob_ref(kind, value));
        }
    }
    if let Some(AttributeValue::L(runs)) = item.get(name::HISTORY) {
        refs.extend(
            runs.iter()
                .filter_map(|run| text_blob_ref(BlobKind::Run, run)),
        );
    }
    refs
}

/// The blob to which the value of a text attribute refers.
fn text_blob_ref(kind: BlobKind, value: &AttributeValue) -> Option<BlobRef> {
    let AttributeValue::B(write) = value else {
        return None;
    };
    let write = write.as_ref().try_into().ok()?;
    Some(BlobRef { kind, write })
}

pub(crate) fn to_hex(write: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(write))
}

fn from_hex(text: &str) -> Option<[u8; 8]> {
    let bits = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?;
    bits.map(u64::to_be_bytes)
}

/// Blobs by their names.
pub(crate) type BlobMap = HashMap<BlobRef, Bytes>;

/// State and trigger time of a task, which is all that a scan for due tasks needs.
pub(crate) fn state_and_trigger(
    item: &Item,
) -> Result<(StateKind, Option<Timestamp>), InvalidData> {
    let code = required(get_num(item, name::STATE)?, name::STATE)?;
    let kind = u8::try_from(code).ok().and_then(StateKind::from_code);
    let kind = kind.ok_or_else(|| InvalidData::new(format!("unknown state {code}")))?;
    if kind.is_final() {
        // Only a task that owes an effect has a trigger time.
        return Ok((kind, time_opt(item, name::TRIGGER)?));
    }
    let trigger = time(item, name::TRIGGER)?;
    let deadline = if kind.is_owned() {
        time_opt(item, name::DEADLINE)?
    } else {
        None
    };
    Ok((
        kind,
        Some(deadline.map_or(trigger, |deadline| deadline.min(trigger))),
    ))
}

/// The priority of an item; normal if it is not valid.
pub(crate) fn priority(item: &Item) -> Priority {
    let number = get_num(item, name::PRIORITY).ok().flatten();
    Priority::new(number.unwrap_or(0)).unwrap_or_default()
}

/// The attributes that [`state_and_trigger`] reads.
pub(crate) const STATE_AND_TRIGGER: &[&str] =
    &[schema::SK, name::STATE, name::TRIGGER, name::DEADLINE];

fn time(item: &Item, name: &str) -> Result<Timestamp, InvalidData> {
    required(time_opt(item, name)?, name)
}

fn time_opt(item: &Item, name: &str) -> Result<Option<Timestamp>, InvalidData> {
    Ok(get_num(item, name)?.map(Timestamp::clamped))
}

fn random_id(item: &Item, name: &str) -> Result<i64, InvalidData> {
    let bytes = required(get_bytes(item, name)?, name)?;
    let bytes = bytes
        .try_into()
        .map_err(|_| InvalidData::new(format!("'{name}' does not have 8 bytes")))?;
    Ok(i64::from_be_bytes(bytes))
}

fn token(item: &Item) -> Result<Token, InvalidData> {
    required(
        Token::from_stored(random_id(item, name::TOKEN)?),
        name::TOKEN,
    )
}

fn worker(item: &Item) -> Result<Option<WorkerId>, InvalidData> {
    let worker = get_text(item, name::OWNER)?.map(WorkerId::parse);
    worker.transpose().map_err(InvalidData::new)
}

fn lease(item: &Item) -> Result<Lease, InvalidData> {
    Ok(Lease {
        worker: required(worker(item)?, name::OWNER)?,
        claimed_at: time(item, name::CLAIMED)?,
        heartbeat_at: time(item, name::HEARTBEAT)?,
        expires_at: time(item, name::TRIGGER)?,
        deadline_at: time_opt(item, name::DEADLINE)?,
    })
}

fn state(item: &Item) -> Result<State, InvalidData> {
    let (kind, _) = state_and_trigger(item)?;
    let trigger = || time(item, name::TRIGGER);
    Ok(match kind {
        StateKind::Waiting => State::Waiting {
            check_at: trigger()?,
        },
        StateKind::New => State::New { due_at: trigger()? },
        StateKind::Enqueued => State::Enqueued {
            token: token(item)?,
            expires_at: trigger()?,
        },
        StateKind::Claimed => State::Claimed {
            token: token(item)?,
            lease: lease(item)?,
        },
        StateKind::Processing => State::Processing {
            token: token(item)?,
            lease: lease(item)?,
        },
        StateKind::Retriable => State::Retriable {
            retry_at: trigger()?,
        },
        StateKind::Succeeded => State::Succeeded,
        StateKind::Failed => State::Failed,
        StateKind::Cancelled => State::Cancelled,
        StateKind::Trashed => State::Trashed,
        StateKind::Dropped => State::Dropped,
    })
}

/// The id of the last write of an item.
pub(crate) fn write_id(item: &Item) -> Result<WriteId, InvalidData> {
    required(
        WriteId::from_stored(random_id(item, name::WRITE)?),
        name::WRITE,
    )
}

fn count<T: TryFrom<i64>>(item: &Item, name: &str) -> Result<Option<T>, InvalidData> {
    let number = get_num(item, name)?;
    let count = number.map(T::try_from).transpose();
    count.map_err(|_| InvalidData::new(format!("'{name}' is out of range")))
}

/// Decodes a task from its item and its blobs. A missing blob is an error; with `lenient` it counts as empty.
pub(crate) fn decode(
    job: &JobName,
    id: TaskId,
    mut item: Item,
    blobs: &BlobMap,
    lenient: bool,
) -> Result<TaskRow, InvalidData> {
    item.remove(schema::PK);
    item.remove(schema::SK);
    let own = |attribute: &str| {
        name::OWN.contains(&attribute)
            || [schema::DUE_KEY, schema::DUE_HINT, schema::TTL].contains(&attribute)
    };
    let total = attr::size(&item);
    item.retain(|attribute, _| own(attribute));
    let foreign_bytes = total - attr::size(&item);
    let blob = |kind, write: Option<[u8; 8]>| {
        let write = write.ok_or_else(|| InvalidData::new("a reference to a blob is invalid"))?;
        match blobs.get(&BlobRef { kind, write }) {
            Some(bytes) => Ok(bytes.clone()),
            None if lenient => Ok(Bytes::new()),
            None => Err(InvalidData::new(format!("blob {kind:?} is missing"))),
        }
    };
    let bytes = |name, kind| match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::B(value)) => Ok(Some(Bytes::copy_from_slice(value.as_ref()))),
        Some(AttributeValue::S(write)) => blob(kind, from_hex(write)).map(Some),
        Some(_) => Err(InvalidData::new(format!("'{name}' has an unexpected type"))),
    };
    let text = |value: &AttributeValue, kind| match value {
        AttributeValue::S(text) => Ok(Some(Arc::<str>::from(text.as_str()))),
        AttributeValue::B(write) => {
            let bytes = blob(kind, write.as_ref().try_into().ok())?;
            if bytes.is_empty() && lenient {
                return Ok(None);
            }
            let text = std::str::from_utf8(&bytes).map_err(InvalidData::new)?;
            Ok(Some(Arc::from(text)))
        }
        _ => Err(InvalidData::new("a text has an unexpected type")),
    };
    let mut history = None;
    if let Some(AttributeValue::L(list)) = item.get(name::HISTORY) {
        let mut runs: Vec<RunRecord> = Vec::new();
        for run in list {
            if let Some(json) = text(run, BlobKind::Run)? {
                runs.push(dueline_records::run_from_json(&json).map_err(InvalidData::new)?);
            }
        }
        let dropped = count(&item, name::DROPPED)?.unwrap_or(0);
        history = Some(Box::new(History { runs, dropped }));
    }
    let error = match item.get(name::ERROR) {
        None => None,
        // A number stands for the error of the latest run.
        Some(AttributeValue::N(_)) => {
            let latest = history.as_ref().and_then(|history| history.runs.last());
            latest.map(|run| run.info.clone())
        }
        Some(value) => text(value, BlobKind::Error)?,
    };
    let key = get_text(&item, name::KEY)?.map(Arc::from);
    let options: Option<Box<TaskOptions>> = match item.get(name::OPTIONS) {
        None => None,
        Some(value) => text(value, BlobKind::TaskOptions)?
            .map(|json| dueline_records::options_from_json(&json, key))
            .transpose()
            .map_err(InvalidData::new)?
            .map(Box::new),
    };
    let owed = match get_text(&item, name::OWED)? {
        None => None,
        Some(json) => {
            let owed = dueline_records::owed_from_json(json, time(&item, name::TRIGGER)?);
            Some(Box::new(owed.map_err(InvalidData::new)?))
        }
    };
    let created_at = time(&item, name::CREATED)?;
    let state = state(&item)?;
    let last_owner = match state.kind().is_final() {
        true => worker(&item)?,
        false => None,
    };
    let task = Task {
        id,
        job: job.clone(),
        state,
        priority: Priority::new(get_num(&item, name::PRIORITY)?.unwrap_or(0))
            .map_err(InvalidData::new)?,
        weight: Weight::new(get_num(&item, name::WEIGHT)?.unwrap_or(1))
            .map_err(InvalidData::new)?,
        run_at: time(&item, name::RUN_AT)?,
        created_at,
        changed_at: time_opt(&item, name::CHANGED)?.unwrap_or(created_at),
        started_at: time_opt(&item, name::STARTED)?,
        finished_at: time_opt(&item, name::FINISHED)?,
        last_owner,
        tries: count(&item, name::TRIES)?.unwrap_or(0),
        losses: count(&item, name::LOSSES)?.unwrap_or(0),
        cancel_requested: get_flag(&item, name::CANCEL),
        write: write_id(&item)?,
        payload: bytes(name::PAYLOAD, BlobKind::Payload)?.unwrap_or_default(),
        checkpoint: bytes(name::CHECKPOINT, BlobKind::Checkpoint)?,
        result: bytes(name::RESULT, BlobKind::Result)?,
        error,
        history,
        options,
        owed,
    };
    Ok(TaskRow {
        task,
        item,
        foreign_bytes,
    })
}

/// The blobs of a row, taken from its task, so that they need not be fetched again for another version of the row.
pub(crate) fn blobs_of(row: &TaskRow) -> BlobMap {
    let (task, mut blobs) = (&row.task, BlobMap::new());
    let runs = task
        .history
        .as_ref()
        .map(|history| &history.runs[..])
        .unwrap_or_default();
    if let Some(AttributeValue::L(list)) = row.item.get(name::HISTORY) {
        for (value, run) in list.iter().zip(runs) {
            if let Some(name) = text_blob_ref(BlobKind::Run, value) {
                blobs.insert(name, dueline_records::run_to_json(run).into());
            }
        }
    }
    for name in blob_refs(&row.item) {
        let bytes = match name.kind {
            BlobKind::Payload => Some(task.payload.clone()),
            BlobKind::Checkpoint => task.checkpoint.clone(),
            BlobKind::Result => task.result.clone(),
            BlobKind::Error => task
                .error
                .as_ref()
                .map(|text| Bytes::copy_from_slice(text.as_bytes())),
            BlobKind::TaskOptions => task
                .options
                .as_ref()
                .map(|options| dueline_records::options_to_json(options).into()),
            BlobKind::Run => None,
        };
        if let Some(bytes) = bytes {
            blobs.insert(name, bytes);
        }
    }
    blobs
}
