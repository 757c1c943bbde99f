//! The cases. Each name is the sentence that must hold.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use dueline_domain::{JobName, Priority, TaskRef, Timestamp, Token, Weight};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{QueueOrder, QueueUnderTest, ids, message, messages, receipts};
use crate::QueueError;

/// A sent message is received with all its fields, and is deleted once acknowledged.
pub async fn a_message_is_sent_received_and_acknowledged(t: QueueUnderTest) {
    let job = t.job("ack").await;
    let mut sent = message(&job, 1);
    sent.priority = Priority::new(-7).expect("a legal priority");
    sent.weight = Weight::new(3).expect("a legal weight");
    sent.due_at = Timestamp::clamped(1_234_567);
    sent.trace = Some(Arc::from(
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ));
    t.send(vec![sent.clone()]).await;
    let got = t.receive(&job, 10).await;
    assert_eq!(got.len(), 1);
    assert_eq!((&got[0].task, got[0].received), (&sent, 1));
    assert_eq!(got[0].receipt.job(), &job);
    t.ack(&got).await;
    let wait = t.visibility_and_slack();
    assert!(t.receive_within(&job, 10, wait).await.is_empty());
}

/// A message of one job is never received from the queue of another.
pub async fn jobs_do_not_see_each_others_messages(t: QueueUnderTest) {
    let (a, b) = (t.job("isolated-a").await, t.job("isolated-b").await);
    // One batch with messages of both jobs, interleaved.
    t.send(vec![message(&a, 1), message(&b, 2), message(&a, 3)])
        .await;
    let from_a = t.receive_all(&a, 2).await;
    assert!(from_a.iter().all(|got| got.task.job == a));
    assert_eq!(from_a.len(), 2);
    assert_eq!(ids(&t.receive_all(&b, 1).await).len(), 1);
    assert!(t.is_empty(&a).await && t.is_empty(&b).await);
}

/// Batches may be larger than the limit of any queue service.
pub async fn batches_of_any_size_go_through(t: QueueUnderTest) {
    let job = t.job("batch").await;
    t.send(messages(&job, 0..25)).await;
    let got = t.receive_all(&job, 25).await;
    assert_eq!(ids(&got).len(), 25);
    t.ack(&got[..13]).await;
    t.nack(&got[13..], Duration::ZERO).await;
    let rest = t.receive_all(&job, 12).await;
    assert_eq!(ids(&rest), ids(&got[13..]));
    t.send(Vec::new()).await;
    t.ack(&[]).await;
}

/// A receive returns at most as many messages as requested.
pub async fn no_more_messages_are_received_than_requested(t: QueueUnderTest) {
    let job = t.job("max").await;
    t.send(messages(&job, 0..5)).await;
    assert_eq!(t.receive(&job, 1).await.len(), 1);
    assert!(t.receive(&job, 2).await.len() <= 2);
}

/// F-028: a waiting receiver gets a message as soon as it arrives.
pub async fn f_028_a_waiting_receiver_gets_a_message_when_it_arrives(t: QueueUnderTest) {
    let job = t.job("long-poll").await;
    let wait = t.visibility_and_slack();
    let begun_at = Instant::now();
    let sent = vec![message(&job, 1)];
    let (got, ()) = tokio::join!(t.receive_within(&job, 10, wait), t.send(sent));
    assert_eq!(got.len(), 1);
    assert!(begun_at.elapsed() <= t.settings.slack);
}

/// An empty queue returns no messages when the wait is over, which is not an error.
pub async fn an_empty_queue_returns_nothing_after_the_wait(t: QueueUnderTest) {
    let job = t.job("empty").await;
    let begun_at = Instant::now();
    let wait = Duration::from_secs(1);
    assert!(t.receive_within(&job, 10, wait).await.is_empty());
    let elapsed = begun_at.elapsed();
    assert!(elapsed + t.settings.early >= wait, "{elapsed:?}");
    assert!(elapsed <= wait + t.settings.slack, "{elapsed:?}");
}

