//! Log lines with the ids of the active span, and without characters that would change how a terminal shows them.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::{
    LogFormat,
    printable::{clean_json, clean_line},
};

/// Adds `trace_id` and `span_id` to the lines of `inner` that are written within a span. Errors and names in a line may come
/// from users: what is unsafe in them, a line break for example, is escaped.
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
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        let line = &*match self.format {
            LogFormat::Human => clean_line(line),
            LogFormat::Json => clean_json(line),
        };
        let Some(span) = dueline_trace::active() else {
            return writeln!(writer, "{line}");
        };
        let (trace, span) = (span.trace_id(), span.span_id());
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
