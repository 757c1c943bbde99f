//! The local queue with several threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_domain::JobName;
use dueline_ports::{TaskQueue, conformance::queue::message};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use tokio::{task::JoinSet, time::timeout};

const MESSAGES: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_030_receivers_that_come_and_go_share_all_messages_without_loss_or_duplicate() {
    let queue = LocalQueue::new(LocalQueueConfig::with_capacity(MESSAGES));
    let job = JobName::parse("mail").unwrap();
    queue.ensure(&job).await.unwrap();
    let received = Arc::new(AtomicUsize::new(0));
    let mut receivers = JoinSet::new();
    for n in 0..8_u64 {
        let (queue, job, received) = (queue.clone(), job.clone(), received.clone());
        receivers.spawn(async move {
            let mut own_tasks = Vec::new();
            while received.load(Ordering::Relaxed) < MESSAGES {
                // Half of the receivers cancel their wait again and again.
                let cancel_after = Duration::from_micros(if n % 2 == 0 { 50 } else { 1_000_000 });
                let receive = queue.receive(&job, 10, Duration::from_millis(100));
                let Ok(deliveries) = timeout(cancel_after, receive).await else {
                    continue;
                };
                let deliveries = deliveries.unwrap();
                received.fetch_add(deliveries.len(), Ordering::Relaxed);
                own_tasks.extend(deliveries.iter().map(|delivery| delivery.task.id));
                let receipts = deliveries.into_iter().map(|delivery| delivery.receipt);
                queue.ack(receipts.collect()).await.unwrap();
            }
            own_tasks
        });
    }
    let mut senders = JoinSet::new();
    for n in 0..4 {
        let (queue, job) = (queue.clone(), job.clone());
        senders.spawn(async move {
            let share = MESSAGES as u64 / 4;
            for number in n * share..(n + 1) * share {
                queue.send(vec![message(&job, number)]).await;
                tokio::task::yield_now().await;
            }
        });
    }
    senders.join_all().await;
    let bound = Duration::from_secs(20);
    let all = timeout(bound, receivers.join_all()).await;
    let mut all = all.expect("all arrive").concat();
    assert_eq!(all.len(), MESSAGES);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), MESSAGES);
}
