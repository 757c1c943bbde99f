//! Servers: trait objects, reachable over gRPC.
//!
//! Requests are parsed and bounded here, once. A batch is refused as a whole only for its length; an entry that is
//! wrong is refused alone, and the others go on.

mod answer;
mod batch;
mod frontend;
mod health;
mod queue;
mod status;
mod stream;
mod transport;
mod work;

use std::sync::Arc;

use axum::middleware;
use dueline_domain::Policy;
use dueline_ports::{Clock, Rng, TaskQueue};
use tonic::service::Routes;

pub(crate) use self::batch::each;
pub use self::{
    answer::{error_response, is_grpc},
    frontend::FrontendServer,
    queue::QueueServer,
    status::StatusControllerServer,
    work::ControllerServer,
};
use super::{
    message::MESSAGE_BYTES_MAX,
    proto::{controller_server, frontend_server, queue_server, status_controller_server},
};
use crate::{Controller, Frontend, Ready, StatusController};

/// What one port offers.
#[derive(Clone, Default)]
pub struct Services {
    /// For clients.
    pub frontend: Option<Arc<dyn Frontend>>,
    /// For controllers.
    pub status: Option<Arc<dyn StatusController>>,
    /// For executors.
    pub work: Option<Arc<dyn Controller>>,
    /// For controllers on other hosts.
    pub queue: Option<Arc<dyn TaskQueue>>,
    /// Answers the standard health service. Without it the services that are offered are always ready.
    pub ready: Option<Arc<dyn Ready>>,
    /// What a job that a client puts does not set.
    pub default_policy: Policy,
}

/// Routes for what is offered; what is not offered says so. [`Routes::into_axum_router`] makes them a router that
/// merges with another one, so that REST and gRPC share a port; it brings no fallback of its own.
///
/// `clock` and `rng` serve submits: the time of a relative due time, and ids for tasks without one.
pub fn routes(services: Services, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Routes {
    // A macro, because the generated servers share no trait that knows of message sizes.
    macro_rules! serve {
        ($routes:ident, $module:ident::$server:ident, $adapter:expr) => {
            match $adapter {
                Some(adapter) => $routes.add_service(
                    $module::$server::new(adapter)
                        .max_decoding_message_size(MESSAGE_BYTES_MAX)
                        .max_encoding_message_size(MESSAGE_BYTES_MAX),
                ),
                None => without($routes, $module::SERVICE_NAME),
            }
        };
    }
    let routes = Routes::from(axum::Router::new());
    let routes = health::add(routes, &services);
    let default_policy = services.default_policy;
    let frontend = services
        .frontend
        .map(|frontend| FrontendServer::new(frontend, default_policy, clock, rng));
    let status = services.status.map(StatusControllerServer::new);
    let work = services.work.map(ControllerServer::new);
    let queue = services.queue.map(QueueServer::new);
    let routes = serve!(routes, frontend_server::FrontendServer, frontend);
    let routes = serve!(
        routes,
        status_controller_server::StatusControllerServer,
        status
    );
    let routes = serve!(routes, controller_server::ControllerServer, work);
    let routes = serve!(routes, queue_server::QueueServer, queue);
    let router = routes.into_axum_router();
    Routes::from(router.route_layer(middleware::from_fn(transport::middleware))).prepare()
}

/// Without this the fallback of another router would answer with a page, which a client cannot read.
fn without(routes: Routes, service: &'static str) -> Routes {
    let text = format!("{service} is not offered here");
    let refuse = async move || tonic::Status::unimplemented(text).into_http::<axum::body::Body>();
    let path = format!("/{service}/{{*verb}}");
    let router = routes.into_axum_router();
    Routes::from(router.route(&path, axum::routing::any(refuse)))
}
