//! Items and tasks: reading.

use std::{collections::HashMap, sync::Arc};

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use dueline_domain::{
    Extras, History, JobName, Lease, Priority, RunRecord, State, StateKind, Task, TaskId,
    Timestamp, Token, Weight, WorkerId, WriteId,
};

use crate::{
    attr::{self, Bad, Item, get_bytes, get_flag, get_num, get_text, need},
    schema,
};

/// Names of a task's own attributes; one letter each, because names are stored and paid for with every item.
pub(crate) mod name {
    pub(crate) const STATE: &str = "s";
    pub(crate) const WRITE: &str = "w";
    pub(crate) const TOKEN: &str = "k";
    /// Due time, end of the message's wait, end of the lease, or time of the retry.
    pub(crate) const TRIGGER: &str = "t";
    pub(crate) const DEADLINE: &str = "z";
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
    pub(crate) const EXTRAS: &str = "ex";
    /// Idempotency key: apart from the other extras, so that it is always at hand.
    pub(crate) const KEY: &str = "ky";
    /// Place among the submits that one process made within a millisecond; written once, so that no update knows it.
    pub(crate) const PLACE: &str = "sq";

    /// All but the place: what an update may set or remove. Any other attribute belongs to a newer program and stays.
    pub(crate) const OWN: &[&str] = &[
        STATE, WRITE, TOKEN, TRIGGER, DEADLINE, OWNER, CLAIMED, HEARTBEAT, RUN_AT, CREATED,
        CHANGED, STARTED, FINISHED, TRIES, LOSSES, CANCEL, PRIORITY, WEIGHT, PAYLOAD, CHECKPOINT,
        RESULT, ERROR, HISTORY, DROPPED, EXTRAS, KEY,
    ];
}

/// Which part of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Letter {
    Payload = b'p' as isize,
    Checkpoint = b'c' as isize,
    Result = b'r' as isize,
    Error = b'e' as isize,
    Run = b'h' as isize,
    Extras = b'x' as isize,
}

/// A part that is stored apart from its task, under the name of the write that made it. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartRef {
    pub(crate) letter: Letter,
    pub(crate) write: [u8; 8],
}

impl PartRef {
    pub(crate) fn sort_key(&self, id: &TaskId) -> Vec<u8> {
        let mut key = id.as_bytes().to_vec();
        key.extend([schema::PART_MARK, self.letter as u8]);
        key.extend(self.write);
        key
    }
}

/// A task as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) task: Task,
    /// Our own attributes, the index's included, and no key.
    pub(crate) item: Item,
    /// Bytes of attributes that are not ours.
    pub(crate) foreign_bytes: usize,
}

impl Row {
    pub(crate) fn hint(&self) -> Option<Timestamp> {
        hint(&self.item)
    }

    /// Its partition of the index.
    pub(crate) fn due_key(&self) -> Option<&str> {
        get_text(&self.item, schema::DUE_KEY).ok().flatten()
    }

