//! Reports reach the store, in order, once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use dueline_api::{Action, ApiError, Assignment, ErrorKind};
use dueline_executor::Success;
use tokio::time::Instant;

use crate::{
    fake::{away, is_finish, ms, number, ok, task},
    rig::Rig,
    runs::registry,
};

#[tokio::test(start_paused = true)]
async fn a_report_is_repeated_with_the_same_write_id_until_it_is_durable() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Deadline] {
        let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
        let mut failures = 3;
        rig.work.answer(move |_| {
            if failures > 0 {
                failures -= 1;
                return Err(ApiError::new(kind, "away", "the store is away"));
            }
            ok()
        });
        rig.work.push([task(1)]);
        let sent = rig.work.reported(4, is_finish).await;
        assert!(sent.iter().all(|it| *it == sent[0]), "{sent:?}");
        let executor = rig.executor.clone();
        rig.drain().await;
        assert_eq!(executor.counts().finished, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_while_the_outcome_is_on_its_way() {
    let rig = Rig::with(
        |config| config.concurrency = 1,
        registry(|_| async { Ok(Success::default()) }),
    );
    rig.work.state().report_takes = ms(1_000);
    let begun = Instant::now();
    rig.work.push((0..100).map(task));
    rig.work.outcomes(100).await;
    assert!(begun.elapsed() < ms(3_500), "{:?}", begun.elapsed());
    assert!(rig.executor.counts().finished <= 100);
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_is_dropped_when_the_lease_is_over_and_does_not_count() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.work.answer(|_| away());
    let begun = Instant::now();
    rig.work.push([task(1)]);
    let (work, executor) = (rig.work.clone(), rig.executor.clone());
    rig.work.reported(2, is_finish).await;
    rig.drain().await;
    // The claim held for ten seconds, so that is how long it was tried.
    assert!((ms(5_000)..ms(10_001)).contains(&begun.elapsed()));
    let sent = work.state().reports.len();
    assert!((5..40).contains(&sent), "{sent} repetitions");
    assert_eq!(executor.counts().finished, 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_came_through_though_its_answer_was_lost_is_no_reason_to_stop() {
    let rig = Rig::start(registry(|task| async move {
        tokio::time::sleep(ms(20_000)).await;
        assert!(!task.is_stopped());
        Ok(Success::default())
    }));
    let mut starts = 0;
    rig.work.answer(move |report| {
        if report.action != Action::Start {
            return ok();
        }
        starts += 1;
        let (kind, reason) = match starts {
            1 => (ErrorKind::Deadline, "no_answer"),
            _ => (ErrorKind::Conflict, "already_started"),
        };
        Err(ApiError::new(kind, reason, reason))
    });
    rig.work.push([task(1)]);
    assert!(matches!(
        rig.work.outcome().await,
        dueline_domain::Outcome::Success { .. }
    ));
    rig.drain().await;
}

#[tokio::test(start_paused = true)]
async fn reports_of_one_task_keep_their_order_whatever_fails() {
    // The fake itself refuses two reports of a task at a time.
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
    rig.work.answer(move |_| {
        let mut rolls = rolls.lock().unwrap();
        *rolls += 1;
        if rolls.is_multiple_of(3) {
            away()
        } else {
            ok()
        }
    });
    rig.work.state().report_takes = ms(3);
    let long = |number| Assignment {
        heartbeat_timeout: ms(600_000),
        claim_timeout: ms(600_000),
        ..task(number)
    };
    rig.work.push((0..500).map(long));
    let (work, executor) = (rig.work.clone(), rig.executor.clone());
    rig.work
        .until("all tasks to end", |state| {
            let finishes = state.reports.iter().filter(|it| is_finish(&it.1.action));
            let ids: BTreeSet<_> = finishes.map(|it| it.1.id).collect();
            (ids.len() == 500).then_some(())
        })
        .await;
    rig.drain().await;
    assert_eq!(executor.counts().finished, 500);
    let mut by_task = BTreeMap::<_, Vec<_>>::new();
    for (_, report) in &work.state().reports {
        let rank = match report.action {
            Action::Start => 0,
            Action::Heartbeat => 1,
            Action::Checkpoint { .. } => 2,
            Action::Finish { started_at, .. } => {
                assert_eq!(started_at, None);
                3
            }
            _ => unreachable!("nothing else was to be said"),
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
async fn a_report_that_is_left_without_an_answer_is_repeated() {
    let rig = Rig::start(registry(|_| async { Ok(Success::default()) }));
    rig.work.state().short_answers = 1;
    rig.work.push([task(1)]);
    let sent = rig.work.reported(2, is_finish).await;
    assert_eq!(sent[0], sent[1]);
    // So is one whose call does not come back.
    rig.work.state().report_takes = ms(1_000_000);
    rig.work.push([task(2)]);
    rig.work
        .until("the call", |it| (it.batches.len() == 3).then_some(()))
        .await;
    rig.work.state().report_takes = ms(0);
    let sent = rig.work.reported(4, is_finish).await;
    assert_eq!(sent[2], sent[3]);
    let executor = rig.executor.clone();
    rig.drain().await;
    assert_eq!(executor.counts().finished, 2);
}
