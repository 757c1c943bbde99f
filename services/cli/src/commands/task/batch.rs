//! `dueline task submit --batch`: many tasks from a file, in requests of a thousand.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
};

use dueline_api::v1::{BatchResult, Problem};
use dueline_domain::{JobName, limits};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::Method;
use serde::Serialize;

use crate::{
    cli::Context,
    client::{Answer, Body, Client},
    commands::payload::unreadable,
    exit::{CliError, Exit},
    output::clean,
};

/// Tasks in one request: few enough for an answer within a moment, enough for the store to commit them together.
const CHUNK_LEN: usize = 1_000;
/// Bytes in one request; servers refuse bodies that are much larger.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Refused lines that are kept to be told; all are counted.
const REFUSED_KEPT_MAX: usize = 1_000;
/// Refused lines that are told to people.
const REFUSED_TOLD_MAX: usize = 10;

/// What came of a batch.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    job: String,
    /// Tasks that are stored now and were not before.
    submitted: u64,
    /// Tasks that an earlier, equal submit had made.
    existed: u64,
    /// Lines that were refused.
    refused: u64,
    /// The first refused lines.
    errors: Vec<Refused>,
}

/// A line that was refused.
#[derive(Debug, Serialize)]
struct Refused {
    /// Its number, from 1.
    line: u64,
    error: Problem,
}

/// Lines that go out together.
#[derive(Debug, Default)]
struct Chunk {
    body: Vec<u8>,
    /// Number of each line.
    lines: Vec<u64>,
}

pub(super) async fn submit(context: &Context, job: &JobName, file: &str) -> Result<Exit, CliError> {
    let client = context.client()?;
    let (mut input, bytes) = open(file)?;
    let bar = bar(context, bytes);
    let mut outcome = Outcome {
        job: job.to_string(),
        ..Outcome::default()
    };
    let (mut chunk, mut number, mut sent_any) = (Chunk::default(), 0, false);
    while let Some((line, read)) =
        line(&mut input, file).map_err(|error| interrupted(error, &outcome))?
    {
        number += 1;
        bar.inc(read);
        // Editors of some systems put a byte order mark before what they write.
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if number == 1 => rest.trim_ascii(),
            _ => &line,
        };
        if line.is_empty() {
            continue;
        }
        if chunk.lines.len() == CHUNK_LEN || chunk.body.len() + line.len() > CHUNK_BYTES {
            send(&client, job, std::mem::take(&mut chunk), &mut outcome)
                .await
                .map_err(|error| interrupted(error, &outcome))?;
            sent_any = true;
            bar.set_message(progress(&outcome));
        }
        chunk.body.extend_from_slice(line);
        chunk.body.push(b'\n');
        chunk.lines.push(number);
    }
    if !chunk.lines.is_empty() {
        send(&client, job, chunk, &mut outcome)
            .await
            .map_err(|error| interrupted(error, &outcome))?;
        sent_any = true;
    }
    bar.finish_and_clear();
    if !sent_any {
        return Err(CliError::invalid(format!("{file} holds no task")));
    }
    context
        .output
        .show(&Answer::of(&outcome), context.now(), |_| Ok(tell(&outcome)))?;
    Ok(if outcome.refused == 0 {
        Exit::Ok
    } else {
        Exit::Partial
    })
}

async fn send(
    client: &Client,
    job: &JobName,
    chunk: Chunk,
    outcome: &mut Outcome,
) -> Result<(), CliError> {
    let path = ["jobs", job.as_str(), "tasks:batch"];
    let answer = client
        .send(Method::POST, &path, Body::Lines(chunk.body))
        .await?;
    let answers: BatchResult = answer.read()?;
    let mut unknown_job = None;
    for item in answers.results {
        let line = chunk.lines.get(item.index).copied().unwrap_or_default();
        match item.error {
            // No other line of the file can do better.
            Some(error) if error.reason == "unknown_job" => unknown_job = Some(error),
            Some(error) => {
                outcome.refused += 1;
                if outcome.errors.len() < REFUSED_KEPT_MAX {
                    outcome.errors.push(Refused { line, error });
                }
            }
            None if item.existed == Some(true) => outcome.existed += 1,
            None => outcome.submitted += 1,
        }
    }
    unknown_job.map_or(Ok(()), |error| Err(error.into()))
}

