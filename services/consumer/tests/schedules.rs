//! Schedules create their tasks on time and once, whatever happens to the consumers.

mod kit;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use dueline_consumer::{Config, Sharing};
use dueline_domain::{
    Backfill, Event, FiringEnd, Overlap, RuleSpec, RunningCancel, Schedule, ScheduleName,
    ScheduleSpec, StateKind, Task, TaskTemplate, Timestamp, WorkerId,
};
use dueline_ports::{
    Clock as _, Create, Created, ListQuery, PutSchedule, Rng as _, ScheduleStore, Store,
    StoreError, TaskStore, fakes::StoreLayer,
};
use dueline_schedule::Change;
use kit::{Kit, START, TestStore, ms, name, secs};
use tokio::time::sleep;

fn spec(timing: &str, overlap: Overlap) -> ScheduleSpec {
    ScheduleSpec {
        rule: RuleSpec {
            timing: timing.to_owned(),
            // The fake clock begins in the middle of a second.
            anchor: timing.starts_with('@').then_some(START),
            ..RuleSpec::default()
        },
        overlap,
        ..ScheduleSpec::default()
    }
}

fn schedule_name(text: &str) -> ScheduleName {
    ScheduleName::parse(text).unwrap()
}

async fn put(kit: &Kit, text: &str, spec: ScheduleSpec) {
    let (now, write) = (kit.clock.now(), kit.rng.write_id());
    let created = Change::create(
        name("a"),
        schedule_name(text),
        spec,
        "ann".into(),
        now,
        write,
    );
    store(kit, created.unwrap(), None).await;
}

async fn store(kit: &Kit, schedule: Schedule, seen: Option<dueline_domain::WriteId>) {
    let put = PutSchedule { schedule, seen };
    let mut results = ScheduleStore::put_schedules(&*kit.store, vec![put]).await;
    assert!(results.remove(0).unwrap());
}

async fn change(kit: &Kit, text: &str, change: Change) {
    let stored = get(kit, text).await;
    let seen = Some(stored.write);
    let (now, write) = (kit.clock.now(), kit.rng.write_id());
    store(kit, change.apply(stored, now, write).unwrap(), seen).await;
}

async fn get(kit: &Kit, text: &str) -> Schedule {
    let found = ScheduleStore::schedule(&*kit.store, &name("a"), &schedule_name(text)).await;
    found.unwrap().unwrap()
}

/// The tasks of a schedule, oldest firing first.
async fn tasks(kit: &Kit, text: &str) -> Vec<Task> {
    let query = ListQuery {
        schedule: Some(schedule_name(text)),
        limit: 1_000,
        ..ListQuery::of(name("a"))
    };
    let mut tasks = TaskStore::list(&*kit.store, query).await.unwrap().tasks;
    tasks.sort_by_key(nominal_at);
    tasks
}

fn nominal_at(task: &Task) -> Timestamp {
    let options = task.options.as_ref().unwrap();
    options.firing.as_ref().unwrap().nominal_at
}

/// Runs the next message of job `a` to success.
async fn run_one(kit: &Kit) -> Task {
    let message = kit.receive_and_ack("a", secs(60)).await.unwrap();
    let run = kit.claim(&message, true).await;
    kit.succeed(&run).await
}

