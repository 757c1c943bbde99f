//! The queue passes the suite of the seam over the wire, with one queue per job and with one per priority.

use std::time::Duration;

use dueline_ports::conformance::queue::{QueueUnderTest, Settings};
use dueline_queue_sqs::SqsOptions;

use crate::support;

async fn under_test(options: SqsOptions) -> QueueUnderTest {
    let (queue, _) = support::open(options).await;
    QueueUnderTest {
        queue,
        settings: Settings {
            job_prefix: String::new(),
            slack: Duration::from_millis(1_500),
            early: Duration::from_millis(150),
            ordered: false,
            dedups: false,
        },
    }
}

async fn one_queue_per_job() -> QueueUnderTest {
    under_test(support::options().await).await
}

async fn one_queue_per_priority() -> QueueUnderTest {
    let options = support::options().await;
    under_test(SqsOptions {
        priority_queues: true,
        ..options
    })
    .await
}

mod per_job {
    dueline_ports::queue_conformance!(super::one_queue_per_job);
}

mod per_priority {
    dueline_ports::queue_conformance!(super::one_queue_per_priority);
}
