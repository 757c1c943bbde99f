//! `dueline setup`.

use clap::Args;
use dueline_backends::{
    QueueAddress, StoreAddress,
    deploy::{self, Action},
};
use dueline_runtime::config::ConfigArgs;
use serde::Serialize;

use super::process;
use crate::{
    cli::Context,
    client::Answer,
    exit::{CliError, Exit},
};

/// Makes what the store and the queue of the settings need in AWS: the table with its index, expiry and backups, the
/// set-aside queue, and the queue of every job that is known. What is there is left alone or put right, so it may be run
/// again and again. SQLite and the queue within a process need no setup.
#[derive(Debug, Args)]
pub struct Setup {
    /// Change nothing; say what would be done
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

#[derive(Serialize)]
struct Told {
    dry_run: bool,
    actions: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    what: String,
    text: String,
    changes: bool,
}

impl From<Action> for Line {
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
        let mut actions: Vec<_> = actions.into_iter().map(Line::from).collect();
        if !store_address.is_shared() && !queue_address.is_shared() {
            actions.push(Line {
                what: format!("'{store}' and '{queue}'"),
                text: "nothing to set up; name what is in AWS by --store dynamodb://TABLE --queue sqs://PREFIX".into(),
                changes: false,
            });
        }
        let told = Told {
            dry_run: self.dry_run,
            actions,
        };
        context
            .output
            .show(&Answer::of(&told), context.now(), |_| Ok(tell(&told)))?;
        Ok(Exit::Ok)
    }
}

impl Setup {
    /// Half of a deployment is not removed, and nothing without a yes.
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
                .with_hint("one without the other would leave half of a deployment behind"));
        }
        if !self.yes && !self.dry_run {
            let message = format!(
                "'{store}' with all its tasks and the queues of '{queue}' would be deleted; add --yes"
            );
            return Err(CliError::invalid(message).with_hint("--dry-run says what that is"));
        }
        Ok(())
    }
}

fn tell(told: &Told) -> String {
    if told.actions.is_empty() {
        return "everything is as it should be".into();
    }
    let lines = told.actions.iter().map(|action| {
        let mark = match (action.changes, told.dry_run) {
            (false, _) => "note  ",
            (true, true) => "would ",
            (true, false) => "done  ",
        };
        format!("{mark} {}: {}", action.what, action.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}
