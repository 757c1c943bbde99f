//! A span of one step of one task.

use std::{future::poll_fn, pin::pin, sync::Arc, time::SystemTime};

use dueline_domain::{JobName, TaskId, truncate_text};
use opentelemetry::{
    Context, KeyValue, Value,
    global::BoxedTracer,
    trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _},
};

use crate::{TRACER, traceparent};

/// Most bytes of an error text in a span. The whole text is stored with the task.
const ERROR_BYTES_MAX: usize = 1_024;

/// A step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client stores the task.
    Submit,
    /// The store marks the task as enqueued.
    Enqueue,
    /// The queue is given the message.
    Send,
    /// A controller has received the message.
    Receive,
    /// A worker becomes the owner of the task.
    Claim,
    /// The handler runs.
    Run,
    /// The outcome of the run is stored.
    Outcome,
}

impl Step {
    /// The name of the step, which is `messaging.operation.name`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Enqueue => "enqueue",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Claim => "claim",
            Self::Run => "run",
            Self::Outcome => "outcome",
        }
    }

    /// The kind of span, by the semantic conventions for messaging.
    const fn kind(self) -> SpanKind {
        match self {
            Self::Submit | Self::Send => SpanKind::Producer,
            Self::Receive => SpanKind::Client,
            Self::Run => SpanKind::Consumer,
            Self::Enqueue | Self::Claim | Self::Outcome => SpanKind::Internal,
        }
    }

    /// `messaging.operation.type`, for the steps that the conventions know.
    const fn operation_type(self) -> Option<&'static str> {
        match self {
            Self::Submit => Some("create"),
            Self::Send => Some("send"),
            Self::Receive => Some("receive"),
            Self::Run => Some("process"),
            Self::Outcome => Some("settle"),
            Self::Enqueue | Self::Claim => None,
        }
    }
}

/// When a step began; empty while tracing is off.
#[derive(Clone, Copy, Debug)]
pub struct Began(Option<SystemTime>);

impl Began {
    /// A step begins now.
    pub fn now() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the times of spans are shown to people and decide nothing"
        )]
        Self(TRACER.get().map(|_| SystemTime::now()))
    }
}

/// A span of one step of one task. It ends when it is dropped.
#[derive(Debug)]
pub struct TaskSpan {
    context: Context,
}

impl TaskSpan {
    /// The span of a step after the submit, under the step whose trace context is `trace`. `None` when tracing is off
    /// or the trace is not sampled.
    pub fn start(
        step: Step,
        trace: Option<&str>,
        job: &JobName,
        task: &TaskId,
        began: Began,
    ) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent = traceparent::parse(trace?).filter(|parent| parent.is_sampled())?;
        let parent = Context::new().with_remote_span_context(parent);
        Self::build(tracer, step, &parent, job, task, began)
    }

    /// The span of a submit, under the client's trace context, or else under the active span. Without either it begins
    /// a trace. `None` when tracing is off or the sampler leaves the trace out.
    pub fn submit(trace: Option<&str>, job: &JobName, task: &TaskId, began: Began) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent = match trace.and_then(traceparent::parse) {
            Some(client) => Context::new().with_remote_span_context(client),
            None => Context::current(),
        };
        Self::build(tracer, Step::Submit, &parent, job, task, began)
    }

    fn build(
        tracer: &BoxedTracer,
        step: Step,
        parent: &Context,
        job: &JobName,
        task: &TaskId,
        began: Began,
    ) -> Option<Self> {
        let mut attributes = vec![
            KeyValue::new("messaging.system", "dueline"),
            KeyValue::new("messaging.destination.name", job.to_string()),
            KeyValue::new("messaging.message.id", task.to_string()),
            KeyValue::new("messaging.operation.name", step.name()),
        ];
        let operation_type = step.operation_type();
        attributes
            .extend(operation_type.map(|name| KeyValue::new("messaging.operation.type", name)));
        let builder = SpanBuilder {
            span_kind: Some(step.kind()),
            start_time: began.0,
            attributes: Some(attributes),
            ..SpanBuilder::from_name(format!("{} {job}", step.name()))
        };
        let span = tracer.build_with_context(builder, parent);
        let is_sampled = span.span_context().is_sampled();
        is_sampled.then(|| Self {
            context: parent.with_span(span),
        })
    }

    /// The trace context for the next step, as W3C `traceparent`.
    pub fn traceparent(&self) -> Arc<str> {
        traceparent::format(self.context.span().span_context())
    }

    /// Sets an attribute.
    pub fn set(&self, name: &'static str, value: impl Into<Value>) {
        self.context
            .span()
            .set_attribute(KeyValue::new(name, value));
    }

    /// Marks the step as failed, with a short name of the error and the beginning of its text.
    pub fn failed(&self, error_type: &str, mut text: String) {
        text.truncate(truncate_text(&text, ERROR_BYTES_MAX).len());
        self.set("error.type", error_type.to_owned());
        self.context.span().set_status(Status::error(text));
    }
}

impl Drop for TaskSpan {
    fn drop(&mut self) {
        // Clones of the context, such as that of a task spawned by a handler, must not keep the span open.
        self.context.span().end();
    }
}

/// Runs a future with `span` as the active span: parent of the spans and label of the log lines within.
pub async fn within<F: Future>(span: Option<&TaskSpan>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|task| {
        let _active = span.map(|span| span.context.clone().attach());
        future.as_mut().poll(task)
    })
    .await
}
