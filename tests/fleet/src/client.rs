//! A client of all frontends of a fleet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_tests_end_to_end::{RestAnswer, RestClient, is_final, pause, wait_until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Pause between two tries of a call.
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// Pause between two reads of statistics.
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// Calls that are not themselves under test are retried for this long.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A client that sends each call to the next frontend, and repeats calls that fail.
#[derive(Clone, Default)]
pub struct FleetClient {
    clients: Vec<RestClient>,
    turn: Arc<AtomicUsize>,
}

/// An answer, with the number of calls that it took.
#[derive(Debug)]
pub struct RetriedAnswer {
    /// The JSON document.
    pub body: Value,
    /// Calls without an answer, or with a retryable error.
    pub retries: usize,
}

impl FleetClient {
    pub(crate) fn add(&mut self, client: RestClient) {
        self.clients.push(client);
    }

    /// The client of one frontend.
    #[track_caller]
    pub fn at(&self, frontend: usize) -> &RestClient {
        &self.clients[frontend]
    }

    fn next(&self) -> &RestClient {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.clients[turn % self.clients.len()]
    }

    /// Repeats a call at one frontend after another until it is answered without a retryable error.
    pub async fn call_until_answered(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        bound: Duration,
    ) -> RetriedAnswer {
        let answered = self.call_with_retries(method, path, body, bound).await;
        let (answer, retries) = answered.unwrap_or_else(|error| {
            panic!("no answer to {path} in {bound:?}; last error: {error}");
        });
        RetriedAnswer {
            body: answer.expect_success(),
            retries,
        }
    }

    /// Like [`FleetClient::call_until_answered`], but returns `None` when there was no such answer in time.
    pub async fn try_for(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        bound: Duration,
    ) -> Option<RetriedAnswer> {
        let (answer, retries) = self
            .call_with_retries(method, path, body, bound)
            .await
            .ok()?;
        Some(RetriedAnswer {
            body: answer.expect_success(),
            retries,
        })
    }

    async fn call_with_retries(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        bound: Duration,
    ) -> Result<(RestAnswer, usize), String> {
        let since = Instant::now();
        let mut retries = 0;
        loop {
            let error = match self.next().call(method.clone(), path, body).await {
                Ok(answer) if answer.body["retryable"] == true => answer.body.to_string(),
                Ok(answer) => return Ok((answer, retries)),
                Err(error) => format!("{error:?}"),
            };
            if since.elapsed() >= bound {
                return Err(error);
            }
            retries += 1;
            pause(RETRY_EVERY).await;
        }
    }

    /// Stores a job; `with` is merged into its definition.
    pub async fn put_job(&self, job: &str, mut spec: Value, with: Value) {
        if let (Some(spec), Value::Object(with)) = (spec.as_object_mut(), with) {
            spec.extend(with);
        }
        let path = format!("jobs/{job}");
        self.call_until_answered(Method::PUT, &path, Some(&spec), RETRY_MAX)
            .await;
    }

    /// Stores a job whose handler does nothing.
    pub async fn put_noop(&self, job: &str, with: Value) {
        self.put_job(job, json!({"handler": {"kind": "noop"}}), with)
            .await;
    }

    /// Submits one task and returns its id.
    pub async fn submit(&self, job: &str, task: &Value) -> String {
        let path = format!("jobs/{job}/tasks");
        let submitted = self
            .call_until_answered(Method::POST, &path, Some(task), RETRY_MAX)
            .await;
        crate::text(&submitted.body["id"])
    }

    /// Submits tasks, which carry their ids, until each is accepted. Returns the number of repeated calls and items.
    pub async fn submit_all(&self, job: &str, mut tasks: Vec<Value>, bound: Duration) -> usize {
        let path = format!("jobs/{job}/tasks:batch");
        let mut repeats = 0;
        while !tasks.is_empty() {
            let body = Value::Array(tasks);
            let answer = self
                .call_until_answered(Method::POST, &path, Some(&body), bound)
                .await;
            repeats += answer.retries;
            let Value::Array(sent) = body else {
                unreachable!("the body is an array of tasks")
            };
            let results = answer.body["results"].as_array().cloned();
            let results = results.unwrap_or_default();
            assert_eq!(results.len(), sent.len(), "{}", answer.body);
            tasks = Vec::new();
            for (task, result) in sent.into_iter().zip(results) {
                if result["error"].is_null() {
                    assert!(
                        task["id"].is_null() || result["id"] == task["id"],
                        "{result}"
                    );
                } else {
                    assert_eq!(result["error"]["retryable"], true, "{result}");
                    tasks.push(task);
                    repeats += 1;
                }
            }
        }
        repeats
    }

    /// Reads a document.
    pub async fn get(&self, path: &str) -> Value {
        self.call_until_answered(Method::GET, path, None, RETRY_MAX)
            .await
            .body
    }

    /// Reads a task.
    pub async fn task(&self, job: &str, id: &str) -> Value {
        self.get(&format!("jobs/{job}/tasks/{id}")).await
    }

    /// All tasks of a job. Each page comes from the next frontend.
    pub async fn tasks(&self, job: &str) -> Vec<Value> {
        let mut tasks = Vec::new();
        let first = format!("jobs/{job}/tasks?limit=1000");
        let mut path = first.clone();
        loop {
            let mut page = self.get(&path).await;
            if let Some(page_tasks) = page["tasks"].as_array_mut() {
                tasks.append(page_tasks);
            }
            match page["next"].as_str() {
                Some(next) => path = format!("{first}&cursor={next}"),
                None => return tasks,
            }
        }
    }

    /// The statistics of a job.
    pub async fn stats(&self, job: &str) -> Value {
        self.get(&format!("jobs/{job}/stats")).await
    }

    /// Waits until `count` tasks of a job are in this state. Reads are rare: counting is expensive for the store.
    pub async fn count(&self, job: &str, state: &str, count: usize, bound: Duration) {
        let since = Instant::now();
        loop {
            let stats = self.stats(job).await;
            if stats["by_state"][state] == count {
                return;
            }
            assert!(
                since.elapsed() < bound,
                "waited {bound:?} for {count} tasks of {job} to be {state}; last read: {stats}"
            );
            pause(COUNT_EVERY).await;
        }
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
}
