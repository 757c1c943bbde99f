//! Reads the clock of a service from the answers that it gives anyway. A refused call has a date, too.

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

/// Sees every call of one client. Calls come one after another while it looks; clones share what was seen.
#[derive(Clone)]
pub(super) struct Watch {
    clock: Arc<dyn Clock>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    asked: Option<Timestamp>,
    best: Option<ClockReading>,
    is_answered: bool,
    address: String,
}

impl Watch {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let seen = Arc::default();
        Self { clock, seen }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of `service`, by the answer that tells it best.
    pub(super) fn reading(&self, service: &str) -> Option<ClockReading> {
        let best = self.seen().best.clone()?;
        let of = service.to_owned();
        Some(ClockReading { of, ..best })
    }

    /// Where the calls went, by whatever variable or profile that was decided.
    pub(super) fn address(&self) -> String {
        self.seen().address.clone()
    }

    /// Whether anything at all has answered.
    pub(super) fn is_answered(&self) -> bool {
        self.seen().is_answered
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("seen", &*self.seen())
            .finish()
    }
}

impl Intercept for Watch {
    fn name(&self) -> &'static str {
        "clock of the service"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut seen = self.seen();
        seen.asked = Some(self.clock.now());
        context.request().uri().clone_into(&mut seen.address);
        Ok(())
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let mut seen = self.seen();
        seen.is_answered = true;
        let reading = date
            .zip(seen.asked)
            .and_then(|(date, asked)| ClockReading::of("", date, asked, self.clock.now()));
        if let Some(reading) = reading {
            let is_better = |best: &ClockReading| reading.uncertain_ms < best.uncertain_ms;
            if seen.best.as_ref().is_none_or(is_better) {
                seen.best = Some(reading);
            }
        }
        Ok(())
    }
}
