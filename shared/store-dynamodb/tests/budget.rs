//! The cost of tasks, counted twice: by the store's meter, and from the answers of the engine.

mod kit;

use dueline_domain::{
    Due, Effect, Event, FairShare, HeldUntil, Job, NewTask, OnConflict, Outcome, Policy, Quota,
    RetryPolicy, Settle, Sink, Task, TaskOptions, Unique, WriteId,
};
use dueline_ports::{
    JobStore as _, ListQuery, PlaceRequest, QuotaSwap, QuotaWrite, TakePlaces, TaskStore as _,
};
use kit::{FaultyConnection, TaskDriver, at, job};

/// Write units that the engine reported since the last call.
fn reported_units(connection: &FaultyConnection) -> f64 {
    let calls = connection.take();
    calls
        .iter()
        .filter(|call| call.writes)
        .map(|call| call.units)
        .sum()
}

/// A driver whose write units are counted for each step.
struct MeteredDriver {
    driver: TaskDriver,
    connection: FaultyConnection,
    units: f64,
}

impl MeteredDriver {
    async fn new() -> Self {
        let (store, connection) = kit::faulty().await;
        let driver = TaskDriver::new(store).await;
        connection.take();
        let units = driver.cost().write_units;
        Self {
            driver,
            connection,
            units,
        }
    }

    /// Write units since the last call; both counts must agree.
    fn step_units(&mut self) -> f64 {
        let now = self.driver.cost().write_units;
        let units = now - self.units;
        self.units = now;
        let reported = reported_units(&self.connection);
        assert!(
            (units - reported).abs() < 1e-9,
            "the meter counted {units}, the engine {reported}"
        );
        units
    }
}

#[tokio::test]
async fn a_task_that_runs_at_once_costs_five_write_units() {
    let mut metered = MeteredDriver::new().await;
    let task = metered.driver.create(0, metered.driver.task(500)).await;
    let create = metered.step_units();
    let task = metered.driver.run(20, &task).await;
    let claim = metered.step_units();
    metered.driver.succeed(900, &task).await;
    let finish = metered.step_units();
    assert_eq!([create, claim, finish], [2.0, 1.0, 2.0]);
}

#[tokio::test]
async fn f_077_the_name_of_the_last_owner_costs_no_write_unit() {
    let mut metered = MeteredDriver::new().await;
    // All sizes around the end of a kibibyte: where the payload of a new task is stored must leave room for the owner.
    for payload in (600..=1_000).step_by(16) {
        let task = metered.driver.create(0, metered.driver.task(payload)).await;
        let task = metered.driver.run(20, &task).await;
        metered.step_units();
        let task = metered.driver.succeed(900, &task).await;
        assert!(task.last_owner.is_some());
        assert_eq!(metered.step_units(), 2.0, "a payload of {payload} bytes");
    }
}

#[tokio::test]
async fn a_scheduled_task_costs_six_write_units() {
    let mut metered = MeteredDriver::new().await;
    let task = NewTask {
        due: Due::At(at(60_000)),
        ..metered.driver.task(500)
    };
    let task = metered.driver.create(0, task).await;
    let create = metered.step_units();
    let task = metered.driver.trigger(60_400, &task).await;
    let enqueue = metered.step_units();
    let task = metered.driver.run(60_500, &task).await;
    let claim = metered.step_units();
    metered.driver.succeed(61_000, &task).await;
    let finish = metered.step_units();
    assert_eq!([create, enqueue, claim, finish], [2.0, 1.0, 1.0, 2.0]);
}

