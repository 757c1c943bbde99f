//! Names: of engines, of what tests make in them, and of whom they claim to be.

use std::fmt;

/// The access key of tests. Letters only: DynamoDB Local refuses anything else.
pub const ACCESS_KEY: &str = "test";
/// The secret key of tests.
pub const SECRET_KEY: &str = "test";
/// The region of tests.
pub const REGION: &str = "us-east-1";

/// Random letters and digits in a name: enough for all tests that ever meet in one engine.
const RANDOM_CHARS: usize = 10;

/// Which program answers.
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
    /// Something else that was there already: LocalStack, AWS itself.
    Other,
}

impl EngineName {
    /// As folders, scripts and messages call it.
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

/// A name that nobody else uses, for a table or as the prefix of queues: `prefix`, a hyphen and ten random letters and
/// digits. It is valid in both when `prefix` is.
pub fn unique(prefix: &str) -> String {
    let random =
        std::iter::repeat_with(|| fastrand::alphanumeric().to_ascii_lowercase()).take(RANDOM_CHARS);
    format!("{prefix}-{}", random.collect::<String>())
}
