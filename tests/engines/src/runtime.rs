//! A runtime of our own, so that a test that pauses its clock or blocks its only thread does not hold up the engines.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

/// The runtime of this process for waiting on engines and for proxies.
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

/// Runs what blocks (a build, an installation) off the test's thread. While it runs, a paused clock stands still.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
