//! Runs the loops of the service under supervision.

use std::sync::Arc;

use dueline_runtime::{ServiceError, Shutdown, TaskGroup};

use crate::{
    Config, Deps, backlog,
    effects::{self, EffectsIntake},
    families::{self, WaitingTasks},
    members::{self, CurrentShare},
    refill,
    scan::DueScan,
    schedules,
};

/// Runs until the intake is stopped or one of the loops has failed.
///
/// Stopping in the middle of a batch is safe: tasks that were marked but not sent are enqueued again after their
/// enqueue timeout.
pub async fn run(config: Config, deps: Deps, shutdown: Shutdown) -> Result<(), ServiceError> {
    let loops = shutdown.child();
    let group = TaskGroup::new();
    let (config, share) = (config.clamped(), CurrentShare::default());
    let membership = members::run(config.clone(), deps.clone(), share.clone(), loops.clone());
    group.spawn_infallible("membership", membership);
    let backlog = backlog::run(config.clone(), deps.clone(), share.clone(), loops.clone());
    group.spawn_infallible("backlog", backlog);
    let intake = Arc::<EffectsIntake>::default();
    let waiting = Arc::<WaitingTasks>::default();
    group.spawn_infallible("due scan", {
        DueScan::new(
            config.clone(),
            deps.clone(),
            share.clone(),
            intake.clone(),
            waiting.clone(),
        )
        .run(loops.clone())
    });
    let schedules = schedules::run(config, deps.clone(), share, loops.clone());
    group.spawn_infallible("schedules", schedules);
    let effects = effects::run(deps.clone(), intake, loops.clone());
    group.spawn_infallible("effects", effects);
    let families = families::run(deps.clone(), waiting, loops.clone());
    group.spawn_infallible("families", families);
    group.spawn_infallible("queue refill", refill::run(deps, loops.clone()));
    tokio::select! {
        biased;
        () = shutdown.intake_stopped() => {}
        _ = group.failed() => {}
    }
    loops.stop_work();
    group.wait().await
}
