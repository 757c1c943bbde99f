//! The local queue passes the suite of the queue seam.

use dueline_ports::conformance::queue::{QueueTestSettings, QueueUnderTest};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};

async fn local() -> QueueUnderTest {
    QueueUnderTest {
        queue: LocalQueue::new(LocalQueueConfig::default()),
        settings: QueueTestSettings::exact(),
    }
}

dueline_ports::queue_conformance!(paused local);
