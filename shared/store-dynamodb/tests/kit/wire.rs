//! The wire between a store and its engine: every call is noted, and answers can be lost, refused or made up.

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

/// What happens to a call instead of the usual.
#[derive(Clone, Debug)]
pub enum Act {
    /// The engine executes it, and the answer is lost.
    Lose,
    /// The engine never sees it: an error of this code comes back.
    Refuse(u16, &'static str),
    /// The engine never sees it: what was asked for is left undone.
    LeaveUndone,
    /// The engine never sees it: an empty page comes back, with a place where the next one begins.
    EmptyPage,
    /// The engine never sees it: none of the items is found, as if an index were behind.
    FindNothing,
    /// The engine never sees it, and nothing comes back.
    Vanish,
}

struct Fault {
    operation: &'static str,
    skip: usize,
    times: usize,
    act: Act,
}

/// A call that was made.
#[derive(Clone, Debug)]
pub struct Call {
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
struct Notes {
    calls: Vec<Call>,
    faults: Vec<Fault>,
}

/// A client's way to the engine.
#[derive(Clone)]
pub struct Wire {
    notes: Arc<Mutex<Notes>>,
    inner: SharedHttpClient,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Wire {
    /// A client whose calls go over a wire.
    pub async fn client(endpoint: &str) -> (Client, Self) {
        let wire = Self {
            notes: Arc::default(),
            inner: aws_smithy_http_client::Builder::new().build_http(),
        };
        let settings = super::aws(endpoint);
        let shared = dueline_aws::connect(Service::DynamoDb, &settings).await;
        let shared = shared.expect("a configuration");
        let config = config::Builder::from(&shared)
            .http_client(wire.clone())
            .build();
        (Client::from_conf(config), wire)
    }

    /// From now on, `times` calls of an operation go wrong.
    pub fn fault(&self, operation: &'static str, times: usize, act: Act) {
        self.fault_after(operation, 0, times, act);
    }

    /// As [`Wire::fault`], after `skip` calls of the operation that go well.
    pub fn fault_after(&self, operation: &'static str, skip: usize, times: usize, act: Act) {
        let fault = Fault {
            operation,
            skip,
            times,
            act,
        };
        self.notes.lock().unwrap().faults.push(fault);
    }

    /// Faults that have not happened yet.
    pub fn faults_left(&self) -> usize {
        self.notes
            .lock()
            .unwrap()
            .faults
            .iter()
            .map(|fault| fault.times)
            .sum()
    }

    /// Takes the calls noted so far.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.notes.lock().unwrap().calls)
    }

    fn next_act(&self, operation: &str) -> Option<Act> {
        let mut notes = self.notes.lock().unwrap();
        let of_it = |fault: &&mut Fault| fault.operation == operation && fault.times > 0;
        let fault = notes.faults.iter_mut().find(of_it)?;
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        fault.times -= 1;
        Some(fault.act.clone())
    }
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        let wire = self.clone();
        SharedHttpConnector::new(Connector { wire, inner })
    }
}

#[derive(Debug)]
struct Connector {
    wire: Wire,
    inner: SharedHttpConnector,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let asked: Value = request
            .body()
            .bytes()
            .and_then(|bytes| serde_json::from_slice(bytes).ok())
            .unwrap_or_default();
        let act = self.wire.next_act(&operation);
        let (wire, inner) = (self.wire.clone(), self.inner.clone());
        HttpConnectorFuture::new(async move {
            let made_up = match &act {
                Some(Act::Refuse(status, code)) => {
                    Some((*status, json!({"__type": code, "message": "on purpose"})))
                }
                Some(Act::LeaveUndone) => Some((200, undone(&operation, &asked))),
                Some(Act::FindNothing) => {
                    Some((200, json!({"Responses": {}, "UnprocessedKeys": {}})))
                }
                Some(Act::EmptyPage) => Some((200, empty_page(&asked))),
                Some(Act::Vanish) => return Err(lost()),
                Some(Act::Lose) | None => None,
            };
            let (status, body) = match made_up {
                Some((status, body)) => (status, body.to_string().into_bytes()),
                None => {
                    let answer = inner.call(request).await?;
                    let status = answer.status().as_u16();
                    let body = ByteStream::new(answer.into_body()).collect().await;
                    let body = body.map_err(|error| ConnectorError::io(error.into()))?;
                    (status, body.to_vec())
                }
            };
            wire.note(operation, status, &body);
            if matches!(act, Some(Act::Lose)) {
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

impl Wire {
    fn note(&self, operation: String, status: u16, body: &[u8]) {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let units = |used: &Value| used["CapacityUnits"].as_f64().unwrap_or_default();
        let used = &said["ConsumedCapacity"];
        let units = match used {
            Value::Array(all) => all.iter().map(units).sum(),
            one => units(one),
        };
        let writes = !["GetItem", "Query", "BatchGetItem", "Scan"].contains(&operation.as_str());
        self.notes.lock().unwrap().calls.push(Call {
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

fn undone(operation: &str, asked: &Value) -> Value {
    let left = &asked["RequestItems"];
    if operation == "BatchGetItem" {
        json!({"Responses": {}, "UnprocessedKeys": left})
    } else {
        json!({"UnprocessedItems": left})
    }
}

/// An empty page that ends before the first item.
fn empty_page(asked: &Value) -> Value {
    let partition = &asked["ExpressionAttributeValues"][":hash"];
    let newest_first = asked["ScanIndexForward"] == json!(false);
    let mut place = if asked["IndexName"].is_null() {
        let last = if newest_first {
            "/////////////////////w=="
        } else {
            "AA=="
        };
        json!({"pk": partition, "sk": {"B": last}})
    } else {
        json!({"pk": {"S": "t#"}, "sk": {"B": "AA=="}, "d": partition, "h": {"N": "0"}})
    };
    if let Value::Object(given) = &asked["ExclusiveStartKey"] {
        place = Value::Object(given.clone());
    }
    json!({"Items": [], "Count": 0, "ScannedCount": 0, "LastEvaluatedKey": place})
}
