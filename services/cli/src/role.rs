//! The programs that run one role of a fleet each. Each stands for a command of `dueline`.

use std::{ffi::OsString, process::ExitCode};

use clap::{Command, CommandFactory as _};

use crate::cli::{Cli, report_usage, run};

/// Arguments that select a role. The program's name selects it, so its help leaves them out.
const ROLE_ARGS: &[&str] = &["services", "no_worker"];
/// Arguments that have no effect on an executor, which does not listen and opens no store or queue.
const SERVER_ARGS: &[&str] = &[
    "listen",
    "allow_remote_without_authentication",
    "data",
    "store",
    "queue",
    "durability",
];

/// A program that runs one role.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// The name of the program.
    pub program: &'static str,
    /// What the program does, for its help.
    pub about: &'static str,
    /// The command of `dueline` that the program stands for.
    pub commands: &'static [&'static str],
    /// The arguments that the program adds.
    pub args: &'static [&'static str],
    /// The arguments that its help leaves out.
    hidden: &'static [&'static str],
}

impl Role {
    /// Serves clients.
    pub const FRONTEND: Self = Self {
        program: "dueline-frontend",
        about: "Serves clients: stores jobs and tasks, and reads and changes them",
        commands: &["serve"],
        args: &["--services", "frontend", "--no-worker"],
        hidden: ROLE_ARGS,
    };

    /// Enqueues due tasks.
    pub const CONSUMER: Self = Self {
        program: "dueline-consumer",
        about: "Finds due tasks and enqueues them",
        commands: &["serve"],
        args: &["--services", "consumer", "--no-worker"],
        hidden: ROLE_ARGS,
    };

    /// Writes the transitions that workers cause.
    pub const STATUS_CONTROLLER: Self = Self {
        program: "dueline-status-controller",
        about: "Stores what workers report: claims, heartbeats and outcomes",
        commands: &["serve"],
        args: &["--services", "status-controller", "--no-worker"],
        hidden: ROLE_ARGS,
    };

    /// Receives messages and dispatches tasks.
    pub const CONTROLLER: Self = Self {
        program: "dueline-controller",
        about: "Receives messages and dispatches tasks to executors; --server names the status controllers",
        commands: &["controller"],
        args: &[],
        hidden: &[],
    };

    /// Runs tasks.
    pub const EXECUTOR: Self = Self {
        program: "dueline-executor",
        about: "Runs tasks for the controller or server that --server names",
        commands: &["worker", "run"],
        args: &[],
        hidden: SERVER_ARGS,
    };

    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::FRONTEND,
        Self::CONSUMER,
        Self::STATUS_CONTROLLER,
        Self::CONTROLLER,
        Self::EXECUTOR,
    ];

    /// Runs the command of the role with the arguments of this process.
    pub fn run(self) -> ExitCode {
        let args: Vec<OsString> = std::env::args_os().skip(1).collect();
        // The command of the role parses the arguments first: it answers --help and --version, and its errors name this
        // program.
        let own = std::iter::once(OsString::from(self.program)).chain(args.iter().cloned());
        if let Err(error) = self.command().try_get_matches_from(own) {
            let json = args.iter().any(|arg| arg == "--json");
            return ExitCode::from(report_usage(error, json).code());
        }
        let prefix = std::iter::once(&self.program)
            .chain(self.commands)
            .chain(self.args);
        run(prefix.map(OsString::from).chain(args))
    }

    /// The command that the program stands for, as a command line of its own.
    fn command(self) -> Command {
        let dueline = Cli::command();
        let mut command = &dueline;
        for name in self.commands {
            command = command.find_subcommand(name).unwrap_or(command);
        }
        let mut command = command
            .clone()
            .name(self.program)
            .bin_name(self.program)
            .about(self.about)
            // The examples are those of the command of `dueline`.
            .after_help("")
            .version(env!("CARGO_PKG_VERSION"));
        for arg in dueline.get_arguments().filter(|arg| arg.is_global_set()) {
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
    fn the_help_of_a_role_describes_the_role() {
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