#[tokio::test]
async fn g_19_a_delivery_costs_two_write_units_and_two_more_after_a_short_run() {
    let mut metered = MeteredDriver::new().await;
    let policy = Policy {
        retention: Some(std::time::Duration::from_secs(1)),
        sink: Sink::parse("file:done").ok(),
        ..Policy::default()
    };
    let with_sink = Job {
        policy,
        ..job("mail")
    };
    metered.driver.put(with_sink).await;
    let mut units = Vec::new();
    for finished_ms in [900, 100_000] {
        let task = metered.driver.create(0, metered.driver.task(500)).await;
        let mut task = metered.driver.run(20, &task).await;
        if finished_ms > 1_000 {
            let token = task.state.token().unwrap();
            let by = std::time::Duration::from_secs(100);
            let extend = Event::Extend { token, by };
            task = metered.driver.apply(20, &task, extend).await;
        }
        metered.step_units();
        let task = metered.driver.succeed(finished_ms, &task).await;
        let finish = metered.step_units();
        // While the task owes its delivery, DynamoDB must not expire it.
        assert!(!kit::expires(&metered.driver, &task).await);
        let settle = Event::Settle(Settle {
            seen: task.write,
            effect: Effect::Deliver,
            failed: None,
        });
        metered.driver.apply(finished_ms, &task, settle).await;
        assert!(kit::expires(&metered.driver, &task).await);
        units.push([finish, metered.step_units()]);
    }
    // A short run ends before the hint of its task, so the write of its end moves the hint.
    assert_eq!(units, [[3.0, 2.0], [1.0, 2.0]]);
}

#[tokio::test]
async fn a_key_makes_the_submit_cost_five_and_a_large_payload_is_written_once() {
    let mut metered = MeteredDriver::new().await;
    let options = TaskOptions {
        key: Some("order 4711".into()),
        ..TaskOptions::default()
    };
    let task = NewTask {
        options: Some(Box::new(options)),
        ..metered.driver.task(300)
    };
    metered.driver.create(0, task).await;
    assert_eq!(metered.step_units(), 5.0);
    for (bytes, units) in [(5 * 1024, 2.0 + 6.0), (50 * 1024, 2.0 + 51.0)] {
        metered.driver.create(0, metered.driver.task(bytes)).await;
        assert_eq!(metered.step_units(), units);
    }
}

#[tokio::test]
async fn g_06_a_unique_submit_that_finds_its_key_held_pays_reads_instead_of_a_transaction() {
    let mut metered = MeteredDriver::new().await;
    let new = |metered: &MeteredDriver, on_conflict: OnConflict| {
        let unique = Unique {
            until: HeldUntil::Started,
            on_conflict,
            ..Unique::default()
        };
        NewTask {
            due: Due::At(at(60_000)),
            options: Some(Box::new(TaskOptions {
                key: Some("order 4711".into()),
                unique: Some(Box::new(unique)),
                ..TaskOptions::default()
            })),
            ..metered.driver.task(300)
        }
    };
    // What every submit here reads: the definitions of the jobs.
    let reads = metered.driver.cost().read_units;
    metered.driver.create(0, metered.driver.task(300)).await;
    let of_jobs = metered.driver.cost().read_units - reads;
    metered.step_units();
    let mut steps = Vec::new();
    let mut first = None;
    for on_conflict in [
        // It creates the task, meets it, and replaces it.
        OnConflict::Return,
        OnConflict::Return,
        OnConflict::Replace,
        OnConflict::Replace,
    ] {
        let reads = metered.driver.cost().read_units;
        let create = metered.driver.request(new(&metered, on_conflict));
        let store = &metered.driver.store;
        let answer = store.create(at(0), vec![create]).await.remove(0).unwrap();
        let reads = metered.driver.cost().read_units - reads - of_jobs;
        steps.push((metered.step_units(), reads));
        first = first.or(Some(answer.task));
    }
    // A refusal, and a replacement that is due earlier, which moves the entry of the due index.
    for on_conflict in [OnConflict::Reject, OnConflict::Replace] {
        let reads = metered.driver.cost().read_units;
        let mut earlier = new(&metered, on_conflict);
        earlier.due = Due::At(at(30_000));
        let create = metered.driver.request(earlier);
        let answer = metered.driver.store.create(at(0), vec![create]).await;
        assert_eq!(answer[0].is_ok(), on_conflict == OnConflict::Replace);
        let reads = metered.driver.cost().read_units - reads - of_jobs;
        steps.push((metered.step_units(), reads));
    }
    // A task that has started, whose key is taken over.
    let first = metered.driver.get(&first.unwrap()).await.unwrap();
    let enqueued = metered.driver.trigger(60_000, &first).await;
    metered.driver.run(60_001, &enqueued).await;
    metered.step_units();
    let reads = metered.driver.cost().read_units;
    metered
        .driver
        .create(60_002, new(&metered, OnConflict::Return))
        .await;
    let reads = metered.driver.cost().read_units - reads - of_jobs;
    steps.push((metered.step_units(), reads));
    let expected = [
        (5.0, 1.0),
        (0.0, 3.0),
        (1.0, 3.0),
        (1.0, 3.0),
        (0.0, 3.0),
        (3.0, 3.0),
        (5.0, 3.0),
    ];
    assert_eq!(steps, expected, "write units and read units");
}

