//! Tests that measure times run alone; the others share the machine.

use std::sync::OnceLock;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Held for as long as a test runs.
#[derive(Debug)]
pub enum Turn {
    /// No other test runs.
    Alone {
        /// What says so.
        _guard: RwLockWriteGuard<'static, ()>,
    },
    /// Others may run.
    WithOthers {
        /// What says so.
        _guard: RwLockReadGuard<'static, ()>,
    },
}

fn lock() -> &'static RwLock<()> {
    static LOCK: OnceLock<RwLock<()>> = OnceLock::new();
    LOCK.get_or_init(RwLock::default)
}

/// Waits until no other test of this program runs.
pub async fn alone() -> Turn {
    Turn::Alone {
        _guard: lock().write().await,
    }
}

/// Waits until no test of this program runs that has to run alone.
pub async fn with_others() -> Turn {
    Turn::WithOthers {
        _guard: lock().read().await,
    }
}
