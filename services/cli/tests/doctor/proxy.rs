//! A proxy in front of an engine. It forwards or denies requests, and can set a wrong `Date` header.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use tokio::{net::TcpListener, task::JoinSet};

/// A server, stopped when this value is dropped.
pub(crate) struct TestServer {
    pub(crate) url: String,
    _serving: JoinSet<()>,
}

struct ProxyState {
    engine: String,
    denied: Vec<&'static str>,
    date: Option<String>,
    http: reqwest::Client,
}

/// A proxy in front of `engine`. It denies requests whose `X-Amz-Target` ends with one of `denied`, and sets the `Date`
/// header of all responses to `date` if there is one.
pub(crate) async fn proxy(
    engine: &str,
    denied: &[&'static str],
    date: Option<String>,
) -> TestServer {
    // This fails only when another test installed a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().tls_certs_only([]).no_proxy();
    let state = ProxyState {
        engine: engine.to_owned(),
        denied: denied.to_vec(),
        date,
        http: http.build().expect("a client"),
    };
    serve(Router::new().fallback(forward).with_state(Arc::new(state))).await
}

/// Serves `app` on a free port.
pub(crate) async fn serve(app: Router) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, app).await.expect("it serves") });
    TestServer {
        url: format!("http://{address}"),
        _serving: serving,
    }
}

/// The time in `seconds` from now, as a `Date` header.
pub(crate) fn date_in(seconds: u64) -> String {
    use dueline_ports::Clock as _;
    let now_ms = dueline_runtime::SystemClock.now().millis().unsigned_abs();
    let then = std::time::UNIX_EPOCH + Duration::from_millis(now_ms) + Duration::from_secs(seconds);
    httpdate::fmt_http_date(then)
}

async fn forward(
    State(state): State<Arc<ProxyState>>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let target = headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok());
    let target = target.unwrap_or_default().to_owned();
    if state
        .denied
        .iter()
        .any(|denied| target.ends_with(&format!(".{denied}")))
    {
        let kind = [(header::CONTENT_TYPE, "application/x-amz-json-1.0")];
        let message = format!("User: doctor is not authorized to perform: {target}");
        let body = serde_json::json!({ "__type": "AccessDeniedException", "message": message });
        return (StatusCode::BAD_REQUEST, kind, body.to_string()).into_response();
    }
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = state
        .http
        .request(method, format!("{}{path}", state.engine));
    let response = request
        .headers(headers)
        .body(body)
        .send()
        .await
        .expect("a response");
    let (status, mut headers) = (response.status(), response.headers().clone());
    headers.remove(header::TRANSFER_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::CONNECTION);
    if let Some(date) = &state.date {
        let date = HeaderValue::from_str(date).expect("a date");
        headers.insert(header::DATE, date);
    }
    (status, headers, response.bytes().await.expect("a body")).into_response()
}
