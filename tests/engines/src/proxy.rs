//! A wire that can be cut.

use std::{future, io, net::SocketAddr, sync::mpsc as answers, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};

use crate::{http, port, runtime::runtime};

/// A port that was ours a moment ago is free again at once, unless somebody took it meanwhile.
const LISTEN_AGAIN_MAX: Duration = Duration::from_secs(5);
/// Between two tries to listen again.
const LISTEN_AGAIN_EVERY: Duration = Duration::from_millis(5);

/// A TCP proxy in this process: clients talk to it, it talks to the engine, and what is between them can be cut. Dropped,
/// it cuts everything and listens no longer.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Debug)]
enum Order {
    Cut(answers::Sender<()>),
    Refuse(bool, answers::Sender<()>),
}

impl Proxy {
    /// A proxy to the `http` address of an engine, on a port of its own on loopback. Each new connection is connected
    /// when it comes: the engine need not be there yet.
    ///
    /// # Panics
    ///
    /// When `url` is no `http` address.
    pub fn to(url: &str) -> Self {
        let engine =
            http::authority(url).unwrap_or_else(|| panic!("{url} is no plain http address"));
        let listener = port::listener();
        let here = listener.local_addr().expect("a listener has an address");
        listener
            .set_nonblocking(true)
            .expect("a listener need not block");
        let (orders, received) = mpsc::unbounded_channel();
        runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            Wire {
                engine,
                here,
                listener: Some(listener),
                connections: JoinSet::new(),
            }
            .run(received)
            .await;
        });
        Self {
            url: format!("http://127.0.0.1:{}", here.port()),
            orders,
        }
    }

    /// Its address, for clients.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Closes all connections that there are now, in the middle of whatever they carry. New ones are served. They are
    /// closed when this returns.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// Refuses new connections as a machine does where nothing listens, or serves them again. Those that there are go on.
    pub fn refuse(&self, refuse: bool) {
        self.order(|done| Order::Refuse(refuse, done));
    }

    /// Waits, for microseconds and on this thread, until it is done by the other one: what follows may rely on it.
    fn order(&self, order: impl FnOnce(answers::Sender<()>) -> Order) {
        let (done, wait) = answers::channel();
        let sent = self.orders.send(order(done));
        assert!(sent.is_ok() && wait.recv().is_ok(), "the proxy has ended");
    }
}

struct Wire {
    /// Where the engine listens.
    engine: String,
    /// Where we listen.
    here: SocketAddr,
    /// `None` while connections are refused.
    listener: Option<TcpListener>,
    connections: JoinSet<()>,
}

impl Wire {
    /// Until the proxy is dropped; its end takes the connections along.
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Order::Cut(done)) => {
                        self.connections.shutdown().await;
                        // Whoever asked may have been dropped.
                        let _ = done.send(());
                    }
                    Some(Order::Refuse(refuse, done)) => {
                        self.listen(!refuse).await;
                        let _ = done.send(());
                    }
                    None => return,
                },
                Some(_) = self.connections.join_next() => {}
                client = accept(self.listener.as_ref()) => {
                    let engine = self.engine.clone();
                    self.connections.spawn(async move {
                        // An end on either side is an end.
                        let _ = carry(client, &engine).await;
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
            match TcpListener::bind(self.here).await {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => {
                    assert!(
                        since.elapsed() < LISTEN_AGAIN_MAX,
                        "failed to listen at {} again: {error}",
                        self.here
                    );
                    tokio::time::sleep(LISTEN_AGAIN_EVERY).await;
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
            // The client has gone already, or files are short: the next one may do better.
            Err(_) => tokio::time::sleep(LISTEN_AGAIN_EVERY).await,
        }
    }
}

async fn carry(mut client: TcpStream, engine: &str) -> io::Result<()> {
    let mut engine = TcpStream::connect(engine).await?;
    // Small requests and answers: waiting for more would only slow the tests down.
    client.set_nodelay(true)?;
    engine.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut engine).await?;
    Ok(())
}
