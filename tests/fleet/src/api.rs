//! The REST API through whichever frontend answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_tests_end_to_end::{Answer, Client, is_final, pause, wait_until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Between two tries of a call.
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// Between two counts.
const COUNT_EVERY: Duration = Duration::from_millis(200);
/// Reads of tests that are no test of reading are tried for so long.
const READ_MAX: Duration = Duration::from_secs(60);

/// A client that repeats its calls, each time at the next frontend.
#[derive(Clone, Default)]
pub struct Api {
    clients: Vec<Client>,
    turn: Arc<AtomicUsize>,
}

/// An answer that took some calls.
#[derive(Debug)]
pub struct Insisted {
    /// The document.
    pub body: Value,
    /// Calls that had no answer, or one that said "try again".
    pub retries: usize,
}

impl Api {
    pub(crate) fn add(&mut self, client: Client) {
        self.clients.push(client);
    }

    /// A client of one frontend only.
    #[track_caller]
    pub fn at(&self, frontend: usize) -> &Client {
        &self.clients[frontend]
    }

    fn next(&self) -> &Client {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        &self.clients[turn % self.clients.len()]
    }

    /// The same call, at one frontend after the other, until there is an answer that is not "try again".
    pub async fn insist(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        bound: Duration,
    ) -> Insisted {
        let answered = self.ask(method, path, body, bound).await;
        let (answer, retries) = answered.unwrap_or_else(|why| {
            panic!("no answer to {path} in {bound:?}; at last: {why}");
        });
        Insisted {
            body: answer.good(),
            retries,
        }
    }

    /// As [`Api::insist`]; `None` when there was no such answer in time.
    pub async fn try_for(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        bound: Duration,
    ) -> Option<Insisted> {
        let (answer, retries) = self.ask(method, path, body, bound).await.ok()?;
        Some(Insisted {
            body: answer.good(),
            retries,
        })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        bound: Duration,
    ) -> Result<(Answer, usize), String> {
        let since = Instant::now();
        let mut retries = 0;
        loop {
            let why = match self.next().call(method.clone(), path, body).await {
                Ok(answer) if answer.body["retryable"] == true => answer.body.to_string(),
                Ok(answer) => return Ok((answer, retries)),
                Err(error) => format!("{error:?}"),
            };
            if since.elapsed() >= bound {
                return Err(why);
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
        self.insist(Method::PUT, &path, Some(&spec), READ_MAX).await;
    }

    /// Stores a job that does nothing.
    pub async fn put_noop(&self, job: &str, with: Value) {
        self.put_job(job, json!({"handler": {"kind": "noop"}}), with)
            .await;
    }

    /// Submits one task; answers its id.
    pub async fn submit(&self, job: &str, task: &Value) -> String {
        let path = format!("jobs/{job}/tasks");
        let submitted = self.insist(Method::POST, &path, Some(task), READ_MAX).await;
        crate::text(&submitted.body["id"])
    }

    /// Submits tasks that carry ids of their own, until each is accepted; answers how many calls and items were
    /// repeated.
    pub async fn submit_all(&self, job: &str, mut tasks: Vec<Value>, bound: Duration) -> usize {
        let path = format!("jobs/{job}/tasks:batch");
        let mut repeats = 0;
        while !tasks.is_empty() {
            let body = Value::Array(tasks);
            let answer = self.insist(Method::POST, &path, Some(&body), bound).await;
            repeats += answer.retries;
            let Value::Array(sent) = body else {
                unreachable!("it was made of tasks")
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

    /// A document.
    pub async fn get(&self, path: &str) -> Value {
        self.insist(Method::GET, path, None, READ_MAX).await.body
    }

    /// A task.
    pub async fn task(&self, job: &str, id: &str) -> Value {
        self.get(&format!("jobs/{job}/tasks/{id}")).await
    }

    /// All tasks of a job; each page comes from another frontend.
    pub async fn tasks(&self, job: &str) -> Vec<Value> {
        let mut tasks = Vec::new();
        let first = format!("jobs/{job}/tasks?limit=1000");
        let mut path = first.clone();
        loop {
            let mut page = self.get(&path).await;
            if let Some(found) = page["tasks"].as_array_mut() {
                tasks.append(found);
            }
            match page["next"].as_str() {
                Some(next) => path = format!("{first}&cursor={next}"),
                None => return tasks,
            }
        }
    }

    /// Numbers about a job.
    pub async fn stats(&self, job: &str) -> Value {
        self.get(&format!("jobs/{job}/stats")).await
    }

    /// Waits until so many tasks of a job are in this state. Counting is work for the store, so it looks rarely.
    pub async fn count(&self, job: &str, state: &str, count: usize, bound: Duration) {
        let since = Instant::now();
        loop {
            let stats = self.stats(job).await;
            if stats["by_state"][state] == count {
                return;
            }
            assert!(
                since.elapsed() < bound,
                "waited {bound:?} for {count} tasks of {job} to be {state}; at last: {stats}"
            );
            pause(COUNT_EVERY).await;
        }
    }

    /// A task once it has ended.
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
