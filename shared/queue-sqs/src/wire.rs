//! The body of a message: our own JSON, all ASCII, because SQS refuses some characters.

use std::{io, sync::Arc};

use dueline_domain::{JobName, Priority, TaskRef, Timestamp, Weight};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// The version this program writes, and the only one it reads.
const VERSION: u64 = 1;
/// The most that [`body`] adds to its references: names of fields, and the longest job name.
pub(crate) const ENVELOPE_BYTES_MAX: usize = 128;

/// Why a message is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No JSON object, or not the fields it should have.
    Malformed,
    /// JSON of somebody else.
    Foreign,
    /// Written by a newer version of this program.
    NewerVersion,
    /// Ours, but for the queue of another job.
    WrongJob,
}

impl Reason {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Foreign => "foreign",
            Self::NewerVersion => "newer_version",
            Self::WrongJob => "wrong_job",
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    /// What it refers to.
    pub(crate) tasks: Vec<TaskRef>,
    /// How often these were received in messages before this one.
    pub(crate) received_before: u32,
}

#[derive(Serialize)]
struct RefOut<'a> {
    id: String,
    token: String,
    priority: i16,
    weight: u16,
    due: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

#[derive(Deserialize)]
struct RefIn {
    id: String,
    token: String,
    priority: i64,
    weight: i64,
    due: i64,
    trace: Option<String>,
}

#[derive(Deserialize)]
struct EnvelopeIn {
    v: u64,
    job: String,
    #[serde(default)]
    r: u32,
    t: Vec<RefIn>,
}

/// As much of a message as every version of ours has.
#[derive(Deserialize)]
struct Head {
    v: u64,
    #[serde(rename = "job")]
    _job: String,
}

/// One reference, as it stands in a body.
pub(crate) fn reference(task: &TaskRef) -> String {
    let out = RefOut {
        id: task.id.to_string(),
        token: task.token.to_string(),
        priority: task.priority.get(),
        weight: task.weight.get(),
        due: task.due_at.millis(),
        trace: task.trace.as_deref(),
    };
    let mut bytes = Vec::with_capacity(160);
    let mut serializer = Serializer::with_formatter(&mut bytes, Ascii(CompactFormatter));
    // Texts and numbers can always be written into memory, and all of it is ASCII.
    let written = out.serialize(&mut serializer);
    debug_assert!(written.is_ok(), "{written:?}");
    String::from_utf8(bytes).unwrap_or_default()
}

