//! Log lines with the ids of the active span.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::LogFormat;

/// Adds `trace_id` and `span_id` to the lines of `inner` that are written within a span.
pub(crate) struct WithTraceIds<F> {
    pub(crate) inner: F,
    pub(crate) format: LogFormat,
}

impl<S, N, F> FormatEvent<S, N> for WithTraceIds<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(span) = dueline_trace::active() else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        let (trace, span) = (span.trace_id(), span.span_id());
        let line = line.trim_end();
        match self.format {
            LogFormat::Human => writeln!(writer, "{line} trace_id={trace} span_id={span}"),
            LogFormat::Json => {
                let fields = line.strip_suffix('}').unwrap_or(line);
                let ids = format_args!(r#""trace_id":"{trace}","span_id":"{span}""#);
                writeln!(writer, "{fields},{ids}}}")
            }
        }
    }
}
