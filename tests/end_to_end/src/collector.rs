//! An OpenTelemetry collector that keeps what it receives over OTLP.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{KeyValue, any_value::Value},
    metrics::v1::{metric::Data, number_data_point},
    resource::v1::Resource,
};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, transport::Server};

use crate::wait_until;

/// A span as a collector sees it.
#[derive(Clone, Debug)]
pub struct CollectedSpan {
    /// The service that recorded it.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Its trace, in hexadecimal.
    pub trace_id: String,
    /// Its id, in hexadecimal.
    pub id: String,
    /// The id of its parent; empty for a root.
    pub parent_id: String,
    /// When it began and ended, in nanoseconds.
    pub times: (u64, u64),
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
}

#[derive(Default)]
struct Records {
    spans: Vec<CollectedSpan>,
    /// The latest sums by service and name.
    sums: BTreeMap<(String, String), i64>,
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Records>>);

/// A collector on a port of this machine.
pub struct Collector {
    url: String,
    sink: Sink,
    _server: JoinSet<()>,
}

impl Collector {
    /// Starts a collector.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let sink = Sink::default();
        let server = Server::builder()
            .add_service(TraceServiceServer::new(sink.clone()))
            .add_service(MetricsServiceServer::new(sink.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.await.expect("a server") });
        Self {
            url,
            sink,
            _server: tasks,
        }
    }

    /// The value of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The spans of a trace that have come so far, in the order of their beginning.
    pub fn trace(&self, trace_id: &str) -> Vec<CollectedSpan> {
        let spans = &self.sink.records().spans;
        let of_trace = spans.iter().filter(|span| span.trace_id == trace_id);
        let mut spans: Vec<_> = of_trace.cloned().collect();
        spans.sort_by_key(|span| span.times);
        spans
    }

    /// All spans that have come so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.sink.records().spans.clone()
    }

    /// Waits until a span with this name has come for a task, and returns all spans of its trace.
    pub async fn trace_with(&self, name: &str, task: &str, bound: Duration) -> Vec<CollectedSpan> {
        wait_until(&format!("span '{name}' of {task}"), bound, async || {
            let spans = self.spans();
            let is_it = |span: &&CollectedSpan| {
                let id = span.attributes.get("messaging.message.id");
                span.name == name && id.is_some_and(|id| id == task)
            };
            match spans.iter().find(is_it) {
                Some(span) => Ok(self.trace(&span.trace_id)),
                None => Err(format!("{spans:#?}")),
            }
        })
        .await
    }

    /// The latest value of a counter of a service.
    pub fn counter(&self, service: &str, name: &str) -> Option<i64> {
        let key = (service.to_owned(), name.to_owned());
        self.sink.records().sums.get(&key).copied()
    }
}

impl Sink {
    fn records(&self) -> std::sync::MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |pair: KeyValue| {
        let value = match pair.value?.value? {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            Value::BoolValue(flag) => flag.to_string(),
            other => format!("{other:?}"),
        };
        Some((pair.key, value))
    };
    list.into_iter().filter_map(text).collect()
}

fn service(resource: Option<Resource>) -> String {
    let mut attributes = attributes(resource.unwrap_or_default().attributes);
    attributes.remove("service.name").unwrap_or_default()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tonic::async_trait]
impl TraceService for Sink {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for group in request.into_inner().resource_spans {
            let service = service(group.resource);
            let spans = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let spans = spans.map(|span| CollectedSpan {
                service: service.clone(),
                name: span.name,
                trace_id: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent_id: hex(&span.parent_span_id),
                times: (span.start_time_unix_nano, span.end_time_unix_nano),
                attributes: attributes(span.attributes),
            });
            self.records().spans.extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Sink {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        for group in request.into_inner().resource_metrics {
            let service = service(group.resource);
            for metric in group
                .scope_metrics
                .into_iter()
                .flat_map(|scope| scope.metrics)
            {
                let key = (service.clone(), metric.name);
                if let Some(Data::Sum(sum)) = metric.data {
                    let values = sum.data_points.iter().map(|point| match point.value {
                        Some(number_data_point::Value::AsInt(value)) => value,
                        _ => 0,
                    });
                    self.records().sums.insert(key, values.sum());
                }
            }
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
