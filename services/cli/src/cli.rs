//! The command line as a whole.

use std::{ffi::OsString, process::ExitCode, time::Duration};

use clap::{Parser, error::ErrorKind as ClapErrorKind};
use dueline_domain::Timestamp;
use dueline_ports::Clock as _;
use dueline_runtime::SystemClock;

use crate::{
    client::Client,
    commands::Command,
    exit::{self, CliError, Exit},
    output::Output,
    units::parse_timeout,
};

/// Runs tasks at the right time, at least once, and shows what happened.
#[derive(Debug, Parser)]
#[command(name = "dueline", version, after_help = exit::help(), max_term_width = 110)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub global: GlobalArgs,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Write JSON for programs: answers to standard output, errors as problem documents to standard error
    #[arg(long, global = true)]
    pub json: bool,

    /// Server to talk to
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DUELINE_SERVER",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7070"
    )]
    pub server: String,

    /// Longest time to wait for an answer
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

    /// Who submits, for the record
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "DUELINE_CALLER",
        hide_env_values = true
    )]
    pub caller: Option<String>,
}

/// What a command works with.
#[derive(Debug)]
pub(crate) struct Context {
    /// What every command takes.
    pub(crate) global: GlobalArgs,
    /// Where answers go.
    pub(crate) output: Output,
}

impl Context {
    /// A client of the server that was named.
    pub(crate) fn client(&self) -> Result<Client, CliError> {
        let GlobalArgs {
            server,
            request_timeout,
            caller,
            ..
        } = &self.global;
        Client::new(server, *request_timeout, caller.clone())
    }

    /// The time now.
    pub(crate) fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}

/// Runs the command line `args`, the program's name included, to its end.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let exit = match Cli::try_parse_from(&args) {
        Ok(cli) => start(cli),
        Err(error) => usage(&error, args.iter().any(|arg| arg == "--json")),
    };
    ExitCode::from(exit.code())
}

fn start(cli: Cli) -> Exit {
    let json = cli.global.json;
    let context = Context {
        output: Output::detect(json),
        global: cli.global,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let ended = runtime.map_err(CliError::from).and_then(|runtime| {
        let ended = runtime.block_on(cli.command.run(&context));
        // A thread that still reads a large file must not keep a process that was told to end.
        runtime.shutdown_background();
        ended
    });
    ended.unwrap_or_else(|error| error.report(json))
}

/// Tells what is wrong with the command line. Help and version are no errors.
fn usage(error: &clap::Error, json: bool) -> Exit {
    let is_answer = matches!(
        error.kind(),
        ClapErrorKind::DisplayHelp | ClapErrorKind::DisplayVersion
    );
    if is_answer || !json {
        // The only way that it can fail is that nobody reads it.
        let _ = error.print();
    } else {
        let text = error.render().to_string();
        CliError::invalid(on_one_line(&text)).report(true);
    }
    if is_answer { Exit::Ok } else { Exit::Invalid }
}

/// What is wrong, with the names of arguments that follow on lines of their own; how to use the command is for people.
fn on_one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim).take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let words: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