/// A message that is not acknowledged is visible again after the visibility timeout, and its receives are counted.
pub async fn an_unacknowledged_message_becomes_visible_again(t: QueueUnderTest) {
    let job = t.job("visibility").await;
    t.send(vec![message(&job, 1)]).await;
    let first = t.receive(&job, 10).await;
    let received_at = Instant::now();
    assert_eq!(first.len(), 1);
    assert!(t.is_empty(&job).await);
    let wait = t.visibility_and_slack();
    let second = t.receive_within(&job, 10, wait).await;
    assert_eq!(ids(&second), ids(&first));
    assert_eq!(second[0].received, 2);
    assert!(received_at.elapsed() + t.settings.early >= t.visibility());
}

/// An extended message stays invisible for the full timeout from then on.
pub async fn an_extended_message_stays_invisible(t: QueueUnderTest) {
    let job = t.job("extend").await;
    t.send(vec![message(&job, 1)]).await;
    let got = t.receive(&job, 10).await;
    sleep(t.visibility() / 2).await;
    let extended = t.queue.extend(receipts(&got)).await;
    extended.expect("extending works");
    let three_quarters = t.visibility() * 3 / 4;
    assert!(
        t.receive_within(&job, 10, three_quarters).await.is_empty(),
        "visible again at the old timeout"
    );
    let wait = t.visibility() / 4 + t.settings.slack;
    assert_eq!(t.receive_within(&job, 10, wait).await.len(), 1);
}

/// A returned message is visible again after its delay, and at once without one.
pub async fn a_returned_message_is_visible_after_its_delay(t: QueueUnderTest) {
    let job = t.job("nack").await;
    t.send(vec![message(&job, 1)]).await;
    let first = t.receive(&job, 10).await;
    let delay = Duration::from_secs(1);
    let returned_at = Instant::now();
    t.nack(&first, delay).await;
    assert!(t.is_empty(&job).await);
    let second = t.receive_within(&job, 10, delay + t.settings.slack).await;
    assert_eq!(ids(&second), ids(&first));
    assert!(returned_at.elapsed() + t.settings.early >= delay);
    t.nack(&second, Duration::ZERO).await;
    assert_eq!(ids(&t.receive(&job, 10).await), ids(&first));
}

/// A receiver that already waits gets a message that is returned with a short delay.
pub async fn a_waiting_receiver_gets_a_message_returned_with_a_delay(t: QueueUnderTest) {
    let job = t.job("nack-waiting").await;
    t.send(vec![message(&job, 1)]).await;
    let first = t.receive(&job, 10).await;
    let (delay, begun_at) = (Duration::from_secs(1), Instant::now());
    let wait = delay + t.visibility_and_slack();
    let (second, ()) = tokio::join!(t.receive_within(&job, 10, wait), t.nack(&first, delay));
    assert_eq!(ids(&second), ids(&first));
    assert!(begun_at.elapsed() <= delay + t.settings.slack);
}

/// A receipt of an earlier delivery deletes, returns and extends nothing.
pub async fn an_old_receipt_does_nothing(t: QueueUnderTest) {
    let job = t.job("old-receipt").await;
    t.send(vec![message(&job, 1)]).await;
    let first = t.receive(&job, 10).await;
    t.nack(&first, Duration::ZERO).await;
    let second = t.receive(&job, 10).await;
    assert_eq!(ids(&second), ids(&first));
    t.ack(&first).await;
    t.nack(&first, Duration::ZERO).await;
    let _ = t.queue.extend(receipts(&first)).await;
    assert!(
        t.is_empty(&job).await,
        "an old receipt returned the message"
    );
    t.nack(&second, Duration::ZERO).await;
    let third = t.receive(&job, 10).await;
    assert_eq!(
        ids(&third),
        ids(&first),
        "an old receipt deleted the message"
    );
    t.ack(&third).await;
    t.ack(&third).await;
}

/// Creating a queue that exists changes nothing.
pub async fn ensuring_an_existing_queue_keeps_its_messages(t: QueueUnderTest) {
    let job = t.job("ensure").await;
    t.send(vec![message(&job, 1)]).await;
    t.job("ensure").await;
    assert_eq!(t.receive(&job, 10).await.len(), 1);
}

