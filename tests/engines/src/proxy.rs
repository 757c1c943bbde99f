//! A TCP proxy whose connections can be cut or refused.

use std::{future, io, net::SocketAddr, sync::mpsc as acks, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};

use crate::{http, port, runtime::runtime};

/// Longest wait to listen on the port again. It is free at once, unless another process has taken it meanwhile.
const LISTEN_AGAIN_MAX: Duration = Duration::from_secs(5);
/// Pause between two attempts to listen or accept.
const RETRY_EVERY: Duration = Duration::from_millis(5);

/// A TCP proxy in this process, between clients and an engine. When it is dropped, it closes all connections and stops
/// listening.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    commands: mpsc::UnboundedSender<ProxyCommand>,
}

#[derive(Debug)]
enum ProxyCommand {
    Cut(acks::Sender<()>),
    Refuse(bool, acks::Sender<()>),
}

impl Proxy {
    /// Starts a proxy to the `http` address of an engine, on its own port on loopback. It connects to the engine only
    /// when a client connects, so the engine need not be running yet.
    ///
    /// # Panics
    ///
    /// If `url` is not an `http` address.
    pub fn to(url: &str) -> Self {
        let engine =
            http::authority(url).unwrap_or_else(|| panic!("{url} is not a plain http address"));
        let listener = port::listener();
        let address = listener.local_addr().expect("a listener has an address");
        listener
            .set_nonblocking(true)
            .expect("a listener need not block");
        let (commands, received) = mpsc::unbounded_channel();
        runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            ProxyTask {
                engine,
                address,
                listener: Some(listener),
                connections: JoinSet::new(),
            }
            .run(received)
            .await;
        });
        Self {
            url: format!("http://127.0.0.1:{}", address.port()),
            commands,
        }
    }

    /// The address of the proxy, for clients.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes all present connections, even in the middle of a call. They are closed when this returns; new ones are
    /// served.
    pub fn cut(&self) {
        self.send(ProxyCommand::Cut);
    }

    /// Refuses new connections as if no process listened there, or serves them again. Existing connections continue.
    pub fn refuse(&self, refuse: bool) {
        self.send(|done| ProxyCommand::Refuse(refuse, done));
    }

    /// Sends a command and blocks, for microseconds, until it is executed, so that the caller can rely on its effect.
    fn send(&self, command: impl FnOnce(acks::Sender<()>) -> ProxyCommand) {
        let (done, wait) = acks::channel();
        let sent = self.commands.send(command(done));
        assert!(sent.is_ok() && wait.recv().is_ok(), "the proxy has ended");
    }
}

struct ProxyTask {
    /// The `host:port` of the engine.
    engine: String,
    /// The address of the proxy.
    address: SocketAddr,
    /// `None` while connections are refused.
    listener: Option<TcpListener>,
    connections: JoinSet<()>,
}

impl ProxyTask {
    /// Runs until the proxy is dropped, which also closes the connections.
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<ProxyCommand>) {
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(ProxyCommand::Cut(done)) => {
                        self.connections.shutdown().await;
                        // The caller may be gone.
                        let _ = done.send(());
                    }
                    Some(ProxyCommand::Refuse(refuse, done)) => {
                        self.listen(!refuse).await;
                        let _ = done.send(());
                    }
                    None => return,
                },
                Some(_) = self.connections.join_next() => {}
                client = accept(self.listener.as_ref()) => {
                    let engine = self.engine.clone();
                    self.connections.spawn(async move {
                        // An end or error on either side ends the connection.
                        let _ = forward(client, &engine).await;
                    });
                }
            }
        }
    }

    async fn listen(&mut self, listen: bool) {
        if !listen {
            self.listener = None;
            return;
        }
        let since = Instant::now();
        while self.listener.is_none() {
            match TcpListener::bind(self.address).await {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => {
                    assert!(
                        since.elapsed() < LISTEN_AGAIN_MAX,
                        "failed to listen at {} again: {error}",
                        self.address
                    );
                    tokio::time::sleep(RETRY_EVERY).await;
                }
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            // The client has disconnected, or file descriptors are exhausted: retry.
            Err(_) => tokio::time::sleep(RETRY_EVERY).await,
        }
    }
}

async fn forward(mut client: TcpStream, engine: &str) -> io::Result<()> {
    let mut engine = TcpStream::connect(engine).await?;
    // Requests and responses are small, and delaying them would only slow down the tests.
    client.set_nodelay(true)?;
    engine.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut engine).await?;
    Ok(())
}
