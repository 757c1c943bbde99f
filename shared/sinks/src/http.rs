//! Sinks that are URLs: one POST for each record.

use std::time::Duration;

use dueline_outbound::{Url, causes, check_url};
use dueline_ports::{SinkFailure, SinkRecord, SinkRefused};
use futures_util::{StreamExt as _, stream};
use reqwest::{Client, header};

/// Longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests in flight of one delivery.
const REQUESTS_MAX: usize = 8;

/// The URLs that a deployment may call.
#[derive(Debug)]
pub(crate) struct HttpSinks {
    allow_private: bool,
    client: Result<Client, SinkFailure>,
}

impl HttpSinks {
    pub(crate) fn new(allow_private: bool) -> Self {
        let client = dueline_outbound::client(allow_private, CONNECT_TIMEOUT, true);
        let client = client.map_err(|error| {
            SinkFailure::new(format!(
                "failed to set up the HTTP client: {}",
                causes(&error)
            ))
        });
        Self {
            allow_private,
            client,
        }
    }

    /// Refuses a URL that no delivery could reach.
    pub(crate) fn check(&self, url: &str) -> Result<(), SinkRefused> {
        self.parse(url).map(drop)
    }

    fn parse(&self, url: &str) -> Result<Url, SinkRefused> {
        let url = Url::parse(url).map_err(|error| SinkRefused {
            reason: "invalid_sink",
            message: error.to_string(),
        })?;
        match check_url(&url, self.allow_private) {
            Ok(()) => Ok(url),
            Err(refusal) => Err(SinkRefused {
                reason: "target_not_allowed",
                message: refusal.to_string(),
            }),
        }
    }

    pub(crate) async fn deliver(
        &self,
        url: &str,
        records: &[SinkRecord],
    ) -> Vec<Result<(), SinkFailure>> {
        let ready = self.client.clone().and_then(|client| {
            let url = self
                .parse(url)
                .map_err(|refused| SinkFailure::new(refused.message));
            Ok((client, url?))
        });
        let (client, url) = match ready {
            Ok(ready) => ready,
            Err(failure) => return vec![Err(failure); records.len()],
        };
        let posts: Vec<_> = records
            .iter()
            .map(|record| post(&client, &url, record))
            .collect();
        stream::iter(posts).buffered(REQUESTS_MAX).collect().await
    }
}

async fn post(client: &Client, url: &Url, record: &SinkRecord) -> Result<(), SinkFailure> {
    let SinkRecord {
        job,
        id,
        finished_at,
        json,
    } = record;
    let request = client
        .post(url.clone())
        .timeout(TIMEOUT)
        .header(header::CONTENT_TYPE, "application/json")
        .header("dueline-job", job.as_str())
        .header("dueline-task-id", id.to_string())
        .header(
            "idempotency-key",
            format!("{job}/{id}/{}", finished_at.millis()),
        )
        .body(json.clone());
    match request.send().await {
        Ok(response) if response.status().is_success() => Ok(()),
        Ok(response) => Err(SinkFailure::new(format!("status {}", response.status()))),
        Err(error) => Err(SinkFailure::new(causes(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{
        Router,
        http::{HeaderMap, StatusCode},
        routing::post,
    };

    use super::*;
    use crate::tests::record;

    #[tokio::test]
    async fn f_111_each_record_is_one_post_and_only_its_success_is_a_delivery() {
        let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let log = seen.clone();
        let receive = move |headers: HeaderMap, body: String| async move {
            let key = headers["idempotency-key"].to_str().unwrap().to_owned();
            let status = match body.contains('2') {
                true => StatusCode::SERVICE_UNAVAILABLE,
                false => StatusCode::NO_CONTENT,
            };
            log.lock().unwrap().push((key, body));
            status
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/done", listener.local_addr().unwrap());
        let app = Router::new().route("/done", post(receive));
        let serving = async { axum::serve(listener, app).await.unwrap() };
        let sinks = HttpSinks::new(true);
        let records = [record(1), record(2), record(3)];
        let results = tokio::select! {
            biased;
            results = sinks.deliver(&url, &records) => results,
            () = serving => unreachable!(),
        };
        assert_eq!((&results[0], &results[2]), (&Ok(()), &Ok(())));
        let failure = results[1].clone().unwrap_err().to_string();
        assert_eq!(failure, "status 503 Service Unavailable");
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_by_key(|(_, body)| body.clone());
        assert_eq!(seen[0].1, r#"{"n":1}"#);
        let id = records[0].id;
        assert_eq!(seen[0].0, format!("mail/{id}/7000"));
    }

    #[tokio::test]
    async fn f_111_a_private_address_is_refused_unless_allowed() {
        let check = |url, allow| HttpSinks::new(allow).check(url).map_err(|it| it.reason);
        for url in [
            "http://127.0.0.1/",
            "http://169.254.169.254/x",
            "http://[::1]:80/",
        ] {
            assert_eq!(check(url, false), Err("target_not_allowed"), "{url}");
            assert_eq!(check(url, true), Ok(()));
        }
        assert_eq!(check("https://example.com/x", false), Ok(()));
        // A name is checked when it is resolved.
        let sinks = HttpSinks::new(false);
        assert_eq!(sinks.check("http://localhost:1/"), Ok(()));
        let result = sinks
            .deliver("http://localhost:1/", &[record(1)])
            .await
            .remove(0);
        let failure = result.unwrap_err().to_string();
        assert!(failure.contains("target_not_allowed"), "{failure}");
    }
}
