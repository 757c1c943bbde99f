//! Sinks of one host: they record every delivery, and fail.

use std::time::Duration;

use async_trait::async_trait;
use dueline_domain::Sink;
use dueline_ports::{SinkFailure, SinkRecord, SinkRefused, Sinks};

use crate::{EventHistory, FaultInjector, HistoryEvent};

/// Longest time of one delivery.
const LATENCY_MAX: Duration = Duration::from_millis(200);

/// Sinks whose deliveries fail before and after they have arrived.
#[derive(Clone, Debug)]
pub struct FaultySinks {
    injector: FaultInjector,
    history: EventHistory,
}

impl FaultySinks {
    /// Sinks that record into `history`.
    pub const fn new(injector: FaultInjector, history: EventHistory) -> Self {
        Self { injector, history }
    }
}

#[async_trait]
impl Sinks for FaultySinks {
    fn check(&self, _sink: &Sink) -> Result<(), SinkRefused> {
        Ok(())
    }

    async fn deliver(
        &self,
        _sink: &Sink,
        records: Vec<SinkRecord>,
    ) -> Vec<Result<(), SinkFailure>> {
        let mut results = Vec::with_capacity(records.len());
        for record in records {
            // Between any two records, the host may be killed.
            self.injector.cross_network(LATENCY_MAX).await;
            if self.injector.has_outage() || self.injector.roll("delivery refused", 200) {
                results.push(Err(SinkFailure::new("refused")));
                continue;
            }
            self.history.record(HistoryEvent::Delivered {
                id: record.id,
                finished_at: record.finished_at,
            });
            let is_lost = self.injector.roll("answer of a delivery lost", 100);
            results.push(match is_lost {
                true => Err(SinkFailure::new("no answer")),
                false => Ok(()),
            });
        }
        self.injector.gate.wait_until_running().await;
        results
    }
}
