//! Log lines on standard error: text for people or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, Layer as _, fmt::MakeWriter, layer::SubscriberExt as _};

use crate::config::{LogFormat, LogSettings};

/// Why there are no log lines.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level is none.
    #[error("log.level \"{level}\" is neither a level nor a list of directives")]
    Level {
        /// What was given.
        level: String,
        /// Why not.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// This process logs already.
    #[error("log lines are set up already in this process")]
    AlreadySet,
}

/// Keep it until the process ends: the last lines are written when it is dropped.
#[derive(Debug)]
#[must_use = "the last lines are lost when it is dropped early"]
pub struct TelemetryGuard(());

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        // Nobody is left to be told when standard error is closed.
        let _ = io::stderr().flush();
    }
}

/// Sends this process's log lines to standard error. Coloured on a terminal, unless `NO_COLOR` is set.
pub fn init(settings: &LogSettings) -> Result<TelemetryGuard, TelemetryError> {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = io::stderr().is_terminal() && !no_color;
    let subscriber = subscriber(settings, io::stderr, colours)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| TelemetryError::AlreadySet)?;
    Ok(TelemetryGuard(()))
}

/// What [`init`] sets up, for any writer.
pub fn subscriber<W>(
    settings: &LogSettings,
    writer: W,
    colours: bool,
) -> Result<impl Subscriber + Send + Sync + use<W>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(directives(&settings.level)).map_err(|source| {
        TelemetryError::Level {
            level: settings.level.clone(),
            source,
        }
    })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines = match settings.format {
        LogFormat::Human => lines.with_ansi(colours).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
    };
    Ok(tracing_subscriber::registry().with(lines.with_filter(filter)))
}

/// The directives that hold. The AWS SDK looks for a region and credentials in one place after the other and warns of
/// each that has none; whoever needs neither is not interested, and the error at the end says all of it.
fn directives(level: &str) -> String {
    if level.contains("aws_config") {
        return level.to_owned();
    }
    format!("{level},aws_config::imds=off,aws_config::meta=off")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

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
        let writer = {
            let lines = lines.clone();
            move || lines.clone()
        };
        let level = level.into();
        let subscriber = subscriber(&LogSettings { level, format }, writer, false).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(task.id = "t1", "task started");
            tracing::debug!("a detail");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
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
    fn human_lines_obey_the_level_and_carry_no_colours_unless_asked() {
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
    fn a_level_that_is_none_is_an_error() {
        let settings = LogSettings {
            level: "dueline=loud".into(),
            ..LogSettings::default()
        };
        assert!(subscriber(&settings, io::sink, false).is_err());
    }
}
