//! An engine for one test, with fault injection.

use crate::{
    EngineName, Proxy, runtime,
    start::{self, RunningEngine},
};

/// An engine of a single test, behind a proxy: it can be frozen, restarted and disconnected. It ends when dropped.
#[derive(Debug)]
pub struct Engine {
    name: EngineName,
    /// `None` only during a restart.
    running: Option<RunningEngine>,
    port: u16,
    proxy: Proxy,
}

impl Engine {
    /// DynamoDB by dynoxide; built at first use.
    ///
    /// # Panics
    ///
    /// Like all constructors, if the engine cannot be started. The message names what is missing.
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

    /// The address of the engine, through the proxy; a restart does not change it.
    pub fn url(&self) -> &str {
        self.proxy.url()
    }

    /// The name of the engine.
    pub fn name(&self) -> EngineName {
        self.name
    }

    /// The process id of the engine.
    pub fn pid(&self) -> u32 {
        self.running().process.pid()
    }

    /// The end of the engine's log.
    pub fn log(&self) -> String {
        self.running().process.log()
    }

    /// Stops the process (`SIGSTOP`): connections stay open, new ones are accepted, requests are not answered. The
    /// process has stopped when this returns.
    pub fn freeze(&self) {
        self.running().process.freeze();
    }

    /// Continues the process, which then answers the requests that arrived meanwhile.
    pub fn thaw(&self) {
        self.running().process.thaw();
    }

    /// Kills the process (`SIGKILL`) and starts it again on the same port. Its data is lost, because all engines keep
    /// it in memory. Connections are refused until it answers again.
    ///
    /// # Panics
    ///
    /// If the engine does not start again.
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

    /// Closes all connections to the engine, even in the middle of a call; new ones are served.
    pub async fn cut_connections(&self) {
        self.proxy.cut();
    }

    /// Refuses new connections as if no process listened there, or serves them again.
    pub fn refuse_connections(&self, refuse: bool) {
        self.proxy.refuse(refuse);
    }

    fn running(&self) -> &RunningEngine {
        self.running.as_ref().expect("a restart has failed")
    }
}

fn started(running: Result<RunningEngine, String>) -> RunningEngine {
    running.unwrap_or_else(|why| panic!("{why}"))
}
