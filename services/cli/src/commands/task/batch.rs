//! `dueline task submit --batch`: submits the tasks of a file, a thousand in one request.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
};

use dueline_api::v1::{BatchResult, FromRunSpec, Problem};
use dueline_domain::{JobName, limits};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    client::{JsonAnswer, RequestBody, RestClient},
    commands::payload::unreadable,
    context::Context,
    exit::{CliError, Exit},
    sanitize::clean,
};

/// Most tasks in one request: few enough for a quick response, and enough for the store to commit them together.
const CHUNK_LEN: usize = 1_000;
/// Most bytes in one request. Servers refuse bodies that are much larger.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Most refused lines in the JSON output. All refused lines are counted.
const REFUSED_IN_JSON_MAX: usize = 1_000;
/// Most refused lines in the text output.
const REFUSED_IN_TEXT_MAX: usize = 10;

/// The result of a batch, as `--json` prints it.
#[derive(Debug, Default, Serialize)]
struct BatchReport {
    job: String,
    /// Tasks that this batch stored.
    submitted: u64,
    /// Tasks that an earlier, equal submit had stored.
    existed: u64,
    /// Lines that were refused.
    refused: u64,
    /// The first refused lines.
    errors: Vec<RefusedLine>,
}

/// A line that the server refused.
#[derive(Debug, Serialize)]
struct RefusedLine {
    /// The number of the line in the file, from 1.
    line: u64,
    error: Problem,
}

/// The lines of one request.
#[derive(Debug, Default)]
struct BatchChunk {
    body: Vec<u8>,
    /// The number of each line in the file.
    lines: Vec<u64>,
}

/// Submits the tasks of a file. With `from_run`, tasks whose line names no run are submitted from inside that one.
pub(super) async fn submit(
    context: &Context,
    job: &JobName,
    file: &str,
    from_run: Option<&FromRunSpec>,
) -> Result<Exit, CliError> {
    let client = context.client()?;
    let (mut input, bytes) = open(file)?;
    let bar = bar(context, bytes);
    let mut report = BatchReport {
        job: job.to_string(),
        ..BatchReport::default()
    };
    let (mut chunk, mut number, mut sent_any) = (BatchChunk::default(), 0, false);
    while let Some((line, read)) =
        next_line(&mut input, file).map_err(|error| interrupted(error, &report))?
    {
        number += 1;
        bar.inc(read);
        // Some editors write a byte order mark at the beginning of a file.
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if number == 1 => rest.trim_ascii(),
            _ => &line,
        };
        if line.is_empty() {
            continue;
        }
        let line = &*match from_run {
            Some(run) => staged(line, run),
            None => Cow::Borrowed(line),
        };
        if chunk.lines.len() == CHUNK_LEN || chunk.body.len() + line.len() > CHUNK_BYTES {
            send(&client, job, std::mem::take(&mut chunk), &mut report)
                .await
                .map_err(|error| interrupted(error, &report))?;
            sent_any = true;
            bar.set_message(progress(&report));
        }
        chunk.body.extend_from_slice(line);
        chunk.body.push(b'\n');
        chunk.lines.push(number);
    }
    if !chunk.lines.is_empty() {
        send(&client, job, chunk, &mut report)
            .await
            .map_err(|error| interrupted(error, &report))?;
        sent_any = true;
    }
    bar.finish_and_clear();
    if !sent_any {
        return Err(CliError::invalid(format!("{file} contains no tasks")));
    }
    context
        .output
        .show(&JsonAnswer::of(&report), context.now(), |_| {
            Ok(render(&report))
        })?;
    Ok(if report.refused == 0 {
        Exit::Ok
    } else {
        Exit::Partial
    })
}

/// The line with the run from inside which its task is submitted, unless the line names one. What is no task stays as it is:
/// the server says what is wrong with it.
fn staged<'a>(line: &'a [u8], run: &FromRunSpec) -> Cow<'a, [u8]> {
    let parsed = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(line);
    let with_run = || {
        let mut fields = parsed.ok()?;
        if fields.contains_key("from_run") {
            return None;
        }
        let run = serde_json::value::to_raw_value(run).ok()?;
        fields.insert("from_run".to_owned(), run);
        serde_json::to_vec(&fields).ok()
    };
    with_run().map_or(Cow::Borrowed(line), Cow::Owned)
}

async fn send(
    client: &RestClient,
    job: &JobName,
    chunk: BatchChunk,
    report: &mut BatchReport,
) -> Result<(), CliError> {
    let path = ["jobs", job.as_str(), "tasks:batch"];
    let answer = client
        .send(Method::POST, &path, RequestBody::Lines(chunk.body))
        .await?;
    let batch: BatchResult = answer.read()?;
    let mut unknown_job = None;
    for item in batch.results {
        let line = chunk.lines.get(item.index).copied().unwrap_or_default();
        match item.error {
            // Every other line of the file would fail in the same way.
            Some(error) if error.reason == "unknown_job" => unknown_job = Some(error),
            Some(error) => {
                report.refused += 1;
                if report.errors.len() < REFUSED_IN_JSON_MAX {
                    report.errors.push(RefusedLine { line, error });
                }
            }
            None if item.existed == Some(true) => report.existed += 1,
            None => report.submitted += 1,
        }
    }
    unknown_job.map_or(Ok(()), |error| Err(error.into()))
}