/// Says how far it went, because the tasks of earlier requests are stored.
fn interrupted(error: CliError, so_far: &Outcome) -> CliError {
    let error = error.with_members(so_far);
    let stored = so_far.submitted + so_far.existed;
    if stored == 0 {
        return error;
    }
    error.with_hint(format!(
        "{stored} tasks are stored already; give each line an `id` or `key`, then the batch can be repeated safely"
    ))
}

fn open(file: &str) -> Result<(Box<dyn BufRead>, Option<u64>), CliError> {
    if file == "-" {
        return Ok((Box::new(BufReader::new(io::stdin())), None));
    }
    let opened = File::open(file).map_err(|error| unreadable(file, &error))?;
    let bytes = opened
        .metadata()
        .ok()
        .filter(std::fs::Metadata::is_file)
        .map(|data| data.len());
    Ok((Box::new(BufReader::new(opened)), bytes))
}

/// The next line without blanks around it, and how many bytes it took; `None` at the end.
fn line(input: &mut dyn BufRead, file: &str) -> Result<Option<(Vec<u8>, u64)>, CliError> {
    // A payload in base64 and everything around it; longer lines could not be accepted anyway.
    let bytes_max = 2 * (limits().payload_bytes_max + limits().details_bytes_max) as u64;
    let mut line = Vec::new();
    let read = input
        .take(bytes_max)
        .read_until(b'\n', &mut line)
        .map_err(|error| unreadable(file, &error))? as u64;
    if read == bytes_max {
        let message = format!("{file} holds a line of more than {bytes_max} bytes");
        return Err(
            CliError::invalid(message).with_hint("the file must hold one JSON object a line")
        );
    }
    Ok((read > 0).then(|| (line.trim_ascii().to_vec(), read)))
}

fn bar(context: &Context, bytes: Option<u64>) -> ProgressBar {
    if !context.output.draws_progress() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
    let template = match bytes {
        Some(_) => "{bar:30} {percent:>3} %  {msg}  {eta} left",
        None => "{spinner} {bytes} read  {msg}",
    };
    // The template is a constant; should it ever be wrong, the default style does as well.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn progress(outcome: &Outcome) -> String {
    let Outcome {
        submitted,
        existed,
        refused,
        ..
    } = outcome;
    match refused {
        0 => format!("{} tasks", submitted + existed),
        refused => format!("{} tasks, {refused} refused", submitted + existed),
    }
}

fn tell(outcome: &Outcome) -> String {
    let Outcome {
        job,
        submitted,
        existed,
        refused,
        errors,
    } = outcome;
    let mut text = format!("{submitted} tasks of {job} submitted");
    if *existed > 0 {
        text.push_str(&format!(", {existed} existed already"));
    }
    if *refused == 0 {
        return text;
    }
    text.push_str(&format!(", {refused} refused:"));
    for Refused { line, error } in errors.iter().take(REFUSED_TOLD_MAX) {
        text.push_str(&format!("\n  line {line}: {}", clean(&error.detail)));
    }
    let more = refused.saturating_sub(REFUSED_TOLD_MAX as u64);
    if more > 0 {
        text.push_str(&format!(
            "\n  and {more} more; --json tells the first {REFUSED_KEPT_MAX}"
        ));
    }
    // How often each reason occurs says more than the single lines when there are many.
    let mut by_reason = BTreeMap::<&str, u64>::new();
    for Refused { error, .. } in errors {
        *by_reason.entry(&error.reason).or_default() += 1;
    }
    if by_reason.len() > 1 {
        let counts: Vec<_> = by_reason
            .iter()
            .map(|(reason, count)| format!("{} {count}", clean(reason)))
            .collect();
        text.push_str(&format!("\n  by reason: {}", counts.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one_and_a_missing_end_does_no_harm() {
        let mut input = io::Cursor::new("{\"a\":1}\r\n\n  {} ".as_bytes());
        let mut lines = Vec::new();
        let mut bytes = 0;
        while let Some((text, read)) = line(&mut input, "f").unwrap() {
            lines.push(String::from_utf8(text).unwrap());
            bytes += read;
        }
        assert_eq!(lines, ["{\"a\":1}", "", "{}"]);
        assert_eq!(bytes, 15);
    }

    #[test]
    fn a_file_without_lines_is_not_swallowed_whole() {
        let endless = io::repeat(b'x');
        let error = line(&mut BufReader::new(endless), "f").unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
    }
}
