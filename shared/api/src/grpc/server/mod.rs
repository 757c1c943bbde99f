//! Servers: trait objects, reachable over gRPC.
//!
//! Requests are parsed and bounded here, once. A batch is refused as a whole only for its length; an entry that is
//! wrong is refused alone, and the others go on.

mod batch;
mod frontend;
mod queue;
mod status;
mod stream;
mod work;

use std::sync::Arc;

use dueline_domain::Policy;
use dueline_ports::TaskQueue;
use tonic::service::Routes;

pub use self::{
    frontend::FrontendServer, queue::QueueServer, status::StatusServer, work::WorkServer,
};
use super::{
    message::MESSAGE_BYTES_MAX,
    proto::{frontend_server, queue_server, status_server, work_server},
};
use crate::{Frontend, Status, Work};

/// What one port offers.
#[derive(Clone, Default)]
pub struct Services {
    /// For clients.
    pub frontend: Option<Arc<dyn Frontend>>,
    /// For controllers.
    pub status: Option<Arc<dyn Status>>,
    /// For executors.
    pub work: Option<Arc<dyn Work>>,
    /// For controllers on other hosts.
    pub queue: Option<Arc<dyn TaskQueue>>,
    /// What a job that a client puts says nothing about.
    pub default_policy: Policy,
}

/// Routes for what is offered; what is not offered says so. [`Routes::into_axum_router`] makes them a router that
/// merges with another one, so that REST and gRPC share a port; it brings no fallback of its own.
pub fn routes(services: Services) -> Routes {
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
    let default_policy = services.default_policy;
    let frontend = services
        .frontend
        .map(|frontend| FrontendServer::new(frontend, default_policy));
    let status = services.status.map(StatusServer::new);
    let work = services.work.map(WorkServer::new);
    let queue = services.queue.map(QueueServer::new);
    let routes = serve!(routes, frontend_server::FrontendServer, frontend);
    let routes = serve!(routes, status_server::StatusServer, status);
    let routes = serve!(routes, work_server::WorkServer, work);
    let routes = serve!(routes, queue_server::QueueServer, queue);
    routes.prepare()
}

/// Without this the fallback of another router would answer with a page, which a client cannot read.
fn without(routes: Routes, service: &'static str) -> Routes {
    let text = format!("{service} is not offered here");
    let refuse = async move || tonic::Status::unimplemented(text).into_http::<axum::body::Body>();
    let path = format!("/{service}/{{*verb}}");
    let router = routes.into_axum_router();
    Routes::from(router.route(&path, axum::routing::any(refuse)))
}
