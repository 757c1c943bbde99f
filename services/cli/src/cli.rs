//! Parses the command line, runs its command, and maps the result to an exit code.

use std::{ffi::OsString, process::ExitCode};

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind as ClapErrorKind},
};
use dueline_domain::bounded_message;

use crate::{
    commands::Command,
    context::{Context, GlobalArgs},
    exit::{self, CliError, Exit},
    output::{self, Output},
    sanitize::clean,
};

/// Runs tasks at the right time, at least once, and shows what happened.
#[derive(Debug, Parser)]
#[command(name = "dueline", version, after_help = exit::help(), max_term_width = 110)]
pub struct Cli {
    /// The arguments that every command accepts.
    #[command(flatten)]
    pub global: GlobalArgs,

    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Parses and runs the command line `args`, whose first word is the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let exit = match Cli::try_parse_from(&args) {
        Ok(cli) => run_command(cli),
        Err(error) => report_usage(error, args.iter().any(|arg| arg == "--json")),
    };
    ExitCode::from(exit.code())
}

fn run_command(cli: Cli) -> Exit {
    let json = cli.global.json;
    let context = Context {
        output: Output::detect(json),
        global: cli.global,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let result = runtime.map_err(CliError::from).and_then(|runtime| {
        let result = runtime.block_on(cli.command.run(&context));
        // A blocking thread that still reads a large file must not delay the exit of the process.
        runtime.shutdown_background();
        result
    });
    result.unwrap_or_else(|error| error.report(json))
}

/// Prints what is wrong with the command line. clap reports `--help` and `--version` as errors too; these succeed.
pub(crate) fn report_usage(mut error: clap::Error, json: bool) -> Exit {
    let exit = if error.use_stderr() {
        Exit::Invalid
    } else {
        Exit::Ok
    };
    let is_help = error.kind() == ClapErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if exit == Exit::Ok || (is_help && !json) {
        // Printing fails only when the output is closed.
        let _ = error.print();
        return exit;
    }
    escape_arguments(&mut error);
    let text = error.render().to_string();
    if json {
        return CliError::invalid(on_one_line(&text)).report(true);
    }
    for line in text.trim_end().lines() {
        output::note(&bounded_message(line));
    }
    exit
}

/// Escapes the arguments that the message quotes, so that a line break in one of them does not end the line.
fn escape_arguments(error: &mut clap::Error) {
    let escaped = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(argument) => {
            let escaped = clean(argument).into_owned();
            (escaped != *argument).then_some((kind, ContextValue::String(escaped)))
        }
        _ => None,
    };
    let changed: Vec<_> = error.context().filter_map(escaped).collect();
    for (kind, value) in changed {
        error.insert(kind, value);
        // A suggestion repeats the argument.
        error.remove(ContextKind::Suggested);
    }
}

/// clap's message on one line, with the argument names that clap puts on lines of their own. The usage text is left
/// out.
fn on_one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim).take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let parts: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    parts.join(" ")
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
