//! Log lines that are written within a span.

use std::{
    io,
    sync::{Arc, Mutex},
};

use dueline_domain::{JobName, TaskId};
use dueline_telemetry::{LogFormat, LogSettings, subscriber};
use dueline_trace::{Began, Step, TaskSpan, within};
use opentelemetry_sdk::trace::SdkTracerProvider;

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Two lines: one within a span and one after it. Also returns the id of the span.
async fn logged(format: LogFormat) -> (Vec<String>, String) {
    opentelemetry::global::set_tracer_provider(SdkTracerProvider::builder().build());
    dueline_trace::switch_on();
    let lines = Lines::default();
    let writer = {
        let lines = lines.clone();
        move || lines.clone()
    };
    let level = "info".to_owned();
    let subscriber = subscriber(&LogSettings { level, format }, writer, false).unwrap();
    let _current = tracing::subscriber::set_default(subscriber);
    let trace = format!("00-{TRACE_ID}-b7ad6b7169203331-01");
    let (job, id) = (JobName::parse("job").unwrap(), TaskId::from_bytes([1; 16]));
    let span = TaskSpan::start(Step::Run, Some(&trace), &job, &id, Began::now()).unwrap();
    within(Some(&span), async {
        tracing::info!(task.id = "t1", "inside")
    })
    .await;
    tracing::info!("outside");
    let span_id = span.traceparent()[36..52].to_owned();
    let bytes = lines.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    (text.lines().map(str::to_owned).collect(), span_id)
}

#[test]
fn what_users_have_written_cannot_change_how_a_line_is_shown() {
    for format in [LogFormat::Human, LogFormat::Json] {
        let lines = Lines::default();
        let writer = {
            let lines = lines.clone();
            move || lines.clone()
        };
        let level = "info".to_owned();
        let subscriber = subscriber(&LogSettings { level, format }, writer, false).unwrap();
        let error = "no\n2026-11-23 ERROR forged\u{202e}\u{1b}[2J\u{9b}";
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(%error, "the task has failed: {error}");
        });
        let bytes = lines.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        let is_unsafe = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(is_unsafe), "{text:?}");
        assert!(text.contains("forged"), "{text:?}");
        if let LogFormat::Json = format {
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(line["error"], error);
        }
    }
}

#[tokio::test]
async fn g_12_lines_of_a_run_carry_the_ids_of_its_span() {
    let (lines, span) = logged(LogFormat::Human).await;
    let ids = format!("inside task.id=\"t1\" trace_id={TRACE_ID} span_id={span}");
    assert!(lines[0].ends_with(&ids), "{lines:?}");
    assert!(lines[1].ends_with("outside"), "{lines:?}");

    let (lines, span) = logged(LogFormat::Json).await;
    let inside: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(
        (&inside["trace_id"], &inside["span_id"]),
        (&TRACE_ID.into(), &span.into())
    );
    assert_eq!(
        (&inside["message"], &inside["task.id"]),
        (&"inside".into(), &"t1".into())
    );
    let outside: serde_json::Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!(outside.get("trace_id"), None);
    assert_eq!(lines.len(), 2);
}
