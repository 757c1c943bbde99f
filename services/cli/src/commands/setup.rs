//! `dueline setup`.

use clap::Args;
use dueline_backends::{
    QueueAddress, StoreAddress,
    deploy::{self, Action},
};
use dueline_settings::ConfigArgs;
use serde::Serialize;

use super::process;
use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
};

/// Creates the AWS resources of the configured store and queue: the table with its index, expiry and backups, the
/// quarantine queue, and the queue of every stored job. The command may be repeated: it keeps existing resources and
/// corrects those that differ. SQLite and the queue inside a process need no setup.
#[derive(Debug, Args)]
pub struct Setup {
    /// Change nothing; show what would be done
    #[arg(long)]
    dry_run: bool,

    /// Delete the table with all its tasks, and all queues with the prefix and tag of this deployment; needs --yes
    #[arg(long)]
    remove: bool,

    /// Confirms --remove
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    config: ConfigArgs,
}

/// What setup did or would do, as `--json` prints it.
#[derive(Serialize)]
struct SetupReport {
    dry_run: bool,
    actions: Vec<ReportedAction>,
}

/// One action of setup.
#[derive(Serialize)]
struct ReportedAction {
    what: String,
    text: String,
    changes: bool,
}

impl From<Action> for ReportedAction {
    fn from(action: Action) -> Self {
        Self {
            what: action.what,
            text: action.text,
            changes: action.changes,
        }
    }
}

impl Setup {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let Some(prepared) = process::prepare(context, &self.config)? else {
            return Ok(Exit::Ok);
        };
        let (store, queue) = (prepared.settings.store_uri(), &prepared.settings.queue);
        let failed = |error: dueline_backends::BackendError| process::backend_error(&error);
        let store_address = StoreAddress::parse(&store).map_err(failed)?;
        let queue_address = QueueAddress::parse(queue).map_err(failed)?;
        if self.remove {
            self.check_removal(&store_address, &queue_address, &store, queue)?;
        }
        let actions = if self.remove {
            deploy::remove(&store, queue, self.dry_run).await
        } else if self.dry_run {
            deploy::plan(&store_address, &queue_address).await
        } else {
            deploy::set_up(&store_address, &queue_address).await
        };
        let actions = actions.map_err(failed)?;
        let mut actions: Vec<_> = actions.into_iter().map(ReportedAction::from).collect();
        if !store_address.is_shared() && !queue_address.is_shared() {
            actions.push(ReportedAction {
                what: format!("'{store}' and '{queue}'"),
                text: "nothing to set up; name AWS resources with --store dynamodb://TABLE --queue sqs://PREFIX".into(),
                changes: false,
            });
        }
        let report = SetupReport {
            dry_run: self.dry_run,
            actions,
        };
        context
            .output
            .show(&JsonAnswer::of(&report), context.now(), |_| {
                Ok(render(&report))
            })?;
        Ok(Exit::Ok)
    }
}

impl Setup {
    /// Refuses a removal that names only half of a deployment, or that is not confirmed.
    fn check_removal(
        &self,
        store_address: &StoreAddress,
        queue_address: &QueueAddress,
        store: &str,
        queue: &str,
    ) -> Result<(), CliError> {
        if !store_address.is_shared() || !queue_address.is_shared() {
            let message = "--remove needs both --store dynamodb://TABLE and --queue sqs://PREFIX";
            return Err(CliError::invalid(message)
                .with_hint("removing only one of them would leave half of the deployment behind"));
        }
        if !self.yes && !self.dry_run {
            let message = format!(
                "'{store}' with all its tasks and the queues of '{queue}' would be deleted; add --yes"
            );
            return Err(
                CliError::invalid(message).with_hint("--dry-run lists what would be deleted")
            );
        }
        Ok(())
    }
}

fn render(report: &SetupReport) -> String {
    if report.actions.is_empty() {
        return "nothing to do: everything is set up".into();
    }
    let lines = report.actions.iter().map(|action| {
        let label = match (action.changes, report.dry_run) {
            (false, _) => "note  ",
            (true, true) => "would ",
            (true, false) => "done  ",
        };
        format!("{label} {}: {}", action.what, action.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}
