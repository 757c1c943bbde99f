//! A lock on the machine: tests that measure times run alone, all others run at the same time.

use std::sync::OnceLock;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lock on the machine, held while a test runs.
#[derive(Debug)]
pub enum MachineLock {
    /// No other test runs.
    Exclusive {
        /// Unlocks the machine when it is dropped.
        _guard: RwLockWriteGuard<'static, ()>,
    },
    /// Other tests may run.
    Shared {
        /// Unlocks the machine when it is dropped.
        _guard: RwLockReadGuard<'static, ()>,
    },
}

fn lock() -> &'static RwLock<()> {
    static LOCK: OnceLock<RwLock<()>> = OnceLock::new();
    LOCK.get_or_init(RwLock::default)
}

/// Waits until no other test of this binary runs.
pub async fn exclusive_machine() -> MachineLock {
    MachineLock::Exclusive {
        _guard: lock().write().await,
    }
}

/// Waits until no test with an exclusive lock runs in this binary.
pub async fn shared_machine() -> MachineLock {
    MachineLock::Shared {
        _guard: lock().read().await,
    }
}
