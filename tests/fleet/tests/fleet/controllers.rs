//! One controller per host: its address, its buffer, its jobs.

use std::time::Duration;

use dueline_tests_end_to_end::{Place, RunLog, exec_job, hold, pause, say, wait_until};
use dueline_tests_fleet::{Fleet, Plan, Site, with_others};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{fleet, s, words};

/// Most messages that a controller holds; see its settings.
const BUFFER_MAX: u64 = 2_000;

/// All but a controller.
fn no_controller() -> Plan {
    Plan {
        controllers: 0,
        ..Plan::default()
    }
}

/// A job whose runs hang until there is a file.
fn hangs(place: &Place, log: &RunLog) -> Value {
    let go = place.file("go").display().to_string();
    exec_job(log, &format!("while [ ! -e '{go}' ]; do sleep 0.2; done"))
}

fn let_go(place: &Place) {
    std::fs::write(place.file("go"), "").expect("a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_122_a_second_controller_at_the_same_address_refuses_to_start() {
    let _turn = with_others().await;
    let fleet = fleet(&Plan::default()).await;
    let address = fleet.member("controller-0").url().replace("http://", "");
    let mut args = vec!["--listen".to_owned(), address.clone()];
    args.extend(fleet.controller_args(1, &[]));
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let variables = Site::variables();
    let ended = fleet
        .site()
        .run("dueline-controller", &args, &variables)
        .await;
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains(&format!("failed to listen on {address}")),
        "{ended:?}"
    );
    // The first one has not noticed.
    let api = fleet.api();
    api.put_noop("job", json!({})).await;
    let id = api.submit("job", &json!({})).await;
    let task = api.finished("job", &id, s(30)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_122_a_controller_that_is_asked_to_stop_returns_what_it_has_buffered() {
    const TASKS: usize = 20;
    let _turn = with_others().await;
    let mut fleet = fleet(&no_controller()).await;
    let (api, aws) = (fleet.api().clone(), fleet.site().aws());
    let log = RunLog::new(fleet.site().place());
    let hangs = hangs(fleet.site().place(), &log);
    api.put_job("job", hangs, json!({"enqueue_timeout_ms": 300_000}))
        .await;
    fleet.start_controller(0, &[]).await;
    fleet.start_executor(0, 0, &words("--concurrency 1")).await;
    for _ in 0..TASKS {
        api.submit("job", &json!({})).await;
    }
    // One runs, and the controller has all others.
    wait_until("messages in the buffer", s(30), async || {
        match (log.begun().len(), aws.messages("job").await) {
            (1, (0, taken)) if taken > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    fleet.start_controller(1, &[]).await;
    fleet.start_executor(1, 0, &words("--concurrency 4")).await;
    let_go_after_a_look(&fleet, &log).await;

    let asked = Instant::now();
    let status = fleet.stop("controller-0", s(20)).await;
    assert_eq!(status.code(), Some(0), "{}", log_of(&fleet, "controller-0"));
    api.count("job", "succeeded", TASKS - 1, s(25)).await;
    let took = asked.elapsed();
    say(&format!(
        "{} buffered tasks ran elsewhere {:.1} s after SIGTERM",
        TASKS - 1,
        took.as_secs_f64()
    ));
    // Far sooner than by the visibility timeout of 30 s, by which they come back from a controller that crashed.
    assert!(took < s(20), "{took:?}");
}

/// Another host gets nothing of what the first one holds. Then nothing hangs any more but the run that began to.
async fn let_go_after_a_look(fleet: &Fleet, log: &RunLog) {
    hold("one run", s(2), async || match log.begun().len() {
        1 => Ok(()),
        runs => Err(format!("{runs} runs")),
    })
    .await;
    let executor = fleet.member("executor-0-0").process();
    executor.signal("STOP");
    let_go(fleet.site().place());
}

fn log_of(fleet: &Fleet, name: &str) -> String {
    fleet.member(name).process().log()
}

#[tokio::test(flavor = "multi_thread")]
async fn f_122_the_buffer_of_a_controller_keeps_its_limit() {
    const TASKS: usize = 2_600;
    let _turn = with_others().await;
    let mut fleet = fleet(&no_controller()).await;
    let api = fleet.api().clone();
    let log = RunLog::new(fleet.site().place());
    let hangs = hangs(fleet.site().place(), &log);
    api.put_job("job", hangs, json!({"enqueue_timeout_ms": 300_000}))
        .await;
    fleet.start_controller(0, &[]).await;
    fleet.start_executor(0, 0, &words("--concurrency 1")).await;
    let batch = vec![json!({}); TASKS / 4];
    for _ in 0..4 {
        api.submit_all("job", batch.clone(), s(60)).await;
    }
    let controller = dueline_tests_end_to_end::Client::new(fleet.member("controller-0").url());
    let since = Instant::now();
    let (mut most, mut full_since) = (0, None);
    while full_since.is_none_or(|at: Instant| at.elapsed() < s(4)) {
        assert!(
            since.elapsed() < s(60),
            "only {most} messages were buffered"
        );
        let buffered = gauge(&controller).await;
        assert!(buffered <= BUFFER_MAX, "{buffered} messages are buffered");
        most = buffered.max(most);
        if most > BUFFER_MAX * 3 / 4 && full_since.is_none() {
            full_since = Some(Instant::now());
        }
        pause(Duration::from_millis(100)).await;
    }
    say(&format!(
        "{most} of {TASKS} tasks were buffered, at most {BUFFER_MAX} may be"
    ));
    assert_eq!(log.begun().len(), 1);
}

async fn gauge(controller: &dueline_tests_end_to_end::Client) -> u64 {
    let (status, text) = controller.page("metrics").await.expect("metrics");
    assert_eq!(status, 200, "{text}");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("dueline_controller_buffered "));
    line.and_then(|value| value.parse::<f64>().ok())
        .unwrap_or(0.0) as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn f_027_f_123_a_controller_takes_nothing_of_jobs_that_it_does_not_serve() {
    let _turn = with_others().await;
    let mut fleet = fleet(&no_controller()).await;
    let (api, aws) = (fleet.api().clone(), fleet.site().aws());
    for job in ["a", "b", "c"] {
        api.put_noop(job, json!({})).await;
        api.submit(job, &json!({})).await;
    }
    fleet.start_controller(0, &["--jobs", "a,b"]).await;
    fleet.start_executor(0, 0, &[]).await;
    let late = api.submit("c", &json!({})).await;
    for job in ["a", "b"] {
        api.submit(job, &json!({})).await;
        api.count(job, "succeeded", 2, s(30)).await;
    }
    hold("the other job", s(3), async || {
        let stats = api.stats("c").await;
        match (
            stats["by_state"]["enqueued"].as_u64(),
            aws.messages("c").await,
        ) {
            (Some(2), (messages, 0)) if messages > 0 => Ok(()),
            (_, messages) => Err(format!("{stats}, {messages:?}")),
        }
    })
    .await;
    let task = api.task("c", &late).await;
    assert_eq!(
        (&task["tries"], &task["losses"]),
        (&json!(0), &json!(0)),
        "{task}"
    );
    // Nobody has ever had these messages in hand.
    assert_eq!(aws.receives("c").await, 1);

    // A host that serves the job runs them.
    fleet.start_controller(1, &["--jobs", "c"]).await;
    fleet.start_executor(1, 0, &[]).await;
    api.count("c", "succeeded", 2, s(60)).await;
}
