//! One file for each command.

use clap::Subcommand;

use crate::{
    context::Context,
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
mod schedule;
mod serve;
mod setup;
mod task;
mod trash;
mod worker;
mod worker_run;

/// The commands of `dueline`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything in one process, with sample jobs
    Dev(dev::Dev),
    /// Process the files of a folder and verify every result
    Demo(demo::Demo),
    /// Run the server that owns a store
    Serve(serve::Serve),
    /// Run a controller for a remote server
    Controller(controller::Controller),
    /// Create tables and queues in AWS, or show what differs
    Setup(setup::Setup),
    /// Check a deployment and name each defect with its fix
    Doctor(doctor::Doctor),
    /// Show what processes have spent on AWS
    Cost(cost::Cost),
    /// Estimate what a load costs on AWS and which limit it reaches first
    Scale(scale::Scale),
    /// Measure this machine and this program
    Bench(bench::Bench),
    /// Define, read and change jobs
    #[command(subcommand)]
    Job(job::Command),
    /// Submit, read and change tasks
    #[command(subcommand)]
    Task(task::Command),
    /// Review the tasks that were trashed
    #[command(subcommand)]
    Trash(trash::Command),
    /// Show when rules of schedules fire
    #[command(subcommand)]
    Schedule(schedule::Command),
    /// Run a worker, or list the registered workers
    #[command(subcommand)]
    Worker(worker::Command),
    /// Check whether the server is alive and ready
    Health(health::Health),
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

impl Command {
    /// Runs the command until it ends.
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
            // It starts several processes' worth of services.
            Self::Bench(command) => Box::pin(command.run(context)).await,
            Self::Job(command) => command.run(context).await,
            Self::Task(command) => command.run(context).await,
            Self::Trash(command) => command.run(context).await,
            Self::Schedule(command) => command.run(context).await,
            Self::Worker(command) => command.run(context).await,
            Self::Health(command) => command.run(context).await,
            Self::Completions(command) => command.run(context),
        }
    }
}