/// Every call that needs a queue fails with `NotFound` if the queue was removed or never created.
pub async fn a_missing_queue_is_not_found(t: QueueUnderTest) {
    let removed = t.job("removed").await;
    t.send(vec![message(&removed, 1)]).await;
    t.queue.remove(&removed).await.expect("removing works");
    t.queue.remove(&removed).await.expect("twice as well");
    let never = JobName::parse(&format!("{}never", t.settings.job_prefix));
    for job in [removed, never.expect("a legal job name")] {
        let is_not_found = |error| matches!(error, QueueError::NotFound(name) if name == job);
        let sent = t.queue.send(vec![message(&job, 1)]).await;
        assert!(sent.into_iter().all(|r| r.is_err_and(is_not_found)));
        let received = t.queue.receive(&job, 1, Duration::ZERO).await;
        assert!(received.is_err_and(is_not_found));
        assert!(t.queue.depth(&job).await.is_err_and(is_not_found));
    }
}

/// In a batch for several jobs, only messages whose queue is missing fail.
pub async fn a_missing_queue_fails_only_its_own_messages_of_a_batch(t: QueueUnderTest) {
    let job = t.job("partial").await;
    let missing = JobName::parse(&format!("{}missing", t.settings.job_prefix));
    let missing = missing.expect("a legal job name");
    let batch = vec![message(&job, 1), message(&missing, 2), message(&job, 3)];
    let results = t.queue.send(batch).await;
    let ok: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true]);
    assert_eq!(t.receive_all(&job, 2).await.len(), 2);
}

/// F-022, F-024: messages are received in the order that the queue promises. Every message carries what a receiver needs
/// to order them.
pub async fn f_022_f_024_messages_are_received_by_priority_due_time_and_arrival(t: QueueUnderTest) {
    let job = t.job("order").await;
    let ranked = |n: u64, priority: i64, due: i64| TaskRef {
        priority: Priority::new(priority).expect("a legal priority"),
        due_at: Timestamp::clamped(due),
        ..message(&job, n)
    };
    let sent = [(0, 500), (0, 100), (-50, 0), (50, 900), (0, 100)];
    let sent: Vec<_> = sent
        .iter()
        .zip(1..)
        .map(|((p, due), n)| ranked(n, *p, *due))
        .collect();
    t.send(sent.clone()).await;
    if t.settings.order == QueueOrder::Full {
        let got = t.receive_all(&job, 5).await;
        let order: Vec<_> = got.iter().map(|d| d.task.token.get() - 1).collect();
        assert_eq!(order, [4, 2, 5, 1, 3]);
        // A returned message keeps its place in the order.
        t.nack(&got[1..2], Duration::ZERO).await;
        t.nack(&got[..1], Duration::ZERO).await;
        let again = t.receive_all(&job, 2).await;
        let order: Vec<_> = again.iter().map(|d| d.task.token.get() - 1).collect();
        assert_eq!(order, [4, 2]);
        return;
    }
    let mut got = Vec::new();
    let ends_at = Instant::now() + t.settings.slack * 10;
    while got.len() < sent.len() {
        assert!(Instant::now() < ends_at, "only {got:?}");
        let received = t.receive_within(&job, sent.len(), Duration::ZERO).await;
        if t.settings.order == QueueOrder::Levels {
            let by_level = received.is_sorted_by_key(|d| Reverse(d.task.priority));
            assert!(by_level, "{received:?}");
        }
        got.extend(received.into_iter().map(|delivery| delivery.task));
    }
    got.sort_by_key(|task| task.token);
    assert_eq!(got, sent);
}

/// A message that is already in the queue, visible or in flight, may be sent again.
pub async fn a_repeated_message_counts_as_sent(t: QueueUnderTest) {
    let job = t.job("repeat").await;
    t.send(vec![message(&job, 1), message(&job, 1)]).await;
    let got = t.receive(&job, 1).await;
    t.send(vec![message(&job, 1)]).await;
    if t.settings.dedups {
        assert!(t.is_empty(&job).await, "the queue has it twice");
        t.ack(&got).await;
        // Once it is deleted, the same message may be sent again.
        t.send(vec![message(&job, 1)]).await;
        assert_eq!(t.receive(&job, 10).await.len(), 1);
    }
    // The same task with a new token is another message.
    let again = TaskRef {
        token: Token::from_random(77),
        ..message(&job, 1)
    };
    t.send(vec![again.clone()]).await;
    let got = t.receive_all(&job, 3).await;
    assert!(got.iter().any(|d| d.task.token == again.token));
}