#[tokio::test(start_paused = true)]
async fn f_100_a_schedule_creates_a_task_at_each_of_its_times() {
    let kit = Kit::new().await;
    let template = TaskTemplate {
        payload: "x".into(),
        ..TaskTemplate::default()
    };
    let spec = ScheduleSpec {
        template,
        ..spec("@every 2s", Overlap::Allow)
    };
    put(&kit, "often", spec).await;
    kit.start();
    sleep(ms(21_000)).await;
    let tasks = tasks(&kit, "often").await;
    let expected: Vec<_> = (1..=10).map(|n| START.after(secs(n * 2))).collect();
    assert_eq!(tasks.iter().map(nominal_at).collect::<Vec<_>>(), expected);
    let ids: BTreeSet<_> = tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids.len(), 10);
    for (task, at) in tasks.iter().zip(expected) {
        assert_eq!((task.run_at, &task.payload[..]), (at, &b"x"[..]));
        assert!(task.created_at >= at, "never early");
        assert!(task.created_at <= at.after(ms(1_100)), "within a poll");
        assert_eq!(task.kind(), StateKind::Enqueued);
        let options = task.options.as_ref().unwrap();
        assert_eq!(options.created_by.as_deref(), Some("ann"));
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_23_a_firing_waits_until_the_task_of_the_one_before_has_ended() {
    let kit = Kit::new().await;
    put(&kit, "often", spec("@every 10s", Overlap::QueueOne)).await;
    kit.start();
    sleep(ms(30_500)).await;
    assert_eq!(tasks(&kit, "often").await.len(), 1);
    let schedule = get(&kit, "often").await;
    let queued = schedule.queued.unwrap().nominal_at;
    assert_eq!(queued, START.after(secs(20)));
    assert_eq!(schedule.counts.skipped, 1);
    let first = run_one(&kit).await;
    assert_eq!(nominal_at(&first), START.after(secs(10)));
    sleep(ms(5_000)).await;
    let all = tasks(&kit, "often").await;
    assert_eq!(all.len(), 2, "well before the next firing");
    assert_eq!(nominal_at(&all[1]), queued);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_05_a_firing_may_cancel_the_tasks_of_earlier_ones() {
    let kit = Kit::new().await;
    put(&kit, "often", spec("@every 10s", Overlap::CancelPrevious)).await;
    kit.start();
    sleep(ms(31_000)).await;
    let states: Vec<_> = tasks(&kit, "often").await.iter().map(Task::kind).collect();
    use StateKind::{Cancelled, Enqueued};
    assert_eq!(states, [Cancelled, Cancelled, Enqueued]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn d_05_cancelling_one_occurrence_does_not_end_the_series() {
    let kit = Kit::new().await;
    put(&kit, "often", spec("@every 10s", Overlap::QueueOne)).await;
    kit.start();
    sleep(ms(10_500)).await;
    let first = tasks(&kit, "often").await.remove(0);
    let cancel = Event::Cancel {
        running: RunningCancel::Refuse,
        reason: None,
    };
    kit.apply(&first, cancel).await;
    sleep(ms(10_000)).await;
    let all = tasks(&kit, "often").await;
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].kind(), StateKind::Enqueued);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_05_two_consumers_create_each_task_once() {
    let kit = Kit::new().await;
    for number in 0..20 {
        let spec = spec("@every 1s", Overlap::Allow);
        put(&kit, &format!("s{number}"), spec).await;
    }
    kit.store.slow_down(3);
    // Neither has a share yet, so both carry out all schedules.
    let consumers = [1, 2].map(|number| {
        let me = WorkerId::new("consumer", number).unwrap();
        kit.start_separate(Config {
            sharing: Some(Sharing {
                me,
                interval: secs(1_000),
            }),
            ..Config::default()
        })
    });
    sleep(ms(10_500)).await;
    for number in 0..20 {
        let text = format!("s{number}");
        assert_eq!(tasks(&kit, &text).await.len(), 10, "{text}");
        assert_eq!(get(&kit, &text).await.counts.created, 10, "{text}");
    }
    consumers
        .iter()
        .for_each(dueline_runtime::Shutdown::stop_intake);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_22_after_a_downtime_one_firing_is_made_up_for() {
    let kit = Kit::new().await;
    put(&kit, "often", spec("@every 600s", Overlap::Allow)).await;
    sleep(secs(3_700)).await;
    kit.start();
    sleep(ms(500)).await;
    let all = tasks(&kit, "often").await;
    assert_eq!(all.len(), 1);
    assert_eq!(nominal_at(&all[0]), START.after(secs(3_600)));
    let schedule = get(&kit, "often").await;
    assert_eq!(schedule.counts.missed, 5);
    assert_eq!(schedule.next_at, Some(START.after(secs(4_200))));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_105_a_task_that_is_missing_is_created_again_once() {
    let kit = Kit::new().await;
    put(&kit, "often", spec("@every 10s", Overlap::QueueOne)).await;
    // As a consumer leaves it whose store lost the task afterwards.
    let mut stored = get(&kit, "often").await;
    let (seen, fired_at) = (stored.write, START.after(secs(10)));
    stored.active = vec![fired_at];
    stored.decided_until = fired_at;
    stored.next_at = Some(START.after(secs(20)));
    stored.write = kit.rng.write_id();
    store(&kit, stored, Some(seen)).await;
    kit.start();
    sleep(ms(120_000)).await;
    let all = tasks(&kit, "often").await;
    assert_eq!(all.len(), 1, "ten sweeps create no second copy");
    assert_eq!(nominal_at(&all[0]), fired_at);
    assert_eq!(get(&kit, "often").await.counts.repaired, 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_103_other_settings_apply_to_the_next_task_and_not_to_earlier_ones() {
    let kit = Kit::new().await;
    let with = |payload: &'static str| ScheduleSpec {
        template: TaskTemplate {
            payload: payload.into(),
            ..TaskTemplate::default()
        },
        ..spec("@every 10s", Overlap::Allow)
    };
    put(&kit, "often", with("old")).await;
    kit.start();
    sleep(ms(10_500)).await;
    change(&kit, "often", Change::Replace(Box::new(with("new")))).await;
    sleep(ms(10_000)).await;
    let payloads: Vec<_> = tasks(&kit, "often").await;
    let payloads: Vec<_> = payloads.iter().map(|task| &task.payload[..]).collect();
    assert_eq!(payloads, [b"old", b"new"]);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_05_a_template_that_is_refused_is_recorded_and_the_schedule_goes_on() {
    let kit = Kit::new().await;
    put(&kit, "often", spec("@every 10s", Overlap::Skip)).await;
    let mut stored = get(&kit, "often").await;
    let seen = stored.write;
    // No door accepts this, but an older version may have.
    let options = stored.spec.template.options.get_or_insert_default();
    options.name = Some(Arc::from(" "));
    stored.write = kit.rng.write_id();
    store(&kit, stored, Some(seen)).await;
    kit.start();
    sleep(ms(20_500)).await;
    let schedule = get(&kit, "often").await;
    assert_eq!((schedule.counts.failed, schedule.counts.created), (2, 0));
    let last = schedule.recent.last().unwrap();
    assert_eq!(last.end, FiringEnd::Failed);
    assert!(last.info.contains("blank"), "{last:?}");
    assert_eq!(schedule.next_at, Some(START.after(secs(30))));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_05_a_rule_that_cannot_be_read_is_recorded_and_stops_its_schedule_alone() {
    let kit = Kit::new().await;
    for text in ["bad", "good"] {
        put(&kit, text, spec("@every 10s", Overlap::Allow)).await;
    }
    let mut stored = get(&kit, "bad").await;
    let seen = stored.write;
    stored.spec.rule.timing = "from a later version".to_owned();
    stored.write = kit.rng.write_id();
    store(&kit, stored, Some(seen)).await;
    kit.start();
    sleep(ms(20_500)).await;
    assert_eq!(tasks(&kit, "good").await.len(), 2);
    let bad = get(&kit, "bad").await;
    assert_eq!((bad.next_at, bad.recent[0].end), (None, FiringEnd::Failed));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_05_a_backfill_creates_each_task_of_its_range_once() {
    let kit = Kit::new().await;
    put(&kit, "often", spec("@every 10s", Overlap::Skip)).await;
    let range = Backfill {
        from: START.before(secs(5_000)),
        to: START,
    };
    change(&kit, "often", Change::Backfill(range)).await;
    kit.start();
    sleep(ms(5_000)).await;
    assert_eq!(tasks(&kit, "often").await.len(), 500);
    change(&kit, "often", Change::Backfill(range)).await;
    sleep(ms(4_000)).await;
    assert_eq!(tasks(&kit, "often").await.len(), 500);
    assert_eq!(get(&kit, "often").await.backfills, []);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g_05_ten_thousand_schedules_that_fire_at_once_start_within_seconds() {
    let kit = Kit::new().await;
    for number in 0..10_000 {
        let spec = spec("@every 60s", Overlap::Allow);
        put(&kit, &format!("s{number}"), spec).await;
    }
    kit.start();
    sleep(ms(59_900)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 0, "never early");
    sleep(ms(3_000)).await;
    assert_eq!(kit.count("a", StateKind::Enqueued).await, 10_000);
    kit.stop().await;
}

/// Counts the tasks that one consumer creates.
struct CountingStore {
    inner: Arc<TestStore>,
    created: AtomicUsize,
}

#[async_trait]
impl StoreLayer for CountingStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        self.created.fetch_add(new.len(), Ordering::Relaxed);
        self.below().create(now, new).await
    }
}

#[tokio::test(start_paused = true)]
async fn g_05_a_storm_is_spread_over_the_consumers() {
    const SCHEDULES: usize = 2_000;
    let kit = Kit::new().await;
    for number in 0..SCHEDULES {
        put(
            &kit,
            &format!("s{number}"),
            spec("@every 60s", Overlap::Allow),
        )
        .await;
    }
    let consumers = [1, 2, 3].map(|number| {
        let store = Arc::new(CountingStore {
            inner: kit.store.clone(),
            created: AtomicUsize::new(0),
        });
        let me = WorkerId::new("consumer", number).unwrap();
        let interval = secs(1);
        let config = Config {
            sharing: Some(Sharing { me, interval }),
            ..Config::default()
        };
        kit.start_on(config, store.clone());
        store
    });
    sleep(ms(63_000)).await;
    let created = consumers
        .each_ref()
        .map(|consumer| consumer.created.load(Ordering::Relaxed));
    assert_eq!(created.iter().sum::<usize>(), SCHEDULES, "{created:?}");
    // Each has some of the eight shards.
    assert!(created.iter().all(|count| *count > 0), "{created:?}");
}
