//! The service: its loops, supervised.

use dueline_runtime::{ServiceError, Shutdown, TaskGroup};

use crate::{
    Config, Deps, backlog,
    members::{self, CurrentShare},
    refill,
    scan::Scan,
};

/// Runs until the intake is stopped, or one of the loops has failed.
///
/// Stopping in the middle of a batch is harmless: what was marked but not sent comes back by its enqueue timeout.
pub async fn run(config: Config, deps: Deps, shutdown: Shutdown) -> Result<(), ServiceError> {
    let loops = shutdown.child();
    let group = TaskGroup::new();
    let (config, share) = (config.clamped(), CurrentShare::default());
    let membership = members::run(config.clone(), deps.clone(), share.clone(), loops.clone());
    group.spawn_infallible("membership", membership);
    let backlog = backlog::run(config.clone(), deps.clone(), share.clone(), loops.clone());
    group.spawn_infallible("backlog", backlog);
    group.spawn_infallible("due scan", {
        Scan::new(config, deps.clone(), share).run(loops.clone())
    });
    group.spawn_infallible("queue refill", refill::run(deps, loops.clone()));
    tokio::select! {
        biased;
        () = shutdown.intake_stopped() => {}
        _ = group.failed() => {}
    }
    loops.stop_work();
    group.wait().await
}
