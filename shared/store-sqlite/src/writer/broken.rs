//! Whether the file can still be written.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Why the file must not be written any more, once that is so; and whether it has no room.
#[derive(Debug, Default)]
pub(crate) struct WriteHealth {
    broken: OnceLock<Arc<str>>,
    notify: Notify,
    is_full: AtomicBool,
}

impl WriteHealth {
    /// The file must not be written any more. The first reason counts.
    pub(super) fn set_broken(&self, why: &str) {
        let _ = self.broken.set(Arc::from(why));
        self.notify.notify_waiters();
    }

    /// Why the file must not be written any more.
    pub(crate) fn broken(&self) -> Option<&Arc<str>> {
        self.broken.get()
    }

    /// Waits until the file must not be written any more.
    pub(crate) async fn wait_broken(&self) -> Arc<str> {
        loop {
            let notified = self.notify.notified();
            if let Some(why) = self.broken() {
                return why.clone();
            }
            notified.await;
        }
    }

    /// Whether a write was refused for lack of room, and [`super::Writer::try_room`] has found none since.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Logs when this changes only: while a disk is full, every write is refused.
    pub(super) fn refused_for_room(&self, why: &str) {
        if !self.is_full.swap(true, Ordering::AcqRel) {
            tracing::error!("writes are refused until there is room: {why}");
        }
    }

    /// There is room again.
    pub(crate) fn has_room(&self) {
        if self.is_full.swap(false, Ordering::AcqRel) {
            tracing::info!("there is room for writes again");
        }
    }
}

/// Reports the file as broken when the writer panics. Otherwise the store would refuse every write while the process
/// appears healthy.
pub(super) struct SetBrokenOnPanic(pub(super) Arc<WriteHealth>);

impl Drop for SetBrokenOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_broken("the writer panicked");
        }
    }
}
