//! What tasks cost, counted twice: by the store's meter, and from the answers on the wire.

mod kit;

use dueline_domain::{Event, Extras, NewTask, Outcome, Policy, RetryPolicy};
use dueline_ports::{JobStore as _, ListQuery, TaskStore as _};
use kit::{Play, Wire, at, job};

/// Write units that the engine reported since the last call.
fn on_the_wire(wire: &Wire) -> f64 {
    let calls = wire.take();
    calls
        .iter()
        .filter(|call| call.writes)
        .map(|call| call.units)
        .sum()
}

/// A play on a wire, and the units of its writes step by step.
struct Counted {
    play: Play,
    wire: Wire,
    units: f64,
}

impl Counted {
    async fn new() -> Self {
        let (store, wire) = kit::wired().await;
        let play = Play::new(store).await;
        wire.take();
        let units = play.spent().write_units;
        Self { play, wire, units }
    }

    /// Units since the last call, by both counts.
    fn step(&mut self) -> f64 {
        let now = self.play.spent().write_units;
        let units = now - self.units;
        self.units = now;
        let wire = on_the_wire(&self.wire);
        assert!(
            (units - wire).abs() < 1e-9,
            "the meter says {units}, the engine {wire}"
        );
        units
    }
}

#[tokio::test]
async fn a_task_that_runs_at_once_costs_five_write_units() {
    let mut counted = Counted::new().await;
    let task = counted.play.create(0, counted.play.task(500)).await;
    let create = counted.step();
    let task = counted.play.run(20, &task).await;
    let claim = counted.step();
    counted.play.succeed(900, &task).await;
    let finish = counted.step();
    assert_eq!([create, claim, finish], [2.0, 1.0, 2.0]);
}

#[tokio::test]
async fn a_scheduled_task_costs_six_write_units() {
    let mut counted = Counted::new().await;
    let task = NewTask {
        run_at: Some(at(60_000)),
        ..counted.play.task(500)
    };
    let task = counted.play.create(0, task).await;
    let create = counted.step();
    let task = counted.play.trigger(60_400, &task).await;
    let enqueue = counted.step();
    let task = counted.play.run(60_500, &task).await;
    let claim = counted.step();
    counted.play.succeed(61_000, &task).await;
    let finish = counted.step();
    assert_eq!([create, enqueue, claim, finish], [2.0, 1.0, 1.0, 2.0]);
}

#[tokio::test]
async fn a_key_makes_the_submit_cost_five_and_a_large_payload_is_written_once() {
    let mut counted = Counted::new().await;
    let extras = Extras {
        key: Some("order 4711".into()),
        ..Extras::default()
    };
    let task = NewTask {
        extras: Some(Box::new(extras)),
        ..counted.play.task(300)
    };
    counted.play.create(0, task).await;
    assert_eq!(counted.step(), 5.0);
    for (bytes, units) in [(5 * 1024, 2.0 + 6.0), (50 * 1024, 2.0 + 51.0)] {
        counted.play.create(0, counted.play.task(bytes)).await;
        assert_eq!(counted.step(), units);
    }
}

#[tokio::test]
async fn a_retry_adds_three_write_units() {
    let mut counted = Counted::new().await;
    let task = counted.play.create(0, counted.play.task(300)).await;
    let task = counted.play.run(20, &task).await;
    counted.step();
    let task = counted.play.fail(500, &task, "connection refused").await;
    let failed = counted.step();
    let task = counted.play.trigger(5_600, &task).await;
    let enqueue = counted.step();
    let task = counted.play.run(5_700, &task).await;
    let claim = counted.step();
    assert_eq!([failed, enqueue, claim], [1.0, 1.0, 1.0]);
    counted.play.succeed(6_000, &task).await;
    assert_eq!(counted.step(), 2.0);
}

#[tokio::test]
async fn a_backlog_of_more_than_two_minutes_adds_two_write_units_to_the_claim() {
    let mut counted = Counted::new().await;
    let task = NewTask {
        run_at: Some(at(60_000)),
        ..counted.play.task(10)
    };
    let task = counted.play.create(0, task).await;
    let task = counted.play.trigger(400_000, &task).await;
    counted.step();
    let task = counted.play.run(400_500, &task).await;
    assert_eq!(counted.step(), 3.0);
    counted.play.succeed(401_000, &task).await;
    assert_eq!(counted.step(), 2.0);
}

#[tokio::test]
async fn moves_of_a_large_task_cost_what_those_of_a_small_one_cost() {
    let mut counted = Counted::new().await;
    let mut moves = Vec::new();
    for bytes in [100, 50 * 1024] {
        let task = counted.play.create(0, counted.play.task(bytes)).await;
        counted.step();
        let task = counted.play.run(20, &task).await;
        assert_eq!(task.payload.len(), bytes, "a claim answers the input");
        let claim = counted.step();
        counted.play.succeed(900, &task).await;
        moves.push([claim, counted.step()]);
    }
    assert_eq!(moves, [[1.0, 2.0]; 2]);
}

#[tokio::test]
async fn a_claim_by_another_process_answers_a_large_input_for_reads_only() {
    let mut counted = Counted::new().await;
    let task = counted.play.create(0, counted.play.task(50 * 1024)).await;
    counted.step();
    let other = kit::open(counted.play.store.options()).await;
    let claimed = counted.play.with(&other).run(20, &task).await;
    assert_eq!(claimed.payload, task.payload);
    let spent = other.meter().by_operation()["claim"];
    assert_eq!(spent.write_units, 1.0);
    // The task itself and fifty kibibytes, both by the cheaper read.
    assert!(
        spent.read_units <= 0.5 + 6.5,
        "{} read units",
        spent.read_units
    );
}

