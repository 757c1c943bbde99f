//! `dueline schedule`.

mod next;

use clap::Subcommand;

use crate::{
    context::Context,
    exit::{CliError, Exit},
};

/// The commands of `dueline schedule`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show when a rule fires next; needs no server
    Next(next::Next),
}

impl Command {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CliError> {
        match self {
            Self::Next(command) => command.run(context),
        }
    }
}