#[tokio::test]
async fn a_retry_adds_three_write_units() {
    let mut metered = MeteredDriver::new().await;
    let task = metered.driver.create(0, metered.driver.task(300)).await;
    let task = metered.driver.run(20, &task).await;
    metered.step_units();
    let task = metered.driver.fail(500, &task, "connection refused").await;
    let failed = metered.step_units();
    let task = metered.driver.trigger(5_600, &task).await;
    let enqueue = metered.step_units();
    let task = metered.driver.run(5_700, &task).await;
    let claim = metered.step_units();
    assert_eq!([failed, enqueue, claim], [1.0, 1.0, 1.0]);
    metered.driver.succeed(6_000, &task).await;
    assert_eq!(metered.step_units(), 2.0);
}

#[tokio::test]
async fn a_backlog_of_more_than_two_minutes_adds_two_write_units_to_the_claim() {
    let mut metered = MeteredDriver::new().await;
    let task = NewTask {
        due: Due::At(at(60_000)),
        ..metered.driver.task(10)
    };
    let task = metered.driver.create(0, task).await;
    let task = metered.driver.trigger(400_000, &task).await;
    metered.step_units();
    let task = metered.driver.run(400_500, &task).await;
    assert_eq!(metered.step_units(), 3.0);
    metered.driver.succeed(401_000, &task).await;
    assert_eq!(metered.step_units(), 2.0);
}

#[tokio::test]
async fn transitions_of_a_large_task_cost_the_same_as_those_of_a_small_one() {
    let mut metered = MeteredDriver::new().await;
    let mut transitions = Vec::new();
    for bytes in [100, 50 * 1024] {
        let task = metered.driver.create(0, metered.driver.task(bytes)).await;
        metered.step_units();
        let task = metered.driver.run(20, &task).await;
        assert_eq!(task.payload.len(), bytes, "a claim answers the payload");
        let claim = metered.step_units();
        metered.driver.succeed(900, &task).await;
        transitions.push([claim, metered.step_units()]);
    }
    assert_eq!(transitions, [[1.0, 2.0]; 2]);
}

#[tokio::test]
async fn a_claim_of_a_large_task_by_another_process_adds_only_reads() {
    let mut metered = MeteredDriver::new().await;
    let task = metered
        .driver
        .create(0, metered.driver.task(50 * 1024))
        .await;
    metered.step_units();
    let other = kit::open(metered.driver.store.options()).await;
    let claimed = metered.driver.with(&other).run(20, &task).await;
    assert_eq!(claimed.payload, task.payload);
    let spent = other.meter().by_operation()["claim"];
    assert_eq!(spent.write_units, 1.0);
    // The task's item and its payload of fifty kibibytes, by eventually consistent reads.
    assert!(
        spent.read_units <= 0.5 + 6.5,
        "{} read units",
        spent.read_units
    );
}

