//! Something in the middle: it passes calls on to an engine, or refuses them, and may tell a wrong time.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use tokio::{net::TcpListener, task::JoinSet};

/// A server until it is dropped.
pub(crate) struct Middle {
    pub(crate) url: String,
    _serving: JoinSet<()>,
}

struct Inner {
    engine: String,
    denied: Vec<&'static str>,
    date: Option<String>,
    http: reqwest::Client,
}

/// In front of an engine: calls whose `X-Amz-Target` ends with one of `denied` are refused, and all answers carry
/// `date` if there is one.
pub(crate) async fn before(engine: &str, denied: &[&'static str], date: Option<String>) -> Middle {
    // Another test may have done it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().tls_certs_only([]).no_proxy();
    let inner = Inner {
        engine: engine.to_owned(),
        denied: denied.to_vec(),
        date,
        http: http.build().expect("a client"),
    };
    serve(Router::new().fallback(pass).with_state(Arc::new(inner))).await
}

/// Serves anything.
pub(crate) async fn serve(app: Router) -> Middle {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, app).await.expect("it serves") });
    Middle {
        url: format!("http://{address}"),
        _serving: serving,
    }
}

/// The time in so many seconds, as a header tells it.
pub(crate) fn date_in(seconds: u64) -> String {
    use dueline_ports::Clock as _;
    let now_ms = dueline_runtime::SystemClock.now().millis().unsigned_abs();
    let then = std::time::UNIX_EPOCH + Duration::from_millis(now_ms) + Duration::from_secs(seconds);
    httpdate::fmt_http_date(then)
}

async fn pass(
    State(inner): State<Arc<Inner>>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let target = headers
        .get("x-amz-target")
        .and_then(|target| target.to_str().ok());
    let target = target.unwrap_or_default().to_owned();
    if inner
        .denied
        .iter()
        .any(|denied| target.ends_with(&format!(".{denied}")))
    {
        let kind = [(header::CONTENT_TYPE, "application/x-amz-json-1.0")];
        let words = format!("User: doctor is not authorized to perform: {target}");
        let body = serde_json::json!({ "__type": "AccessDeniedException", "message": words });
        return (StatusCode::BAD_REQUEST, kind, body.to_string()).into_response();
    }
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let call = inner
        .http
        .request(method, format!("{}{path}", inner.engine));
    let answer = call
        .headers(headers)
        .body(body)
        .send()
        .await
        .expect("an answer");
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    headers.remove(header::TRANSFER_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::CONNECTION);
    if let Some(date) = &inner.date {
        let date = HeaderValue::from_str(date).expect("a date");
        headers.insert(header::DATE, date);
    }
    (status, headers, answer.bytes().await.expect("a body")).into_response()
}
