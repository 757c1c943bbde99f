//! Failing calls, and pages of due tasks that are out of date.

use std::sync::Arc;

use dueline_domain::StateKind;
use dueline_ports::{JobStore as _, Store, TaskStore as _};
use dueline_testkit::{
    DueFaults, EventHistory, FaultyStore, HistoryEvent, RecordingStore, StoreFaults, StoreMethod,
    StoreRates, Switch,
};

use crate::kit::{at, claim, create, due_at, injector, name, store};

#[tokio::test(start_paused = true)]
async fn a_write_that_timed_out_after_its_execution_is_stored() {
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
async fn a_write_that_timed_out_before_its_execution_or_was_refused_is_not_stored() {
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
async fn a_write_executed_twice_is_recognised_by_its_write_id() {
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
        let is_stored = stored.iter().any(|task| task.id == create(number).task.id);
        assert_eq!(answer.is_ok(), is_stored);
        if let Ok(created) = answer {
            assert_eq!(created.task.id, create(number).task.id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn due_rows_are_returned_late_and_still_after_they_moved() {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let faults = StoreFaults {
        due: DueFaults {
            moved: 1_000,
            late: 500,
            ..DueFaults::default()
        },
        ..StoreFaults::default()
    };
    let faulty = FaultyStore::new(memory.clone(), injector(), faults);
    memory.create(at(2), (1..=20).map(create).collect()).await;
    let first = faulty.due(due_at(10_000_000)).await.unwrap().tasks.len();
    assert!(first > 2 && first < 18);
    assert_eq!(faulty.due(due_at(0)).await.unwrap().tasks.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn the_history_has_the_order_of_the_store_and_marks_repetitions() {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let history = EventHistory::new(at(1));
    let store: Arc<dyn Store> = Arc::new(RecordingStore::new(memory, history.clone()));
    store.create(at(2), vec![create(1)]).await;
    store.apply(at(3), vec![claim(1), claim(1), claim(2)]).await;
    let entries = history.entries();
    assert!(matches!(
        entries[0].event,
        HistoryEvent::Stored { verb: None, .. }
    ));
    assert!(
        matches!(&entries[1].event, HistoryEvent::Stored { task, .. } if task.kind() == StateKind::Claimed)
    );
    assert!(matches!(entries[2].event, HistoryEvent::Repeated { .. }));
    assert_eq!(entries.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_random_fault_happens_while_faults_are_off_and_an_outage_refuses_all_calls() {
    let (outage, mut injector) = (Switch::new(false), injector());
    injector.faults.set(false);
    injector = injector.with_outages(&[&outage]);
    let rates = StoreRates {
        timeout: 1_000,
        ..StoreRates::default()
    };
    let (memory, _) = store(rates, StoreMethod::Create).await;
    let faults = StoreFaults {
        rates,
        ..StoreFaults::default()
    };
    let faulty = FaultyStore::new(memory, injector, faults);
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