#[tokio::test]
async fn a_claim_by_a_process_that_has_not_cached_the_task_reads_half_a_unit() {
    let metered = MeteredDriver::new().await;
    let task = metered.driver.create(0, metered.driver.task(200)).await;
    let other = kit::open(metered.driver.store.options()).await;
    metered.driver.with(&other).run(20, &task).await;
    let spent = other.meter().by_operation()["claim"];
    assert_eq!((spent.write_units, spent.read_units), (1.0, 0.5));
}

#[tokio::test]
async fn heartbeats_of_a_long_run_cost_one_write_unit_each_and_two_more_every_two_minutes() {
    let mut metered = MeteredDriver::new().await;
    let task = metered.driver.create(0, metered.driver.task(200)).await;
    let mut task = metered.driver.run(20, &task).await;
    metered.step_units();
    let beats = 150;
    for beat in 1..=beats {
        let token = task.state.token().unwrap();
        task = metered
            .driver
            .apply(beat * 4_000, &task, Event::Heartbeat { token })
            .await;
    }
    let units = metered.step_units();
    let expected = beats as f64 + 2.0 * 5.0;
    assert!(units <= expected, "{units} units for {beats} heartbeats");
    assert!(units >= beats as f64);
}

#[tokio::test]
async fn a_task_costs_at_most_three_read_units_in_a_fleet() {
    let options = kit::table(4).await;
    let options = dueline_store_dynamodb::DynamoOptions {
        definitions_ttl: std::time::Duration::from_secs(60),
        ..options
    };
    let (front, status, consumer) = (
        kit::open(&options).await,
        kit::open(&options).await,
        kit::open(&options).await,
    );
    let front = TaskDriver::new(front).await;
    let (status, consumer) = (front.with(&status), front.with(&consumer));
    let count = 60;
    let mut tasks = Vec::new();
    for _ in 0..count {
        let run_at = Some(at(3_000));
        let task = NewTask {
            due: run_at.into(),
            ..front.task(400)
        };
        tasks.push(front.create(0, task).await);
    }
    // A scan each second, before, while and after the tasks run.
    for second in 0..12 {
        let ms = second * 1_000;
        for due in consumer.due(ms, 1_000).await.tasks {
            let task = tasks.iter_mut().find(|task| task.id == due.id).unwrap();
            *task = consumer.trigger(ms, task).await;
        }
        if second == 4 {
            for task in &mut tasks {
                *task = status.run(ms, task).await;
            }
        }
        if second == 9 {
            for task in &mut tasks {
                *task = status.succeed(ms, task).await;
            }
        }
    }
    let read = |driver: &TaskDriver| driver.cost().read_units / f64::from(count);
    let each = [read(&front), read(&consumer), read(&status)];
    let total: f64 = each.iter().sum();
    println!(
        "read units per task: frontend, consumer, status controller: {each:.2?}, in all {total:.2}"
    );
    assert!(total <= 3.0, "{each:?}");
}

#[tokio::test]
async fn a_task_that_fails_again_and_again_with_the_longest_errors_stays_small() {
    let mut metered = MeteredDriver::new().await;
    let retry = RetryPolicy {
        retries_max: None,
        ..RetryPolicy::default()
    };
    let policy = Policy {
        retry,
        ..Policy::default()
    };
    metered
        .driver
        .put(dueline_domain::Job {
            policy,
            ..job("mail")
        })
        .await;
    let mut task = metered.driver.create(0, metered.driver.task(500)).await;
    metered.step_units();
    let mut max: f64 = 0.0;
    for n in 0..100_i64 {
        let ms = n * 10_000_000;
        task = metered.driver.run(ms + 10, &task).await;
        let error = format!("{n} {}", "é".repeat(4_000));
        task = metered.driver.fail(ms + 20, &task, &error).await;
        task = metered.driver.trigger(ms + 9_000_000, &task).await;
        max = max.max(metered.step_units());
    }
    let runs = &task.history.as_ref().unwrap().runs;
    assert_eq!(runs.len(), 32);
    assert!(runs[31].info.starts_with("99 "));
    assert_eq!(
        metered.driver.get(&task).await.as_ref(),
        Some(&task),
        "nothing is lost"
    );
    // The units are those of the new past run's blob, of the deletion of the oldest one's, and of the transitions.
    println!("most units of one failure with the longest error: {max}");
    assert!(max <= 24.0, "{max} units for one failure");
    let size = kit::size_of(&metered.driver, &task).await;
    assert!(size <= 2 * 1024, "{size} bytes");
}

