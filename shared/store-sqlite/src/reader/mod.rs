//! The readers: threads with connections of their own, so that a long list does not delay a write.

mod due;
mod families;
mod lanes;
mod list;
mod list_due;
mod schedules;
mod tasks;

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use dueline_ports::StoreError;
use rusqlite::Connection;
use tokio::sync::oneshot;

pub(crate) use self::{
    due::due,
    families::{edges, open_children},
    lanes::lanes,
    list::{list, parse_cursor},
    list_due::{list_due, parse_cursor as parse_due_cursor},
    schedules::{due_schedules, schedule, schedules},
    tasks::{get, owned, ready, stats, workers},
};
use crate::error::{closed, read_error};

/// Most reads that wait for a reader; further ones are throttled.
const READS_WAITING_MAX: usize = 4_096;

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// Sends reads to the readers.
#[derive(Clone)]
pub(crate) struct ReaderHandle {
    reads: mpsc::SyncSender<Read>,
}

impl ReaderHandle {
    /// Runs a read on one of the readers and waits for its result.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let read: Read = Box::new(move |db| {
            // A read whose caller was cancelled is skipped.
            if !reply.is_closed() {
                drop(reply.send(read(db)));
            }
        });
        match self.reads.try_send(read) {
            Ok(()) => {}
            Err(mpsc::TrySendError::Full(_)) => return Err(StoreError::Throttled),
            Err(mpsc::TrySendError::Disconnected(_)) => return Err(closed()),
        }
        let result = answer.await.map_err(|_| closed())?;
        result.map_err(|error| read_error(&error))
    }
}

/// Starts one thread for each connection.
pub(crate) fn start(
    connections: Vec<Connection>,
) -> std::io::Result<(ReaderHandle, Vec<JoinHandle<()>>)> {
    let (reads, waiting) = mpsc::sync_channel::<Read>(READS_WAITING_MAX);
    let waiting = Arc::new(Mutex::new(waiting));
    let threads = connections
        .into_iter()
        .map(|db| {
            let waiting = waiting.clone();
            std::thread::Builder::new()
                .name("dueline-reader".into())
                .spawn(move || {
                    loop {
                        let next = waiting
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .recv();
                        let Ok(read) = next else {
                            return;
                        };
                        // The caller of a read that panics gets an error; the reader serves the next one.
                        let read = std::panic::AssertUnwindSafe(|| read(&db));
                        if std::panic::catch_unwind(read).is_err() {
                            tracing::error!("a read panicked");
                        }
                    }
                })
        })
        .collect::<std::io::Result<_>>()?;
    Ok((ReaderHandle { reads }, threads))
}