/// F-030: twenty receivers wait for one message; one receives it, the others continue to wait.
pub async fn f_030_one_of_twenty_waiting_receivers_gets_a_message(t: QueueUnderTest) {
    let job = t.job("twenty").await;
    let mut waiters = JoinSet::new();
    let wait = t.visibility() / 2;
    for _ in 0..20 {
        let (t, job) = (t.clone(), job.clone());
        waiters.spawn(async move {
            let begun_at = Instant::now();
            let got = t.receive_within(&job, 10, wait).await;
            (got.len(), begun_at.elapsed())
        });
    }
    // All receivers wait before the message is sent.
    assert!(t.receive(&job, 1).await.is_empty());
    t.send(vec![message(&job, 1)]).await;
    let answers = waiters.join_all().await;
    let winners: Vec<_> = answers.iter().filter(|(got, _)| *got > 0).collect();
    assert_eq!(winners.len(), 1);
    assert!(winners[0].1 < wait);
    for (_, waited) in answers.iter().filter(|(got, _)| *got == 0) {
        assert!(*waited + t.settings.early >= wait);
    }
}

/// F-030: twenty receivers get each of a thousand messages.
pub async fn f_030_twenty_receivers_share_a_thousand_messages(t: QueueUnderTest) {
    let job = t.job("thousand").await;
    let mut receivers = JoinSet::new();
    let received = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let (t, job, received) = (t.clone(), job.clone(), received.clone());
        receivers.spawn(async move {
            let mut mine = Vec::new();
            while received.load(Ordering::Relaxed) < 1_000 {
                let got = t.receive(&job, 10).await;
                t.ack(&got).await;
                received.fetch_add(got.len(), Ordering::Relaxed);
                mine.extend(got.into_iter().map(|d| d.task.id));
            }
            mine
        });
    }
    for chunk in 0..10 {
        t.send(messages(&job, chunk * 100..(chunk + 1) * 100)).await;
    }
    let bound = t.visibility_and_slack() * 4;
    let all = timeout(bound, receivers.join_all()).await;
    let all: Vec<_> = all.expect("all are delivered").concat();
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), 1_000);
    if t.settings.dedups {
        assert_eq!(all.len(), 1_000);
    }
    assert!(t.is_empty(&job).await);
}

/// F-029: when a waiting receive is dropped while a message arrives, another receiver gets the message.
pub async fn f_029_a_receiver_that_is_dropped_loses_no_message(t: QueueUnderTest) {
    let job = t.job("dropped").await;
    let wait = t.visibility_and_slack() * 2;
    let mut dropped = Box::pin(t.queue.receive(&job, 10, wait));
    // Polled once, so that it waits before the other receiver.
    poll_fn(|context| {
        assert!(dropped.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    let other = t.receive_within(&job, 10, wait);
    let (got, ()) = tokio::join!(other, async {
        t.send(vec![message(&job, 1)]).await;
        drop(dropped);
    });
    assert_eq!(got.len(), 1);
}

/// The depth eventually counts visible messages and those in flight.
pub async fn the_depth_counts_visible_and_in_flight(t: QueueUnderTest) {
    let job = t.job("depth").await;
    t.send(messages(&job, 0..3)).await;
    wait_for_depth(&t, &job, (3, 0)).await;
    let got = t.receive(&job, 1).await;
    wait_for_depth(&t, &job, (2, 1)).await;
    t.ack(&got).await;
    wait_for_depth(&t, &job, (2, 0)).await;
}

async fn wait_for_depth(t: &QueueUnderTest, job: &JobName, expected: (u64, u64)) {
    let bound = Instant::now() + t.settings.slack;
    loop {
        let depth = t.queue.depth(job).await.expect("the depth is known");
        if (depth.visible, depth.in_flight) == expected {
            return;
        }
        assert!(Instant::now() < bound, "{depth:?}, not {expected:?}");
        sleep(t.settings.slack / 20).await;
    }
}
