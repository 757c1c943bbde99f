//! Making a table, looking what a table is, and removing it.

mod carry_out;
mod ceiling;
mod inspect;
mod plan;

pub use inspect::{Found, Index, Meta, Shape};
pub use plan::{Step, Undone, Wanted, plan};

use aws_sdk_dynamodb::Client;
use dueline_aws::{AwsSettings, Failure, Service, SetupError};

use crate::open::OpenError;

/// A client, and the place where it looks for tables: errors name it.
#[derive(Clone, Debug)]
pub struct Site {
    /// The client.
    pub client: Client,
    /// The endpoint, or the region.
    pub place: String,
}

impl Site {
    /// Makes a client from settings.
    pub async fn of(aws: &AwsSettings) -> Result<Self, SetupError> {
        let config = dueline_aws::connect(Service::DynamoDb, aws).await?;
        let (client, place) = (Client::new(&config), dueline_aws::place(&config));
        Ok(Self { client, place })
    }

    fn error(&self, failure: Failure, action: &'static str, table: &str) -> OpenError {
        OpenError::of(failure, action, table, &self.place)
    }
}

/// A client that somebody else made: of its settings only the region can be told.
impl From<Client> for Site {
    fn from(client: Client) -> Self {
        let region = client.config().region().map(ToString::to_string);
        let place = format!("region {}", region.as_deref().unwrap_or("unknown"));
        Self { client, place }
    }
}
