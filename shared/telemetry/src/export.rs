//! Export of spans and metrics over OTLP.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use opentelemetry::{
    global,
    metrics::{Meter, MeterProvider as _},
};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource, error::OTelSdkError, metrics::SdkMeterProvider, resource::EnvResourceDetector,
    trace::SdkTracerProvider,
};
use tonic::transport::ClientTlsConfig;

use crate::{TelemetryError, plan::ExportPlan};

/// Longest time for the last export at the end of the process.
const LAST_EXPORT_MAX: Duration = Duration::from_secs(3);

/// Exports what is left, and flushes the log, when it is dropped. Keep it until the process ends.
#[derive(Debug)]
#[must_use = "the last records are lost when it is dropped early"]
pub struct TelemetryGuard {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        let traces = self.traces.take();
        let metrics = self.metrics.take();
        warn(
            "traces",
            traces.map(|traces| traces.shutdown_with_timeout(LAST_EXPORT_MAX)),
        );
        warn(
            "metrics",
            metrics.map(|metrics| metrics.shutdown_with_timeout(LAST_EXPORT_MAX)),
        );
        // An error means that standard error is closed, so it cannot be reported.
        let _ = io::stderr().flush();
    }
}

fn warn(signal: &str, ended: Option<Result<(), OTelSdkError>>) {
    if let Some(Err(error)) = ended {
        tracing::warn!(signal, %error, "failed to export the last records");
    }
}

/// Starts what the plan asks for. Returns the meter for the metrics recorder, if metrics are exported.
pub(crate) fn start(plan: ExportPlan) -> Result<(TelemetryGuard, Option<Meter>), TelemetryError> {
    let mut guard = TelemetryGuard {
        traces: None,
        metrics: None,
    };
    if plan.traces {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_tls_config(tls())
            .build()
            .map_err(TelemetryError::Exporter)?;
        // The sampler, the limits and the batches follow their variables.
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(exporter)
            .build();
        global::set_tracer_provider(provider.clone());
        dueline_trace::switch_on();
        guard.traces = Some(provider);
    }
    if plan.metrics {
        let exporter = MetricExporter::builder()
            .with_tonic()
            .with_tls_config(tls())
            .build()
            .map_err(TelemetryError::Exporter)?;
        let provider = SdkMeterProvider::builder()
            .with_resource(resource())
            .with_periodic_exporter(exporter)
            .build();
        guard.metrics = Some(provider);
    }
    let meter = guard
        .metrics
        .as_ref()
        .map(|metrics| metrics.meter("dueline"));
    Ok((guard, meter))
}

/// The certificates of the system, for an endpoint with `https`.
fn tls() -> ClientTlsConfig {
    ClientTlsConfig::new().with_native_roots()
}

/// What describes this process. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override the defaults: the name of
/// the program and its version.
fn resource() -> Resource {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_stem());
    let program = program.map_or("dueline".into(), |name| name.to_string_lossy().into_owned());
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let mut resource = Resource::builder_empty()
        .with_service_name(program)
        .with_attribute(version);
    if std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty()) {
        let name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_default();
        resource = resource.with_service_name(name);
    }
    resource
        .with_detector(Box::new(EnvResourceDetector::new()))
        .build()
}
