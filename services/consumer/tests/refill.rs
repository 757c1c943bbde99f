//! Bounded queues are refilled, also after the store could not be read, and a shutdown waits for no refill.

mod kit;

use dueline_ports::TaskQueue as _;
use dueline_queue_local::LocalQueueConfig;
use kit::{Kit, ms, name, secs};
use tokio::time::Instant;

/// Those of this test and of the two jobs of the kit.
const QUEUES: usize = 12;

/// Hungry queues and a store that cannot be read.
async fn hungry() -> Kit {
    let kit = Kit::with_queue(LocalQueueConfig::with_capacity(8)).await;
    kit.store.fail_ready_reads(true);
    for n in 2..QUEUES {
        // A new queue does not know what it lacks, and asks.
        kit.queue.ensure(&name(&format!("q{n}"))).await.unwrap();
    }
    kit.start();
    kit
}

#[tokio::test(start_paused = true)]
async fn all_hungry_queues_are_tried_before_the_pause_after_a_failure() {
    let kit = hungry().await;
    kit.until(ms(500)).await;
    assert_eq!(kit.store.ready_reads(), QUEUES, "one look at each");
    kit.store.fail_ready_reads(false);
    kit.until(secs(8)).await;
    assert_eq!(kit.store.ready_reads(), 2 * QUEUES, "and one that worked");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_the_pause_after_a_failed_refill() {
    let kit = hungry().await;
    kit.until(ms(500)).await;
    assert_eq!(kit.store.ready_reads(), QUEUES, "the pause has begun");
    let begun_at = Instant::now();
    kit.stop().await;
    assert!(begun_at.elapsed() <= ms(1), "{:?}", begun_at.elapsed());
}
