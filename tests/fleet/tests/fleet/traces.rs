//! Traces of tasks across all processes of a fleet.

use dueline_tests_end_to_end::{CollectedSpan, Collector, wait_until};
use dueline_tests_fleet::{FleetPlan, shared_machine};
use serde_json::json;

use crate::{fleet, s};

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";

/// Checks that the spans are these steps, each recorded once, by the named role, under the step before.
fn assert_steps(spans: &[CollectedSpan], first_parent: &str, steps: &[(&str, &str)]) {
    let found: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(found.len(), steps.len(), "{found:?}");
    let mut parent = (first_parent.to_owned(), 0);
    for (step, role) in steps {
        let name = format!("{step} job");
        let span = spans.iter().find(|span| span.name == name);
        let span = span.unwrap_or_else(|| panic!("no '{name}' in {found:?}"));
        assert_eq!(
            span.parent_id, parent.0,
            "the parent of '{name}' in {spans:#?}"
        );
        assert_eq!(
            span.service,
            format!("dueline-{role}"),
            "who recorded '{name}'"
        );
        assert_eq!(span.attributes["messaging.operation.name"], **step);
        let (began, ended) = span.times;
        assert!(
            parent.1 <= began && began <= ended,
            "the times of '{name}' in {spans:#?}"
        );
        parent = (span.id.clone(), began);
    }
}

/// The steps of a task that the process of `sender` enqueues.
fn steps(sender: &str) -> [(&'static str, &str); 7] {
    [
        ("submit", "frontend"),
        ("enqueue", sender),
        ("send", sender),
        ("receive", "controller"),
        ("claim", "status-controller"),
        ("run", "executor"),
        ("outcome", "status-controller"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn f_130_g_12_one_task_is_one_trace_across_all_processes_and_sqs() {
    let _machine = shared_machine().await;
    let collector = Collector::start().await;
    let plan = FleetPlan {
        variables: vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url().to_owned()),
            ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
            ("OTEL_METRIC_EXPORT_INTERVAL", "500".to_owned()),
        ],
        ..FleetPlan::default()
    };
    let fleet = fleet(&plan).await;
    let api = fleet.api().at(0);
    let script = r#"printf '"%s"' "$TRACEPARENT""#;
    let config = json!({"command": ["sh", "-c", script]});
    let job = json!({"handler": {"kind": "exec", "config": config}});
    api.put_job("job", job, json!({})).await;
    let submit = async |body: serde_json::Value, flags: &str| {
        let trace = format!("00-{TRACE_ID}-{CLIENT_SPAN}-{flags}");
        let headers = [("traceparent", trace.as_str())];
        let headers = if flags.is_empty() { &[][..] } else { &headers };
        let answer = api.post_with("jobs/job/tasks", &body, headers).await;
        answer.expect_success()["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };
    let now = submit(json!({}), "01").await;
    let later = submit(json!({"delay_ms": 1_000}), "").await;
    let unsampled = submit(json!({}), "00").await;
    let mut results = Vec::new();
    for id in [&now, &later, &unsampled] {
        let task = api.finished("job", id, s(60)).await;
        assert_eq!(
            (&task["state"], &task["tries"]),
            (&json!("succeeded"), &json!(1)),
            "{task}"
        );
        results.push(task["result"].clone());
    }

    let spans = collector.trace_with("outcome job", &now, s(30)).await;
    let all_have_come = |spans: &[CollectedSpan]| spans.len() >= steps("").len();
    let complete = async |trace: &str| {
        wait_until("all spans of a trace", s(30), async || {
            let spans = collector.trace(trace);
            match all_have_come(&spans) {
                true => Ok(spans),
                false => Err(format!("{spans:#?}")),
            }
        })
        .await
    };
    let spans = complete(&spans[0].trace_id).await;
    assert_eq!(
        spans[0].trace_id, TRACE_ID,
        "the trace of the client goes on"
    );
    assert_steps(&spans, CLIENT_SPAN, &steps("frontend"));
    let run = spans
        .iter()
        .find(|span| span.name == "run job")
        .expect("a run");
    let in_command = format!("00-{TRACE_ID}-{}-01", run.id);
    assert_eq!(
        results[0],
        json!(in_command),
        "the command continues its run"
    );

    let spans = collector.trace_with("outcome job", &later, s(30)).await;
    let spans = complete(&spans[0].trace_id).await;
    assert_steps(&spans, "", &steps("consumer"));

    let of_unsampled = |span: &CollectedSpan| span.attributes["messaging.message.id"] == unsampled;
    assert!(
        !collector.spans().iter().any(of_unsampled),
        "the client did not sample"
    );

    let (service, counter) = ("dueline-frontend", "dueline_tasks_submitted_total");
    wait_until(
        "the metrics of the frontend",
        s(30),
        async || match collector.counter(service, counter) {
            Some(3) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
    let (_, text) = api.page("metrics").await.expect("a page");
    assert!(text.contains(&format!("{counter} 3")), "{text}");
}
