//! The global arguments, and the context that every command runs with.

use std::time::Duration;

use dueline_domain::Timestamp;
use dueline_ports::Clock as _;
use dueline_runtime::SystemClock;

use crate::{client::RestClient, exit::CliError, output::Output, units::parse_timeout};

/// The arguments that every command accepts.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Write JSON: results to standard output, errors as problem documents to standard error
    #[arg(long, global = true)]
    pub json: bool,

    /// Address of the server
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DUELINE_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7070"
    )]
    pub server: String,

    /// Longest time to wait for a response
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        env = "DUELINE_REQUEST_TIMEOUT",
        hide_env_values = true,
        default_value = "30s",
        value_parser = parse_timeout,
        allow_hyphen_values = true
    )]
    pub request_timeout: Duration,

    /// Name of the submitter, stored with what is created
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "DUELINE_CALLER",
        hide_env_values = true
    )]
    pub caller: Option<String>,
}

/// What every command runs with.
#[derive(Debug)]
pub(crate) struct Context {
    /// The global arguments.
    pub(crate) global: GlobalArgs,
    /// Standard output and how to write to it.
    pub(crate) output: Output,
}

impl Context {
    /// A client of the server that `--server` names.
    pub(crate) fn client(&self) -> Result<RestClient, CliError> {
        let GlobalArgs {
            server,
            request_timeout,
            caller,
            ..
        } = &self.global;
        RestClient::new(server, *request_timeout, caller.clone())
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}
