//! Setup of a table: creating it, inspecting it, and deleting it.

mod ceiling;
mod execute;
mod inspect;
mod plan;

pub use inspect::{IndexShape, TableMeta, TableShape, TableState};
pub use plan::{SetupStep, SkippedStep, TableSpec, plan};

use aws_sdk_dynamodb::Client;
use dueline_aws::{AwsSettings, Failure, Service, SetupError};

use crate::open::OpenError;

/// A client for the setup of tables, with the endpoint that errors name.
#[derive(Clone, Debug)]
pub struct SetupClient {
    /// The client.
    pub client: Client,
    /// The endpoint, or the region.
    pub endpoint: String,
}

impl SetupClient {
    /// Makes a client from settings.
    pub async fn of(aws: &AwsSettings) -> Result<Self, SetupError> {
        let config = dueline_aws::connect(Service::DynamoDb, aws).await?;
        let endpoint = dueline_aws::endpoint_or_region(&config);
        let client = Client::new(&config);
        Ok(Self { client, endpoint })
    }

    fn error(&self, failure: Failure, action: &'static str, table: &str) -> OpenError {
        OpenError::of(failure, action, table, &self.endpoint)
    }
}

/// The endpoint of a client that the caller made is not known, so errors name its region.
impl From<Client> for SetupClient {
    fn from(client: Client) -> Self {
        let region = client.config().region().map(ToString::to_string);
        let endpoint = format!("region {}", region.as_deref().unwrap_or("unknown"));
        Self { client, endpoint }
    }
}
