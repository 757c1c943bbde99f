//! The standard services `grpc.health.v1.Health`, for load balancers and supervisors, and `grpc.reflection`, for tools such as
//! grpcurl.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Response, Status, async_trait, service::Routes};
use tonic_health::pb::{
    self, HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};

use super::Services;
use crate::{
    Ready,
    grpc::proto::{
        self, controller_server, frontend_server, queue_server, status_controller_server,
    },
};

/// How often a watched process is asked.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// Most watches at once. Each costs a timer.
const WATCHES_MAX: usize = 256;

/// Adds the standard services.
pub(super) fn add(routes: Routes, services: &Services) -> Routes {
    let mut offered = Vec::new();
    let names = [
        (services.frontend.is_some(), frontend_server::SERVICE_NAME),
        (
            services.status.is_some(),
            status_controller_server::SERVICE_NAME,
        ),
        (services.work.is_some(), controller_server::SERVICE_NAME),
        (services.queue.is_some(), queue_server::SERVICE_NAME),
    ];
    offered.extend(
        names
            .into_iter()
            .filter_map(|(is_offered, name)| is_offered.then_some(name)),
    );
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(pb::FILE_DESCRIPTOR_SET)
    };
    let health = HealthService {
        offered: offered.into(),
        ready: services.ready.clone(),
        watches: Arc::new(Semaphore::new(WATCHES_MAX)),
    };
    let routes = routes.add_service(HealthServer::new(health));
    // Tools ask in one of two versions of the same service.
    let routes = match reflection().build_v1() {
        Ok(service) => routes.add_service(service),
        Err(error) => unreadable(routes, &error),
    };
    match reflection().build_v1alpha() {
        Ok(service) => routes.add_service(service),
        Err(error) => unreadable(routes, &error),
    }
}

/// The descriptors are compiled in, so this is a defect of the build; everything else works without reflection.
fn unreadable(routes: Routes, error: &tonic_reflection::server::Error) -> Routes {
    tracing::error!(%error, "the descriptors of the protocol cannot be read");
    routes
}

#[derive(Clone)]
struct HealthService {
    offered: Arc<[&'static str]>,
    ready: Option<Arc<dyn Ready>>,
    watches: Arc<Semaphore>,
}

impl HealthService {
    /// The status of a service, or of the process for an empty name; `None` for a service that is not offered.
    async fn status(&self, service: &str) -> Option<ServingStatus> {
        if !service.is_empty() && !self.offered.contains(&service) {
            return None;
        }
        let is_ready = match &self.ready {
            Some(ready) => ready.ready().await.is_ok(),
            None => true,
        };
        Some(match is_ready {
            true => ServingStatus::Serving,
            false => ServingStatus::NotServing,
        })
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    let status = status.into();
    HealthCheckResponse { status }
}

/// A watch between two answers.
struct Watch {
    health: HealthService,
    service: String,
    last: Option<ServingStatus>,
    _place: OwnedSemaphorePermit,
}

impl Watch {
    /// Waits until the status differs from the last one that was sent.
    async fn next(mut self) -> (Result<HealthCheckResponse, Status>, Self) {
        loop {
            let status = self.health.status(&self.service).await;
            let status = status.unwrap_or(ServingStatus::ServiceUnknown);
            if self.last != Some(status) {
                self.last = Some(status);
                return (Ok(answer(status)), self);
            }
            tokio::time::sleep(WATCH_PERIOD).await;
        }
    }
}

#[async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match self.status(&request.into_inner().service).await {
            Some(status) => Ok(Response::new(answer(status))),
            None => Err(Status::not_found(
                "this process does not offer this service",
            )),
        }
    }

    type WatchStream =
        Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send + 'static>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let place = self.watches.clone().try_acquire_owned();
        let place =
            place.map_err(|_full| Status::resource_exhausted("too many watches at once"))?;
        let watch = Watch {
            health: self.clone(),
            service: request.into_inner().service,
            last: None,
            _place: place,
        };
        let answers = stream::unfold(watch, |watch| async move { Some(watch.next().await) });
        Ok(Response::new(Box::pin(answers)))
    }
}
