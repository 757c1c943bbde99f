//! Calls that fail, and pages of due tasks that are out of date.

use std::sync::Arc;

use dueline_domain::StateKind;
use dueline_ports::{JobStore as _, Store, TaskStore as _};
use dueline_testkit::{
    DueFaults, FaultyStore, History, RecordingStore, StoreFaults, StoreMethod, StoreRates, Switch,
    What,
};

use crate::kit::{at, claim, create, due_at, name, site, store};

#[tokio::test(start_paused = true)]
async fn a_write_that_timed_out_afterwards_has_happened() {
    let rates = StoreRates {
        execute_and_timeout: 1_000,
        ..StoreRates::default()
    };
    let (memory, faulty) = store(rates, StoreMethod::Create).await;
    let error = faulty.create(at(2), vec![create(1)]).await.remove(0);
    assert!(error.unwrap_err().outcome_unknown());
    assert_eq!(memory.snapshot().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_timed_out_before_or_was_refused_has_not_happened() {
    for (timeout, unavailable, throttled) in [(1_000, 0, 0), (0, 1_000, 0), (0, 0, 1_000)] {
        let rates = StoreRates {
            timeout,
            unavailable,
            throttled,
            ..StoreRates::default()
        };
        let (memory, faulty) = store(rates, StoreMethod::Create).await;
        let error = faulty.create(at(2), vec![create(1)]).await.remove(0);
        assert_eq!(error.unwrap_err().outcome_unknown(), timeout > 0);
        assert!(memory.snapshot().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_done_twice_is_recognised_by_its_name() {
    let rates = StoreRates {
        execute_twice: 1_000,
        ..StoreRates::default()
    };
    let (_, faulty) = store(rates, StoreMethod::Apply).await;
    faulty
        .create(at(2), vec![create(1)])
        .await
        .remove(0)
        .unwrap();
    let applied = faulty.apply(at(3), vec![claim(1)]).await.remove(0).unwrap();
    assert!(applied.repeated);
    assert_eq!(applied.task.kind(), StateKind::Claimed);
}

#[tokio::test(start_paused = true)]
async fn items_of_a_batch_fail_alone_and_answers_keep_their_order() {
    let rates = StoreRates {
        item_throttled: 500,
        ..StoreRates::default()
    };
    let (memory, faulty) = store(rates, StoreMethod::Create).await;
    let answers = faulty.create(at(2), (1..=20).map(create).collect()).await;
    let stored = memory.snapshot();
    assert!(stored.len() > 2 && stored.len() < 18);
    for (number, answer) in (1..).zip(&answers) {
        let there = stored.iter().any(|task| task.id == create(number).task.id);
        assert_eq!(answer.is_ok(), there);
        if let Ok(created) = answer {
            assert_eq!(created.task.id, create(number).task.id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn due_rows_come_late_and_stay_after_they_moved() {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let faults = StoreFaults {
        due: DueFaults {
            moved: 1_000,
            late: 500,
            ..DueFaults::default()
        },
        ..StoreFaults::default()
    };
    let faulty = FaultyStore::new(memory.clone(), site(), faults);
    memory.create(at(2), (1..=20).map(create).collect()).await;
    let first = faulty.due(due_at(10_000_000)).await.unwrap().tasks.len();
    assert!(first > 2 && first < 18);
    assert_eq!(faulty.due(due_at(0)).await.unwrap().tasks.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn the_history_keeps_the_order_of_the_store_and_tells_repeats() {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let history = History::new(at(1));
    let store: Arc<dyn Store> = Arc::new(RecordingStore::new(memory, history.clone()));
    store.create(at(2), vec![create(1)]).await;
    store.apply(at(3), vec![claim(1), claim(1), claim(2)]).await;
    let entries = history.entries();
    assert!(matches!(entries[0].what, What::Stored { verb: None, .. }));
    assert!(
        matches!(&entries[1].what, What::Stored { task, .. } if task.kind() == StateKind::Claimed)
    );
    assert!(matches!(entries[2].what, What::Repeated { .. }));
    assert_eq!(entries.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_random_happens_once_faults_are_off_and_an_outage_refuses_all() {
    let (outage, mut site) = (Switch::new(false), site());
    site.faults.set(false);
    site = site.with(&[&outage]);
    let rates = StoreRates {
        timeout: 1_000,
        ..StoreRates::default()
    };
    let (memory, _) = store(rates, StoreMethod::Create).await;
    let faults = StoreFaults {
        rates,
        ..StoreFaults::default()
    };
    let faulty = FaultyStore::new(memory, site, faults);
    assert!(
        faulty
            .create(at(2), vec![create(1)])
            .await
            .remove(0)
            .is_ok()
    );
    outage.set(true);
    assert!(faulty.job(&name()).await.is_err());
}