/// The body that holds `references`, which are of `job`.
pub(crate) fn body<'a>(
    job: &JobName,
    received_before: u32,
    references: impl Iterator<Item = &'a str>,
) -> String {
    // A job name needs no escapes.
    let mut body = format!(r#"{{"v":{VERSION},"job":"{job}""#);
    if received_before > 0 {
        body.push_str(&format!(r#","r":{received_before}"#));
    }
    body.push_str(r#","t":["#);
    for (n, reference) in references.enumerate() {
        if n > 0 {
            body.push(',');
        }
        body.push_str(reference);
    }
    body.push_str("]}");
    body
}

/// Reads the body of a message in the queue of `job`.
pub(crate) fn decode(job: &JobName, body: &str) -> Result<Decoded, Reason> {
    let envelope: EnvelopeIn = serde_json::from_str(body).map_err(|_| judge(body))?;
    match envelope.v {
        VERSION => {}
        newer if newer > VERSION => return Err(Reason::NewerVersion),
        _ => return Err(Reason::Foreign),
    }
    if envelope.job != job.as_str() {
        return Err(Reason::WrongJob);
    }
    let tasks = envelope.t.into_iter().map(|reference| task(job, reference));
    let tasks: Option<Vec<_>> = tasks.collect();
    let tasks = tasks.filter(|tasks| !tasks.is_empty());
    Ok(Decoded {
        tasks: tasks.ok_or(Reason::Malformed)?,
        received_before: envelope.r,
    })
}

fn task(job: &JobName, reference: RefIn) -> Option<TaskRef> {
    Some(TaskRef {
        job: job.clone(),
        id: reference.id.parse().ok()?,
        token: reference.token.parse().ok()?,
        priority: Priority::new(reference.priority).ok()?,
        weight: Weight::new(reference.weight).ok()?,
        due_at: Timestamp::from_millis(reference.due).ok()?,
        trace: reference.trace.map(Arc::from),
    })
}

/// What a body is that does not read as one of ours.
fn judge(body: &str) -> Reason {
    match serde_json::from_str::<Head>(body) {
        Ok(head) if head.v > VERSION => Reason::NewerVersion,
        Ok(head) if head.v == VERSION => Reason::Malformed,
        Ok(_) => Reason::Foreign,
        Err(error) if error.is_data() => Reason::Foreign,
        Err(_) => Reason::Malformed,
    }
}

/// Writes every character that is not plain ASCII as an escape.
struct Ascii(CompactFormatter);

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_plain = |c: char| c.is_ascii() && c != '\u{7f}';
        let mut rest = fragment;
        while let Some(at) = rest.find(|c| !is_plain(c)) {
            let (plain, tail) = rest.split_at(at);
            self.0.write_string_fragment(writer, plain)?;
            let mut chars = tail.chars();
            let mut units = [0; 2];
            for unit in chars.by_ref().take(1) {
                for unit in unit.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
            rest = chars.as_str();
        }
        self.0.write_string_fragment(writer, rest)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use dueline_domain::{TaskId, Token};
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn job() -> JobName {
        JobName::parse("mail").expect("a legal job name")
    }

    pub(crate) fn any_task() -> impl Strategy<Value = TaskRef> {
        let numbers = (
            any::<[u8; 16]>(),
            any::<u64>(),
            -1000_i64..=1000,
            1_i64..=10_000,
            0..=Timestamp::MAX.millis(),
        );
        (numbers, proptest::option::of(any::<String>())).prop_map(|(numbers, trace)| {
            let (id, token, priority, weight, due) = numbers;
            TaskRef {
                job: job(),
                id: TaskId::from_bytes(id),
                token: Token::from_random(token),
                priority: Priority::new(priority).expect("in range"),
                weight: Weight::new(weight).expect("in range"),
                due_at: Timestamp::clamped(due),
                trace: trace.map(Arc::from),
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_and_is_plain_ascii(
            tasks in prop::collection::vec(any_task(), 1..30),
            received_before: u32,
        ) {
            let references: Vec<_> = tasks.iter().map(reference).collect();
            let body = body(&job(), received_before, references.iter().map(String::as_str));
            prop_assert!(body.bytes().all(|b| (0x20..0x7f).contains(&b)));
            let sizes: usize = references.iter().map(|r| r.len() + 1).sum();
            prop_assert!(body.len() <= sizes + ENVELOPE_BYTES_MAX);
            prop_assert_eq!(decode(&job(), &body), Ok(Decoded { tasks, received_before }));
        }

        #[test]
        fn no_text_breaks_the_reader(text: String) {
            prop_assert!(decode(&job(), &text).is_err());
        }
    }

    #[test]
    fn the_longest_envelope_is_within_its_bound() {
        let job = JobName::parse(&"x".repeat(JobName::MAX_LEN)).expect("a legal job name");
        let empty = body(&job, u32::MAX, std::iter::empty());
        assert!(empty.len() <= ENVELOPE_BYTES_MAX, "{}", empty.len());
    }

    const REFERENCE: &str = r#"{"id":"00000000-0000-0000-0000-000000000001","token":"0000000000000002","priority":0,"weight":1,"due":5,"new":[1]}"#;

    #[test]
    fn unknown_fields_are_ignored() {
        let text = format!(r#"{{"v":1,"job":"mail","later":{{}},"t":[{REFERENCE}]}}"#);
        let decoded = decode(&job(), &text).expect("it is ours");
        assert_eq!(decoded.tasks.len(), 1);
        assert_eq!(decoded.tasks[0].due_at.millis(), 5);
    }

    #[test]
    fn what_is_not_ours_is_told_apart() {
        let with = |head: &str| format!(r#"{{{head},"t":[{REFERENCE}]}}"#);
        for (text, reason) in [
            ("", Reason::Malformed),
            ("hello", Reason::Malformed),
            (r#"{"v":1,"#, Reason::Malformed),
            (r#"{"Records":[]}"#, Reason::Foreign),
            ("[1,2]", Reason::Foreign),
            (r#"{"v":"1","job":"mail","t":[]}"#, Reason::Foreign),
            (&with(r#""v":0,"job":"mail""#), Reason::Foreign),
            (&with(r#""v":2,"job":"mail""#), Reason::NewerVersion),
            (
                r#"{"v":2,"job":"mail","tasks":"packed otherwise"}"#,
                Reason::NewerVersion,
            ),
            (&with(r#""v":1,"job":"post""#), Reason::WrongJob),
            (r#"{"v":1,"job":"mail","t":[]}"#, Reason::Malformed),
            (
                r#"{"v":1,"job":"mail","t":[{"id":"x"}]}"#,
                Reason::Malformed,
            ),
            (
                &with(r#""v":1,"job":"mail""#).replace("\"weight\":1", "\"weight\":0"),
                Reason::Malformed,
            ),
            (
                &with(r#""v":1,"job":"mail""#).replace("000002\"", "000000\""),
                Reason::Malformed,
            ),
        ] {
            assert_eq!(decode(&job(), text), Err(reason), "{text}");
        }
    }
}
