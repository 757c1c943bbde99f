//! Traces of tasks in one process.

use dueline_tests_end_to_end::{ChildProcess, Collector, RestClient, TestFolder, dueline};
use serde_json::{Value, json};

use crate::s;

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";

/// A server with these variables and a job whose tasks answer their `TRACEPARENT`.
async fn start(folder: &TestFolder, variables: &[(&str, &str)]) -> (ChildProcess, RestClient) {
    let store = folder.store().display().to_string();
    let args = ["serve", "--data", &store, "--listen", "127.0.0.1:0"];
    let mut server = ChildProcess::start_with(folder, "server", dueline(), &args, variables);
    let url = server.line_after("listening on ").await;
    let api = RestClient::new(&url.unwrap_or_else(|| panic!("{}", server.log())));
    let script = r#"printf '"%s"' "$TRACEPARENT""#;
    let config = json!({"command": ["sh", "-c", script]});
    let job = json!({"handler": {"kind": "exec", "config": config}});
    api.put_job("job", job, json!({})).await;
    (server, api)
}

/// Submits a task with a trace context and returns it when it has ended.
async fn run(api: &RestClient, traceparent: &str) -> Value {
    let headers = [("traceparent", traceparent)];
    let submitted = api.post_with("jobs/job/tasks", &json!({}), &headers).await;
    let id = submitted.expect_success()["id"].clone();
    let id = id.as_str().expect("an id");
    let task = api.finished("job", id, s(30)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn f_130_g_12_a_command_continues_the_trace_of_the_client_as_a_child_of_its_run() {
    let (folder, collector) = (TestFolder::new(), Collector::start().await);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_SERVICE_NAME", "shop"),
        // Only the end of the process exports.
        ("OTEL_BSP_SCHEDULE_DELAY", "600000"),
    ];
    let (mut server, api) = start(&folder, &variables).await;
    let task = run(&api, &format!("00-{TRACE_ID}-{CLIENT_SPAN}-01")).await;
    let unsampled = format!("00-{}-{CLIENT_SPAN}-00", "1".repeat(32));
    let ignored = run(&api, &unsampled).await;
    assert_eq!(ignored["result"], json!(unsampled));
    assert!(collector.spans().is_empty());
    server.signal("TERM");
    assert!(server.exited(s(30)).await.success(), "{}", server.log());

    let spans = collector.trace(TRACE_ID);
    let all = collector.spans();
    assert_eq!(
        all.len(),
        spans.len(),
        "an unsampled trace has no spans: {all:#?}"
    );
    let named = |name: &str| {
        let mut found = spans.iter().filter(|span| span.name == name);
        let only = found
            .next()
            .unwrap_or_else(|| panic!("no '{name}' in {spans:#?}"));
        assert!(found.next().is_none(), "'{name}' twice in {spans:#?}");
        assert_eq!(only.service, "shop");
        assert_eq!(only.attributes["messaging.message.id"], task["id"]);
        assert_eq!(only.attributes["messaging.destination.name"], "job");
        only
    };
    let (submit, claim) = (named("submit job"), named("claim job"));
    let (run, outcome) = (named("run job"), named("outcome job"));
    assert_eq!(submit.parent_id, CLIENT_SPAN);
    assert_eq!(run.parent_id, claim.id);
    assert_eq!(outcome.parent_id, run.id);
    assert_eq!(run.attributes["dueline.outcome"], "success");
    assert_eq!(outcome.attributes["dueline.state"], "succeeded");
    let expected = format!("00-{TRACE_ID}-{}-01", run.id);
    assert_eq!(
        task["result"],
        json!(expected),
        "the command continues its run"
    );

    // The worker waited in the same process, or the message went through the queue.
    let parent = |id: &str| spans.iter().find(|span| span.id == id);
    let above = std::iter::successors(parent(&claim.parent_id), |span| parent(&span.parent_id));
    let above: Vec<_> = above.map(|span| span.name.as_str()).collect();
    let queued = ["receive job", "send job", "enqueue job", "submit job"];
    assert!(above == ["submit job"] || above == queued, "{above:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_130_without_export_a_command_gets_the_trace_context_of_the_client() {
    let folder = TestFolder::new();
    let (_server, api) = start(&folder, &[]).await;
    let sent = format!("00-{TRACE_ID}-{CLIENT_SPAN}-01");
    assert_eq!(run(&api, &sent).await["result"], json!(sent));
    assert_eq!(run(&api, "nonsense").await["result"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_cannot_be_followed_is_refused_at_the_start() {
    let folder = TestFolder::new();
    let store = folder.store().display().to_string();
    let args = ["serve", "--data", &store, "--listen", "127.0.0.1:0"];
    let variables = [
        ("OTEL_TRACES_EXPORTER", "otlp"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ];
    let mut server = ChildProcess::start_with(&folder, "server", dueline(), &args, &variables);
    assert!(!server.exited(s(30)).await.success());
    let log = server.log();
    assert!(
        log.contains("OTEL_EXPORTER_OTLP_PROTOCOL") && log.contains("grpc"),
        "{log}"
    );
}