    /// Bytes to count against a cache.
    pub(crate) fn weight(&self) -> usize {
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

/// The parts that an item refers to. The type of an attribute tells: where text is expected, binary is a reference,
/// and the other way round.
pub(crate) fn refs(item: &Item) -> Vec<PartRef> {
    let mut refs = Vec::new();
    let of_bytes = [
        (name::PAYLOAD, Letter::Payload),
        (name::CHECKPOINT, Letter::Checkpoint),
        (name::RESULT, Letter::Result),
    ];
    for (name, letter) in of_bytes {
        if let Some(AttributeValue::S(write)) = item.get(name) {
            refs.extend(from_hex(write).map(|write| PartRef { letter, write }));
        }
    }
    for (name, letter) in [(name::ERROR, Letter::Error), (name::EXTRAS, Letter::Extras)] {
        if let Some(value @ AttributeValue::B(_)) = item.get(name) {
            refs.extend(text_ref(letter, value));
        }
    }
    if let Some(AttributeValue::L(runs)) = item.get(name::HISTORY) {
        refs.extend(runs.iter().filter_map(|run| text_ref(Letter::Run, run)));
    }
    refs
}

fn text_ref(letter: Letter, value: &AttributeValue) -> Option<PartRef> {
    let AttributeValue::B(write) = value else {
        return None;
    };
    let write = write.as_ref().try_into().ok()?;
    Some(PartRef { letter, write })
}

pub(crate) fn to_hex(write: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(write))
}

fn from_hex(text: &str) -> Option<[u8; 8]> {
    let bits = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?;
    bits.map(u64::to_be_bytes)
}

/// Parts by their names.
pub(crate) type Parts = HashMap<PartRef, Bytes>;

/// State and trigger time: all that a look at due tasks needs.
pub(crate) fn moment(item: &Item) -> Result<(StateKind, Option<Timestamp>), Bad> {
    let code = need(get_num(item, name::STATE)?, name::STATE)?;
    let kind = u8::try_from(code).ok().and_then(StateKind::from_code);
    let kind = kind.ok_or_else(|| Bad::new(format!("unknown state {code}")))?;
    if kind.is_final() || kind == StateKind::Waiting {
        return Ok((kind, None));
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

/// The attributes that [`moment`] reads.
pub(crate) const MOMENT: &[&str] = &[schema::SK, name::STATE, name::TRIGGER, name::DEADLINE];

fn time(item: &Item, name: &str) -> Result<Timestamp, Bad> {
    need(time_opt(item, name)?, name)
}

fn time_opt(item: &Item, name: &str) -> Result<Option<Timestamp>, Bad> {
    Ok(get_num(item, name)?.map(Timestamp::clamped))
}

fn random_id(item: &Item, name: &str) -> Result<i64, Bad> {
    let bytes = need(get_bytes(item, name)?, name)?;
    let bytes = bytes
        .try_into()
        .map_err(|_| Bad::new(format!("'{name}' has no 8 bytes")))?;
    Ok(i64::from_be_bytes(bytes))
}

fn token(item: &Item) -> Result<Token, Bad> {
    need(
        Token::from_stored(random_id(item, name::TOKEN)?),
        name::TOKEN,
    )
}

fn lease(item: &Item) -> Result<Lease, Bad> {
    let owner = need(get_text(item, name::OWNER)?, name::OWNER)?;
    Ok(Lease {
        worker: WorkerId::parse(owner).map_err(Bad::new)?,
        claimed_at: time(item, name::CLAIMED)?,
        heartbeat_at: time(item, name::HEARTBEAT)?,
        expires_at: time(item, name::TRIGGER)?,
        deadline_at: time_opt(item, name::DEADLINE)?,
    })
}

fn state(item: &Item) -> Result<State, Bad> {
    let (kind, _) = moment(item)?;
    let trigger = || time(item, name::TRIGGER);
    Ok(match kind {
        StateKind::Waiting => State::Waiting,
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

/// The name of the write that made an item what it is.
pub(crate) fn write_of(item: &Item) -> Result<WriteId, Bad> {
    need(
        WriteId::from_stored(random_id(item, name::WRITE)?),
        name::WRITE,
    )
}

fn small<T: TryFrom<i64>>(item: &Item, name: &str) -> Result<Option<T>, Bad> {
    let number = get_num(item, name)?;
    let small = number.map(T::try_from).transpose();
    small.map_err(|_| Bad::new(format!("'{name}' is out of range")))
}

/// Reads a task, with its parts that are stored apart. A part that is not at hand is an error unless `lenient`; then
/// it is empty.
pub(crate) fn read(
    job: &JobName,
    id: TaskId,
    mut item: Item,
    parts: &Parts,
    lenient: bool,
) -> Result<Row, Bad> {
    item.remove(schema::PK);
    item.remove(schema::SK);
    let own = |attribute: &str| {
        name::OWN.contains(&attribute)
            || [schema::DUE_KEY, schema::DUE_HINT, schema::TTL].contains(&attribute)
    };
    let total = attr::size(&item);
    item.retain(|attribute, _| own(attribute));
    let foreign_bytes = total - attr::size(&item);
    let part = |letter, write: Option<[u8; 8]>| {
        let write = write.ok_or_else(|| Bad::new("a reference makes no sense"))?;
        match parts.get(&PartRef { letter, write }) {
            Some(bytes) => Ok(bytes.clone()),
            None if lenient => Ok(Bytes::new()),
            None => Err(Bad::new(format!("part {letter:?} is missing"))),
        }
    };
    let body = |name, letter| match item.get(name) {
        None => Ok(None),
        Some(AttributeValue::B(blob)) => Ok(Some(Bytes::copy_from_slice(blob.as_ref()))),
        Some(AttributeValue::S(write)) => part(letter, from_hex(write)).map(Some),
        Some(_) => Err(Bad::new(format!("'{name}' has another type"))),
    };
    let words = |value: &AttributeValue, letter| match value {
        AttributeValue::S(text) => Ok(Some(Arc::<str>::from(text.as_str()))),
        AttributeValue::B(write) => {
            let bytes = part(letter, write.as_ref().try_into().ok())?;
            if bytes.is_empty() && lenient {
                return Ok(None);
            }
            let text = std::str::from_utf8(&bytes).map_err(Bad::new)?;
            Ok(Some(Arc::from(text)))
        }
        _ => Err(Bad::new("a text has another type")),
    };
    let mut history = None;
    if let Some(AttributeValue::L(list)) = item.get(name::HISTORY) {
        let mut runs: Vec<RunRecord> = Vec::new();
        for run in list {
            if let Some(json) = words(run, Letter::Run)? {
                runs.push(dueline_records::run_from_json(&json).map_err(Bad::new)?);
            }
        }
        let dropped = small(&item, name::DROPPED)?.unwrap_or(0);
        history = Some(Box::new(History { runs, dropped }));
    }
    let error = match item.get(name::ERROR) {
        None => None,
        // The same words as those of the latest run.
        Some(AttributeValue::N(_)) => {
            let latest = history.as_ref().and_then(|history| history.runs.last());
            latest.map(|run| run.info.clone())
        }
        Some(value) => words(value, Letter::Error)?,
    };
    let key = get_text(&item, name::KEY)?.map(Arc::from);
    let extras: Option<Box<Extras>> = match item.get(name::EXTRAS) {
        None => None,
        Some(value) => words(value, Letter::Extras)?
            .map(|json| dueline_records::extras_from_json(&json, key))
            .transpose()
            .map_err(Bad::new)?
            .map(Box::new),
    };
    let created_at = time(&item, name::CREATED)?;
    let task = Task {
        id,
        job: job.clone(),
        state: state(&item)?,
        priority: Priority::new(get_num(&item, name::PRIORITY)?.unwrap_or(0)).map_err(Bad::new)?,
        weight: Weight::new(get_num(&item, name::WEIGHT)?.unwrap_or(1)).map_err(Bad::new)?,
        run_at: time(&item, name::RUN_AT)?,
        created_at,
        changed_at: time_opt(&item, name::CHANGED)?.unwrap_or(created_at),
        started_at: time_opt(&item, name::STARTED)?,
        finished_at: time_opt(&item, name::FINISHED)?,
        tries: small(&item, name::TRIES)?.unwrap_or(0),
        losses: small(&item, name::LOSSES)?.unwrap_or(0),
        cancel_requested: get_flag(&item, name::CANCEL),
        write: write_of(&item)?,
        payload: body(name::PAYLOAD, Letter::Payload)?.unwrap_or_default(),
        checkpoint: body(name::CHECKPOINT, Letter::Checkpoint)?,
        result: body(name::RESULT, Letter::Result)?,
        error,
        history,
        extras,
    };
    Ok(Row {
        task,
        item,
        foreign_bytes,
    })
}

/// The parts of a row that is at hand, so that the row's next version need not fetch them again.
pub(crate) fn parts_of(row: &Row) -> Parts {
    let (task, mut parts) = (&row.task, Parts::new());
    let runs = task
        .history
        .as_ref()
        .map(|history| &history.runs[..])
        .unwrap_or_default();
    if let Some(AttributeValue::L(list)) = row.item.get(name::HISTORY) {
        for (value, run) in list.iter().zip(runs) {
            if let Some(part) = text_ref(Letter::Run, value) {
                parts.insert(part, dueline_records::run_to_json(run).into());
            }
        }
    }
    for part in refs(&row.item) {
        let bytes = match part.letter {
            Letter::Payload => Some(task.payload.clone()),
            Letter::Checkpoint => task.checkpoint.clone(),
            Letter::Result => task.result.clone(),
            Letter::Error => task
                .error
                .as_ref()
                .map(|text| Bytes::copy_from_slice(text.as_bytes())),
            Letter::Extras => task
                .extras
                .as_ref()
                .map(|extras| dueline_records::extras_to_json(extras).into()),
            Letter::Run => None,
        };
        if let Some(bytes) = bytes {
            parts.insert(part, bytes);
        }
    }
    parts
}
