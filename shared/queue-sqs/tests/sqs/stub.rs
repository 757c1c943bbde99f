//! A stub server that answers as SQS does, or as the test specifies.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use dueline_queue_sqs::SqsOptions;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::support::settings_at;

type Answer = Box<dyn FnMut(&str, &Value) -> Option<(u16, Value)> + Send>;

/// The stub server; it stops when it is dropped.
pub(crate) struct Stub {
    pub(crate) url: String,
    state: Arc<StubState>,
    _serving: JoinSet<()>,
}

struct StubState {
    url: String,
    answer: Mutex<Answer>,
    calls: Mutex<Vec<(String, Value)>>,
}

impl Stub {
    /// `answer` gets the name of the operation and its input. When it returns `None`, the stub answers as an SQS in
    /// which every queue exists and is empty.
    pub(crate) async fn start(
        answer: impl FnMut(&str, &Value) -> Option<(u16, Value)> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://{address}");
        let state = Arc::new(StubState {
            url: url.clone(),
            answer: Mutex::new(Box::new(answer)),
            calls: Mutex::default(),
        });
        let app = Router::new().fallback(serve).with_state(state.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        Self {
            url,
            state,
            _serving: serving,
        }
    }

    pub(crate) fn options(&self) -> SqsOptions {
        SqsOptions {
            aws: settings_at(self.url.clone()),
            ..SqsOptions::default()
        }
    }

    /// The inputs of the calls of one operation so far.
    pub(crate) fn calls(&self, operation: &str) -> Vec<Value> {
        let calls = self.state.calls.lock().expect("no panic");
        let calls = calls.iter().filter(|(name, _)| name == operation);
        calls.map(|(_, input)| input.clone()).collect()
    }
}

/// An error in the format of SQS.
pub(crate) fn error(status: u16, code: &str) -> Option<(u16, Value)> {
    let code = format!("com.amazonaws.sqs#{code}");
    Some((
        status,
        json!({ "__type": code, "message": "requested by the test" }),
    ))
}

/// The response to a batch request in which these entries fail.
pub(crate) fn batch(input: &Value, failed: &[(&str, &str, bool)]) -> Value {
    let ids = input["Entries"].as_array().expect("entries").iter();
    let ids = ids.map(|entry| entry["Id"].as_str().expect("an id"));
    let is_failed = |id: &str| failed.iter().any(|(failed, ..)| *failed == id);
    let done = ids
        .filter(|id| !is_failed(id))
        .map(|id| json!({ "Id": id, "MessageId": "m", "MD5OfMessageBody": "" }));
    let failed = failed.iter().map(|(id, code, sender_fault)| {
        json!({ "Id": id, "Code": code, "Message": "no", "SenderFault": sender_fault })
    });
    json!({
        "Successful": done.collect::<Vec<_>>(),
        "Failed": failed.collect::<Vec<_>>(),
    })
}

async fn serve(State(state): State<Arc<StubState>>, headers: HeaderMap, body: String) -> Response {
    let target = headers.get("x-amz-target").and_then(|t| t.to_str().ok());
    let operation = target
        .and_then(|t| t.rsplit('.').next())
        .unwrap_or_default();
    let input: Value = serde_json::from_str(&body).unwrap_or_default();
    let call = (operation.to_owned(), input.clone());
    state.calls.lock().expect("no panic").push(call);
    let answer = (state.answer.lock().expect("no panic"))(operation, &input);
    let (status, output) = match answer {
        Some(answer) => answer,
        None => {
            if operation == "ReceiveMessage" {
                let wait_s = input["WaitTimeSeconds"].as_u64().unwrap_or_default();
                tokio::time::sleep(std::time::Duration::from_secs(wait_s)).await;
            }
            (200, default_response(&state.url, operation, &input))
        }
    };
    let status = StatusCode::from_u16(status).expect("a status");
    let headers = [(header::CONTENT_TYPE, "application/x-amz-json-1.0")];
    (status, headers, output.to_string()).into_response()
}

fn default_response(url: &str, operation: &str, input: &Value) -> Value {
    match operation {
        "GetQueueUrl" | "CreateQueue" => {
            let name = input["QueueName"].as_str().unwrap_or_default();
            // Engines may return another host than the endpoint's.
            json!({ "QueueUrl": format!("{}/000000000000/{name}", url.replace("127.0.0.1", "sqs.invalid")) })
        }
        "SendMessageBatch" | "DeleteMessageBatch" | "ChangeMessageVisibilityBatch" => {
            batch(input, &[])
        }
        _ => json!({}),
    }
}
