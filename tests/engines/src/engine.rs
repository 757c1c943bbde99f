//! An engine for one test, which may be treated badly.

use crate::{
    EngineName, Proxy, runtime,
    start::{self, Running},
};

/// An engine of a test's own, behind a proxy: to be frozen, killed and cut off. Dropped, it is gone.
#[derive(Debug)]
pub struct Engine {
    name: EngineName,
    /// `None` only while it restarts.
    running: Option<Running>,
    port: u16,
    proxy: Proxy,
}

impl Engine {
    /// DynamoDB by dynoxide; built at first use.
    ///
    /// # Panics
    ///
    /// As all constructors: when it cannot be started. The message says what is missing.
    pub async fn dynoxide() -> Self {
        Self::start(EngineName::Dynoxide).await
    }

    /// SQS, DynamoDB and more by ministack; installed at first use.
    pub async fn ministack() -> Self {
        Self::start(EngineName::Ministack).await
    }

    /// DynamoDB by AWS's own program for development; fetched at first use. Needs a JDK and Maven.
    pub async fn dynamodb_local() -> Self {
        Self::start(EngineName::DynamoDbLocal).await
    }

    /// SQS by ElasticMQ; fetched at first use. Needs a JDK and Maven.
    pub async fn elasticmq() -> Self {
        Self::start(EngineName::ElasticMq).await
    }

    async fn start(name: EngineName) -> Self {
        let running = started(runtime::blocking(move || start::start(name)).await);
        Self {
            name,
            port: running.port,
            proxy: Proxy::to(&running.url()),
            running: Some(running),
        }
    }

    /// Its address, through the proxy; the same after a restart.
    pub fn url(&self) -> &str {
        self.proxy.url()
    }

    /// Which one it is.
    pub fn name(&self) -> EngineName {
        self.name
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.running().process.pid()
    }

    /// What it wrote to its log, the last of it when it is long.
    pub fn log(&self) -> String {
        self.running().process.log()
    }

    /// Stops its process where it is (`SIGSTOP`): connections stay, new ones are made, nothing is answered. It has
    /// stopped when this returns.
    pub fn freeze(&self) {
        self.running().process.freeze();
    }

    /// Lets it go on; what had arrived meanwhile is answered.
    pub fn thaw(&self) {
        self.running().process.thaw();
    }

    /// Kills it (`SIGKILL`) and starts it again on the same port. What it held is gone: all engines keep it in memory.
    /// Until it answers again connections are refused.
    ///
    /// # Panics
    ///
    /// When it does not start again.
    pub async fn restart(&mut self) {
        let (name, port, running) = (self.name, self.port, self.running.take());
        self.proxy.refuse(true);
        let again = runtime::blocking(move || {
            drop(running);
            start::start_on(name, port)
        });
        self.running = Some(started(again.await));
        self.proxy.cut();
        self.proxy.refuse(false);
    }

    /// Closes all connections to it, in the middle of whatever they carry; new ones are served.
    pub async fn cut_connections(&self) {
        self.proxy.cut();
    }

    /// Refuses new connections, as if nothing listened there, or serves them again.
    pub fn refuse_connections(&self, refuse: bool) {
        self.proxy.refuse(refuse);
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("a restart has failed")
    }
}

fn started(running: Result<Running, String>) -> Running {
    running.unwrap_or_else(|why| panic!("{why}"))
}
