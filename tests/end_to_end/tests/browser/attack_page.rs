//! The site that serves the page of the attack.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A server on loopback that answers every GET with its page. The page reports with a POST that it is done.
pub(crate) struct AttackPage {
    address: SocketAddr,
    shared: Arc<AttackPageState>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct AttackPageState {
    html: Mutex<String>,
    done: AtomicBool,
}

impl AttackPage {
    pub(crate) async fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared: Arc<AttackPageState> = Arc::default();
        let serving = shared.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, serving.clone()));
            }
        });
        Self {
            address,
            shared,
            _tasks: tasks,
        }
    }

    /// Replaces the page and resets `is_done`.
    pub(crate) fn set(&self, html: &str) {
        html.clone_into(&mut self.shared.html.lock().expect("no panic before"));
        self.shared.done.store(false, Ordering::SeqCst);
    }

    pub(crate) fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/", self.address.port())
    }

    pub(crate) fn is_done(&self) -> bool {
        self.shared.done.load(Ordering::SeqCst)
    }
}

async fn answer(mut stream: TcpStream, shared: Arc<AttackPageState>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    if request.starts_with(b"POST /done ") {
        shared.done.store(true, Ordering::SeqCst);
    }
    let html = shared.html.lock().expect("no panic before").clone();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
    let response = format!("{head}\r\nContent-Length: {}\r\n\r\n{html}", html.len());
    let _ = stream.write_all(response.as_bytes()).await;
}
