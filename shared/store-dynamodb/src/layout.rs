//! Items and tasks: writing. What goes into the task's own item, and what is stored apart.
//!
//! DynamoDB charges each write for the whole item, by started kibibytes. So a body, an error or a past run stays with
//! its task only where it starts no further kibibyte; otherwise it becomes an item of its own, written once.

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use dueline_domain::{Task, Timestamp, Token, WorkerId};

use crate::{
    attr::{self, Item, id_bytes, num, size_of, text, write_units},
    row::{self, Letter, PartRef, Row, name},
    schema,
};

/// Room kept for what a task gets later in its life: owner, lease, token, start, count of tries, a mark of an error.
const LATER_BYTES: usize = WorkerId::MAX_LEN + 96;

/// A part to store apart.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: PartRef,
    pub(crate) bytes: Bytes,
}

/// A task ready to be written.
#[derive(Debug)]
pub(crate) struct Laid {
    pub(crate) row: Row,
    /// Parts to write before the task.
    pub(crate) put: Vec<Part>,
    /// Parts that nobody refers to once the task is written.
    pub(crate) drop: Vec<PartRef>,
}

/// What the index and DynamoDB's own expiry need to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) due: Option<(String, Timestamp)>,
    pub(crate) expires_at: Option<Timestamp>,
}

struct Layout<'a> {
    task: &'a Task,
    before: Option<&'a Row>,
    item: Item,
    bytes: usize,
    /// Up to here the item may be filled: the end of the kibibyte that its small attributes have begun.
    bytes_max: usize,
    put: Vec<Part>,
}

/// Lays out `task`, which was `before`, in a partition whose name has `key_bytes`.
pub(crate) fn lay_out(task: Task, before: Option<&Row>, marks: Marks, key_bytes: usize) -> Laid {
    let item = fixed(&task, marks);
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
    // The names of the keys, and sixteen bytes of id.
    let keys = schema::PK.len() + key_bytes + schema::SK.len() + 16;
    let bytes = keys + attr::size(&item) + foreign_bytes + later;
    let mut layout = Layout {
        task: &task,
        before,
        bytes,
        bytes_max: 1_024 * write_units(bytes),
        item,
        put: Vec::new(),
    };
    // What stays where it is comes first: what is new gets the room that is left.
    let runs = layout.keep();
    layout.extras();
    layout.body(
        name::PAYLOAD,
        Letter::Payload,
        (!task.payload.is_empty()).then_some(&task.payload),
    );
    layout.body(
        name::CHECKPOINT,
        Letter::Checkpoint,
        task.checkpoint.as_ref(),
    );
    layout.history(runs);
    layout.error();
    layout.body(name::RESULT, Letter::Result, task.result.as_ref());
    let Layout { item, put, .. } = layout;
    let kept = row::refs(&item);
    let mut drop = before.map(|row| row::refs(&row.item)).unwrap_or_default();
    drop.retain(|part| !kept.contains(part));
    let row = Row {
        task,
        item,
        foreign_bytes,
    };
    Laid { row, put, drop }
}

/// The attributes that are always small.
fn fixed(task: &Task, marks: Marks) -> Item {
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
        .or_else(|| task.state.trigger_at());
    set(name::STATE, Some(num(i64::from(task.kind().code()))));
    set(name::WRITE, Some(id_bytes(task.write.to_stored())));
    set(
        name::TOKEN,
        task.state
            .token()
            .map(|token: Token| id_bytes(token.to_stored())),
    );
    set(name::TRIGGER, trigger.and_then(time));
    set(name::OWNER, lease.map(|lease| text(lease.worker.as_str())));
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
    set(name::TRIES, unless(0, i64::from(task.tries)));
    set(name::LOSSES, unless(0, i64::from(task.losses)));
    set(
        name::CANCEL,
        task.cancel_requested.then_some(AttributeValue::Bool(true)),
    );
    set(name::PRIORITY, unless(0, i64::from(task.priority.get())));
    set(name::WEIGHT, unless(1, i64::from(task.weight.get())));
    let key = task
        .extras
        .as_ref()
        .and_then(|extras| extras.key.as_deref());
    set(name::KEY, key.map(text));
    if let Some((key, hint)) = marks.due {
        set(schema::DUE_KEY, Some(text(key)));
        set(schema::DUE_HINT, time(hint));
    }
    // Rounded up: an item must not go before its time.
    let expiry = marks
        .expires_at
        .map(|at| num(at.millis().div_euclid(1_000) + 1));
    set(schema::TTL, expiry);
    item
}