/// Adds the progress of the batch to an error that ends it, because the tasks of earlier requests are stored.
fn interrupted(error: CliError, progress: &BatchReport) -> CliError {
    let error = error.with_members(progress);
    let stored = progress.submitted + progress.existed;
    if stored == 0 {
        return error;
    }
    error.with_hint(format!(
        "{stored} tasks are stored already; with an `id` or `key` in each line, the batch can be repeated safely"
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

/// The next line without surrounding blanks, and the number of bytes read; `None` at the end of the file.
fn next_line(input: &mut dyn BufRead, file: &str) -> Result<Option<(Vec<u8>, u64)>, CliError> {
    // Enough for the largest payload in base64 and all other fields. The server would refuse a longer line.
    let bytes_max = 2 * (limits().payload_bytes_max + limits().details_bytes_max) as u64;
    let mut line = Vec::new();
    let read = input
        .take(bytes_max)
        .read_until(b'\n', &mut line)
        .map_err(|error| unreadable(file, &error))? as u64;
    if read == bytes_max {
        let message = format!("{file} contains a line of more than {bytes_max} bytes");
        return Err(
            CliError::invalid(message).with_hint("the file must contain one JSON object per line")
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
    // The template is a constant. If it is invalid, the default style is good enough.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn progress(report: &BatchReport) -> String {
    let BatchReport {
        submitted,
        existed,
        refused,
        ..
    } = report;
    match refused {
        0 => format!("{} tasks", submitted + existed),
        refused => format!("{} tasks, {refused} refused", submitted + existed),
    }
}

fn render(report: &BatchReport) -> String {
    let BatchReport {
        job,
        submitted,
        existed,
        refused,
        errors,
    } = report;
    let mut text = format!("{submitted} tasks of {job} submitted");
    if *existed > 0 {
        text.push_str(&format!(", {existed} existed already"));
    }
    if *refused == 0 {
        return text;
    }
    text.push_str(&format!(", {refused} refused:"));
    for RefusedLine { line, error } in errors.iter().take(REFUSED_IN_TEXT_MAX) {
        text.push_str(&format!("\n  line {line}: {}", clean(&error.detail)));
    }
    let more = refused.saturating_sub(REFUSED_IN_TEXT_MAX as u64);
    if more > 0 {
        text.push_str(&format!(
            "\n  and {more} more; --json shows the first {REFUSED_IN_JSON_MAX}"
        ));
    }
    // Where many lines were refused, the count of each reason is more useful than single lines.
    let mut by_reason = BTreeMap::<&str, u64>::new();
    for RefusedLine { error, .. } in errors {
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
    fn a_13_each_line_without_a_run_gets_that_of_the_command() {
        let run = FromRunSpec {
            job: "plan".to_owned(),
            id: "0197b0c4-0000-7000-8000-000000000001".to_owned(),
            token: "00c0ffee00c0ffee".parse().unwrap(),
        };
        let staged = |line: &'static str| {
            let line = staged(line.as_bytes(), &run).into_owned();
            String::from_utf8(line).unwrap()
        };
        assert_eq!(
            staged(r#"{"payload": 12345678901234567890.10, "name":"n"}"#),
            concat!(
                r#"{"from_run":{"job":"plan","id":"0197b0c4-0000-7000-8000-000000000001","token":"00c0ffee00c0ffee"},"#,
                r#""name":"n","payload":12345678901234567890.10}"#
            )
        );
        // The server says what is wrong with them.
        for line in [r#"{"from_run": 1}"#, "[1]", "{", r#"{"a": }"#] {
            assert_eq!(staged(line), line);
        }
    }

    #[test]
    fn lines_are_read_one_by_one_and_the_last_one_needs_no_line_break() {
        let mut input = io::Cursor::new("{\"a\":1}\r\n\n  {} ".as_bytes());
        let mut lines = Vec::new();
        let mut bytes = 0;
        while let Some((text, read)) = next_line(&mut input, "f").unwrap() {
            lines.push(String::from_utf8(text).unwrap());
            bytes += read;
        }
        assert_eq!(lines, ["{\"a\":1}", "", "{}"]);
        assert_eq!(bytes, 15);
    }

    #[test]
    fn a_file_without_line_breaks_is_refused_before_it_fills_the_memory() {
        let endless = io::repeat(b'x');
        let error = next_line(&mut BufReader::new(endless), "f").unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
    }
}
