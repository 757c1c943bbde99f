//! What a service in front of many hosts does: writes conflict, partitions are hot, batches are done in part, and the
//! index follows late.

use std::time::Duration;

use dueline_domain::{JobName, StateKind, TaskId, WorkerId};
use dueline_ports::{
    JobStore as _, Share, StoreError, TaskStore as _, WorkerRecord, WorkerStore as _,
};
use dueline_testkit::{
    DueFaults, Engine, FaultyStore, Hot, IndexFaults, LaggingStore, StoreFaults, StoreMethod,
    StoreRates, Switch,
};
use tokio::time::{advance, sleep};

use crate::kit::{at, claim, create, due_at, name, site, store};

const LONG_AFTER: i64 = 10_000_000;

/// Two hosts in front of one engine.
async fn two(rates: StoreRates) -> (Engine, FaultyStore, FaultyStore) {
    let (memory, _) = store(rates, StoreMethod::Apply).await;
    let faults = StoreFaults {
        rates,
        ..StoreFaults::default()
    };
    let engine = Engine::new();
    let host = || FaultyStore::new(memory.clone(), site(), faults.clone()).of(engine.clone());
    (engine.clone(), host(), host())
}

fn is_throttled<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Throttled))
}

#[tokio::test(start_paused = true)]
async fn two_writes_of_one_task_conflict_only_when_they_meet() {
    let rates = StoreRates {
        conflict: 1_000,
        busy_max: Duration::from_millis(50),
        ..StoreRates::default()
    };
    let (_, here, there) = two(rates).await;
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
    assert!(first[0].is_ok(), "the first one is not disturbed");
    assert!(is_throttled(&second[0]) && second[1].is_ok());

    let again = there.apply(at(3), vec![claim(1), claim(1)]).await;
    assert!(again.iter().all(Result::is_ok), "nobody else is at it");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_given_up_does_not_stay_in_the_way() {
    let rates = StoreRates {
        conflict: 1_000,
        busy_max: Duration::from_secs(3_600),
        ..StoreRates::default()
    };
    let (_, here, there) = two(rates).await;
    let hasty = Duration::from_millis(1);
    assert!(
        tokio::time::timeout(hasty, here.create(at(2), vec![create(1)]))
            .await
            .is_err()
    );
    let answer = there.create(at(2), vec![create(1)]).await.remove(0);
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_hot_is_refused_and_nothing_else() {
    let (engine, here, _) = two(StoreRates::default()).await;
    here.create(at(2), vec![create(1)]).await.remove(0).unwrap();
    let id = TaskId::from_bytes([1; 16]);
    engine.heat(Hot::Job(name()), 1_000);
    assert!(is_throttled(&here.get(&name(), &id).await));
    assert!(is_throttled(
        &here.apply(at(3), vec![claim(1)]).await.remove(0)
    ));
    let page = here.due(due_at(LONG_AFTER)).await.unwrap();
    assert!(page.tasks.is_empty() && page.more, "{page:?}");
    let other = JobName::parse("other").unwrap();
    assert!(matches!(here.get(&other, &id).await, Ok(None)));
    assert!(here.job(&name()).await.is_ok());

    engine.cool(&Hot::Job(name()));
    assert_eq!(here.due(due_at(LONG_AFTER)).await.unwrap().tasks.len(), 1);
    engine.heat(Hot::Method(StoreMethod::Due), 1_000);
    assert!(is_throttled(&here.due(due_at(LONG_AFTER)).await));
    assert!(here.get(&name(), &id).await.is_ok());
    engine.cool_all();
    assert!(here.due(due_at(LONG_AFTER)).await.is_ok());
    assert_eq!(engine.requests(), 10);
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_that_is_done_in_part_each_answer_is_true() {
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
    let there = memory.workers().await.unwrap().len();
    assert!(there > 2 && there < 18, "{there}");
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
    }
}

#[tokio::test(start_paused = true)]
async fn pages_come_back_empty_several_times_and_short_although_there_is_more() {
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
        FaultyStore::new(memory.clone(), site(), faults)
    };
    let (mut in_a_row, mut longest, mut full) = (0, 0, 0);
    let often_empty = faulty(300, 0);
    for _ in 0..50 {
        let page = often_empty.due(due_at(LONG_AFTER)).await.unwrap();
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
        "{longest} in a row, {full} full ones"
    );
    let page = faulty(0, 1_000).due(due_at(LONG_AFTER)).await.unwrap();
    assert!(page.tasks.len() < 20 && page.more);
}

async fn lagging(lag_max: Duration) -> (Switch, LaggingStore) {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let site = site();
    let (on, faults) = (
        site.faults.clone(),
        IndexFaults {
            lag_max,
            shards: 16,
        },
    );
    (on, LaggingStore::new(memory, site, faults))
}

#[tokio::test(start_paused = true)]
async fn rows_reach_the_index_one_by_one_and_leave_it_late() {
    let lag_max = Duration::from_secs(60);
    let (_, index) = lagging(lag_max).await;
    index.create(at(2), (1..=40).map(create).collect()).await;
    let shown = async || index.due(due_at(LONG_AFTER)).await.unwrap().tasks;
    assert!(shown().await.len() < 10);
    sleep(Duration::from_secs(30)).await;
    let some = shown().await.len();
    assert!(some > 10 && some < 40, "{some}");
    sleep(lag_max).await;
    assert_eq!(shown().await.len(), 40);

    index.apply(at(3), (1..=40).map(claim).collect()).await;
    let kinds = async |kind| {
        shown()
            .await
            .iter()
            .filter(|task| task.kind == kind)
            .count()
    };
    assert!(kinds(StateKind::Enqueued).await > 30, "as they were");
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
        for task in index.due(due_at(LONG_AFTER)).await.unwrap().tasks {
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
async fn an_index_without_faults_is_up_to_date_and_keeps_to_limits_and_shares() {
    let (on, index) = lagging(Duration::from_secs(60)).await;
    index.create(at(2), (1..=40).map(create).collect()).await;
    on.set(false);
    assert_eq!(index.due(due_at(LONG_AFTER)).await.unwrap().tasks.len(), 40);
    let page = index.due(due_at(0)).await.unwrap();
    assert!(page.tasks.is_empty() && page.next_at.is_some());

    let mut query = due_at(LONG_AFTER);
    query.pending_limits = [(name(), 7)].into();
    let page = index.due(query).await.unwrap();
    assert!(page.more);
    assert_eq!(page.tasks.len(), 7);

    let mut read = Vec::new();
    let members = [1, 2, 3].map(|number| WorkerId::new("consumer", number).unwrap());
    for me in &members {
        let mut query = due_at(LONG_AFTER);
        query.share = Some(Share::of(me, &members));
        read.push(index.due(query).await.unwrap().tasks.len());
    }
    assert_eq!(read.iter().sum::<usize>(), 40, "{read:?}");
    assert!(read.iter().all(|count| *count < 40), "{read:?}");
}
