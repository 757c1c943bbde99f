//! Reports reach the store in order, and count once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use dueline_api::{Action, ApiError, Assignment, ErrorKind, ErrorReason};
use dueline_executor::Success;
use tokio::time::Instant;

use crate::{
    fake::{is_finish, ms, number, ok, task, unavailable},
    rig::Rig,
    runs::registry,
};

#[tokio::test(start_paused = true)]
async fn a_report_is_repeated_with_the_same_write_id_until_it_is_durable() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Deadline] {
        let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
        let mut failures = 3;
        rig.controller.answer(move |_| {
            if failures > 0 {
                failures -= 1;
                return Err(ApiError::new(
                    kind,
                    ErrorReason::StoreUnavailable,
                    "the store is unavailable",
                ));
            }
            ok()
        });
        rig.controller.push([task(1)]);
        let sent = rig.controller.reported(4, is_finish).await;
        assert!(sent.iter().all(|it| *it == sent[0]), "{sent:?}");
        let executor = rig.executor.clone();
        rig.drain().await;
        assert_eq!(executor.counts().finished, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_while_the_outcome_is_being_reported() {
    let rig = Rig::with(
        |config| config.concurrency = 1,
        registry(|_| async { Ok(Success::default()) }),
    );
    rig.controller.state().report_takes = ms(1_000);
    let begun = Instant::now();
    rig.controller.push((0..100).map(task));
    rig.controller.outcomes(100).await;
    assert!(begun.elapsed() < ms(3_500), "{:?}", begun.elapsed());
    assert!(rig.executor.counts().finished <= 100);
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_is_dropped_when_the_lease_has_ended_and_does_not_count() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.controller.answer(|_| unavailable());
    let begun = Instant::now();
    rig.controller.push([task(1)]);
    let (controller, executor) = (rig.controller.clone(), rig.executor.clone());
    rig.controller.reported(2, is_finish).await;
    rig.drain().await;
    // The report is repeated until the claim timeout of ten seconds.
    assert!((ms(5_000)..ms(10_001)).contains(&begun.elapsed()));
    let sent = controller.state().reports.len();
    assert!((5..40).contains(&sent), "{sent} repetitions");
    assert_eq!(executor.counts().finished, 0);
}

#[tokio::test(start_paused = true)]
async fn a_durable_start_whose_answer_was_lost_does_not_stop_the_run() {
    let rig = Rig::start(registry(|task| async move {
        tokio::time::sleep(ms(20_000)).await;
        assert!(!task.is_stopped());
        Ok(Success::default())
    }));
    let mut starts = 0;
    rig.controller.answer(move |report| {
        if report.action != Action::Start {
            return ok();
        }
        starts += 1;
        let (kind, reason) = match starts {
            1 => (ErrorKind::Deadline, ErrorReason::NoAnswer),
            _ => (ErrorKind::Conflict, ErrorReason::AlreadyStarted),
        };
        Err(ApiError::new(kind, reason, "failed"))
    });
    rig.controller.push([task(1)]);
    assert!(matches!(
        rig.controller.outcome().await,
        dueline_domain::Outcome::Success { .. }
    ));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn reports_of_one_task_keep_their_order_whatever_fails() {
    // The fake controller panics when two reports of a task are in flight.
    let rig = Rig::start(registry(|task| async move {
        let pause = u64::from(number(task.id()) % 7);
        tokio::time::sleep(ms(pause)).await;
        task.heartbeat().await.or_else(|error| {
            let is_retryable = error.is_retryable();
            is_retryable.then_some(()).ok_or(error)
        })?;
        tokio::time::sleep(ms(pause)).await;
        task.checkpoint("half").await?;
        Ok(Success::default())
    }));
    let rolls = Mutex::new(0_u32);
    rig.controller.answer(move |_| {
        let mut rolls = rolls.lock().unwrap();
        *rolls += 1;
        if rolls.is_multiple_of(3) {
            unavailable()
        } else {
            ok()
        }
    });
    rig.controller.state().report_takes = ms(3);
    let long = |number| Assignment {
        heartbeat_timeout: ms(600_000),
        claim_timeout: ms(600_000),
        ..task(number)
    };
    rig.controller.push((0..500).map(long));
    let (controller, executor) = (rig.controller.clone(), rig.executor.clone());
    rig.controller
        .until("all tasks to end", |state| {
            let finishes = state.reports.iter().filter(|it| is_finish(&it.1.action));
            let ids: BTreeSet<_> = finishes.map(|it| it.1.id).collect();
            (ids.len() == 500).then_some(())
        })
        .await;
    rig.drain().await;
    assert_eq!(executor.counts().finished, 500);
    let mut by_task = BTreeMap::<_, Vec<_>>::new();
    for (_, report) in &controller.state().reports {
        let rank = match report.action {
            Action::Start => 0,
            Action::Heartbeat => 1,
            Action::Checkpoint { .. } => 2,
            Action::Finish { started_at, .. } => {
                assert_eq!(started_at, None);
                3
            }
            _ => unreachable!("no other action is reported"),
        };
        by_task.entry(report.id).or_default().push(rank);
    }
    assert_eq!(by_task.len(), 500);
    for ranks in by_task.values() {
        assert!(ranks.is_sorted(), "{ranks:?}");
        assert_eq!((ranks[0], ranks.last()), (0, Some(&3)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_without_an_answer_is_repeated() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.controller.state().short_answers = 1;
    rig.controller.push([task(1)]);
    let sent = rig.controller.reported(2, is_finish).await;
    assert_eq!(sent[0], sent[1]);
    // So is a report whose call does not return.
    rig.controller.state().report_takes = ms(1_000_000);
    rig.controller.push([task(2)]);
    rig.controller
        .until("the call", |it| (it.batches.len() == 3).then_some(()))
        .await;
    rig.controller.state().report_takes = ms(0);
    let sent = rig.controller.reported(4, is_finish).await;
    assert_eq!(sent[2], sent[3]);
    let executor = rig.executor.clone();
    rig.drain().await;
    assert_eq!(executor.counts().finished, 2);
}
