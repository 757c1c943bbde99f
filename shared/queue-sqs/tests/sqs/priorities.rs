//! One queue per priority level.

use std::time::Duration;

use dueline_domain::{Priority, TaskRef};
use dueline_ports::{TaskQueue, conformance::queue::message};
use dueline_queue_sqs::SqsOptions;
use tokio::time::{Instant, sleep};

use crate::support::{job, messages, open, options, receipts, send};

#[tokio::test]
async fn f_152_a_flood_of_low_priority_does_not_delay_a_message_of_high_priority() {
    let options = options().await;
    let (queue, _) = open(SqsOptions {
        priority_queues: true,
        ..options
    })
    .await;
    let mail = job("mail");
    queue.ensure(&mail).await.expect("the queues are created");
    let ranked = |task: TaskRef, priority| TaskRef {
        priority: Priority::new(priority).expect("a legal priority"),
        ..task
    };
    let low = messages(&mail, 0..1_000).into_iter();
    send(&queue, low.map(|task| ranked(task, -50)).collect()).await;
    let mut waits = Vec::new();
    for number in 2_000..2_020 {
        let high = ranked(message(&mail, number), 50);
        send(&queue, vec![high.clone()]).await;
        let sent_at = Instant::now();
        loop {
            // A controller receives what fits into its slots, and then not until some of it is taken.
            let got = queue.receive(&mail, 4, Duration::from_secs(20)).await;
            let got = got.expect("receiving works");
            queue.ack(receipts(&got)).await.expect("acks work");
            if got.first().is_some_and(|first| first.task == high) {
                break;
            }
            assert!(got.iter().all(|delivery| delivery.task != high), "{got:?}");
            sleep(Duration::from_millis(20)).await;
        }
        waits.push(sent_at.elapsed());
    }
    waits.sort_unstable();
    // One receive of the engine, and the time between two receives.
    assert!(waits[18] < Duration::from_millis(400), "{waits:?}");
}
