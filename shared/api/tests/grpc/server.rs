//! A server on a port of its own, which can be killed.

use std::{
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use dueline_api::grpc::{Remote, Services, proto, routes};
use dueline_runtime::{SystemClock, SystemRng};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Fails the test instead of hanging it.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, what).await;
    waited.expect("this should have happened long ago")
}

/// A server in a runtime of its own, so that killing it breaks its connections as a crash would.
pub(crate) struct TestServer {
    runtime: Option<Runtime>,
    address: SocketAddr,
}

impl TestServer {
    pub(crate) async fn start(services: Services) -> Self {
        Self::start_at(services, (Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Starts at an address that may just have been in use.
    pub(crate) async fn start_at(services: Services, address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let listener = TcpListener::bind(address).await.unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            Server::builder()
                .add_routes(routes(services, Arc::new(SystemClock), Arc::new(SystemRng)))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        let address = soon(is_ready).await.unwrap();
        let runtime = Some(runtime);
        Self { runtime, address }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn remote(&self) -> Remote {
        Remote::new(&self.uri()).unwrap()
    }

    /// A connection for the generated clients, which can send any request.
    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(self.uri()).unwrap().connect_lazy()
    }

    /// Ends it like a crash: nothing is said to anybody.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A frontend and a way to reach it by hand.
pub(crate) async fn raw_frontend(
    frontend: Arc<dyn dueline_api::Frontend>,
) -> (TestServer, proto::frontend_client::FrontendClient<Channel>) {
    let services = Services {
        frontend: Some(frontend),
        ..Services::default()
    };
    let server = TestServer::start(services).await;
    let client = proto::frontend_client::FrontendClient::new(server.channel());
    (server, client)
}
