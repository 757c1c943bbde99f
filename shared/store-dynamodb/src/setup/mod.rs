//! Making a table, looking what a table is, and removing it.

mod carry_out;
mod ceiling;
mod inspect;
mod plan;

pub use carry_out::{carry_out, remove};
pub use ceiling::ceiling;
pub(crate) use inspect::inspect_at;
pub use inspect::{Found, Index, Meta, Shape, inspect};
pub use plan::{Step, Wanted, plan};

use dueline_aws::AwsSettings;

use crate::open::{self, OpenError};

/// Makes a client for the calls of this module.
pub async fn client(aws: &AwsSettings) -> Result<aws_sdk_dynamodb::Client, OpenError> {
    Ok(open::client(aws).await?)
}
