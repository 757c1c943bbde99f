//! What an operation knows about the call that asks for it.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

/// The context of one call: the first argument of each operation of a service.
///
/// The edge of a process makes it from the headers of REST or the metadata of gRPC, and a client of a service on another
/// host passes it on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The caller, as it names itself.
    pub principal: Option<Arc<str>>,
    /// When the caller stops waiting for the answer.
    pub deadline: Option<Instant>,
    /// W3C trace context.
    pub trace: Option<Arc<str>>,
    /// Names the call in answers and logs.
    pub request_id: Option<Arc<str>>,
}

impl Call {
    /// Header and metadata key of [`Self::principal`].
    pub const PRINCIPAL: &str = "dueline-caller";
    /// Header and metadata key of [`Self::trace`].
    pub const TRACE: &str = "traceparent";
    /// Header and metadata key of [`Self::request_id`].
    pub const REQUEST_ID: &str = "x-request-id";

    /// A call of `principal` without a deadline.
    pub fn by(principal: impl Into<Arc<str>>) -> Self {
        Self {
            principal: Some(principal.into()),
            ..Self::default()
        }
    }

    /// How long the caller still waits; `None` for a caller without a deadline.
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }
}
