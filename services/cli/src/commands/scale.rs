//! `dueline scale`.

use clap::Args;
use dueline_scale::{CellPlan, Load, Plan, Prices, Quotas, cells, plan};
use serde::Serialize;

use crate::{
    cli::Context,
    client::Answer,
    exit::{CliError, Exit},
};

/// Says what a load costs on DynamoDB and SQS, which limit it meets first, and how many cells it needs. This is a model:
/// it asks nobody, and docs/scale.md tells what it rests on.
#[derive(Debug, Args)]
pub struct Scale {
    #[command(flatten)]
    load: Load,
}

#[derive(Serialize)]
struct Told {
    plan: Plan,
    cells: CellPlan,
}

impl Scale {
    pub(super) fn run(&self, context: &Context) -> Result<Exit, CliError> {
        self.load
            .check()
            .map_err(|problem| CliError::invalid(problem.to_string()))?;
        let (prices, quotas) = (Prices::default(), Quotas::default());
        let told = Told {
            plan: plan(&self.load, &prices, &quotas),
            cells: cells(&self.load, &quotas),
        };
        context
            .output
            .show(&Answer::of(&told), context.now(), |_| {
                Ok(format!("{}\n{}", told.plan, told.cells))
            })?;
        Ok(Exit::Ok)
    }
}
