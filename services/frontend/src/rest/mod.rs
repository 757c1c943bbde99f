//! REST `/v1` over any [`Frontend`].

mod body;
mod failure;
mod health;
mod limits;
mod query;
mod reply;
mod routes;
mod target;

use std::sync::Arc;

use axum::{Router, middleware};
use bytes::Bytes;
use dueline_api::{
    ApiError, Call, Callable, Controller, ErrorKind, ErrorReason, Frontend, Operation,
};
use dueline_domain::Policy;
use dueline_ports::{Clock, Rng};
use dueline_runtime::TaskGroup;

pub(crate) use failure::{Failure, render};
pub use health::{Health, StoreConnection};
pub use limits::RestLimits;
pub use routes::openapi;

use crate::edge::Guard;

/// Renders the metrics of the process in the Prometheus text format.
pub type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// What the router works with.
pub struct RouterDeps {
    /// Answers clients, where there is a frontend.
    pub frontend: Option<Arc<dyn Frontend>>,
    /// Answers workers, where there is a controller.
    pub work: Option<Arc<dyn Controller>>,
    /// The health of the process.
    pub health: Arc<dyn Health>,
    /// The time from which delays count.
    pub clock: Arc<dyn Clock>,
    /// Ids of tasks, names of writes, ids of requests.
    pub rng: Arc<dyn Rng>,
    /// The text of `/metrics`; without it there is none.
    pub metrics: Option<MetricsText>,
    /// Bounds.
    pub limits: RestLimits,
    /// The timeouts of a job that sets none.
    pub default_policy: Policy,
    /// The routes of gRPC, which share the port. Empty where there are none.
    pub grpc: Router,
}

/// What every route has at hand.
pub(crate) struct App {
    frontend: Option<Arc<dyn Frontend>>,
    work: Option<Arc<dyn Controller>>,
    health: Arc<dyn Health>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    metrics: Option<MetricsText>,
    limits: RestLimits,
    default_policy: Policy,
    openapi: Bytes,
    /// Tasks whose answers were not written, on their way back.
    returns: TaskGroup,
}

impl App {
    /// Carries out an operation of clients.
    async fn call<O: Operation>(&self, call: &Call, operation: O) -> Result<O::Output, ApiError>
    where
        dyn Frontend: Callable<O>,
    {
        self.frontend()?.call(call, operation).await
    }

    fn frontend(&self) -> Result<Arc<dyn Frontend>, ApiError> {
        self.frontend.clone().ok_or_else(|| {
            let message = "this server takes no tasks; ask a frontend";
            ApiError::new(ErrorKind::NotFound, ErrorReason::NoFrontendHere, message)
        })
    }

    fn work(&self) -> Result<&Arc<dyn Controller>, ApiError> {
        self.work.as_ref().ok_or_else(|| {
            let message = "this server dispatches no work; ask a controller";
            ApiError::new(ErrorKind::NotFound, ErrorReason::NoWorkHere, message)
        })
    }
}

/// The routes of REST `/v1`, of health and of the description, and those of gRPC; the same bounds hold for all calls. It
/// has a fallback of its own.
pub fn router(deps: RouterDeps) -> Router {
    let limits = deps.limits;
    let guard = Arc::new(Guard::new(limits, deps.rng.clone()));
    let app = Arc::new(App {
        frontend: deps.frontend,
        work: deps.work,
        health: deps.health,
        clock: deps.clock,
        rng: deps.rng,
        metrics: deps.metrics,
        limits,
        default_policy: deps.default_policy,
        openapi: Bytes::from(openapi()),
        returns: TaskGroup::new(),
    });
    let (routes, _) = routes::all().split_for_parts();
    routes
        .fallback(routes::unknown)
        .method_not_allowed_fallback(routes::wrong_method)
        .with_state(app)
        .merge(deps.grpc)
        .layer(middleware::from_fn_with_state(guard, Guard::middleware))
}
