//! `dueline completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{
    cli::Cli,
    context::Context,
    exit::{CliError, Exit},
};

/// Prints the completion script of a shell.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// Shell that the script is for
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self, context: &Context) -> Result<Exit, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "dueline", &mut script);
        context
            .output
            .verbatim(String::from_utf8_lossy(&script).trim_end())?;
        Ok(Exit::Ok)
    }
}
