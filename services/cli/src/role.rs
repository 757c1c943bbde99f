//! A program that is one role of a fleet: a command of `dueline` under a name of its own.

use std::{ffi::OsString, process::ExitCode};

use clap::{Command, CommandFactory as _};

use crate::cli::{Cli, run};

/// Arguments that say which role a process has; here its name says so.
const ROLE_ARGS: &[&str] = &["services", "no_worker"];
/// Arguments that an executor takes and has no use for: it listens nowhere, and all it knows of is its controller.
const OF_SERVERS: &[&str] = &[
    "listen",
    "allow_remote_without_authentication",
    "data",
    "store",
    "queue",
    "durability",
];

/// One role.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// The program.
    pub program: &'static str,
    /// What it does, for its help.
    pub about: &'static str,
    /// The commands of `dueline` that it stands for.
    pub commands: &'static [&'static str],
    /// What it sets.
    pub args: &'static [&'static str],
    /// What its help leaves out.
    hidden: &'static [&'static str],
}

impl Role {
    /// Takes tasks.
    pub const FRONTEND: Self = Self {
        program: "dueline-frontend",
        about: "Takes jobs and tasks, and answers questions",
        commands: &["serve"],
        args: &["--services", "frontend", "--no-worker"],
        hidden: ROLE_ARGS,
    };

    /// Hands them on.
    pub const CONSUMER: Self = Self {
        program: "dueline-consumer",
        about: "Finds what is due and hands it on",
        commands: &["serve"],
        args: &["--services", "consumer", "--no-worker"],
        hidden: ROLE_ARGS,
    };

    /// Keeps their states.
    pub const STATUS_CONTROLLER: Self = Self {
        program: "dueline-status-controller",
        about: "Keeps what workers report",
        commands: &["serve"],
        args: &["--services", "status-controller", "--no-worker"],
        hidden: ROLE_ARGS,
    };

    /// Fetches their messages.
    pub const CONTROLLER: Self = Self {
        program: "dueline-controller",
        about: "Fetches messages for executors, and asks the status controllers that --server names",
        commands: &["controller"],
        args: &[],
        hidden: &[],
    };

    /// Runs them.
    pub const EXECUTOR: Self = Self {
        program: "dueline-executor",
        about: "Runs tasks for the controller or server that --server names",
        commands: &["worker", "run"],
        args: &[],
        hidden: OF_SERVERS,
    };

    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::FRONTEND,
        Self::CONSUMER,
        Self::STATUS_CONTROLLER,
        Self::CONTROLLER,
        Self::EXECUTOR,
    ];

    /// Runs this process's own command line as that of the role.
    pub fn run(self) -> ExitCode {
        let args: Vec<OsString> = std::env::args_os().skip(1).collect();
        let asks = |names: [&str; 2]| args.iter().any(|arg| names.iter().any(|name| arg == name));
        let mut command = self.command();
        // The only way that printing can fail is that nobody reads it.
        if asks(["--help", "-h"]) {
            let _ = command.print_long_help();
            return ExitCode::SUCCESS;
        }
        if asks(["--version", "-V"]) {
            print!("{}", command.render_version());
            return ExitCode::SUCCESS;
        }
        let before = std::iter::once(&self.program)
            .chain(self.commands)
            .chain(self.args);
        run(before.map(OsString::from).chain(args))
    }

    /// The command that it stands for, as one that stands alone.
    fn command(self) -> Command {
        let whole = Cli::command();
        let mut command = &whole;
        for name in self.commands {
            command = command.find_subcommand(name).unwrap_or(command);
        }
        let mut command = command
            .clone()
            .name(self.program)
            .bin_name(self.program)
            .about(self.about)
            .version(env!("CARGO_PKG_VERSION"));
        for arg in whole.get_arguments().filter(|arg| arg.is_global_set()) {
            command = command.arg(arg.clone());
        }
        for name in self.hidden {
            if command.get_arguments().any(|arg| arg.get_id() == name) {
                command = command.mut_arg(name, |arg| arg.hide(true));
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_a_role_is_about_the_role() {
        for role in Role::ALL {
            let help = role.command().render_long_help().to_string();
            assert!(help.starts_with(role.about), "{help}");
            let usage = format!("Usage: {} [OPTIONS]", role.program);
            assert!(help.contains(&usage) && help.contains("--json"), "{help}");
            assert!(!help.contains("--services"), "{help}");
            assert_eq!(
                help.contains("--queue"),
                role.program != "dueline-executor",
                "{help}"
            );
        }
    }
}
