//! Sinks in memory.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dueline_domain::Sink;

use crate::{SinkFailure, SinkRecord, SinkRefused, Sinks};

/// Sinks that keep every record, and that can be down or hang.
#[derive(Debug, Default)]
pub struct MemorySinks(Mutex<MemorySinksState>);

#[derive(Debug, Default)]
struct MemorySinksState {
    delivered: Vec<(Sink, SinkRecord)>,
    calls: Vec<usize>,
    down: Option<Arc<str>>,
    hanging: Option<Sink>,
}

impl MemorySinks {
    fn lock(&self) -> MutexGuard<'_, MemorySinksState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every delivered record with its sink, in the order of the deliveries.
    pub fn delivered(&self) -> Vec<(Sink, SinkRecord)> {
        self.lock().delivered.clone()
    }

    /// The number of records of each delivery, also of those that failed.
    pub fn calls(&self) -> Vec<usize> {
        self.lock().calls.clone()
    }

    /// Makes all deliveries fail with this error, or succeed again.
    pub fn set_down(&self, error: Option<&str>) {
        self.lock().down = error.map(Arc::from);
    }

    /// Makes the deliveries to one sink hang.
    pub fn set_hanging(&self, sink: Option<Sink>) {
        self.lock().hanging = sink;
    }
}

#[async_trait]
impl Sinks for MemorySinks {
    fn check(&self, _sink: &Sink) -> Result<(), SinkRefused> {
        Ok(())
    }

    async fn deliver(&self, sink: &Sink, records: Vec<SinkRecord>) -> Vec<Result<(), SinkFailure>> {
        let hangs = self.lock().hanging.as_ref() == Some(sink);
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.lock();
        state.calls.push(records.len());
        if let Some(error) = &state.down {
            return vec![Err(SinkFailure(error.clone())); records.len()];
        }
        let results = vec![Ok(()); records.len()];
        let records = records.into_iter().map(|record| (sink.clone(), record));
        state.delivered.extend(records);
        results
    }
}
