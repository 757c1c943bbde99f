//! Faults of a service that many hosts share: conflicting writes, hot partitions, batches executed in part, and a
//! lagging index.

use std::time::Duration;

use dueline_domain::{JobName, StateKind, TaskId, WorkerId};
use dueline_ports::{
    JobStore as _, Share, StoreError, TaskStore as _, WorkerRecord, WorkerStore as _,
};
use dueline_testkit::{
    DueFaults, FaultyStore, HotSpot, IndexFaults, LaggingStore, StoreEngine, StoreFaults,
    StoreMethod, StoreRates, Switch,
};
use tokio::time::{advance, sleep};

use crate::kit::{at, claim, create, due_at, injector, name, store};

const MUCH_LATER: i64 = 10_000_000;

/// The stores of two hosts in front of one engine.
async fn two_hosts(rates: StoreRates) -> (StoreEngine, FaultyStore, FaultyStore) {
    let (memory, _) = store(rates, StoreMethod::Apply).await;
    let faults = StoreFaults {
        rates,
        ..StoreFaults::default()
    };
    let engine = StoreEngine::new();
    let host =
        || FaultyStore::new(memory.clone(), injector(), faults.clone()).with_engine(engine.clone());
    (engine.clone(), host(), host())
}

fn is_throttled<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Throttled))
}

