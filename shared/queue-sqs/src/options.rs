//! Settings of the queues, and the errors of opening them.

use std::{sync::Arc, time::Duration};

use aws_sdk_sqs::Client;
use dueline_aws::{AwsSettings, Class, Meter, Service as AwsService, SetupError, connect};

use crate::{name::PrefixError, queue::SqsQueue};

/// The default prefix of queue names.
pub const DEFAULT_PREFIX: &str = "dueline";

/// Settings of the queues of one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsOptions {
    /// The prefix of queue names. Deployments in one account need different ones. None should be another one followed
    /// by
    /// `-` and more: then jobs of two deployments may need the same queue name, and the later one is refused.
    pub prefix: String,
    /// Region, endpoint, credentials and timeouts.
    pub aws: AwsSettings,
    /// How long a received message stays invisible: whole seconds, up to twelve hours.
    pub visibility_timeout: Duration,
    /// Whether each job has a queue per named priority. Five queues cost five times the polls.
    pub priority_queues: bool,
}

impl Default for SqsOptions {
    /// A visibility timeout of 30 s, and one queue per job.
    fn default() -> Self {
        Self {
            prefix: DEFAULT_PREFIX.to_owned(),
            aws: AwsSettings::default(),
            visibility_timeout: Duration::from_secs(30),
            priority_queues: false,
        }
    }
}

impl SqsOptions {
    pub(crate) fn visibility_s(&self) -> Result<u16, OpenError> {
        let timeout = self.visibility_timeout;
        let seconds = u16::try_from(timeout.as_secs()).ok();
        let seconds = seconds.filter(|s| (1..=43_200).contains(s) && timeout.subsec_nanos() == 0);
        seconds.ok_or(OpenError::VisibilityTimeout(timeout))
    }
}

/// Why the queues cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The prefix cannot begin a queue name.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// SQS does not support the visibility timeout.
    #[error("visibility timeout {0:?} is not a whole number of seconds from 1 s to 12 h")]
    VisibilityTimeout(Duration),
    /// No client can be created.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The credentials are wrong or do not allow looking up queues.
    #[error("SQS denies looking up queue '{queue}': {why}")]
    Denied {
        /// The queue that was looked up.
        queue: String,
        /// The message of SQS.
        why: Arc<str>,
    },
    /// The endpoint does not answer.
    #[error("SQS cannot be reached at {at}: {why}")]
    Unreachable {
        /// The endpoint, or the region.
        at: String,
        /// The message of the failed call.
        why: Arc<str>,
    },
    /// The endpoint is not SQS, or refuses the call.
    #[error("{at} does not answer as SQS does: {why}")]
    Refused {
        /// The endpoint, or the region.
        at: String,
        /// The message of the endpoint.
        why: Arc<str>,
    },
}

impl SqsQueue {
    /// Connects and makes one call, so that a wrong endpoint or a missing permission is reported now.
    pub async fn open(options: SqsOptions, meter: Meter) -> Result<Arc<Self>, OpenError> {
        let config = connect(AwsService::Sqs, &options.aws).await?;
        let at = dueline_aws::endpoint_or_region(&config);
        let queue = Self::from_client(Client::new(&config), options, meter)?;
        match queue.context().quarantine.any_url().await {
            Ok(_) => Ok(queue),
            Err(failure) => match failure.class {
                // A missing quarantine queue is created when it is needed, and throttling passes.
                Class::Missing | Class::Throttled => Ok(queue),
                Class::Denied => Err(OpenError::Denied {
                    queue: queue.quarantine_name().to_owned(),
                    why: failure.message,
                }),
                Class::NotSent | Class::Unknown => Err(OpenError::Unreachable {
                    at,
                    why: failure.message,
                }),
                _ => Err(OpenError::Refused {
                    at,
                    why: failure.message,
                }),
            },
        }
    }
}
