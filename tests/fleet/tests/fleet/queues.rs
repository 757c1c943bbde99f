//! One queue per job.

use dueline_tests_end_to_end::{say, wait_until};
use dueline_tests_fleet::{Plan, with_others};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::{fleet, s, words};

const JOBS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn f_121_a_hundred_jobs_have_a_hundred_queues_that_come_and_go_with_them() {
    let _turn = with_others().await;
    let plan = Plan {
        executor_args: words("--concurrency 8"),
        ..Plan::default()
    };
    let fleet = fleet(&plan).await;
    let (api, aws) = (fleet.api(), fleet.site().aws());
    // That of messages which are none of ours was there before all of them.
    let others = aws.queues().await;
    assert_eq!(others, [aws.queue("-set-aside")]);

    let jobs: Vec<_> = (0..JOBS).map(|number| format!("job-{number:03}")).collect();
    let since = Instant::now();
    each(&jobs, async |job| api.put_noop(job, json!({})).await).await;
    let made = since.elapsed();
    let mut expected: Vec<_> = jobs.iter().map(|job| aws.queue(job)).collect();
    expected.splice(0..0, others.clone());
    assert_eq!(aws.queues().await, expected);
    for job in [&jobs[0], &jobs[JOBS / 2], &jobs[JOBS - 1]] {
        let tags = aws.tags(&aws.queue(job)).await;
        assert_eq!(&tags["dueline:job"], job);
        assert_eq!(tags["dueline:prefix"], fleet.site().prefix());
    }

    // Each of them leads somewhere.
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
        api.insist(Method::DELETE, &path, None, s(20)).await;
    })
    .await;
    // Nobody makes one again either.
    wait_until("the queues to go", s(20), async || {
        match aws.queues().await {
            left if left == others => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    say(&format!(
        "{JOBS} jobs with their queues: made in {:.1} s, one task of each run in {:.1} s, deleted in {:.1} s",
        made.as_secs_f64(),
        ran.as_secs_f64(),
        since.elapsed().as_secs_f64()
    ));
}

/// For all of them, some at once.
async fn each(jobs: &[String], act: impl AsyncFn(&str)) {
    for some in jobs.chunks(10) {
        join_all(some.iter().map(|job| act(job))).await;
    }
}
