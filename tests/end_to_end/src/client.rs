//! A client of the REST API.

use std::{sync::Once, time::Duration};

use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

use crate::{pause, wait_until};

/// A call that takes longer has failed.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Pause between two tries of a call.
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// An answer of the REST API.
#[derive(Clone, Debug)]
pub struct RestAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The JSON document; null when there was none.
    pub body: Value,
    /// The `Retry-After` header in seconds, if there was one.
    pub retry_after_s: Option<u64>,
}

impl RestAnswer {
    /// The document of the answer. Panics when the status is not a success.
    #[track_caller]
    pub fn expect_success(self) -> Value {
        assert!(
            matches!(self.status, 200..=299),
            "answered {}: {}",
            self.status,
            self.body
        );
        self.body
    }
}

/// A REST client of one server, with its own connections.
#[derive(Clone)]
pub struct RestClient {
    http: reqwest::Client,
    url: String,
}

async fn answer(request: reqwest::RequestBuilder) -> Result<RestAnswer, reqwest::Error> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    let retry_after_s = response.headers().get("retry-after");
    let retry_after_s = retry_after_s.and_then(|value| value.to_str().ok()?.parse().ok());
    let bytes = response.bytes().await?;
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Ok(RestAnswer {
        status,
        body,
        retry_after_s,
    })
}

impl RestClient {
    /// A client of the server at `url`.
    pub fn new(url: &str) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let provider = rustls::crypto::ring::default_provider();
            provider.install_default().expect("no provider before");
        });
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(CALL_MAX)
            .build()
            .expect("an HTTP client");
        Self {
            http,
            url: url.to_owned(),
        }
    }

    /// One call, without retries.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<RestAnswer, reqwest::Error> {
        let mut request = self.http.request(method, format!("{}/v1/{path}", self.url));
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request).await
    }

    /// Status and text of a page outside the API, such as `healthz`.
    pub async fn page(&self, path: &str) -> Result<(u16, String), reqwest::Error> {
        let response = self.http.get(format!("{}/{path}", self.url)).send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    /// The URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A POST to a server that must answer.
    pub async fn post(&self, path: &str, body: &Value) -> RestAnswer {
        let answer = self.call(Method::POST, path, Some(body)).await;
        answer.unwrap_or_else(|error| panic!("failed to post to {path}: {error:?}"))
    }

    /// As [`RestClient::post`], with further headers.
    pub async fn post_with(
        &self,
        path: &str,
        body: &Value,
        headers: &[(&'static str, &str)],
    ) -> RestAnswer {
        let request = self.http.post(format!("{}/v1/{path}", self.url)).json(body);
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let answer = answer(request).await;
        answer.unwrap_or_else(|error| panic!("failed to post to {path}: {error:?}"))
    }

    /// A PUT to a server that must answer.
    pub async fn put(&self, path: &str, body: &Value) -> RestAnswer {
        let answer = self.call(Method::PUT, path, Some(body)).await;
        answer.unwrap_or_else(|error| panic!("failed to put {path}: {error:?}"))
    }

    /// A GET from a server that must answer.
    pub async fn get(&self, path: &str) -> RestAnswer {
        let answer = self.call(Method::GET, path, None).await;
        answer.unwrap_or_else(|error| panic!("failed to get {path}: {error:?}"))
    }

    /// Stores a job; `with` is merged into its definition.
    pub async fn put_job(&self, job: &str, mut spec: Value, with: Value) {
        if let (Some(spec), Value::Object(with)) = (spec.as_object_mut(), with) {
            spec.extend(with);
        }
        let path = format!("jobs/{job}");
        let answer = self.call(Method::PUT, &path, Some(&spec)).await;
        answer.expect("a server that answers").expect_success();
    }

    /// Submits a task and returns its id.
    pub async fn submit(&self, job: &str, task: Value) -> String {
        let submitted = self
            .post(&format!("jobs/{job}/tasks"), &task)
            .await
            .expect_success();
        text(&submitted["id"])
    }

    /// Repeats a POST until it is answered without a retryable error. Returns the document and the number of retries.
    pub async fn call_until_answered(
        &self,
        path: &str,
        body: &Value,
        bound: Duration,
    ) -> (Value, u32) {
        let since = Instant::now();
        let mut retries = 0;
        loop {
            let error = match self.call(Method::POST, path, Some(body)).await {
                Ok(answer) if answer.status < 300 => return (answer.body, retries),
                Ok(answer) if answer.body["retryable"] == true => answer.body.to_string(),
                Ok(answer) => panic!("{path} was refused with {}: {}", answer.status, answer.body),
                Err(error) => format!("{error:?}"),
            };
            assert!(
                since.elapsed() < bound,
                "no answer to {path} in {bound:?}; last error: {error}"
            );
            retries += 1;
            pause(RETRY_EVERY).await;
        }
    }

    /// Reads a task.
    pub async fn task(&self, job: &str, id: &str) -> Value {
        self.get(&format!("jobs/{job}/tasks/{id}"))
            .await
            .expect_success()
    }

    /// Waits until a task is in this state and returns the task.
    pub async fn in_state(&self, job: &str, id: &str, state: &str, bound: Duration) -> Value {
        wait_until(&format!("{job}/{id} {state}"), bound, async || {
            let task = self.task(job, id).await;
            if task["state"] == state {
                Ok(task)
            } else {
                Err(task.to_string())
            }
        })
        .await
    }

    /// Waits until a task has ended and returns the task.
    pub async fn finished(&self, job: &str, id: &str, bound: Duration) -> Value {
        wait_until(&format!("the end of {job}/{id}"), bound, async || {
            let task = self.task(job, id).await;
            if is_final(&task) {
                Ok(task)
            } else {
                Err(task.to_string())
            }
        })
        .await
    }

    /// All tasks of a job.
    pub async fn tasks(&self, job: &str) -> Vec<Value> {
        let mut tasks = Vec::new();
        let mut path = format!("jobs/{job}/tasks?limit=1000");
        loop {
            let mut page = self.get(&path).await.expect_success();
            if let Some(page_tasks) = page["tasks"].as_array_mut() {
                tasks.append(page_tasks);
            }
            match page["next"].as_str() {
                Some(next) => path = format!("jobs/{job}/tasks?limit=1000&cursor={next}"),
                None => return tasks,
            }
        }
    }

    /// The statistics of a job.
    pub async fn stats(&self, job: &str) -> Value {
        self.get(&format!("jobs/{job}/stats"))
            .await
            .expect_success()
    }

    /// The ids of the registered workers with this name.
    pub async fn workers(&self, name: &str) -> Vec<String> {
        let answer = self.get("workers").await.expect_success();
        let workers = answer["workers"].as_array().cloned().unwrap_or_default();
        let ids = workers.iter().map(|worker| text(&worker["id"]));
        ids.filter(|id| id.starts_with(&format!("{name}@")))
            .collect()
    }
}

/// Whether a task has ended.
pub fn is_final(task: &Value) -> bool {
    let state = task["state"].as_str().unwrap_or_default();
    ["succeeded", "failed", "cancelled", "trashed", "dropped"].contains(&state)
}

/// A random task id.
pub fn new_id(rng: &mut fastrand::Rng) -> String {
    let bytes = rng.u128(..).to_be_bytes();
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}
