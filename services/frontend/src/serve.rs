//! A router on a port, with bounds on connections.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::Request, response::IntoResponse as _};
use dueline_api::{ApiError, ErrorKind};
use dueline_runtime::{ServiceError, Shutdown, TaskGroup};
use http::{header, uri::Authority};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::sleep,
};
use tower::ServiceExt as _;

use crate::rest::{Failure, render};

/// Most connections at once; more wait in the operating system's queue.
const CONNECTIONS_MAX: usize = 16_384;
/// A connection without a call, or with half the head of one, is closed after this.
const IDLE_MAX: Duration = Duration::from_secs(75);
/// Largest head of a call.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Most calls at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1024;
/// HTTP/2 connections are asked for a sign of life this often.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Pause after a connection could not be accepted, for lack of descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves HTTP/1.1 and HTTP/2 until the intake stops; calls that run then end by themselves, or with the work stage.
///
/// A listener on the loopback interface only answers calls to a loopback host: a page of another site whose name was
/// made to point here gets nothing.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: Shutdown,
) -> Result<(), ServiceError> {
    let loopback = listener
        .local_addr()
        .is_ok_and(|address| address.ip().is_loopback());
    let group = TaskGroup::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let server = Arc::new(server());
    loop {
        let stream = tokio::select! {
            biased;
            () = shutdown.intake_stopped() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, place) = stream;
        let connection = serve_one(
            stream,
            server.clone(),
            router.clone(),
            loopback,
            shutdown.clone(),
        );
        group.spawn_infallible("http connection", async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    group.wait().await
}

fn server() -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY);
    server
}

/// The next connection, once there is a place for it. Cancel safe.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, Option<tokio::sync::OwnedSemaphorePermit>) {
    // The semaphore is never closed, so there always is a permit.
    let place = places.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are written whole: waiting for more to send only costs time.
                let _ = stream.set_nodelay(true);
                return (stream, place);
            }
            Err(error) => {
                tracing::warn!(%error, "connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_one(
    stream: TcpStream,
    server: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
    loopback: bool,
    shutdown: Shutdown,
) {
    let called = Arc::new(AtomicBool::new(false));
    let seen = called.clone();
    let service = service_fn(move |request: http::Request<Incoming>| {
        seen.store(true, Ordering::Relaxed);
        let router = router.clone();
        async move {
            let request = request.map(axum::body::Body::new);
            if loopback && !is_for_loopback(&request) {
                return Ok::<_, Infallible>(refuse_host());
            }
            router.oneshot(request).await
        }
    });
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    // Until the version of HTTP is known, the server itself waits without a bound.
    let mut first_call = pin!(sleep(IDLE_MAX));
    let (mut watched, mut stopping) = (true, false);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error, "connection ended early");
                }
                return;
            }
            () = shutdown.work_stopped() => return,
            () = shutdown.intake_stopped(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut first_call, if watched => {
                watched = false;
                if !called.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }
}

fn is_for_loopback(request: &Request) -> bool {
    let named: Option<Authority> = match request.headers().get(header::HOST) {
        Some(host) => Authority::try_from(host.as_bytes()).ok(),
        None => request.uri().authority().cloned(),
    };
    // A call of HTTP/1.0 names no host; no browser makes one.
    named.is_none_or(|authority| {
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost")
            || host.to_ascii_lowercase().ends_with(".localhost")
            || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

fn refuse_host() -> axum::response::Response {
    let message =
        "this server listens on the loopback interface and answers only calls to a loopback host";
    let error = ApiError::new(ErrorKind::Denied, "foreign_host", message);
    let mut response = Failure::from(error).into_response();
    render(&mut response, || "-".to_owned());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_answered_on_the_loopback_interface() {
        let check = |host: &str| {
            let request = Request::builder().header(header::HOST, host);
            is_for_loopback(&request.body(axum::body::Body::empty()).unwrap())
        };
        for good in [
            "localhost",
            "LOCALHOST:7070",
            "127.0.0.1:7070",
            "127.9.9.9",
            "[::1]:7070",
        ] {
            assert!(check(good), "{good}");
        }
        for bad in [
            "evil.example:7070",
            "10.0.0.1",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
        ] {
            assert!(!check(bad), "{bad}");
        }
    }
}
