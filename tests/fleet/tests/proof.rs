//! A whole fleet under random kills, while its engines freeze and lose connections and a queue.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dueline_tests_end_to_end::{RunLog, exec_job, new_id, pause, print_note, wait_until};
use dueline_tests_engines::Engine;
use dueline_tests_fleet::{
    EngineClients, Fleet, FleetClient, FleetMember, FleetPlan, FleetRole, HistoryTally,
    SubmittedTask, check_history,
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

/// The job part in the name of the quarantine queue, which receives foreign messages.
const QUARANTINE: &str = "-quarantine";
const JOBS: usize = 20;
/// Jobs whose runs are commands that write to the run log. Runs of the other jobs do nothing.
const LOGGED_JOBS: usize = 2;
const TASKS_PER_JOB: usize = 250;
const CLIENTS: usize = 4;
const BATCH: usize = 10;
/// Tasks are submitted during this time.
const INTAKE: Duration = Duration::from_secs(60);
/// All tasks must have succeeded this long after the last fault. It takes far less unless the machine is busy.
const CALM_MAX: Duration = Duration::from_secs(300);
/// How long each engine is frozen.
const FREEZE: Duration = Duration::from_secs(10);
/// How long both engines are unreachable.
const CUT: Duration = Duration::from_secs(5);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Timeouts below the defaults, so that lost tasks are enqueued again while processes are still being killed.
fn policy() -> Value {
    json!({
        "retries_max": 100,
        "losses_max": 100,
        "heartbeat_timeout_ms": 6_000,
        "claim_timeout_ms": 6_000,
        "enqueue_timeout_ms": 20_000,
        "backoff": {"standard": {"initial_ms": 500}, "worker_lost": {"initial_ms": 100}},
    })
}

fn job_name(number: usize) -> String {
    format!("job-{number:02}")
}

#[tokio::test(flavor = "multi_thread")]
async fn f_112_f_116_f_117_f_128_f_129_f_142_g_01_no_accepted_task_is_lost_while_processes_and_engines_fail()
 {
    let seed = std::env::var("DUELINE_FLEET_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..1_000_000));
    print_note(&format!("fleet: DUELINE_FLEET_SEED={seed}"));
    let mut rng = fastrand::Rng::with_seed(seed);

    let began = Instant::now();
    let (store, queue) = tokio::join!(Engine::dynoxide(), Engine::ministack());
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let plan = FleetPlan {
        frontends: 2,
        consumers: 3,
        status_controllers: 2,
        controllers: 2,
        executors: 2,
        executor_args: words("--concurrency 8 --set worker.heartbeat_interval_ms=1000"),
        // Messages of a killed controller, and those that the engine delivers to its dead polls, become visible again
        // after this time.
        queue_options: "visibility_timeout_s=10",
        ..FleetPlan::default()
    };
    let mut fleet = Fleet::start(store.url(), queue.url(), &plan).await;
    let log = RunLog::new(fleet.resources().folder());
    make_jobs(&fleet, &log).await;
    print_note(&format!("fleet: {} processes up", fleet.members().count()));

    let mut intake = JoinSet::new();
    for client in 0..CLIENTS {
        let jobs = (0..JOBS).filter(|job| job % CLIENTS == client).collect();
        intake.spawn(submit_all(fleet.api().clone(), jobs, rng.fork()));
    }
    let (mut kills_rng, mut faults_rng) = (rng.fork(), rng.fork());
    let over = AtomicBool::new(false);
    let engines = fleet.resources().engine_clients();
    let (kills, ()) = tokio::join!(kill_at_random(&mut fleet, &mut kills_rng, &over), async {
        inject_faults(&store, &queue, &engines, &mut faults_rng).await;
        over.store(true, Ordering::Relaxed);
    });
    let calm = Instant::now();

    let (mut accepted, mut resubmits) = (BTreeMap::new(), 0);
    while let Some(done) = intake.join_next().await {
        let (tasks, repeats) = done.expect("a client that got its answers");
        accepted.extend(tasks);
        resubmits += repeats;
    }
    let api = fleet.api();
    let intake_took = calm.elapsed();
    for job in accepted.keys() {
        let left = CALM_MAX.saturating_sub(calm.elapsed());
        api.count(job, "succeeded", TASKS_PER_JOB, left).await;
    }
    let drained = calm.elapsed();

    let mut tally = HistoryTally::default();
    for (job, expected) in &accepted {
        check_history(&mut tally, job, expected, &api.tasks(job).await, &log);
    }
    print_note(&format!("fleet: {kills:?}; {resubmits} submits repeated"));
    print_note(&format!("fleet: {tally}"));
    print_note(&format!(
        "fleet: all submitted {:.1} s and all done {:.1} s after the last fault, {:.1} s in all",
        intake_took.as_secs_f64(),
        drained.as_secs_f64(),
        began.elapsed().as_secs_f64()
    ));
    assert_eq!(tally.tasks, JOBS * TASKS_PER_JOB);
    // F-128: a million tasks a day are twelve a second. The fleet keeps this rate despite all faults.
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(
        tally.tasks >= 12 * seconds,
        "{} tasks took {seconds} s",
        tally.tasks
    );
    // The faults were effective.
    for role in FleetRole::ALL {
        assert!(kills.by_role.get(&role).is_some_and(|kills| *kills > 0));
    }
    assert!(resubmits > 0, "no call was repeated");
    assert!(tally.lost > 0, "no kill hit a running task");
    assert_queues_are_empty(&engines).await;
}

/// Stores the jobs. Those whose runs write to the run log come first.
async fn make_jobs(fleet: &Fleet, log: &RunLog) {
    let failed = fleet.resources().folder().file("failed");
    std::fs::create_dir(&failed).expect("a folder");
    // The payload says how long to run, or that the first run fails.
    let script = format!(
        r#"input=$(cat)
if [ "$input" = '"fail"' ]; then
    mine="{}/$DUELINE_TASK_ID"
    if [ ! -e "$mine" ]; then : > "$mine"; exit 1; fi
else
    sleep "$input"
fi"#,
        failed.display()
    );
    for number in 0..JOBS {
        let job = job_name(number);
        if number < LOGGED_JOBS {
            let spec = exec_job(log, &script);
            fleet.api().put_job(&job, spec, policy()).await;
        } else {
            fleet.api().put_noop(&job, policy()).await;
        }
    }
}

type Accepted = BTreeMap<String, BTreeMap<String, SubmittedTask>>;

/// Submits the tasks of some jobs in turn, at an even rate. Some are due later, some fail once. Every call is repeated
/// with the same ids until it is answered.
async fn submit_all(
    api: FleetClient,
    jobs: Vec<usize>,
    mut rng: fastrand::Rng,
) -> (Accepted, usize) {
    let since = Instant::now();
    let (mut accepted, mut repeats) = (Accepted::new(), 0);
    let rounds = TASKS_PER_JOB / BATCH;
    for round in 0..rounds {
        for (index, job) in jobs.iter().enumerate() {
            let part = (round * jobs.len() + index) as f64 / (rounds * jobs.len()) as f64;
            pause(INTAKE.mul_f64(part).saturating_sub(since.elapsed())).await;
            let is_logged = *job < LOGGED_JOBS;
            let job = job_name(*job);
            let mut tasks = Vec::with_capacity(BATCH);
            for _ in 0..BATCH {
                let fails_once = is_logged && rng.u8(..10) == 0;
                let task = task(&mut rng, fails_once);
                let expected = SubmittedTask {
                    is_logged,
                    fails_once,
                };
                let id = task["id"].as_str().unwrap_or_default().to_owned();
                accepted
                    .entry(job.clone())
                    .or_default()
                    .insert(id, expected);
                tasks.push(task);
            }
            repeats += if rng.u8(..4) == 0 {
                one_by_one(&api, &job, tasks).await
            } else {
                api.submit_all(&job, tasks, CALM_MAX).await
            };
        }
    }
    (accepted, repeats)
}

async fn one_by_one(api: &FleetClient, job: &str, tasks: Vec<Value>) -> usize {
    let (path, mut repeats) = (format!("jobs/{job}/tasks"), 0);
    for task in tasks {
        let answer = api.call_until_answered(Method::POST, &path, Some(&task), CALM_MAX);
        let answer = answer.await;
        assert_eq!(answer.body["id"], task["id"]);
        repeats += answer.retries;
    }
    repeats
}

fn task(rng: &mut fastrand::Rng, fails_once: bool) -> Value {
    let payload = if fails_once {
        json!("fail")
    } else {
        json!(f64::from(rng.u32(0..300)) / 1_000.0)
    };
    let mut task = json!({
        "id": new_id(rng),
        "payload": payload,
        "priority": rng.i32(-5..5),
    });
    if rng.u8(..4) == 0 {
        task["delay_ms"] = json!(rng.u32(0..5_000));
    }
    task
}

#[derive(Debug, Default)]
struct FleetKills {
    by_role: BTreeMap<FleetRole, usize>,
    /// Starts that failed because an engine was unreachable.
    failed_starts: usize,
}

/// Kills one process after another until `over`; a supervisor restarts each. Every role is killed at least once.
async fn kill_at_random(
    fleet: &mut Fleet,
    rng: &mut fastrand::Rng,
    over: &AtomicBool,
) -> FleetKills {
    let mut kills = FleetKills::default();
    let mut roles = FleetRole::ALL.to_vec();
    rng.shuffle(&mut roles);
    let mut restarting: JoinSet<FleetMember> = JoinSet::new();
    while !over.load(Ordering::Relaxed) {
        pause(Duration::from_millis(rng.u64(300..2_000))).await;
        while let Some(restarted) = restarting.try_join_next() {
            fleet.put(restarted.expect("a restarted process"));
        }
        let alive = match roles.pop() {
            Some(role) => fleet.names(role),
            None => fleet.members().map(|it| it.name().to_owned()).collect(),
        };
        let Some(name) = rng.choice(alive) else {
            continue;
        };
        let mut victim = fleet.take(&name);
        victim.kill().await;
        *kills.by_role.entry(victim.role()).or_default() += 1;
        let down = Duration::from_millis(rng.u64(0..2_000));
        restarting.spawn(async move {
            pause(down).await;
            victim.start_again().await;
            victim
        });
    }
    while let Some(restarted) = restarting.join_next().await {
        fleet.put(restarted.expect("a restarted process"));
    }
    kills.failed_starts = fleet.members().map(FleetMember::failed_starts).sum();
    kills
}

/// One fault after another, while processes are killed: a queue is deleted, each engine freezes, all connections break.
async fn inject_faults(
    store: &Engine,
    queue: &Engine,
    engines: &EngineClients,
    rng: &mut fastrand::Rng,
) {
    let job = job_name(rng.usize(..JOBS));
    let mut calm = async || pause(Duration::from_millis(rng.u64(4_000..8_000))).await;
    calm().await;
    print_note(&format!("fleet: the queue of {job} is deleted"));
    engines.delete_queue(&job).await;
    calm().await;
    print_note("fleet: DynamoDB is frozen");
    store.freeze();
    pause(FREEZE).await;
    store.thaw();
    calm().await;
    print_note("fleet: SQS is frozen");
    queue.freeze();
    pause(FREEZE).await;
    queue.thaw();
    calm().await;
    print_note("fleet: DynamoDB and SQS are unreachable");
    for engine in [store, queue] {
        engine.refuse_connections(true);
        engine.cut_connections().await;
    }
    pause(CUT).await;
    for engine in [store, queue] {
        engine.refuse_connections(false);
    }
    calm().await;
}

/// All queues are empty, each job has its queue, and no message was quarantined.
async fn assert_queues_are_empty(engines: &EngineClients) {
    for number in 0..JOBS {
        let job = job_name(number);
        wait_until("an empty queue", s(60), async || {
            match engines.messages(&job).await {
                (0, 0) => Ok(()),
                messages => Err(format!("{messages:?} in the queue of {job}")),
            }
        })
        .await;
    }
    let jobs = (0..JOBS).map(|number| engines.queue(&job_name(number)));
    let mut queues = vec![engines.queue(QUARANTINE)];
    queues.extend(jobs);
    assert_eq!(engines.queues().await, queues);
    assert_eq!(engines.messages(QUARANTINE).await, (0, 0));
}
