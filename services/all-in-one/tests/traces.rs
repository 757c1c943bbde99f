//! Traces of tasks in an embedding program that has a tracer provider of its own.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use dueline_all_in_one::{Node, NodeConfig, WorkerConfig};
use dueline_api::{
    Call, Frontend,
    operation::{GetTask, PutJob, Submit},
};
use dueline_domain::{Backoff, Job, JobName, NewTask, Policy, RetryPolicy, StateKind, TaskId};
use dueline_executor::{Config, Failure, Registry, RunningTask, handler_fn};
use dueline_ports::{Clock as _, Rng as _};
use dueline_runtime::{SystemClock, SystemRng};
use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};

const LONG: Duration = Duration::from_secs(20);

fn job() -> JobName {
    JobName::parse("job").unwrap()
}

fn new_task(payload: &'static str) -> NewTask {
    let id = SystemRng.task_id(SystemClock.now());
    NewTask::now(id, job(), payload.into())
}

/// The spans of a task as (name, id, parent), in the order of their beginning.
fn spans(exporter: &InMemorySpanExporter, task: &TaskId) -> Vec<(String, SpanId, SpanId)> {
    let id = task.to_string();
    let is_of_task = |span: &SpanData| span.attributes.iter().any(|it| it.value.as_str() == id);
    let mut spans = exporter.get_finished_spans().unwrap();
    spans.retain(is_of_task);
    spans.sort_by_key(|span| span.start_time);
    let short = |span: SpanData| {
        let id = span.span_context.span_id();
        (span.name.into_owned(), id, span.parent_span_id)
    };
    spans.into_iter().map(short).collect()
}

/// A handler that fails once, and then submits another task in its place.
async fn handle(
    task: RunningTask,
    node: Arc<Mutex<Option<Arc<dyn Frontend>>>>,
) -> Result<(), Failure> {
    assert_eq!(task.trace(), dueline_trace::active_traceparent().as_deref());
    if task.input() == "child" {
        return Ok(());
    }
    if task.attempt() == 0 {
        return Err(Failure::from("once"));
    }
    let frontend = node.lock().unwrap().clone().unwrap();
    let child = new_task("child");
    let id = child.id;
    frontend
        .call(&Call::default(), Submit { tasks: vec![child] })
        .await
        .unwrap()
        .remove(0)?;
    task.succeed(id.to_string()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn f_130_a_retry_and_a_task_submitted_by_a_handler_belong_to_the_trace() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
    opentelemetry::global::set_tracer_provider(provider.build());
    dueline_trace::switch_on();

    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("t.db").display());
    let mut config = NodeConfig::embedded(store);
    let shared: Arc<Mutex<Option<Arc<dyn Frontend>>>> = Arc::default();
    let in_handler = shared.clone();
    let handler = handler_fn(move |task| handle(task, in_handler.clone()));
    config.workers.push(WorkerConfig {
        executor: Config {
            embedded: true,
            ..Config::new("embedded", 1)
        },
        registry: Registry::builder().job("job", handler).build().unwrap(),
    });
    let node = Node::start(config).await.unwrap();
    let frontend = node.frontend();
    *shared.lock().unwrap() = Some(frontend.clone());
    let wait = Backoff::new(Duration::from_millis(100), 2.0, 0.0, LONG).unwrap();
    let call = Call::default();
    let put = frontend.call(
        &call,
        PutJob::from(Job {
            policy: Policy {
                retry: RetryPolicy {
                    retries_max: Some(2),
                    standard: wait,
                    ..RetryPolicy::default()
                },
                ..Policy::default()
            },
            ..Job::new(job())
        }),
    );
    put.await.unwrap();

    let task = new_task("parent");
    let id = task.id;
    frontend
        .call(&call, Submit { tasks: vec![task] })
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    let ended = frontend
        .call(
            &call,
            GetTask {
                job: job(),
                id,
                wait: Some(LONG),
            },
        )
        .await
        .unwrap();
    assert_eq!((ended.kind(), ended.tries), (StateKind::Succeeded, 2));
    let child = ended.result.unwrap();
    let child: TaskId = std::str::from_utf8(&child).unwrap().parse().unwrap();
    let ended = frontend
        .call(
            &call,
            GetTask {
                job: job(),
                id: child,
                wait: Some(LONG),
            },
        )
        .await
        .unwrap();
    assert_eq!(ended.kind(), StateKind::Succeeded);
    node.stop(LONG).await.unwrap();

    let spans_of = spans(&exporter, &id);
    let named = |name: &str| -> Vec<_> {
        let name = format!("{name} job");
        spans_of.iter().filter(|span| span.0 == name).collect()
    };
    let submit = named("submit")[0];
    assert_eq!(
        submit.2,
        SpanId::INVALID,
        "without a client's trace it begins one"
    );
    let (runs, outcomes) = (named("run"), named("outcome"));
    assert_eq!((runs.len(), outcomes.len()), (2, 2), "{spans_of:#?}");
    for (run, outcome) in runs.iter().zip(&outcomes) {
        assert_eq!(outcome.2, run.1, "an outcome belongs to its run");
    }
    let enqueue = named("enqueue");
    let enqueue = enqueue.last().expect("the consumer enqueues the retry");
    assert_eq!(enqueue.2, submit.1);
    let parent = |id: SpanId| spans_of.iter().find(|span| span.1 == id);
    let above = std::iter::successors(parent(runs[1].2), |span| parent(span.2));
    let above: Vec<_> = above.map(|span| span.0.as_str()).collect();
    let expected = [
        "claim job",
        "receive job",
        "send job",
        "enqueue job",
        "submit job",
    ];
    assert_eq!(above, expected);

    let of_child = spans(&exporter, &child);
    let submit = of_child.iter().find(|span| span.0 == "submit job");
    assert_eq!(submit.expect("a submit").2, runs[1].1);
}