#[tokio::test]
async fn a_task_with_500_bytes_of_payload_stays_within_one_kibibyte_in_all_states() {
    let metered = MeteredDriver::new().await;
    let driver = &metered.driver;
    let task = driver.create(0, driver.task(500)).await;
    let mut sizes = vec![kit::size_of(driver, &task).await];
    let task = driver.run(20, &task).await;
    sizes.push(kit::size_of(driver, &task).await);
    let task = driver.fail(500, &task, "a short reason").await;
    sizes.push(kit::size_of(driver, &task).await);
    let task = driver.trigger(60_000, &task).await;
    let task = driver.run(60_010, &task).await;
    sizes.push(kit::size_of(driver, &task).await);
    let result = Some(vec![1; 700].into());
    let task = driver
        .finish(61_000, &task, Outcome::Success { result })
        .await;
    sizes.push(kit::size_of(driver, &task).await);
    println!("bytes at create, claim, failure, second claim, success: {sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 1024), "{sizes:?}");
}

#[tokio::test]
async fn f_120_due_and_list_use_query_and_nothing_ever_scans() {
    let (store, connection) = kit::faulty().await;
    let driver = TaskDriver::new(store.clone()).await;
    for _ in 0..5 {
        driver.create(0, driver.task(10)).await;
    }
    let all = connection.take();
    let done = driver.create(0, driver.task(2_000)).await;
    let done = driver.run(1, &done).await;
    driver.succeed(2, &done).await;
    connection.take();
    let due = driver.due(100_000, 100).await;
    assert_eq!(due.tasks.len(), 5);
    let names = |calls: &[kit::faulty_connection::RecordedCall]| -> Vec<String> {
        let mut names: Vec<_> = calls.iter().map(|call| call.operation.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let due_calls = connection.take();
    assert_eq!(names(&due_calls), ["BatchGetItem", "GetItem", "Query"]);
    let page = store.list(ListQuery::of(done.job.clone())).await.unwrap();
    assert_eq!(page.tasks.len(), 6);
    let list_calls = connection.take();
    assert_eq!(names(&list_calls), ["GetItem", "Query"]);
    store.stats(&done.job).await.unwrap();
    store.ready(&done.job, 10).await.unwrap();
    store.owned(at(10), None).await.unwrap();
    while store.prune(at(9_000_000), 100).await.unwrap().more {}
    store.jobs().await.unwrap();
    let rest = [all, due_calls, list_calls, connection.take()].concat();
    assert!(rest.iter().all(|call| call.operation != "Scan"));
}

#[tokio::test]
async fn f_126_a_grant_of_a_quota_costs_one_write_unit() {
    let mut metered = MeteredDriver::new().await;
    let swap = |seen: Option<i64>, level: i64| QuotaSwap {
        job: job("mail").name,
        seen,
        level,
        write: WriteId::from_random(level.unsigned_abs()),
        now: at(0),
    };
    metered.step_units();
    let mut units = Vec::new();
    for (seen, level, expected) in [
        (None, 10, QuotaWrite::Done),
        (Some(10), 20, QuotaWrite::Done),
        (Some(20), -5, QuotaWrite::Done),
    ] {
        let answer = metered.driver.store.swap_quota(swap(seen, level)).await;
        assert_eq!(answer.unwrap(), expected);
        units.push(metered.step_units());
    }
    assert_eq!(units, [1.0; 3]);
}

#[tokio::test]
async fn g_07_places_cost_a_write_unit_for_each_kibibyte_and_none_at_the_end_of_a_task() {
    let mut metered = MeteredDriver::new().await;
    let limited = Job {
        quota: Quota {
            running_max: Some(40),
            ..Quota::default()
        },
        ..job("mail")
    };
    metered.driver.put(limited).await;
    let mut tasks = Vec::new();
    for _ in 0..42 {
        tasks.push(metered.driver.create(0, metered.driver.task(500)).await);
    }
    let take = |tasks: &[Task]| {
        let tasks = tasks.iter().filter_map(PlaceRequest::of).collect();
        TakePlaces::new(job("mail").name, 40, tasks, at(1))
    };
    let reads = |metered: &MeteredDriver| metered.driver.cost().read_units;
    metered.step_units();
    // The first ones together, then one more, and one that makes the item longer than a kibibyte.
    for (tasks, units) in [
        (&tasks[..34], 1.0),
        (&tasks[34..35], 1.0),
        (&tasks[35..40], 2.0),
    ] {
        let taken = metered.driver.store.take_places(take(tasks)).await.unwrap();
        assert_eq!(taken.granted.len(), tasks.len());
        assert_eq!(metered.step_units(), units);
    }
    // All places are taken: a look costs a read unit for the item and one for each task, and no write. The definitions of
    // jobs may be read in between.
    let before = reads(&metered);
    let full = metered.driver.store.take_places(take(&tasks[40..])).await;
    assert_eq!(full.unwrap().granted, []);
    assert_eq!(metered.step_units(), 0.0);
    let looked = reads(&metered) - before;
    assert!((41.0..=42.0).contains(&looked), "{looked} read units");

    // The run of such a task costs what that of a scheduled one does, and its end writes nothing else.
    let task = metered.driver.trigger(10, &tasks[0]).await;
    let task = metered.driver.run(20, &task).await;
    metered.driver.succeed(900, &task).await;
    assert_eq!(metered.step_units(), 1.0 + 1.0 + 2.0);
    let taken = metered.driver.store.take_places(take(&tasks[40..])).await;
    assert_eq!(taken.unwrap().granted, [tasks[40].id]);
    assert_eq!(metered.step_units(), 2.0);
}

#[tokio::test]
async fn g_07_a_fair_share_costs_a_touch_of_the_lane_and_a_move_in_the_index() {
    let mut metered = MeteredDriver::new().await;
    let fair = Job {
        fair_share: Some(FairShare::default()),
        ..job("mail")
    };
    metered.driver.put(fair).await;
    metered.step_units();
    let keyed = |metered: &MeteredDriver, key: &str| {
        let mut task = metered.driver.task(500);
        task.options = Some(Box::new(TaskOptions {
            fairness_key: Some(key.into()),
            ..TaskOptions::default()
        }));
        task
    };
    // The first task of a lane touches it. Those of the next second don't.
    let task = metered.driver.create(0, keyed(&metered, "a")).await;
    assert_eq!(metered.step_units(), 2.0 + 1.0);
    metered.driver.create(900, keyed(&metered, "a")).await;
    assert_eq!(metered.step_units(), 2.0);
    metered.driver.create(950, keyed(&metered, "b")).await;
    assert_eq!(metered.step_units(), 2.0 + 1.0);
    metered.driver.create(1_000, keyed(&metered, "a")).await;
    assert_eq!(metered.step_units(), 2.0 + 1.0);
    // The enqueue moves the entry of the index out of the lane. The rest of the run is as always.
    let task = metered.driver.trigger(1_010, &task).await;
    assert_eq!(metered.step_units(), 3.0);
    let task = metered.driver.run(1_020, &task).await;
    metered.driver.succeed(1_900, &task).await;
    assert_eq!(metered.step_units(), 1.0 + 2.0);
}
