#![doc = include_str!("../README.md")]

mod span;
mod traceparent;

use std::sync::OnceLock;

use opentelemetry::{
    Context, InstrumentationScope, global,
    global::BoxedTracer,
    trace::{SpanContext, TraceContextExt as _},
};

pub use span::{Began, Step, TaskSpan, within};
pub use traceparent::is_well_formed;

/// The tracer of this process, once tracing is on.
static TRACER: OnceLock<BoxedTracer> = OnceLock::new();

/// Records spans from now on, with the global tracer provider of this moment.
pub fn switch_on() {
    TRACER.get_or_init(|| {
        let scope =
            InstrumentationScope::builder("dueline").with_version(env!("CARGO_PKG_VERSION"));
        global::tracer_with_scope(scope.build())
    });
}

/// Whether spans are recorded.
pub fn is_on() -> bool {
    TRACER.get().is_some()
}

/// The sampled span that is active in this thread, if tracing is on.
pub fn active() -> Option<SpanContext> {
    is_on()
        .then(|| Context::map_current(|context| context.span().span_context().clone()))
        .filter(SpanContext::is_sampled)
}

/// The trace context of the active span, as W3C `traceparent`.
pub fn active_traceparent() -> Option<std::sync::Arc<str>> {
    active().map(|context| traceparent::format(&context))
}
