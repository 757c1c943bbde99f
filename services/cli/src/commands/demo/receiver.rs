//! A small HTTP server on the loopback interface that records the deliveries of a demo.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use bytes::Bytes;
use dueline_domain::TaskId;
use dueline_runtime::{Shutdown, TaskGroup};
use tokio::net::TcpListener;

/// The header in which the `http` handler sends the task id, so that a receiver can detect a repeated request.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The requests of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskDeliveries {
    /// Requests that were answered with status 503 on purpose.
    pub refused: u32,
    /// Bodies of the accepted requests.
    pub accepted: Vec<Bytes>,
}

/// All recorded requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    /// Requests by the task that their idempotency key names.
    pub by_task: BTreeMap<TaskId, TaskDeliveries>,
    /// Requests whose idempotency key is missing or is not a task id.
    pub unnamed: u32,
}

/// The running server.
#[derive(Debug)]
pub struct DeliveryReceiver {
    address: SocketAddr,
    shared: Arc<ReceiverState>,
}

#[derive(Debug)]
struct ReceiverState {
    refused_once: BTreeSet<TaskId>,
    deliveries: Mutex<Deliveries>,
}

impl DeliveryReceiver {
    /// Listens on a free port of the loopback interface until `shutdown` stops the work. The first request of each task
    /// in `refused_once` is answered with status 503.
    pub async fn start(
        refused_once: BTreeSet<TaskId>,
        group: &TaskGroup,
        shutdown: Shutdown,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(ReceiverState {
            refused_once,
            deliveries: Mutex::default(),
        });
        let router = Router::new()
            .route("/deliver", post(deliver))
            .layer(DefaultBodyLimit::max(
                dueline_domain::limits().payload_bytes_max,
            ))
            .with_state(shared.clone());
        let stopped = async move { shutdown.work_stopped().await };
        group.spawn("demo receiver", async move {
            axum::serve(listener, router)
                .with_graceful_shutdown(stopped)
                .await
        });
        Ok(Self { address, shared })
    }

    /// The URL for deliveries.
    pub fn url(&self) -> String {
        format!("http://{}/deliver", self.address)
    }

    /// How many requests were answered with status 503 on purpose so far.
    pub fn refused(&self) -> usize {
        let deliveries = self.shared.deliveries();
        let refused = deliveries.by_task.values().map(|task| task.refused);
        refused.sum::<u32>() as usize
    }

    /// The requests so far.
    pub fn deliveries(&self) -> Deliveries {
        self.shared.deliveries().clone()
    }
}

impl ReceiverState {
    fn deliveries(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn deliver(
    State(shared): State<Arc<ReceiverState>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let key = headers
        .get(IDEMPOTENCY_KEY)
        .and_then(|key| key.to_str().ok());
    let mut deliveries = shared.deliveries();
    let Some(id) = key.and_then(|key| TaskId::parse(key).ok()) else {
        deliveries.unnamed += 1;
        return StatusCode::BAD_REQUEST;
    };
    let task = deliveries.by_task.entry(id).or_default();
    if task.refused == 0 && task.accepted.is_empty() && shared.refused_once.contains(&id) {
        task.refused += 1;
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    task.accepted.push(body);
    StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(url: &str, key: Option<&str>) -> u16 {
        let client = crate::client::http(url, std::time::Duration::from_secs(10)).unwrap();
        let mut request = client.post(url).body("facts");
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        request.send().await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn selected_tasks_are_refused_once_and_every_accepted_request_is_recorded() {
        let (group, shutdown) = (TaskGroup::new(), Shutdown::new());
        let (plain, selected) = (TaskId::from_bytes([1; 16]), TaskId::from_bytes([2; 16]));
        let receiver = DeliveryReceiver::start([selected].into(), &group, shutdown.clone())
            .await
            .unwrap();
        let url = receiver.url();
        assert_eq!(call(&url, Some(&plain.to_string())).await, 204);
        assert_eq!(call(&url, Some(&selected.to_string())).await, 503);
        assert_eq!(call(&url, Some(&selected.to_string())).await, 204);
        assert_eq!(call(&url, None).await, 400);
        let deliveries = receiver.deliveries();
        let body = Bytes::from_static(b"facts");
        let expected = |refused| TaskDeliveries {
            refused,
            accepted: vec![body.clone()],
        };
        assert_eq!(
            deliveries.by_task,
            [(plain, expected(0)), (selected, expected(1))].into()
        );
        assert_eq!(deliveries.unnamed, 1);
        shutdown.stop_work();
        assert_eq!(group.wait().await, Ok(()));
    }
}
