//! A whole fleet, killed at random while its engines freeze, lose their connections and a queue.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dueline_tests_end_to_end::{RunLog, exec_job, new_id, pause, say, wait_until};
use dueline_tests_engines::Engine;
use dueline_tests_fleet::{Api, Aws, Fleet, Member, Plan, Role, Tally, Wanted, check_history};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

/// What is called as if it were a job's: where messages go that are none of ours.
const SET_ASIDE: &str = "-set-aside";
const JOBS: usize = 20;
/// Their runs are commands that leave marks; those of the others do nothing.
const MARKED_JOBS: usize = 2;
const TASKS_PER_JOB: usize = 250;
const CLIENTS: usize = 4;
const BATCH: usize = 10;
/// Submits come in during this time.
const INTAKE: Duration = Duration::from_secs(60);
/// Everything must be done this long after the last fault: far more than it takes, as the machine may be busy.
const CALM_MAX: Duration = Duration::from_secs(300);
/// How long each engine stands still.
const FREEZE: Duration = Duration::from_secs(10);
/// How long nobody reaches either engine.
const CUT: Duration = Duration::from_secs(5);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Shorter than the defaults, so that what was lost comes back while processes still die.
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
async fn f_112_f_116_f_117_f_128_f_129_f_142_g_01_nothing_accepted_is_lost_while_a_fleet_and_its_engines_suffer()
 {
    let seed = std::env::var("DUELINE_FLEET_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..1_000_000));
    say(&format!("fleet: DUELINE_FLEET_SEED={seed}"));
    let mut rng = fastrand::Rng::with_seed(seed);

    let began = Instant::now();
    let (store, queue) = tokio::join!(Engine::dynoxide(), Engine::ministack());
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let plan = Plan {
        frontends: 2,
        consumers: 3,
        status_controllers: 2,
        controllers: 2,
        executors: 2,
        executor_args: words("--concurrency 8 --set worker.heartbeat_interval_ms=1000"),
        // What a killed controller had comes back after this, and what the engine hands to its dead polls.
        queue_options: "visibility_timeout_s=10",
        ..Plan::default()
    };
    let mut fleet = Fleet::start(store.url(), queue.url(), &plan).await;
    let log = RunLog::new(fleet.site().place());
    make_jobs(&fleet, &log).await;
    say(&format!("fleet: {} processes up", fleet.members().count()));

    let mut intake = JoinSet::new();
    for client in 0..CLIENTS {
        let jobs = (0..JOBS).filter(|job| job % CLIENTS == client).collect();
        intake.spawn(submit_all(fleet.api().clone(), jobs, rng.fork()));
    }
    let (mut kills_rng, mut faults_rng) = (rng.fork(), rng.fork());
    let over = AtomicBool::new(false);
    let aws = fleet.site().aws();
    let (kills, ()) = tokio::join!(storm(&mut fleet, &mut kills_rng, &over), async {
        faults(&store, &queue, &aws, &mut faults_rng).await;
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

    let mut tally = Tally::default();
    for (job, wanted) in &accepted {
        check_history(&mut tally, job, wanted, &api.tasks(job).await, &log);
    }
    say(&format!("fleet: {kills:?}; {resubmits} submits repeated"));
    say(&format!("fleet: {tally}"));
    say(&format!(
        "fleet: all submitted {:.1} s and all done {:.1} s after the last fault, {:.1} s in all",
        intake_took.as_secs_f64(),
        drained.as_secs_f64(),
        began.elapsed().as_secs_f64()
    ));
    assert_eq!(tally.tasks, JOBS * TASKS_PER_JOB);
    // F-128: a million a day is twelve a second; this is what a fleet does while it suffers, backlog and all.
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(tally.tasks >= 12 * seconds, "{seconds} s are too many");
    // The storm was one.
    for role in Role::ALL {
        assert!(kills.by_role.get(&role).is_some_and(|kills| *kills > 0));
    }
    assert!(resubmits > 0, "no client noticed anything");
    assert!(tally.lost > 0, "no kill hit a running task");
    nothing_is_left(&aws).await;
}

/// The two jobs whose runs are counted from outside come first.
async fn make_jobs(fleet: &Fleet, log: &RunLog) {
    let failed = fleet.site().place().file("failed");
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
        if number < MARKED_JOBS {
            let spec = exec_job(log, &script);
            fleet.api().put_job(&job, spec, policy()).await;
        } else {
            fleet.api().put_noop(&job, policy()).await;
        }
    }
}

type Accepted = BTreeMap<String, BTreeMap<String, Wanted>>;

/// Submits the tasks of some jobs in turn, at an even rate, some due later, some that fail once; every call is repeated
/// with the same ids until it is answered.
async fn submit_all(api: Api, jobs: Vec<usize>, mut rng: fastrand::Rng) -> (Accepted, usize) {
    let since = Instant::now();
    let (mut accepted, mut repeats) = (Accepted::new(), 0);
    let rounds = TASKS_PER_JOB / BATCH;
    for round in 0..rounds {
        for (place, job) in jobs.iter().enumerate() {
            let part = (round * jobs.len() + place) as f64 / (rounds * jobs.len()) as f64;
            pause(INTAKE.mul_f64(part).saturating_sub(since.elapsed())).await;
            let is_marked = *job < MARKED_JOBS;
            let job = job_name(*job);
            let mut tasks = Vec::with_capacity(BATCH);
            for _ in 0..BATCH {
                let fails_once = is_marked && rng.u8(..10) == 0;
                let task = task(&mut rng, fails_once);
                let wanted = Wanted {
                    is_marked,
                    fails_once,
                };
                let id = task["id"].as_str().unwrap_or_default().to_owned();
                accepted.entry(job.clone()).or_default().insert(id, wanted);
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

async fn one_by_one(api: &Api, job: &str, tasks: Vec<Value>) -> usize {
    let (path, mut repeats) = (format!("jobs/{job}/tasks"), 0);
    for task in tasks {
        let answer = api.insist(Method::POST, &path, Some(&task), CALM_MAX);
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
struct Kills {
    by_role: BTreeMap<Role, usize>,
    /// Starts that came to nothing because an engine was away.
    failed_starts: usize,
}

/// Kills one process after the other and lets its supervisor bring it back, until `over`. Every role has its turn.
async fn storm(fleet: &mut Fleet, rng: &mut fastrand::Rng, over: &AtomicBool) -> Kills {
    let mut kills = Kills::default();
    let mut first = Role::ALL.to_vec();
    rng.shuffle(&mut first);
    let mut coming_back: JoinSet<Member> = JoinSet::new();
    while !over.load(Ordering::Relaxed) {
        pause(Duration::from_millis(rng.u64(300..2_000))).await;
        while let Some(back) = coming_back.try_join_next() {
            fleet.put(back.expect("a process that came back"));
        }
        let alive = match first.pop() {
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
        coming_back.spawn(async move {
            pause(down).await;
            victim.start_again().await;
            victim
        });
    }
    while let Some(back) = coming_back.join_next().await {
        fleet.put(back.expect("a process that came back"));
    }
    kills.failed_starts = fleet.members().map(Member::failed_starts).sum();
    kills
}

/// One after the other, while processes die: a queue goes, each engine stands still, all connections break.
async fn faults(store: &Engine, queue: &Engine, aws: &Aws, rng: &mut fastrand::Rng) {
    let job = job_name(rng.usize(..JOBS));
    let mut calm = async || pause(Duration::from_millis(rng.u64(4_000..8_000))).await;
    calm().await;
    say(&format!("fleet: the queue of {job} is deleted"));
    aws.delete_queue(&job).await;
    calm().await;
    say("fleet: DynamoDB stands still");
    store.freeze();
    pause(FREEZE).await;
    store.thaw();
    calm().await;
    say("fleet: SQS stands still");
    queue.freeze();
    pause(FREEZE).await;
    queue.thaw();
    calm().await;
    say("fleet: nobody reaches DynamoDB or SQS");
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

/// Nothing waits in any queue, each job has its own, and nothing was set aside.
async fn nothing_is_left(aws: &Aws) {
    for number in 0..JOBS {
        let job = job_name(number);
        wait_until("an empty queue", s(60), async || {
            match aws.messages(&job).await {
                (0, 0) => Ok(()),
                messages => Err(format!("{messages:?} in the queue of {job}")),
            }
        })
        .await;
    }
    let jobs = (0..JOBS).map(|number| aws.queue(&job_name(number)));
    let mut queues = vec![aws.queue(SET_ASIDE)];
    queues.extend(jobs);
    assert_eq!(aws.queues().await, queues);
    assert_eq!(aws.messages(SET_ASIDE).await, (0, 0));
}
