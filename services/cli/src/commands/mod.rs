//! One file for each command.

use clap::Subcommand;

use crate::{
    cli::Context,
    exit::{CliError, Exit},
};

pub mod bench;
pub mod demo;

mod completions;
mod controller;
mod cost;
mod dev;
mod doctor;
mod health;
mod job;
mod payload;
mod process;
mod reference;
mod scale;
mod serve;
mod setup;
mod task;
mod worker;
mod worker_run;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything in one process, with jobs to play with
    Dev(dev::Dev),
    /// Work through the files of a folder and check every result
    Demo(demo::Demo),
    /// Run the server that owns a store
    Serve(serve::Serve),
    /// Run a controller for a server elsewhere
    Controller(controller::Controller),
    /// Make tables and queues in AWS, or say what is not as it should be
    Setup(setup::Setup),
    /// Check a deployment and name each defect with its mend
    Doctor(doctor::Doctor),
    /// Say what processes have spent on AWS
    Cost(cost::Cost),
    /// Say what a load costs on AWS and which limit it meets
    Scale(scale::Scale),
    /// Measure this machine and this program
    Bench(bench::Bench),
    /// Define jobs and look at them
    #[command(subcommand)]
    Job(job::Command),
    /// Submit tasks, watch them and change them
    #[command(subcommand)]
    Task(task::Command),
    /// Run a worker, or look at those there are
    #[command(subcommand)]
    Worker(worker::Command),
    /// Ask the server whether it is alive and ready
    Health(health::Health),
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

impl Command {
    /// Runs it to its end.
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        match self {
            Self::Dev(command) => command.run(context).await,
            Self::Demo(command) => command.run(context).await,
            Self::Serve(command) => command.run(context).await,
            Self::Controller(command) => command.run(context).await,
            Self::Cost(command) => command.run(context).await,
            Self::Scale(command) => command.run(context),
            Self::Setup(command) => command.run(context).await,
            Self::Doctor(command) => command.run(context).await,
            Self::Bench(command) => command.run(context).await,
            Self::Job(command) => command.run(context).await,
            Self::Task(command) => command.run(context).await,
            Self::Worker(command) => command.run(context).await,
            Self::Health(command) => command.run(context).await,
            Self::Completions(command) => command.run(context),
        }
    }
}
