//! The body of a message: JSON, all ASCII, because SQS refuses some characters.

use std::{io, sync::Arc};

use dueline_domain::{JobName, Priority, TaskRef, Timestamp, Weight};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// The version of the format that this program writes, and the only one it reads.
const VERSION: u64 = 1;
/// The most bytes that [`body`] adds to its references: field names and the longest job name.
pub(crate) const ENVELOPE_BYTES_MAX: usize = 128;

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuarantineReason {
    /// Not a JSON object, or required fields are missing or invalid.
    Malformed,
    /// JSON of another program.
    Foreign,
    /// Written by a newer version of this program.
    NewerVersion,
    /// A valid message, but of another job.
    WrongJob,
}

impl QuarantineReason {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Foreign => "foreign",
            Self::NewerVersion => "newer_version",
            Self::WrongJob => "wrong_job",
        }
    }
}

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecodedMessage {
    /// The references that it carries.
    pub(crate) tasks: Vec<TaskRef>,
    /// How often the references were received in earlier messages.
    pub(crate) received_before: u32,
}

#[derive(Serialize)]
struct EncodedReference<'a> {
    id: String,
    token: String,
    priority: i16,
    weight: u16,
    due: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
}

#[derive(Deserialize)]
struct DecodedReference {
    id: String,
    token: String,
    priority: i64,
    weight: i64,
    due: i64,
    trace: Option<String>,
}

#[derive(Deserialize)]
struct Envelope {
    v: u64,
    job: String,
    #[serde(default)]
    r: u32,
    t: Vec<DecodedReference>,
}

/// The fields that all versions of the format share.
#[derive(Deserialize)]
struct EnvelopeHead {
    v: u64,
    #[serde(rename = "job")]
    _job: String,
}

/// Encodes one reference for [`body`].
pub(crate) fn reference(task: &TaskRef) -> String {
    let out = EncodedReference {
        id: task.id.to_string(),
        token: task.token.to_string(),
        priority: task.priority.get(),
        weight: task.weight.get(),
        due: task.due_at.millis(),
        trace: task.trace.as_deref(),
    };
    let mut bytes = Vec::with_capacity(160);
    let mut serializer = Serializer::with_formatter(&mut bytes, AsciiFormatter(CompactFormatter));
    // Serializing strings and numbers into memory cannot fail, and the formatter writes ASCII only.
    let written = out.serialize(&mut serializer);
    debug_assert!(written.is_ok(), "{written:?}");
    String::from_utf8(bytes).unwrap_or_default()
}

/// The body of a message with these references of `job`.
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

/// Decodes the body of a message in the queue of `job`.
pub(crate) fn decode(job: &JobName, body: &str) -> Result<DecodedMessage, QuarantineReason> {
    let envelope: Envelope = serde_json::from_str(body).map_err(|_| quarantine_reason(body))?;
    match envelope.v {
        VERSION => {}
        newer if newer > VERSION => return Err(QuarantineReason::NewerVersion),
        _ => return Err(QuarantineReason::Foreign),
    }
    if envelope.job != job.as_str() {
        return Err(QuarantineReason::WrongJob);
    }
    let tasks = envelope.t.into_iter().map(|reference| task(job, reference));
    let tasks: Option<Vec<_>> = tasks.collect();
    let tasks = tasks.filter(|tasks| !tasks.is_empty());
    Ok(DecodedMessage {
        tasks: tasks.ok_or(QuarantineReason::Malformed)?,
        received_before: envelope.r,
    })
}

fn task(job: &JobName, reference: DecodedReference) -> Option<TaskRef> {
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

/// Why a body cannot be decoded.
fn quarantine_reason(body: &str) -> QuarantineReason {
    match serde_json::from_str::<EnvelopeHead>(body) {
        Ok(head) if head.v > VERSION => QuarantineReason::NewerVersion,
        Ok(head) if head.v == VERSION => QuarantineReason::Malformed,
        Ok(_) => QuarantineReason::Foreign,
        Err(error) if error.is_data() => QuarantineReason::Foreign,
        Err(_) => QuarantineReason::Malformed,
    }
}

/// Writes every character that is not plain ASCII as an escape.
struct AsciiFormatter(CompactFormatter);

impl Formatter for AsciiFormatter {
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
        fn messages_round_trip_and_are_plain_ascii(
            tasks in prop::collection::vec(any_task(), 1..30),
            received_before: u32,
        ) {
            let references: Vec<_> = tasks.iter().map(reference).collect();
            let body = body(&job(), received_before, references.iter().map(String::as_str));
            prop_assert!(body.bytes().all(|b| (0x20..0x7f).contains(&b)));
            let sizes: usize = references.iter().map(|r| r.len() + 1).sum();
            prop_assert!(body.len() <= sizes + ENVELOPE_BYTES_MAX);
            prop_assert_eq!(decode(&job(), &body), Ok(DecodedMessage { tasks, received_before }));
        }

        #[test]
        fn decoding_never_panics(text: String) {
            prop_assert!(decode(&job(), &text).is_err());
        }
    }

    #[test]
    fn the_longest_envelope_is_within_its_limit() {
        let job = JobName::parse(&"x".repeat(JobName::MAX_LEN)).expect("a legal job name");
        let empty = body(&job, u32::MAX, std::iter::empty());
        assert!(empty.len() <= ENVELOPE_BYTES_MAX, "{}", empty.len());
    }

    const REFERENCE: &str = r#"{"id":"00000000-0000-0000-0000-000000000001","token":"0000000000000002","priority":0,"weight":1,"due":5,"new":[1]}"#;

    #[test]
    fn unknown_fields_are_ignored() {
        let text = format!(r#"{{"v":1,"job":"mail","later":{{}},"t":[{REFERENCE}]}}"#);
        let decoded = decode(&job(), &text).expect("a valid message");
        assert_eq!(decoded.tasks.len(), 1);
        assert_eq!(decoded.tasks[0].due_at.millis(), 5);
    }

    #[test]
    fn unreadable_messages_are_classified() {
        let with = |head: &str| format!(r#"{{{head},"t":[{REFERENCE}]}}"#);
        for (text, reason) in [
            ("", QuarantineReason::Malformed),
            ("hello", QuarantineReason::Malformed),
            (r#"{"v":1,"#, QuarantineReason::Malformed),
            (r#"{"Records":[]}"#, QuarantineReason::Foreign),
            ("[1,2]", QuarantineReason::Foreign),
            (
                r#"{"v":"1","job":"mail","t":[]}"#,
                QuarantineReason::Foreign,
            ),
            (&with(r#""v":0,"job":"mail""#), QuarantineReason::Foreign),
            (
                &with(r#""v":2,"job":"mail""#),
                QuarantineReason::NewerVersion,
            ),
            (
                r#"{"v":2,"job":"mail","tasks":"packed otherwise"}"#,
                QuarantineReason::NewerVersion,
            ),
            (&with(r#""v":1,"job":"post""#), QuarantineReason::WrongJob),
            (
                r#"{"v":1,"job":"mail","t":[]}"#,
                QuarantineReason::Malformed,
            ),
            (
                r#"{"v":1,"job":"mail","t":[{"id":"x"}]}"#,
                QuarantineReason::Malformed,
            ),
            (
                &with(r#""v":1,"job":"mail""#).replace("\"weight\":1", "\"weight\":0"),
                QuarantineReason::Malformed,
            ),
            (
                &with(r#""v":1,"job":"mail""#).replace("000002\"", "000000\""),
                QuarantineReason::Malformed,
            ),
        ] {
            assert_eq!(decode(&job(), text), Err(reason), "{text}");
        }
    }
}
