//! The connection between a store and its engine: it records every call, and can lose, refuse or fake answers.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::{Client, config};
use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
        SharedHttpConnector,
    },
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::{body::SdkBody, byte_stream::ByteStream};
use dueline_aws::Service;
use serde_json::{Value, json};

/// A fault of a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The engine executes the call, and the answer is lost.
    LoseAnswer,
    /// The call does not reach the engine; the answer is an error with this code.
    Refuse(u16, &'static str),
    /// The call does not reach the engine; the answer says that nothing was processed.
    LeaveUnprocessed,
    /// The call does not reach the engine; the answer is an empty page that is not the last one.
    EmptyPage,
    /// The call does not reach the engine; the answer contains none of the items, as if the index were ahead of the
    /// table.
    FindNothing,
    /// The call does not reach the engine, and there is no answer.
    LoseCall,
}

struct PlannedFault {
    operation: &'static str,
    skip: usize,
    times: usize,
    fault: Fault,
}

/// A call that was sent.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// Such as `PutItem`.
    pub operation: String,
    /// Units that the engine reported.
    pub units: f64,
    /// Whether the answer was an error.
    pub failed: bool,
    /// Whether it writes.
    pub writes: bool,
}

#[derive(Default)]
struct ConnectionState {
    calls: Vec<RecordedCall>,
    faults: Vec<PlannedFault>,
}

/// The connection of a client to the engine.
#[derive(Clone)]
pub struct FaultyConnection {
    state: Arc<Mutex<ConnectionState>>,
    inner: SharedHttpClient,
}

impl std::fmt::Debug for FaultyConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyConnection").finish_non_exhaustive()
    }
}

impl FaultyConnection {
    /// A client with such a connection.
    pub async fn client(endpoint: &str) -> (Client, Self) {
        let connection = Self {
            state: Arc::default(),
            inner: aws_smithy_http_client::Builder::new().build_http(),
        };
        let settings = super::aws(endpoint);
        let shared = dueline_aws::connect(Service::DynamoDb, &settings).await;
        let shared = shared.expect("a configuration");
        let config = config::Builder::from(&shared)
            .http_client(connection.clone())
            .build();
        (Client::from_conf(config), connection)
    }

    /// The next `times` calls of an operation get a fault.
    pub fn fault(&self, operation: &'static str, times: usize, fault: Fault) {
        self.fault_after(operation, 0, times, fault);
    }

    /// As [`FaultyConnection::fault`], after `skip` calls of the operation without a fault.
    pub fn fault_after(&self, operation: &'static str, skip: usize, times: usize, fault: Fault) {
        let planned = PlannedFault {
            operation,
            skip,
            times,
            fault,
        };
        self.state.lock().unwrap().faults.push(planned);
    }

    /// Number of faults that have not happened yet.
    pub fn faults_left(&self) -> usize {
        self.state
            .lock()
            .unwrap()
            .faults
            .iter()
            .map(|fault| fault.times)
            .sum()
    }

    /// Takes the calls recorded so far.
    pub fn take(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    fn next_fault(&self, operation: &str) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        let applies =
            |planned: &&mut PlannedFault| planned.operation == operation && planned.times > 0;
        let planned = state.faults.iter_mut().find(applies)?;
        if planned.skip > 0 {
            planned.skip -= 1;
            return None;
        }
        planned.times -= 1;
        Some(planned.fault.clone())
    }
}

impl HttpClient for FaultyConnection {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        let connection = self.clone();
        SharedHttpConnector::new(FaultyConnector { connection, inner })
    }
}

#[derive(Debug)]
struct FaultyConnector {
    connection: FaultyConnection,
    inner: SharedHttpConnector,
}

impl HttpConnector for FaultyConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let request_body: Value = request
            .body()
            .bytes()
            .and_then(|bytes| serde_json::from_slice(bytes).ok())
            .unwrap_or_default();
        let fault = self.connection.next_fault(&operation);
        let (connection, inner) = (self.connection.clone(), self.inner.clone());
        HttpConnectorFuture::new(async move {
            let fake = match &fault {
                Some(Fault::Refuse(status, code)) => {
                    Some((*status, json!({"__type": code, "message": "on purpose"})))
                }
                Some(Fault::LeaveUnprocessed) => {
                    Some((200, unprocessed(&operation, &request_body)))
                }
                Some(Fault::FindNothing) => {
                    Some((200, json!({"Responses": {}, "UnprocessedKeys": {}})))
                }
                Some(Fault::EmptyPage) => Some((200, empty_page(&request_body))),
                Some(Fault::LoseCall) => return Err(lost()),
                Some(Fault::LoseAnswer) | None => None,
            };
            let (status, body) = match fake {
                Some((status, body)) => (status, body.to_string().into_bytes()),
                None => {
                    let answer = inner.call(request).await?;
                    let status = answer.status().as_u16();
                    let body = ByteStream::new(answer.into_body()).collect().await;
                    let body = body.map_err(|error| ConnectorError::io(error.into()))?;
                    (status, body.to_vec())
                }
            };
            connection.record(operation, status, &body);
            if matches!(fault, Some(Fault::LoseAnswer)) {
                return Err(lost());
            }
            let status = status.try_into().expect("a status");
            let mut answer = HttpResponse::new(status, SdkBody::from(body));
            answer
                .headers_mut()
                .insert("content-type", "application/x-amz-json-1.0");
            Ok(answer)
        })
    }
}

impl FaultyConnection {
    fn record(&self, operation: String, status: u16, body: &[u8]) {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let units = |used: &Value| used["CapacityUnits"].as_f64().unwrap_or_default();
        let used = &answer["ConsumedCapacity"];
        let units = match used {
            Value::Array(all) => all.iter().map(units).sum(),
            one => units(one),
        };
        let writes = !["GetItem", "Query", "BatchGetItem", "Scan"].contains(&operation.as_str());
        self.state.lock().unwrap().calls.push(RecordedCall {
            operation,
            units,
            failed: status != 200,
            writes,
        });
    }
}

fn lost() -> ConnectorError {
    let reset = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the answer is lost");
    ConnectorError::io(reset.into())
}

fn unprocessed(operation: &str, request_body: &Value) -> Value {
    let left = &request_body["RequestItems"];
    if operation == "BatchGetItem" {
        json!({"Responses": {}, "UnprocessedKeys": left})
    } else {
        json!({"UnprocessedItems": left})
    }
}

/// An empty page after which the query goes on at its first item.
fn empty_page(request_body: &Value) -> Value {
    let partition = &request_body["ExpressionAttributeValues"][":hash"];
    let newest_first = request_body["ScanIndexForward"] == json!(false);
    let mut position = if request_body["IndexName"].is_null() {
        let last = if newest_first {
            "/////////////////////w=="
        } else {
            "AA=="
        };
        json!({"pk": partition, "sk": {"B": last}})
    } else {
        json!({"pk": {"S": "t#"}, "sk": {"B": "AA=="}, "d": partition, "h": {"N": "0"}})
    };
    if let Value::Object(given) = &request_body["ExclusiveStartKey"] {
        position = Value::Object(given.clone());
    }
    json!({"Items": [], "Count": 0, "ScannedCount": 0, "LastEvaluatedKey": position})
}
