//! Recovery of tasks whose worker was killed.

use dueline_tests_end_to_end::{
    RunLog, ServerProcess, TestFolder, WorkerProcess, exec_job, print_note, wait_until,
};
use serde_json::json;
use tokio::time::Instant;

use crate::s;

/// The first run of a task hangs; later runs end at once.
const FIRST_RUN_HANGS: &str = r#"if [ "$DUELINE_ATTEMPT" = 0 ]; then sleep 60; fi; sleep 0.5"#;

/// Heartbeat timeout (8 s), two poll periods (1 s each), and slack for a busy machine.
const RECOVERY_MAX: std::time::Duration = s(12);

#[tokio::test(flavor = "multi_thread")]
async fn f_049_f_065_f_078_g_01_tasks_of_a_killed_worker_run_elsewhere_within_seconds_by_default() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let (api, url) = (&server.api, server.url());
    api.put_job("hang", exec_job(&log, FIRST_RUN_HANGS), json!({}))
        .await;

    // Without prefetch each worker claims exactly the tasks that it runs.
    let four = ["--concurrency", "4", "--set", "worker.concurrency_min=4"];
    let mut doomed = WorkerProcess::start(&folder, api, url, "host-a", &four).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(api.submit("hang", json!({})).await);
    }
    for id in &ids {
        api.in_state("hang", id, "processing", s(20)).await;
    }
    wait_until("four runs to begin", s(20), async || {
        match log.begun().len() {
            4 => Ok(()),
            runs => Err(format!("{runs}")),
        }
    })
    .await;

    let two = ["--concurrency", "2", "--set", "worker.concurrency_min=2"];
    let _other = WorkerProcess::start(&folder, api, url, "host-b", &two).await;
    let killed_id = doomed.id.clone();
    doomed.kill().await;
    let killed = Instant::now();
    // A new process of the same name: it must not be mistaken for the dead one, nor delay the recovery of its tasks.
    let mut successor = WorkerProcess::launch(&folder, url, "host-a", &two);

    let mut waits = Vec::new();
    for id in &ids {
        wait_until("the second run", s(30), async || {
            match log.begun_of(id).len() {
                2 => Ok(()),
                _ => Err(api.task("hang", id).await.to_string()),
            }
        })
        .await;
        waits.push(killed.elapsed());
        let task = api.finished("hang", id, s(20)).await;
        assert_eq!(task["state"], "succeeded", "{task}");
        assert_eq!(task["tries"], 2, "{task}");
        assert_eq!(task["runs"][0]["end"], "lost", "{task}");
        assert_eq!(task["runs"][0]["worker"], killed_id.as_str(), "{task}");
        assert_eq!(task["runs"][1]["end"], "succeeded", "{task}");
    }
    let (first, last) = (waits[0], waits[3]);
    print_note(&format!(
        "killed worker, default settings: runs elsewhere after {:.1} s to {:.1} s",
        first.as_secs_f64(),
        last.as_secs_f64()
    ));
    assert!(last < RECOVERY_MAX, "{last:?}");
    // At least 6 s of the leases were left. An earlier run would mean that the owner was identified by name alone.
    assert!(first > s(4), "{first:?}");
    // Two runs each: the new process of the same name runs its share.
    let begun = log.begun();
    let second_runs = |host| begun[4..].iter().filter(|entry| entry.host == host).count();
    assert_eq!(
        (second_runs("host-a"), second_runs("host-b")),
        (2, 2),
        "{begun:#?}"
    );
    successor.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f_112_a_run_of_the_servers_own_worker_is_repeated_as_soon_as_the_server_restarts() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &["--worker-name", "inside"]).await;
    let again = exec_job(&log, FIRST_RUN_HANGS);
    server.api.put_job("again", again, json!({})).await;
    let once = exec_job(&log, "sleep 60");
    server
        .api
        .put_job("once", once, json!({"retries_max": 0}))
        .await;
    let again = server.api.submit("again", json!({})).await;
    let once = server.api.submit("once", json!({})).await;
    server
        .api
        .in_state("again", &again, "processing", s(20))
        .await;
    server
        .api
        .in_state("once", &once, "processing", s(20))
        .await;
    wait_until("two runs to begin", s(20), async || {
        match log.begun().len() {
            2 => Ok(()),
            runs => Err(format!("{runs}")),
        }
    })
    .await;

    server.kill().await;
    let killed = Instant::now();
    server.start_again().await;
    wait_until("the second run", s(20), async || {
        match log.begun_of(&again).len() {
            2 => Ok(()),
            _ => Err(server.api.task("again", &again).await.to_string()),
        }
    })
    .await;
    let wait = killed.elapsed();
    print_note(&format!(
        "killed server with its own worker: runs again after {:.2} s, start of the server included",
        wait.as_secs_f64()
    ));
    assert!(wait < s(5), "{wait:?}");
    let task = server.api.finished("again", &again, s(20)).await;
    assert_eq!(task["state"], "succeeded", "{task}");
    assert_eq!(task["tries"], 2, "{task}");
    assert_eq!(task["runs"][0]["end"], "lost", "{task}");
    assert!(
        task["runs"][0]["worker"]
            .as_str()
            .unwrap()
            .starts_with("inside@"),
        "{task}"
    );

    // The task has no retries, so it must not run twice.
    let task = server.api.finished("once", &once, s(20)).await;
    assert_eq!(task["state"], "failed", "{task}");
    assert_eq!(task["tries"], 1, "{task}");
    assert_eq!(task["runs"][0]["end"], "lost", "{task}");
    assert_eq!(log.begun_of(&once).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_113_a_task_of_a_crashed_server_runs_again_at_once_or_after_the_backoff_of_its_job() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &["--worker-name", "inside"]).await;
    let job = exec_job(&log, FIRST_RUN_HANGS);
    // Between 6 and 7.5 s.
    let wait = json!({"initial_ms": 6_000, "max_ms": 6_000, "jitter": 0.25});
    let later = json!({"backoff": {"worker_lost": wait}});
    server.api.put_job("at-once", job.clone(), json!({})).await;
    server.api.put_job("later", job, later).await;
    let mut ids = Vec::new();
    for job in ["at-once", "later"] {
        let id = server.api.submit(job, json!({})).await;
        server.api.in_state(job, &id, "processing", s(20)).await;
        ids.push(id);
    }
    wait_until("two runs to begin", s(20), async || {
        match log.begun().len() {
            2 => Ok(()),
            runs => Err(format!("{runs}")),
        }
    })
    .await;

    server.kill().await;
    server.start_again().await;
    let opened = Instant::now();
    let [at_once, later] = [&ids[0], &ids[1]];
    let task = server.api.task("later", later).await;
    assert_eq!(task["state"], "retriable", "{task}");
    let lost = &task["runs"][0];
    assert_eq!((&lost["end"], &task["tries"]), (&json!("lost"), &json!(1)));
    for (job, id) in [("at-once", at_once), ("later", later)] {
        wait_until("the second run", s(20), async || {
            match log.begun_of(id).len() {
                2 => Ok(()),
                _ => Err(server.api.task(job, id).await.to_string()),
            }
        })
        .await;
        let waited = opened.elapsed();
        let (least, most) = if job == "later" {
            (s(4), s(12))
        } else {
            (s(0), s(4))
        };
        assert!((least..most).contains(&waited), "{job}: {waited:?}");
        let task = server.api.finished(job, id, s(20)).await;
        assert_eq!(task["state"], "succeeded", "{task}");
        assert_eq!(task["tries"], 2, "{task}");
    }
}
