//! The traffic between the browser and the server.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A proxy in front of the server that keeps a copy of all bytes.
pub(crate) struct RecordingProxy {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<u8>>>,
    answered: Arc<Mutex<Vec<u8>>>,
    tasks: JoinSet<()>,
}

/// Recorded requests and answers, as text.
pub(crate) struct RecordedTraffic {
    pub(crate) requests: String,
    pub(crate) answers: String,
}

impl RecordingProxy {
    pub(crate) async fn to(server: &str) -> Self {
        let server: SocketAddr = server
            .trim_start_matches("http://")
            .parse()
            .expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut recorder = Self {
            address: listener.local_addr().expect("an address"),
            sent: Arc::default(),
            answered: Arc::default(),
            tasks: JoinSet::new(),
        };
        let (sent, answered) = (recorder.sent.clone(), recorder.answered.clone());
        recorder.tasks.spawn(async move {
            let mut copies = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let upstream = TcpStream::connect(server)
                    .await
                    .expect("the server listens");
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = upstream.into_split();
                copies.spawn(copy(from_client, to_server, sent.clone()));
                copies.spawn(copy(from_server, to_client, answered.clone()));
            }
        });
        recorder
    }

    pub(crate) fn url(&self) -> String {
        self.url_as("127.0.0.1")
    }

    pub(crate) fn url_as(&self, host: &str) -> String {
        format!("http://{host}:{}", self.address.port())
    }

    /// The traffic since the previous call.
    pub(crate) fn take(&self) -> RecordedTraffic {
        let take = |bytes: &Mutex<Vec<u8>>| {
            let bytes = std::mem::take(&mut *bytes.lock().expect("no panic before"));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        RecordedTraffic {
            requests: take(&self.sent),
            answers: take(&self.answered),
        }
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    record: Arc<Mutex<Vec<u8>>>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        record
            .lock()
            .expect("no panic before")
            .extend_from_slice(&buffer[..read]);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}
