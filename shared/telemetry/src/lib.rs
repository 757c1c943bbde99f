#![doc = include_str!("../README.md")]

mod export;
mod line_format;
mod logs;
mod metrics;
mod otel_recorder;
mod plan;
mod printable;

pub use export::TelemetryGuard;
pub use logs::{LogFormat, LogSettings, check_log_level, subscriber};
pub use metrics::Metrics;
pub use plan::BadVariable;
pub use printable::{clean, clean_lines, clean_tables};

/// Why telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level cannot be parsed.
    #[error("log.level \"{level}\" is neither a level nor a list of directives")]
    Level {
        /// The value of the setting.
        level: String,
        /// The error of the parser.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logging is already set up in this process.
    #[error("logging is already set up in this process")]
    AlreadySet,
    /// A variable `OTEL_*` has a value that Dueline cannot follow.
    #[error(transparent)]
    Variable(#[from] BadVariable),
    /// The exporter cannot be built, for example because its endpoint is not a URL.
    #[error("failed to set up the export over OTLP")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
}

/// Sets up the telemetry of this process: log lines, metrics, and the export that the `OTEL_*` variables ask for. Call
/// it once, within a tokio runtime, which must live until the guard is dropped.
pub fn init(settings: &LogSettings) -> Result<(Metrics, TelemetryGuard), TelemetryError> {
    let plan = plan::ExportPlan::read(|name| std::env::var(name).ok())?;
    logs::install(settings)?;
    let (guard, meter) = export::start(plan)?;
    Ok((Metrics::install(meter), guard))
}