#[tokio::test(start_paused = true)]
async fn two_writes_of_one_task_conflict_only_when_they_are_concurrent() {
    let rates = StoreRates {
        conflict: 1_000,
        busy_max: Duration::from_millis(50),
        ..StoreRates::default()
    };
    let (_, here, there) = two_hosts(rates).await;
    let answers = here.create(at(2), vec![create(1), create(2)]).await;
    assert!(answers.iter().all(Result::is_ok));

    let (first, other) = tokio::join!(
        biased;
        here.apply(at(3), vec![claim(1)]),
        there.apply(at(3), vec![claim(2)]),
    );
    assert!(first[0].is_ok() && other[0].is_ok(), "different tasks");

    let (first, second) = tokio::join!(
        biased;
        here.apply(at(3), vec![claim(1)]),
        there.apply(at(3), vec![claim(1), claim(2)]),
    );
    assert!(first[0].is_ok(), "the first write succeeds");
    assert!(is_throttled(&second[0]) && second[1].is_ok());

    let again = there.apply(at(3), vec![claim(1), claim(1)]).await;
    assert!(again.iter().all(Result::is_ok), "no concurrent write");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_write_does_not_conflict_with_later_writes() {
    let rates = StoreRates {
        conflict: 1_000,
        busy_max: Duration::from_secs(3_600),
        ..StoreRates::default()
    };
    let (_, here, there) = two_hosts(rates).await;
    let short = Duration::from_millis(1);
    assert!(
        tokio::time::timeout(short, here.create(at(2), vec![create(1)]))
            .await
            .is_err()
    );
    let answer = there.create(at(2), vec![create(1)]).await.remove(0);
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn only_hot_spots_are_throttled() {
    let (engine, here, _) = two_hosts(StoreRates::default()).await;
    here.create(at(2), vec![create(1)]).await.remove(0).unwrap();
    let id = TaskId::from_bytes([1; 16]);
    engine.heat(HotSpot::Job(name()), 1_000);
    assert!(is_throttled(&here.get(&name(), &id).await));
    assert!(is_throttled(
        &here.apply(at(3), vec![claim(1)]).await.remove(0)
    ));
    let page = here.due(due_at(MUCH_LATER)).await.unwrap();
    assert!(page.tasks.is_empty() && page.more, "{page:?}");
    let other = JobName::parse("other").unwrap();
    assert!(matches!(here.get(&other, &id).await, Ok(None)));
    assert!(here.job(&name()).await.is_ok());

    engine.cool(&HotSpot::Job(name()));
    assert_eq!(here.due(due_at(MUCH_LATER)).await.unwrap().tasks.len(), 1);
    engine.heat(HotSpot::Method(StoreMethod::Due), 1_000);
    assert!(is_throttled(&here.due(due_at(MUCH_LATER)).await));
    assert!(here.get(&name(), &id).await.is_ok());
    engine.cool_all();
    assert!(here.due(due_at(MUCH_LATER)).await.is_ok());
    assert_eq!(engine.requests(), 10);
}

#[tokio::test(start_paused = true)]
async fn each_result_of_a_batch_executed_in_part_is_true() {
    let rates = StoreRates {
        partial: 1_000,
        ..StoreRates::default()
    };
    let (memory, faulty) = store(rates, StoreMethod::Create).await;
    let answers = faulty.create(at(2), (1..=20).map(create).collect()).await;
    let stored: Vec<_> = memory.snapshot().iter().map(|task| task.id).collect();
    assert!(stored.len() > 2 && stored.len() < 18);
    for (number, answer) in (1..).zip(&answers) {
        assert_eq!(answer.is_ok(), stored.contains(&create(number).task.id));
    }

    let (memory, faulty) = store(rates, StoreMethod::PutWorkers).await;
    let answer = faulty.put_workers((0..20).map(worker).collect()).await;
    assert!(is_throttled(&answer));
    let stored = memory.workers().await.unwrap().len();
    assert!(stored > 2 && stored < 18, "{stored}");
}

fn worker(number: u64) -> WorkerRecord {
    WorkerRecord {
        id: WorkerId::new("w", number).unwrap(),
        kind: "executor".into(),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 1,
        embedded: false,
        started_at: at(1),
        seen_at: at(1),
        metadata: dueline_ports::Metadata::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_empty_several_times_and_short_although_more_tasks_are_due() {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    memory.create(at(2), (1..=20).map(create).collect()).await;
    let faulty = |empty, short| {
        let faults = StoreFaults {
            due: DueFaults {
                empty,
                short,
                ..DueFaults::default()
            },
            ..StoreFaults::default()
        };
        FaultyStore::new(memory.clone(), injector(), faults)
    };
    let (mut in_a_row, mut longest, mut full) = (0, 0, 0);
    let often_empty = faulty(300, 0);
    for _ in 0..50 {
        let page = often_empty.due(due_at(MUCH_LATER)).await.unwrap();
        assert!(matches!(page.tasks.len(), 0 | 20));
        assert_eq!(page.more, page.tasks.is_empty());
        in_a_row = if page.tasks.is_empty() {
            in_a_row + 1
        } else {
            0
        };
        full += usize::from(in_a_row == 0);
        longest = longest.max(in_a_row);
    }
    assert!(
        longest > 1 && full > 5,
        "{longest} consecutive empty pages, {full} full pages"
    );
    let page = faulty(0, 1_000).due(due_at(MUCH_LATER)).await.unwrap();
    assert!(page.tasks.len() < 20 && page.more);
}

async fn lagging(lag_max: Duration) -> (Switch, LaggingStore) {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let injector = injector();
    let (on, faults) = (
        injector.faults.clone(),
        IndexFaults {
            lag_max,
            shards: 16,
        },
    );
    (on, LaggingStore::new(memory, injector, faults))
}

#[tokio::test(start_paused = true)]
async fn rows_reach_the_index_one_by_one_and_leave_it_late() {
    let lag_max = Duration::from_secs(60);
    let (_, index) = lagging(lag_max).await;
    index.create(at(2), (1..=40).map(create).collect()).await;
    let due = async || index.due(due_at(MUCH_LATER)).await.unwrap().tasks;
    assert!(due().await.len() < 10);
    sleep(Duration::from_secs(30)).await;
    let some = due().await.len();
    assert!(some > 10 && some < 40, "{some}");
    sleep(lag_max).await;
    assert_eq!(due().await.len(), 40);

    index.apply(at(3), (1..=40).map(claim).collect()).await;
    let kinds = async |kind| due().await.iter().filter(|task| task.kind == kind).count();
    assert!(kinds(StateKind::Enqueued).await > 30, "still enqueued");
    sleep(lag_max).await;
    assert_eq!(kinds(StateKind::Claimed).await, 40);
    assert!(
        index
            .get(&name(), &create(1).task.id)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn the_writes_of_one_task_reach_the_index_in_their_order() {
    let (_, index) = lagging(Duration::from_secs(60)).await;
    index.create(at(2), (1..=40).map(create).collect()).await;
    index.apply(at(3), (1..=40).map(claim).collect()).await;
    let mut claimed = std::collections::BTreeSet::new();
    for _ in 0..70 {
        for task in index.due(due_at(MUCH_LATER)).await.unwrap().tasks {
            match task.kind {
                StateKind::Claimed => {
                    assert!(claimed.insert(task.id) || claimed.contains(&task.id))
                }
                kind => assert!(!claimed.contains(&task.id), "{kind:?} after claimed"),
            }
        }
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(claimed.len(), 40);
}

#[tokio::test(start_paused = true)]
async fn an_index_without_faults_is_up_to_date_and_respects_limits_and_shares() {
    let (on, index) = lagging(Duration::from_secs(60)).await;
    index.create(at(2), (1..=40).map(create).collect()).await;
    on.set(false);
    assert_eq!(index.due(due_at(MUCH_LATER)).await.unwrap().tasks.len(), 40);
    let page = index.due(due_at(0)).await.unwrap();
    assert!(page.tasks.is_empty() && page.next_at.is_some());

    let mut query = due_at(MUCH_LATER);
    query.pending_limits = [(name(), 7)].into();
    let page = index.due(query).await.unwrap();
    assert!(page.more);
    assert_eq!(page.tasks.len(), 7);

    let mut read = Vec::new();
    let members = [1, 2, 3].map(|number| WorkerId::new("consumer", number).unwrap());
    for me in &members {
        let mut query = due_at(MUCH_LATER);
        query.share = Some(Share::of(me, &members));
        read.push(index.due(query).await.unwrap().tasks.len());
    }
    assert_eq!(read.iter().sum::<usize>(), 40, "{read:?}");
    assert!(read.iter().all(|count| *count < 40), "{read:?}");
}
