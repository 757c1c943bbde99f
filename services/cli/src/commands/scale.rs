//! `dueline scale`.

use clap::Args;
use dueline_scale::{CellPlan, Load, Plan, Prices, Quotas, cells, plan};
use serde::Serialize;

use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
};

/// Estimates what a load costs on DynamoDB and SQS, which limit it reaches first, and how many cells it needs. The
/// estimate comes from a model and sends no request; docs/scale.md documents its assumptions.
#[derive(Debug, Args)]
pub struct Scale {
    #[command(flatten)]
    load: Load,
}

/// The estimate, as `--json` prints it.
#[derive(Serialize)]
struct ScaleEstimate {
    plan: Plan,
    cells: CellPlan,
}

impl Scale {
    pub(super) fn run(&self, context: &Context) -> Result<Exit, CliError> {
        self.load
            .check()
            .map_err(|problem| CliError::invalid(problem.to_string()))?;
        let (prices, quotas) = (Prices::default(), Quotas::default());
        let estimate = ScaleEstimate {
            plan: plan(&self.load, &prices, &quotas),
            cells: cells(&self.load, &quotas),
        };
        context
            .output
            .show(&JsonAnswer::of(&estimate), context.now(), |_| {
                Ok(format!("{}\n{}", estimate.plan, estimate.cells))
            })?;
        Ok(Exit::Ok)
    }
}
