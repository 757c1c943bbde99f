//! A separate runtime, so that a test that pauses its clock or blocks its only thread does not block the engines.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

/// The runtime of this process for engines and proxies.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("engines")
            .enable_all()
            .build()
            .expect("a runtime for the engines")
    })
}

/// Runs blocking work (a build, an installation) off the test's thread. Paused time does not advance meanwhile.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
