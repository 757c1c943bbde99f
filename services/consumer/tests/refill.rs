//! Bounded queues are refilled, also after the store could not be read, and a shutdown does not wait for a refill.

mod kit;

use dueline_ports::TaskQueue as _;
use dueline_queue_local::LocalQueueConfig;
use kit::{Kit, ms, name, secs};
use tokio::time::Instant;

/// The number of queues: those of this test and of the two jobs of the kit.
const QUEUES: usize = 12;

/// Starts a consumer with queues that have refill demand and a store that cannot be read.
async fn queues_with_demand() -> Kit {
    let kit = Kit::with_queue(LocalQueueConfig::with_capacity(8)).await;
    kit.store.fail_ready_reads(true);
    for n in 2..QUEUES {
        // A new queue has refill demand, because it does not know which messages it lacks.
        kit.queue.ensure(&name(&format!("q{n}"))).await.unwrap();
    }
    kit.start();
    kit
}

#[tokio::test(start_paused = true)]
async fn all_queues_with_demand_are_tried_before_the_pause_after_a_failure() {
    let kit = queues_with_demand().await;
    kit.run_until(ms(500)).await;
    assert_eq!(kit.store.ready_reads(), QUEUES, "one read for each queue");
    kit.store.fail_ready_reads(false);
    kit.run_until(secs(8)).await;
    assert_eq!(kit.store.ready_reads(), 2 * QUEUES, "and a successful one");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_the_pause_after_a_failed_refill() {
    let kit = queues_with_demand().await;
    kit.run_until(ms(500)).await;
    assert_eq!(kit.store.ready_reads(), QUEUES, "the pause has started");
    let started_at = Instant::now();
    kit.stop().await;
    assert!(started_at.elapsed() <= ms(1), "{:?}", started_at.elapsed());
}