impl Layout<'_> {
    /// Whether `bytes` more start no further kibibyte.
    const fn fits(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.bytes_max
    }

    fn set(&mut self, name: &str, value: AttributeValue) {
        self.bytes += size_of(name, &value);
        self.item.insert(name.to_owned(), value);
    }

    /// A name of its own for each try to write it. Two processes may carry out one command at once, and the one that
    /// comes too late removes its parts: they must not be those of the other.
    fn apart(&mut self, letter: Letter, bytes: Bytes) -> [u8; 8] {
        let write = fastrand::u64(..).to_be_bytes();
        let name = PartRef { letter, write };
        self.put.push(Part { name, bytes });
        write
    }

    /// Takes over every attribute that says what it said before, and tells for each past run where it stands.
    fn keep(&mut self) -> Vec<Option<AttributeValue>> {
        let task = self.task;
        let runs = task
            .history
            .as_ref()
            .map_or(&[][..], |history| &history.runs);
        let Some(before) = self.before else {
            return vec![None; runs.len()];
        };
        let was = &before.task;
        let in_history = self.error_in_history();
        for (name, same) in [
            (name::EXTRAS, was.extras.is_some() == task.extras.is_some()),
            (name::PAYLOAD, was.payload == task.payload),
            (name::CHECKPOINT, was.checkpoint == task.checkpoint),
            (name::ERROR, !in_history && was.error == task.error),
            (name::RESULT, was.result == task.result),
        ] {
            match before.item.get(name) {
                // A number stands for words in the history, and that may have changed.
                Some(value) if same && !matches!(value, AttributeValue::N(_)) => {
                    self.set(name, value.clone());
                }
                _ => {}
            }
        }
        let (Some(history), Some(AttributeValue::L(values))) =
            (&was.history, before.item.get(name::HISTORY))
        else {
            return vec![None; runs.len()];
        };
        let place = |run| {
            let at = history.runs.iter().position(|known| known == run)?;
            let value = values.get(at)?;
            self.bytes += size_of("", value);
            Some(value.clone())
        };
        runs.iter().map(place).collect()
    }

    fn body(&mut self, name: &str, letter: Letter, bytes: Option<&Bytes>) {
        let Some(bytes) = bytes.filter(|_| !self.item.contains_key(name)) else {
            return;
        };
        let value = if self.fits(name.len() + bytes.len()) {
            attr::bytes(bytes)
        } else {
            let write = self.apart(letter, bytes.clone());
            text(row::to_hex(write))
        };
        self.set(name, value);
    }

    fn extras(&mut self) {
        let Some(extras) = &self.task.extras else {
            return;
        };
        if self.item.contains_key(name::EXTRAS) {
            return;
        }
        let json = dueline_records::extras_to_json(extras);
        let value = self.words(Letter::Extras, name::EXTRAS.len(), json);
        self.set(name::EXTRAS, value);
    }

    fn words(&mut self, letter: Letter, name_bytes: usize, words: String) -> AttributeValue {
        if self.fits(name_bytes + words.len()) {
            return text(words);
        }
        attr::bytes(self.apart(letter, words.into()))
    }

    /// The past runs: those of `places` where they stand, the others where there is room.
    fn history(&mut self, places: Vec<Option<AttributeValue>>) {
        let Some(history) = &self.task.history else {
            return;
        };
        // The list itself and the brackets around each run.
        self.bytes += name::HISTORY.len() + 3 + history.runs.len();
        let mut values = Vec::with_capacity(places.len());
        for (run, place) in history.runs.iter().zip(places) {
            values.push(place.unwrap_or_else(|| {
                let value = self.words(Letter::Run, 0, dueline_records::run_to_json(run));
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

    /// Whether the latest past run ended with the error that the task names.
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
            self.words(Letter::Error, name::ERROR.len(), error.as_ref().to_owned())
        };
        self.set(name::ERROR, value);
    }
}
