//! Servers and workers are killed at random while tasks are submitted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use dueline_tests_end_to_end::{
    RestClient, RunLog, ServerProcess, TestFolder, WorkerProcess, exec_job, new_id, pause,
    print_note, wait_until,
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

const JOBS: [&str; 3] = ["first", "second", "third"];
const TASKS_PER_JOB: usize = 500;
/// Processes are killed during this time.
const KILLS_LAST: Duration = Duration::from_secs(22);
/// Tasks are submitted during this time.
const INTAKE: Duration = Duration::from_secs(20);
/// All tasks must have succeeded this long after the last kill.
const CALM_MAX: Duration = Duration::from_secs(60);
const BATCH: usize = 10;

/// Timeouts below the defaults, so that lost tasks are enqueued again while processes are still being killed.
fn policy() -> Value {
    json!({
        "retries_max": 50,
        "losses_max": 50,
        "heartbeat_timeout_ms": 4_000,
        "claim_timeout_ms": 4_000,
        "enqueue_timeout_ms": 5_000,
    })
}

const HEARTBEATS: [&str; 2] = ["--set", "worker.heartbeat_interval_ms=1000"];

/// Also shows F-129: a client that repeats its calls gets every task accepted, whichever processes die.
#[tokio::test(flavor = "multi_thread")]
async fn f_112_f_116_f_117_g_01_nothing_accepted_is_lost_while_servers_and_workers_are_killed() {
    let seed = std::env::var("DUELINE_E2E_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..1_000_000));
    print_note(&format!("crash loop: DUELINE_E2E_SEED={seed}"));
    let mut rng = fastrand::Rng::with_seed(seed);

    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server_args = [&["--no-worker"], &HEARTBEATS[..]].concat();
    let mut server = ServerProcess::start(&folder, &server_args).await;
    for job in JOBS {
        // The payload says how long to run.
        let spec = exec_job(&log, r#"sleep "$(cat)""#);
        server.api.put_job(job, spec, policy()).await;
    }
    let worker_args = [&["--concurrency", "8"], &HEARTBEATS[..]].concat();
    let start = |name| WorkerProcess::launch(&folder, server.url(), name, &worker_args);
    let mut workers = [start("host-a"), start("host-b")];

    let mut intake = JoinSet::new();
    for job in JOBS {
        intake.spawn(submit_all(server.api.clone(), job, rng.fork()));
    }
    let kills = kill_at_random(&mut server, &mut workers, &mut rng).await;
    let calm = Instant::now();
    let mut accepted = BTreeMap::new();
    let mut resubmits = 0;
    while let Some(done) = intake.join_next().await {
        let (job, ids, retries) = done.expect("a client that got its answers");
        resubmits += retries;
        accepted.insert(job, ids);
    }
    for job in JOBS {
        wait_until(
            "all tasks to succeed",
            CALM_MAX.saturating_sub(calm.elapsed()),
            async || {
                let stats = server.api.stats(job).await;
                let done = stats["by_state"]["succeeded"] == TASKS_PER_JOB;
                if done { Ok(()) } else { Err(stats.to_string()) }
            },
        )
        .await;
    }
    let drained = calm.elapsed();

    let mut tally = CrashLoopTally::default();
    for job in JOBS {
        tally.check(job, &accepted[job], &server.api.tasks(job).await, &log);
    }
    print_note(&format!(
        "crash loop: {} kills of the server, {} of workers; {} tasks accepted, {resubmits} calls repeated; \
         {} runs, {} of them repeats ({} lost runs and {} lost claims on record); all done {:.1} s after the last kill",
        kills.server,
        kills.workers,
        JOBS.len() * TASKS_PER_JOB,
        tally.runs,
        tally.repeats,
        tally.lost_runs,
        tally.lost_claims,
        drained.as_secs_f64(),
    ));
    // Only kills repeat runs: no lost run belongs to a worker that is still alive.
    for name in ["host-a", "host-b"] {
        let living = living_worker(&server.api, name).await;
        assert!(
            !tally.blamed.contains(&living),
            "{living} was never killed: {:?}",
            tally.blamed
        );
    }
    assert!(tally.blamed.len() <= kills.workers, "{:?}", tally.blamed);
    let hosts: BTreeSet<_> = log.begun().into_iter().map(|entry| entry.host).collect();
    assert_eq!(hosts.len(), 2, "both hosts took part");
    assert!(
        kills.server >= 3 && kills.workers >= 3,
        "too few kills: {} of the server, {} of workers",
        kills.server,
        kills.workers
    );
    assert!(tally.lost_runs > 0, "no kill hit a running task");
}

struct CrashLoopKills {
    server: usize,
    workers: usize,
}

async fn kill_at_random(
    server: &mut ServerProcess<'_>,
    workers: &mut [WorkerProcess<'_>; 2],
    rng: &mut fastrand::Rng,
) -> CrashLoopKills {
    let since = Instant::now();
    let mut kills = CrashLoopKills {
        server: 0,
        workers: 0,
    };
    while since.elapsed() < KILLS_LAST {
        pause(Duration::from_millis(rng.u64(100..1_500))).await;
        let victim = rng.usize(..4);
        if victim != 3 || rng.bool() {
            match victim {
                0 | 1 => {
                    workers[victim].kill().await;
                    workers[victim].launch_again();
                    kills.workers += 1;
                }
                _ => {
                    server.kill().await;
                    server.start_again().await;
                    kills.server += 1;
                }
            }
        } else {
            // All processes at once, like a power failure.
            server.kill().await;
            for worker in &mut *workers {
                worker.kill().await;
                worker.launch_again();
                kills.workers += 1;
            }
            server.start_again().await;
            kills.server += 1;
        }
    }
    kills
}

/// Submits the tasks of one job, alone and in batches, some of them due later. Every call is repeated with the same ids
/// until it is answered. Returns the ids, and the number of calls without an answer.
async fn submit_all(
    api: RestClient,
    job: &'static str,
    mut rng: fastrand::Rng,
) -> (&'static str, BTreeSet<String>, u32) {
    let since = Instant::now();
    let mut ids = BTreeSet::new();
    let mut retries = 0;
    while ids.len() < TASKS_PER_JOB {
        let tasks: Vec<Value> = (0..BATCH).map(|_| task(&mut rng)).collect();
        ids.extend(
            tasks
                .iter()
                .map(|task| task["id"].as_str().unwrap_or_default().to_owned()),
        );
        if rng.bool() {
            retries += submit_batch_until_accepted(&api, job, tasks).await;
        } else {
            for task in tasks {
                let path = format!("jobs/{job}/tasks");
                let (answer, calls) = api.call_until_answered(&path, &task, CALM_MAX).await;
                assert_eq!(answer["id"], task["id"]);
                retries += calls;
            }
        }
        let next = INTAKE.mul_f64(ids.len() as f64 / TASKS_PER_JOB as f64);
        pause(next.saturating_sub(since.elapsed())).await;
    }
    (job, ids, retries)
}

fn task(rng: &mut fastrand::Rng) -> Value {
    let mut task = json!({
        "id": new_id(rng),
        "payload": rng.u32(0..200) as f64 / 1_000.0,
        "priority": rng.i32(-5..5),
    });
    if rng.u8(..4) == 0 {
        task["delay_ms"] = json!(rng.u32(0..3_000));
    }
    task
}

/// Submits a batch. Items with retryable errors are submitted again.
async fn submit_batch_until_accepted(api: &RestClient, job: &str, mut tasks: Vec<Value>) -> u32 {
    let mut retries = 0;
    while !tasks.is_empty() {
        let path = format!("jobs/{job}/tasks:batch");
        let (answer, calls) = api
            .call_until_answered(&path, &json!(tasks), CALM_MAX)
            .await;
        retries += calls;
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        assert_eq!(results.len(), tasks.len(), "{answer}");
        let mut refused = Vec::new();
        for (task, result) in tasks.into_iter().zip(results) {
            if result["error"].is_null() {
                assert_eq!(result["id"], task["id"]);
            } else {
                assert_eq!(result["error"]["retryable"], true, "{result}");
                refused.push(task);
                retries += 1;
            }
        }
        tasks = refused;
    }
    retries
}

/// Compares the tasks in the store with the run log.
#[derive(Default)]
struct CrashLoopTally {
    runs: usize,
    repeats: usize,
    lost_runs: u64,
    lost_claims: u64,
    /// Workers whose runs were lost.
    blamed: BTreeSet<String>,
}

impl CrashLoopTally {
    fn check(&mut self, job: &str, accepted: &BTreeSet<String>, tasks: &[Value], log: &RunLog) {
        let stored: BTreeSet<_> = tasks.iter().map(|task| text(&task["id"])).collect();
        assert_eq!(stored.len(), tasks.len(), "{job} lists a task twice");
        assert_eq!(
            &stored, accepted,
            "{job}: lost tasks, or tasks that were never submitted"
        );
        let begun = log.begun_by_task();
        let done: BTreeSet<_> = log
            .done()
            .into_iter()
            .map(|entry| (entry.task, entry.attempt))
            .collect();
        for task in tasks {
            let id = text(&task["id"]);
            assert_eq!(task["state"], "succeeded", "{task}");
            let runs = task["runs"].as_array().expect("a history");
            let (last, earlier) = runs.split_last().expect("a run");
            assert_eq!(last["end"], "succeeded", "{task}");
            // The run whose outcome was stored did return.
            let attempt = task["attempt"].as_u64().and_then(|n| u32::try_from(n).ok());
            let attempt = attempt.expect("a number of a run");
            assert!(
                done.contains(&(id.clone(), attempt)),
                "run {attempt} did not finish: {task}"
            );
            for run in earlier {
                assert_eq!(run["end"], "lost", "{task}");
                self.blamed.insert(text(&run["worker"]));
            }
            // Every run is stored as a try, or as a claim that was lost before its start was stored.
            let (tries, losses) = (number(&task["tries"]), number(&task["losses"]));
            let count = begun.get(&id).copied().unwrap_or_default();
            assert!(count >= 1, "never ran: {task}");
            assert!(count as u64 <= tries + losses, "ran {count} times: {task}");
            self.runs += count;
            self.repeats += count - 1;
            self.lost_runs += tries - 1;
            self.lost_claims += losses;
        }
    }
}

/// The worker of this name that is alive: it registered last and has sent another heartbeat since.
async fn living_worker(api: &RestClient, name: &str) -> String {
    let mut before = None;
    wait_until(
        "a heartbeat of the newest worker",
        Duration::from_secs(20),
        async || {
            let answer = api.get("workers").await.expect_success();
            let workers = answer["workers"].as_array().cloned().unwrap_or_default();
            let newest = workers
                .into_iter()
                .filter(|worker| text(&worker["id"]).starts_with(&format!("{name}@")))
                .max_by_key(|worker| text(&worker["started_at"]))
                .ok_or_else(|| format!("no worker called {name}"))?;
            let (id, seen_at) = (text(&newest["id"]), text(&newest["seen_at"]));
            match &before {
                Some((known, first)) if *known == id && *first != seen_at => return Ok(id),
                Some((known, _)) if *known == id => {}
                _ => before = Some((id, seen_at)),
            }
            Err(answer.to_string())
        },
    )
    .await
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}
