//! Records the calls of a client: whether the service answered, where, and its clock. A refused call has a date, too.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        interceptors::{
            BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
        },
    },
    error::BoxError,
};
use dueline_domain::Timestamp;
use dueline_ports::Clock;

use super::ClockReading;

/// An interceptor that records every call of one client. The doctor makes its calls one after another. Clones share the
/// record.
#[derive(Clone)]
pub(super) struct CallRecorder {
    clock: Arc<dyn Clock>,
    record: Arc<Mutex<CallRecord>>,
}

#[derive(Debug, Default)]
struct CallRecord {
    requested_at: Option<Timestamp>,
    best: Option<ClockReading>,
    is_answered: bool,
    address: String,
}

impl CallRecorder {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let record = Arc::default();
        Self { clock, record }
    }

    fn record(&self) -> std::sync::MutexGuard<'_, CallRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of `service`, from the response with the smallest error bound.
    pub(super) fn reading(&self, service: &str) -> Option<ClockReading> {
        let best = self.record().best.clone()?;
        let source = service.to_owned();
        Some(ClockReading { source, ..best })
    }

    /// The address of the latest call, whichever setting it came from.
    pub(super) fn address(&self) -> String {
        self.record().address.clone()
    }

    /// Whether any call was answered.
    pub(super) fn is_answered(&self) -> bool {
        self.record().is_answered
    }
}

impl std::fmt::Debug for CallRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallRecorder")
            .field("record", &*self.record())
            .finish()
    }
}

impl Intercept for CallRecorder {
    fn name(&self) -> &'static str {
        "clock of the service"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut record = self.record();
        record.requested_at = Some(self.clock.now());
        context.request().uri().clone_into(&mut record.address);
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let mut record = self.record();
        record.is_answered = true;
        let reading = date
            .zip(record.requested_at)
            .and_then(|(date, requested_at)| {
                ClockReading::from_date("", date, requested_at, self.clock.now())
            });
        if let Some(reading) = reading {
            let is_better = |best: &ClockReading| reading.uncertain_ms < best.uncertain_ms;
            if record.best.as_ref().is_none_or(is_better) {
                record.best = Some(reading);
            }
        }
        Ok(())
    }
}
