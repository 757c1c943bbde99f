//! The resources of a fleet: a table, a prefix of queue names, a folder for logs.

use std::sync::atomic::{AtomicUsize, Ordering};

use dueline_tests_end_to_end::{ChildProcess, ExitedCommand, TestFolder, program};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY, unique};

use crate::EngineClients;

/// Creating a table and its index takes a second; the rest is slack for a busy machine.
const COMMAND_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// The AWS variables of each process: credentials, a region, and no queries to a metadata service.
const VARIABLES: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
    ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
    ("AWS_REGION", REGION),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

/// A table, a prefix of queue names and a folder that only one fleet uses.
pub struct FleetResources {
    folder: TestFolder,
    dynamodb: String,
    sqs: String,
    table: String,
    prefix: String,
    queue_options: String,
    variables: Vec<(&'static str, String)>,
    commands: AtomicUsize,
}

impl FleetResources {
    /// Names for resources on these engines. The table and the queues do not exist yet.
    pub fn new(dynamodb: &str, sqs: &str) -> Self {
        let name = unique("fleet");
        Self {
            folder: TestFolder::new(),
            dynamodb: dynamodb.to_owned(),
            sqs: sqs.to_owned(),
            table: name.clone(),
            prefix: name,
            queue_options: String::new(),
            variables: Vec::new(),
            commands: AtomicUsize::new(0),
        }
    }

    /// Adds options to the queue URI, such as `visibility_timeout_s=10`.
    #[must_use]
    pub fn with_queue_options(mut self, options: &str) -> Self {
        options.clone_into(&mut self.queue_options);
        self
    }

    /// Adds environment variables of all processes.
    #[must_use]
    pub fn with_variables(mut self, variables: &[(&'static str, String)]) -> Self {
        self.variables.extend_from_slice(variables);
        self
    }

    /// The environment variables of a process.
    pub(crate) fn environment(&self) -> Vec<(&str, &str)> {
        let more = self
            .variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        VARIABLES.into_iter().chain(more).collect()
    }

    /// Creates the table with `dueline setup`.
    pub async fn set_up(&self) {
        let (store, queue) = (self.store(), self.queue());
        let args = ["setup", "--store", &store, "--queue", &queue];
        let exited = self.run("dueline", &args, &VARIABLES).await;
        assert_eq!(exited.code, Some(0), "setup: {}", exited.stderr);
    }

    /// Runs a program to completion, with these variables and no other AWS variables.
    pub async fn run(
        &self,
        name: &str,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> ExitedCommand {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let log_name = format!("command-{number}");
        let mut process =
            ChildProcess::start_with(&self.folder, &log_name, &program(name), args, variables);
        let code = process.exited(COMMAND_MAX).await.code();
        ExitedCommand {
            code,
            stderr: process.full_log(),
        }
    }

    /// The AWS variables of every process of a fleet.
    pub const fn variables() -> [(&'static str, &'static str); 4] {
        VARIABLES
    }

    /// The URI of the store.
    pub fn store(&self) -> String {
        format!("dynamodb://{}?endpoint={}", self.table, self.dynamodb)
    }

    /// The URI of the queue.
    pub fn queue(&self) -> String {
        let (prefix, options) = (&self.prefix, &self.queue_options);
        format!("sqs://{prefix}?endpoint={}&{options}", self.sqs)
    }

    /// The name of the table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The prefix of queue names.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The folder of logs.
    pub const fn folder(&self) -> &TestFolder {
        &self.folder
    }

    /// Direct clients of the engines.
    pub fn engine_clients(&self) -> EngineClients {
        EngineClients::new(&self.dynamodb, &self.sqs, &self.table, &self.prefix)
    }

    /// Keeps the folder on disk, so that its logs can be read.
    pub(crate) fn keep(&mut self) {
        self.folder.keep();
    }
}
