//! Log lines on standard error: text for people or JSON for programs.

use std::io::{self, IsTerminal as _};

use serde::{Deserialize, Serialize};
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer as _,
    fmt::{
        MakeWriter,
        format::{JsonFields, format},
    },
    layer::SubscriberExt as _,
};

use crate::{TelemetryError, line_format::WithTraceIds};

/// The log lines of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// The lowest level that is logged, or directives such as `info,dueline_consumer=debug`.
    pub level: String,
    /// The format of log lines.
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            level: "info".into(),
            format: LogFormat::default(),
        }
    }
}

/// Checks that a log level or list of directives can be parsed.
pub fn check_log_level(level: &str) -> Result<(), TelemetryError> {
    filter(level).map(drop)
}

/// Writes the log lines of this process to standard error, with colours on a terminal unless `NO_COLOR` is set.
pub(crate) fn install(settings: &LogSettings) -> Result<(), TelemetryError> {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = io::stderr().is_terminal() && !no_color;
    let subscriber = subscriber(settings, io::stderr, colours)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| TelemetryError::AlreadySet)
}

/// The subscriber of [`crate::init`] for any writer.
pub fn subscriber<W>(
    settings: &LogSettings,
    writer: W,
    colours: bool,
) -> Result<impl Subscriber + Send + Sync + use<W>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter(&settings.level)?;
    // Otherwise a line that cannot be written would be reported on standard error, which panics when its terminal is
    // closed.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .log_internal_errors(false);
    let lines = match settings.format {
        LogFormat::Human => lines
            .with_ansi(colours)
            .event_format(WithTraceIds {
                inner: format().with_ansi(colours),
                format: settings.format,
            })
            .boxed(),
        LogFormat::Json => lines
            .with_ansi(false)
            .fmt_fields(JsonFields::new())
            .event_format(WithTraceIds {
                inner: format().json().flatten_event(true).with_ansi(false),
                format: settings.format,
            })
            .boxed(),
    };
    Ok(tracing_subscriber::registry().with(lines.with_filter(filter)))
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(directives(level)).map_err(|source| TelemetryError::Level {
        level: level.to_owned(),
        source,
    })
}

/// The effective directives. The AWS SDK searches several sources for a region and credentials and warns about each
/// source that has none. These warnings are off: a process without AWS does not need them, and the final error of a
/// process with AWS names all sources.
fn directives(level: &str) -> String {
    if level.contains("aws_config") {
        return level.to_owned();
    }
    format!("{level},aws_config::imds=off,aws_config::meta=off")
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    pub(in super::super) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(in super::super) fn writer(&self) -> impl Fn() -> Self + Send + Sync + use<> + 'static {
            let lines = self.clone();
            move || lines.clone()
        }

        pub(in super::super) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: &str, format: LogFormat) -> String {
        let lines = Lines::default();
        let writer = lines.writer();
        let level = level.into();
        let subscriber = subscriber(&LogSettings { level, format }, writer, false).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(task.id = "t1", "task started");
            tracing::debug!("a detail");
        });
        lines.text()
    }

    #[test]
    fn json_lines_have_the_message_and_its_fields() {
        let text = logged("info", LogFormat::Json);
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(line["message"], "task started");
        assert_eq!(line["task.id"], "t1");
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn human_lines_respect_the_level_and_have_no_colours_by_default() {
        let text = logged("debug", LogFormat::Human);
        assert!(
            text.contains("task started") && text.contains("a detail"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(!logged("info", LogFormat::Human).contains("a detail"));
        assert_eq!(logged("off", LogFormat::Human), "");
    }

    #[test]
    fn an_unknown_level_is_an_error() {
        let settings = LogSettings {
            level: "dueline=loud".into(),
            ..LogSettings::default()
        };
        assert!(subscriber(&settings, io::sink, false).is_err());
    }
}
