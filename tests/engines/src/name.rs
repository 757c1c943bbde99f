//! Names of engines, unique names for tests, and the credentials of tests.

use std::fmt;

/// The access key of tests. Letters only: DynamoDB Local refuses anything else.
pub const ACCESS_KEY: &str = "test";
/// The secret key of tests.
pub const SECRET_KEY: &str = "test";
/// The region of tests.
pub const REGION: &str = "us-east-1";

/// Random letters and digits in a unique name: enough for all tests that share an engine.
const RANDOM_CHARS: usize = 10;

/// The program that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineName {
    /// DynamoDB on SQLite, in Rust; counts capacity as AWS does.
    Dynoxide,
    /// Many services of AWS on one port, in Python.
    Ministack,
    /// AWS's own DynamoDB for development, in Java.
    DynamoDbLocal,
    /// SQS, in Scala.
    ElasticMq,
    /// Another engine that was already running: LocalStack or AWS itself.
    Other,
}

impl EngineName {
    /// The name in folders, scripts and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dynoxide => "dynoxide",
            Self::Ministack => "ministack",
            Self::DynamoDbLocal => "dynamodb-local",
            Self::ElasticMq => "elasticmq",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A unique name for a table or the prefix of queues: `prefix`, a hyphen and ten random letters and digits. It is valid
/// for both if `prefix` is.
pub fn unique(prefix: &str) -> String {
    let random =
        std::iter::repeat_with(|| fastrand::alphanumeric().to_ascii_lowercase()).take(RANDOM_CHARS);
    format!("{prefix}-{}", random.collect::<String>())
}
