//! The queue passes the conformance suite on an engine, with one queue per job and with one per priority.

use std::time::Duration;

use dueline_ports::conformance::queue::{QueueOrder, QueueTestSettings, QueueUnderTest};
use dueline_queue_sqs::SqsOptions;

use crate::support;

async fn under_test(options: SqsOptions) -> QueueUnderTest {
    let order = match options.priority_queues {
        true => QueueOrder::Levels,
        false => QueueOrder::None,
    };
    let (queue, _) = support::open(options).await;
    QueueUnderTest {
        queue,
        settings: QueueTestSettings {
            job_prefix: String::new(),
            slack: Duration::from_millis(1_500),
            early: Duration::from_millis(150),
            order,
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