#[tokio::test]
async fn a_claim_by_a_process_that_has_not_seen_the_task_reads_half_a_unit() {
    let counted = Counted::new().await;
    let task = counted.play.create(0, counted.play.task(200)).await;
    let other = kit::open(counted.play.store.options()).await;
    counted.play.with(&other).run(20, &task).await;
    let spent = other.meter().by_operation()["claim"];
    assert_eq!((spent.write_units, spent.read_units), (1.0, 0.5));
}

#[tokio::test]
async fn heartbeats_of_a_long_run_cost_one_write_unit_each_and_two_more_every_two_minutes() {
    let mut counted = Counted::new().await;
    let task = counted.play.create(0, counted.play.task(200)).await;
    let mut task = counted.play.run(20, &task).await;
    counted.step();
    let beats = 150;
    for beat in 1..=beats {
        let token = task.state.token().unwrap();
        task = counted
            .play
            .step(beat * 4_000, &task, Event::Heartbeat { token })
            .await;
    }
    let units = counted.step();
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
    let front = Play::new(front).await;
    let (status, consumer) = (front.with(&status), front.with(&consumer));
    let count = 60;
    let mut tasks = Vec::new();
    for _ in 0..count {
        let run_at = Some(at(3_000));
        let task = NewTask {
            run_at,
            ..front.task(400)
        };
        tasks.push(front.create(0, task).await);
    }
    // A look each second, before, while and after they run.
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
    let read = |play: &Play| play.spent().read_units / f64::from(count);
    let each = [read(&front), read(&consumer), read(&status)];
    let total: f64 = each.iter().sum();
    println!(
        "read units per task: frontend, consumer, status controller: {each:.2?}, in all {total:.2}"
    );
    assert!(total <= 3.0, "{each:?}");
}

#[tokio::test]
async fn a_task_that_fails_over_and_over_with_the_longest_errors_stays_small() {
    let mut counted = Counted::new().await;
    let retry = RetryPolicy {
        retries_max: None,
        ..RetryPolicy::default()
    };
    let policy = Policy {
        retry,
        ..Policy::default()
    };
    counted
        .play
        .put(dueline_domain::Job {
            policy,
            ..job("mail")
        })
        .await;
    let mut task = counted.play.create(0, counted.play.task(500)).await;
    counted.step();
    let mut most: f64 = 0.0;
    for n in 0..100_i64 {
        let ms = n * 10_000_000;
        task = counted.play.run(ms + 10, &task).await;
        let error = format!("{n} {}", "é".repeat(4_000));
        task = counted.play.fail(ms + 20, &task, &error).await;
        task = counted.play.trigger(ms + 9_000_000, &task).await;
        most = most.max(counted.step());
    }
    let runs = &task.history.as_ref().unwrap().runs;
    assert_eq!(runs.len(), 32);
    assert!(runs[31].info.starts_with("99 "));
    assert_eq!(
        counted.play.get(&task).await.as_ref(),
        Some(&task),
        "everything is kept"
    );
    // Five for the run that is written once, four for that of the one that gives way, and the moves themselves.
    println!("most units of one failure with the longest error: {most}");
    assert!(most <= 24.0, "{most} units for one failure");
    let size = kit::size_of(&counted.play, &task).await;
    assert!(size <= 2 * 1024, "{size} bytes");
}

#[tokio::test]
async fn an_item_of_500_bytes_of_payload_stays_within_one_kibibyte_for_its_whole_life() {
    let counted = Counted::new().await;
    let play = &counted.play;
    let task = play.create(0, play.task(500)).await;
    let mut sizes = vec![kit::size_of(play, &task).await];
    let task = play.run(20, &task).await;
    sizes.push(kit::size_of(play, &task).await);
    let task = play.fail(500, &task, "a short reason").await;
    sizes.push(kit::size_of(play, &task).await);
    let task = play.trigger(60_000, &task).await;
    let task = play.run(60_010, &task).await;
    sizes.push(kit::size_of(play, &task).await);
    let result = Some(vec![1; 700].into());
    let task = play
        .finish(61_000, &task, Outcome::Success { result })
        .await;
    sizes.push(kit::size_of(play, &task).await);
    println!("bytes at create, claim, failure, second claim, success: {sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 1024), "{sizes:?}");
}

#[tokio::test]
async fn f_120_due_and_list_use_query_and_nothing_ever_scans() {
    let (store, wire) = kit::wired().await;
    let play = Play::new(store.clone()).await;
    for _ in 0..5 {
        play.create(0, play.task(10)).await;
    }
    let all = wire.take();
    let done = play.create(0, play.task(2_000)).await;
    let done = play.run(1, &done).await;
    play.succeed(2, &done).await;
    wire.take();
    let due = play.due(100_000, 100).await;
    assert_eq!(due.tasks.len(), 5);
    let names = |calls: &[kit::wire::Call]| -> Vec<String> {
        let mut names: Vec<_> = calls.iter().map(|call| call.operation.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let due_calls = wire.take();
    assert_eq!(names(&due_calls), ["BatchGetItem", "GetItem", "Query"]);
    let page = store.list(ListQuery::of(done.job.clone())).await.unwrap();
    assert_eq!(page.tasks.len(), 6);
    let list_calls = wire.take();
    assert_eq!(names(&list_calls), ["GetItem", "Query"]);
    store.stats(&done.job).await.unwrap();
    store.ready(&done.job, 10).await.unwrap();
    store.owned(at(10), None).await.unwrap();
    while store.prune(at(9_000_000), 100).await.unwrap().more {}
    store.jobs().await.unwrap();
    let rest = [all, due_calls, list_calls, wire.take()].concat();
    assert!(rest.iter().all(|call| call.operation != "Scan"));
}
