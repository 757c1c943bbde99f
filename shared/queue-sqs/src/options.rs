//! How a queue is set up, and what can be wrong with that.

use std::{sync::Arc, time::Duration};

use aws_sdk_sqs::Client;
use dueline_aws::{AwsSettings, Class, Meter, Service as AwsService, SetupError, connect};

use crate::{name::PrefixError, queue::SqsQueue};

/// What names of queues begin with when nothing else is said.
pub const DEFAULT_PREFIX: &str = "dueline";

/// Settings of the queues of one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsOptions {
    /// What names of queues begin with. Deployments in one account need different ones, and none should begin with
    /// another one and a `-`: then two jobs of the two may need a queue of one name, and the later one is refused it.
    pub prefix: String,
    /// Region, endpoint, credentials and timeouts.
    pub aws: AwsSettings,
    /// How long a received message stays invisible: whole seconds, up to twelve hours.
    pub visibility_timeout: Duration,
    /// Whether each job has a queue for each of the five named priorities. Five queues are five times the polls.
    pub priority_queues: bool,
}

impl Default for SqsOptions {
    /// Thirty seconds, and one queue per job.
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

/// Why the queues cannot be used. Each text names what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Names of queues cannot begin so.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// SQS has no such visibility timeout.
    #[error("visibility timeout {0:?} is not a whole number of seconds from 1 s to 12 h")]
    VisibilityTimeout(Duration),
    /// No client can be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The credentials are wrong or do not allow to look for queues.
    #[error("SQS does not let us look for queue '{queue}': {why}")]
    Denied {
        /// What was looked for.
        queue: String,
        /// What SQS said.
        why: Arc<str>,
    },
    /// Nobody answers.
    #[error("SQS cannot be reached at {at}: {why}")]
    Unreachable {
        /// The endpoint, or the region.
        at: String,
        /// How it failed.
        why: Arc<str>,
    },
    /// Something answers that is not SQS, or that refuses the question.
    #[error("{at} does not answer as SQS does: {why}")]
    Refused {
        /// The endpoint, or the region.
        at: String,
        /// What it said.
        why: Arc<str>,
    },
}

impl SqsQueue {
    /// Connects, and asks one question, so that a wrong endpoint or missing permission is an error now.
    pub async fn open(options: SqsOptions, meter: Meter) -> Result<Arc<Self>, OpenError> {
        let config = connect(AwsService::Sqs, &options.aws).await?;
        let at = dueline_aws::place(&config);
        let queue = Self::from_client(Client::new(&config), options, meter)?;
        match queue.common().set_aside.find().await {
            Ok(_) => Ok(queue),
            Err(failure) => match failure.class {
                // It is made when it is needed; and too many calls are a state that passes.
                Class::Missing | Class::Throttled => Ok(queue),
                Class::Denied => Err(OpenError::Denied {
                    queue: queue.set_aside_name().to_owned(),
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
