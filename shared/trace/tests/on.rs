//! A process in which tracing is on.

use std::sync::OnceLock;

use dueline_domain::{JobName, TaskId};
use dueline_trace::{Began, Step, TaskSpan, active, active_traceparent, switch_on, within};
use opentelemetry::{
    global,
    trace::{SpanId, SpanKind, Status},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The ended spans of a task.
fn recorded(task: &TaskId) -> Vec<SpanData> {
    let spans = exporter().get_finished_spans().unwrap();
    let id = task.to_string();
    let is_of_task = |span: &SpanData| span.attributes.iter().any(|it| it.value.as_str() == id);
    spans.into_iter().filter(is_of_task).collect()
}

fn exporter() -> &'static InMemorySpanExporter {
    static EXPORTER: OnceLock<InMemorySpanExporter> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
        global::set_tracer_provider(provider.build());
        switch_on();
        exporter
    })
}

fn task(number: u8) -> (JobName, TaskId) {
    exporter();
    (
        JobName::parse("job").unwrap(),
        TaskId::from_bytes([number; 16]),
    )
}

#[test]
fn f_130_each_step_is_a_child_of_the_context_that_it_is_given() {
    let (job, id) = task(1);
    let submit = TaskSpan::submit(Some(SAMPLED), &job, &id, Began::now()).unwrap();
    let trace = submit.traceparent();
    let run = TaskSpan::start(Step::Run, Some(&trace), &job, &id, Began::now()).unwrap();
    run.set("dueline.attempt", 0);
    run.failed("fatal", "é".repeat(2_000));
    assert!(recorded(&id).is_empty(), "both are open");
    drop((run, submit));
    let spans = recorded(&id);
    let [run, submit] = &spans[..] else {
        panic!("{spans:?}");
    };
    assert_eq!((&*run.name, &*submit.name), ("run job", "submit job"));
    let kinds = (&run.span_kind, &submit.span_kind);
    assert_eq!(kinds, (&SpanKind::Consumer, &SpanKind::Producer));
    let client = SpanId::from_hex("b7ad6b7169203331").unwrap();
    assert_eq!(submit.parent_span_id, client);
    assert_eq!(run.parent_span_id, submit.span_context.span_id());
    assert_eq!(run.span_context.trace_id(), submit.span_context.trace_id());
    assert!(
        trace.starts_with(&SAMPLED[..36]) && trace.ends_with("-01"),
        "{trace}"
    );
    assert_eq!(run.status, Status::error("é".repeat(512)), "cut");
    let names: Vec<_> = run.attributes.iter().map(|it| it.key.as_str()).collect();
    let expected = [
        "messaging.system",
        "messaging.destination.name",
        "messaging.message.id",
        "messaging.operation.name",
        "messaging.operation.type",
        "dueline.attempt",
        "error.type",
    ];
    assert_eq!(names, expected);
}

#[test]
fn f_130_only_a_sampled_trace_has_steps_and_only_a_submit_begins_one() {
    let (job, id) = task(2);
    let unsampled = SAMPLED.replace("-01", "-00");
    for trace in [None, Some("nonsense"), Some(&*unsampled)] {
        let span = TaskSpan::start(Step::Claim, trace, &job, &id, Began::now());
        assert!(span.is_none(), "{trace:?}");
    }
    let span = TaskSpan::submit(Some(&unsampled), &job, &id, Began::now());
    assert!(span.is_none(), "the client did not sample");
    assert!(recorded(&id).is_empty());
    for trace in [None, Some("nonsense")] {
        assert!(TaskSpan::submit(trace, &job, &id, Began::now()).is_some());
    }
    let spans = recorded(&id);
    assert!(
        spans
            .iter()
            .all(|span| span.parent_span_id == SpanId::INVALID)
    );
    assert_ne!(
        spans[0].span_context.trace_id(),
        spans[1].span_context.trace_id()
    );
}

#[tokio::test]
async fn a_submit_within_a_run_belongs_to_its_trace() {
    let (job, id) = task(3);
    let run = TaskSpan::start(Step::Run, Some(SAMPLED), &job, &id, Began::now()).unwrap();
    let submitted = within(Some(&run), async {
        // The span stays active when the future is polled again.
        tokio::task::yield_now().await;
        assert_eq!(active_traceparent(), Some(run.traceparent()));
        TaskSpan::submit(None, &job, &id, Began::now())
            .unwrap()
            .traceparent()
    });
    let submitted = submitted.await;
    assert!(active().is_none(), "the span is active within only");
    assert_eq!(submitted[..36], run.traceparent()[..36]);
    drop(run);
    let spans = recorded(&id);
    assert_eq!(spans[0].parent_span_id, spans[1].span_context.span_id());
}
