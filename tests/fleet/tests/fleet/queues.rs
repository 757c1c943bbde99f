//! One queue per job.

use dueline_tests_end_to_end::{print_note, wait_until};
use dueline_tests_fleet::{FleetPlan, shared_machine};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::{fleet, s, words};

const JOBS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn f_121_a_hundred_jobs_have_a_hundred_queues_that_are_created_and_deleted_with_them() {
    let _machine = shared_machine().await;
    let plan = FleetPlan {
        executor_args: words("--concurrency 8"),
        ..FleetPlan::default()
    };
    let fleet = fleet(&plan).await;
    let (api, engines) = (fleet.api(), fleet.resources().engine_clients());
    // The quarantine queue exists before all of them.
    let quarantine = engines.queues().await;
    assert_eq!(quarantine, [engines.queue("-quarantine")]);

    let jobs: Vec<_> = (0..JOBS).map(|number| format!("job-{number:03}")).collect();
    let since = Instant::now();
    each(&jobs, async |job| api.put_noop(job, json!({})).await).await;
    let created = since.elapsed();
    let mut expected: Vec<_> = jobs.iter().map(|job| engines.queue(job)).collect();
    expected.splice(0..0, quarantine.clone());
    assert_eq!(engines.queues().await, expected);
    for job in [&jobs[0], &jobs[JOBS / 2], &jobs[JOBS - 1]] {
        let tags = engines.tags(&engines.queue(job)).await;
        assert_eq!(&tags["dueline:job"], job);
        assert_eq!(tags["dueline:prefix"], fleet.resources().prefix());
    }

    // Each queue delivers tasks.
    let since = Instant::now();
    each(&jobs, async |job| {
        let id = api.submit(job, &json!({})).await;
        let task = api.finished(job, &id, s(60)).await;
        assert_eq!(
            (&task["state"], &task["tries"]),
            (&json!("succeeded"), &json!(1)),
            "{task}"
        );
    })
    .await;

    let ran = since.elapsed();
    let since = Instant::now();
    each(&jobs, async |job| {
        let path = format!("jobs/{job}");
        api.call_until_answered(Method::DELETE, &path, None, s(20))
            .await;
    })
    .await;
    // No process creates a deleted queue again either.
    wait_until("the queues to be deleted", s(20), async || {
        match engines.queues().await {
            left if left == quarantine => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    print_note(&format!(
        "{JOBS} jobs with their queues: created in {:.1} s, one task of each run in {:.1} s, deleted in {:.1} s",
        created.as_secs_f64(),
        ran.as_secs_f64(),
        since.elapsed().as_secs_f64()
    ));
}

/// Applies `act` to all jobs, to some of them at once.
async fn each(jobs: &[String], act: impl AsyncFn(&str)) {
    for some in jobs.chunks(10) {
        join_all(some.iter().map(|job| act(job))).await;
    }
}
