//! Where a fleet lives: a table, a prefix of queues, a folder for logs.

use std::sync::atomic::{AtomicUsize, Ordering};

use dueline_tests_end_to_end::{Ended, Place, Process, program};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY, unique};

use crate::Aws;

/// Making a table and its index takes a second at most.
const COMMAND_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// What each process is told by its environment about who it is, and not to ask a host's metadata service.
pub(crate) const VARIABLES: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
    ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
    ("AWS_REGION", REGION),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

/// A table, a prefix of queues and a folder that nobody else uses.
pub struct Site {
    place: Place,
    dynamodb: String,
    sqs: String,
    table: String,
    prefix: String,
    queue_options: String,
    commands: AtomicUsize,
}

impl Site {
    /// A site on these engines; nothing is there yet.
    pub fn new(dynamodb: &str, sqs: &str) -> Self {
        let name = unique("fleet");
        Self {
            place: Place::new(),
            dynamodb: dynamodb.to_owned(),
            sqs: sqs.to_owned(),
            table: name.clone(),
            prefix: name,
            queue_options: String::new(),
            commands: AtomicUsize::new(0),
        }
    }

    /// The same with further options for the queue, such as `visibility_timeout_s=10`.
    #[must_use]
    pub fn with_queue_options(mut self, options: &str) -> Self {
        options.clone_into(&mut self.queue_options);
        self
    }

    /// Makes the table by `dueline setup`.
    pub async fn set_up(&self) {
        let (store, queue) = (self.store(), self.queue());
        let args = ["setup", "--store", &store, "--queue", &queue];
        let ended = self.run("dueline", &args, &VARIABLES).await;
        assert_eq!(ended.code, Some(0), "setup: {}", ended.stderr);
    }

    /// Runs a program to its end, with these variables and no others of AWS.
    pub async fn run(&self, name: &str, args: &[&str], variables: &[(&str, &str)]) -> Ended {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let own = format!("command-{number}");
        let mut process = Process::start_with(&self.place, &own, &program(name), args, variables);
        let code = process.ended(COMMAND_MAX).await.code();
        Ended {
            code,
            stderr: process.full_log(),
        }
    }

    /// What every process of a fleet gets.
    pub const fn variables() -> [(&'static str, &'static str); 4] {
        VARIABLES
    }

    /// The store as a URI.
    pub fn store(&self) -> String {
        format!("dynamodb://{}?endpoint={}", self.table, self.dynamodb)
    }

    /// The queue as a URI.
    pub fn queue(&self) -> String {
        let (prefix, options) = (&self.prefix, &self.queue_options);
        format!("sqs://{prefix}?endpoint={}&{options}", self.sqs)
    }

    /// The table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// What names of queues begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The folder.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Looks at the engines past the fleet.
    pub fn aws(&self) -> Aws {
        Aws::new(&self.dynamodb, &self.sqs, &self.table, &self.prefix)
    }

    /// Leaves the folder for somebody who wants to know what went wrong.
    pub(crate) fn keep(&mut self) {
        self.place.keep();
    }
}
