//! A consumer dies between any two steps of a turn, and another one takes over.

mod kit;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use dueline_consumer::Config;
use dueline_domain::{
    Backfill, JobName, Overlap, RuleSpec, Schedule, ScheduleName, ScheduleSpec, StateKind, Task,
    TaskId, Timestamp,
};
use dueline_ports::{
    Applied, Clock as _, Command, Create, Created, DueSchedulesPage, DueSchedulesQuery, ListQuery,
    PutSchedule, Rng as _, ScheduleStore, Store, StoreError, TaskStore, fakes::StoreLayer,
};
use dueline_schedule::Change;
use kit::{Kit, START, TestStore, ms, name, secs};
use tokio::time::sleep;

/// Most calls of the turns before a takeover. A test without a crash in one of them would prove nothing.
const CALLS_MAX: usize = 200;

/// The store as a process sees it that dies at one of its calls: none of its later calls has any effect or answer.
struct DyingStore {
    inner: Arc<TestStore>,
    /// Calls until its death.
    left: AtomicUsize,
    /// Whether the last call has its effect.
    is_done: bool,
}

impl DyingStore {
    async fn step<T>(&self, call: impl Future<Output = T>) -> T {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(1))
            });
        match left.unwrap_or(0) {
            0 => std::future::pending().await,
            1 => {
                if self.is_done {
                    call.await;
                }
                std::future::pending().await
            }
            _ => call.await,
        }
    }

    fn is_dead(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

#[async_trait]
impl StoreLayer for DyingStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        self.step(self.below().create(now, new)).await
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        self.step(self.below().get(job, id)).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        self.step(self.below().apply(now, commands)).await
    }

    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        self.step(self.below().put_schedules(puts)).await
    }

    async fn due_schedules(
        &self,
        query: DueSchedulesQuery,
    ) -> Result<DueSchedulesPage, StoreError> {
        let page = self.below().due_schedules(query).await?;
        match page.schedules.is_empty() {
            // Polls that find nothing are not steps of a turn.
            true => Ok(page),
            false => self.step(async { Ok(page) }).await,
        }
    }
}

/// A schedule that fires every ten seconds, with a requested firing and two of a backfill.
async fn store_schedule(kit: &Kit, overlap: Overlap) {
    let spec = ScheduleSpec {
        rule: RuleSpec {
            timing: "@every 10s".to_owned(),
            anchor: Some(START),
            ..RuleSpec::default()
        },
        overlap,
        ..ScheduleSpec::default()
    };
    let now = kit.clock.now();
    let (from, to) = (START.before(secs(20)), START);
    let mut schedule = Change::create(
        name("a"),
        ScheduleName::parse("often").unwrap(),
        spec,
        "ann".into(),
        now,
        kit.rng.write_id(),
    )
    .unwrap();
    for change in [Change::Trigger, Change::Backfill(Backfill { from, to })] {
        schedule = change.apply(schedule, now, kit.rng.write_id()).unwrap();
    }
    let puts = vec![PutSchedule {
        schedule,
        seen: None,
    }];
    let mut stored = ScheduleStore::put_schedules(&*kit.store, puts).await;
    assert!(stored.remove(0).unwrap());
}

async fn stored(kit: &Kit) -> (Schedule, BTreeMap<Timestamp, Task>) {
    let often = ScheduleName::parse("often").unwrap();
    let schedule = ScheduleStore::schedule(&*kit.store, &name("a"), &often).await;
    let query = ListQuery {
        schedule: Some(often),
        limit: 1_000,
        ..ListQuery::of(name("a"))
    };
    let all = TaskStore::list(&*kit.store, query).await.unwrap().tasks;
    let mut tasks = BTreeMap::new();
    for task in all {
        let firing = task.options.as_ref().unwrap().firing.clone().unwrap();
        let other = tasks.insert(firing.nominal_at, task);
        assert!(other.is_none(), "two tasks for {}", firing.nominal_at);
    }
    (schedule.unwrap().unwrap(), tasks)
}

/// Plays a crash at the call with this number, and returns what is stored when the other consumer has taken over. `None`
/// if there were fewer calls.
async fn crash(
    overlap: Overlap,
    call: usize,
    is_done: bool,
) -> Option<(Schedule, BTreeMap<Timestamp, Task>)> {
    let kit = Kit::new().await;
    store_schedule(&kit, overlap).await;
    let dying = Arc::new(DyingStore {
        inner: kit.store.clone(),
        left: AtomicUsize::new(call),
        is_done,
    });
    kit.start_on(Config::default(), dying.clone());
    sleep(ms(21_000)).await;
    if !dying.is_dead() {
        return None;
    }
    // Two more firings of the rule have come by then.
    sleep(ms(14_000)).await;
    kit.start();
    sleep(ms(10_000)).await;
    let found = stored(&kit).await;
    kit.stop().await;
    Some(found)
}

async fn at_every_call(overlap: Overlap, check: impl Fn(&Schedule, &BTreeMap<Timestamp, Task>)) {
    let mut calls = 0;
    for call in 1..CALLS_MAX {
        for is_done in [false, true] {
            let Some((schedule, tasks)) = crash(overlap, call, is_done).await else {
                assert!(calls > 5, "only {calls} calls");
                return;
            };
            let at = START.after(secs(50));
            let what = format!("{overlap:?}, call {call}, done: {is_done}");
            assert_eq!(schedule.next_at, Some(at), "{what}");
            assert_eq!((schedule.triggers.len(), schedule.backfills.len()), (0, 0));
            assert_eq!(schedule.counts.missed, 0, "{what}");
            assert_eq!(schedule.counts.repaired, 0, "{what}");
            for back in [20, 10] {
                assert!(tasks.contains_key(&START.before(secs(back))), "{what}");
            }
            check(&schedule, &tasks);
            calls = call;
        }
    }
    panic!("the turns never ended");
}

#[tokio::test(start_paused = true)]
async fn f_104_no_firing_is_lost_or_doubled_when_a_consumer_dies_at_any_call() {
    at_every_call(Overlap::Allow, |_, tasks| {
        let expected: Vec<_> = [0, 10, 20, 30, 40].map(|s| START.after(secs(s))).into();
        let found: Vec<_> = tasks.keys().copied().filter(|at| *at >= START).collect();
        assert_eq!(found, expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn g_05_one_firing_waits_and_others_are_counted_when_a_consumer_dies_at_any_call() {
    at_every_call(Overlap::QueueOne, |schedule, tasks| {
        // No worker runs the first task, so that the second one waits.
        let of_rule: Vec<_> = tasks.keys().copied().filter(|at| *at >= START).collect();
        assert_eq!(of_rule, [START]);
        let waits = schedule.queued.map(|queued| queued.nominal_at);
        assert_eq!(waits, Some(START.after(secs(10))));
        assert_eq!(schedule.counts.skipped, 3);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn g_05_only_the_latest_task_is_left_when_a_consumer_dies_at_any_call() {
    at_every_call(Overlap::CancelPrevious, |schedule, tasks| {
        let of_rule = tasks.range(START..);
        let open = of_rule.filter(|(_, task)| task.kind() != StateKind::Cancelled);
        let open: Vec<_> = open.map(|(at, _)| *at).collect();
        assert_eq!(open, [START.after(secs(40))]);
        let counts = schedule.counts;
        assert_eq!(counts.created + counts.skipped, 5 + 2);
    })
    .await;
}
