//! The port of a process.

use std::{net::SocketAddr, sync::Arc};

use dueline_api::grpc;
use dueline_backends::OpenedStore;
use dueline_frontend::{MetricsText, RestLimits, RouterDeps};
use dueline_runtime::{SystemClock, SystemRng};
use tokio::net::TcpListener;

use crate::{error::StartError, health::NodeHealth, running::RunningServices};

impl RunningServices {
    /// Serves REST and gRPC on a port.
    pub(crate) fn listen(
        &mut self,
        port: BoundPort,
        mut services: grpc::Services,
        store: Option<Arc<OpenedStore>>,
        metrics: Option<MetricsText>,
    ) {
        let health = Arc::new(NodeHealth {
            services: self.services.clone(),
            stopping: self.stop_workers.clone(),
            store,
            executors: self.executors.clone(),
        });
        services.ready = Some(health.clone());
        let router = dueline_frontend::router(RouterDeps {
            frontend: services.frontend.clone(),
            work: services.work.clone(),
            health,
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
            metrics,
            limits: RestLimits::default(),
            default_policy: services.default_policy.clone(),
            grpc: grpc::routes(services, Arc::new(SystemClock), Arc::new(SystemRng))
                .into_axum_router(),
        });
        self.address = Some(port.address);
        self.service("network", |stop| {
            dueline_frontend::serve(port.listener, router, stop)
        });
    }
}

/// A port that this process has bound.
pub(crate) struct BoundPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundPort {
    /// Binds the port, if there is an address. Calls are not served yet.
    pub(crate) async fn bind(address: Option<SocketAddr>) -> Result<Option<Self>, StartError> {
        let Some(address) = address else {
            return Ok(None);
        };
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, address }))
    }
}
