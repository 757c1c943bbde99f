//! Lost, doubled and late messages, and deleted queues.

use std::{sync::Arc, time::Duration};

use dueline_domain::{Priority, TaskId, TaskRef, Token, Weight};
use dueline_ports::{TaskQueue as _, fakes::MessageLog};
use dueline_testkit::{FaultyQueue, QueueFaults};
use tokio::time::Instant;

use crate::kit::{at, injector, name};

fn message(number: u8) -> TaskRef {
    TaskRef {
        job: name(),
        id: TaskId::from_bytes([number; 16]),
        token: Token::from_random(u64::from(number)),
        priority: Priority::default(),
        weight: Weight::ONE,
        due_at: at(1),
        trace: None,
    }
}

async fn received(faults: QueueFaults) -> usize {
    let log = Arc::new(MessageLog::default());
    log.ensure(&name()).await.unwrap();
    let queue = FaultyQueue::new(log, injector(), faults);
    queue.send(vec![message(1)]).await;
    let mut received = 0;
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let wait = Duration::from_secs(1);
        received += queue.receive(&name(), 10, wait).await.unwrap().len();
    }
    received
}

#[tokio::test(start_paused = true)]
async fn messages_are_lost_doubled_and_late_as_configured() {
    let faults = QueueFaults {
        delay_max: Duration::from_secs(5),
        ..QueueFaults::default()
    };
    assert_eq!(received(faults).await, 1);
    let lose = 1_000;
    assert_eq!(received(QueueFaults { lose, ..faults }).await, 0);
    let lose_received = 1_000;
    assert_eq!(
        received(QueueFaults {
            lose_received,
            ..faults
        })
        .await,
        0
    );
    let double = 1_000;
    assert_eq!(received(QueueFaults { double, ..faults }).await, 2);
    let delay = 1_000;
    assert_eq!(received(QueueFaults { delay, ..faults }).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_cannot_be_created_again_for_a_while_by_any_host() {
    let log = Arc::new(MessageLog::default());
    let here = FaultyQueue::new(log, injector(), QueueFaults::default());
    let there = here.for_injector(injector());
    let minute = Duration::from_secs(60);
    here.delete(&name(), minute).await.unwrap();
    assert!(there.ensure(&name()).await.is_err());
    tokio::time::advance(minute).await;
    assert!(there.ensure(&name()).await.is_ok());
}
