//! A router on a port, with bounds on connections.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, middleware::from_fn};
use dueline_runtime::{ServiceError, Shutdown, TaskGroup, descriptors};
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

use super::{
    delivery::{Answers, FollowedIo},
    site::SitePolicy,
};

/// Most connections at once; more wait in the operating system's queue. See [`connections_max`].
const CONNECTIONS_MAX: usize = 16_384;
/// A connection without a call, or with half the head of one, is closed after this.
const IDLE_MAX: Duration = Duration::from_secs(75);
/// Largest head of a call.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Most calls at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1024;
/// HTTP/2 connections are asked for a sign of life this often.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A connection whose peer takes nothing of an answer for this long is closed (on Linux).
const STALL_MAX: Duration = Duration::from_secs(60);
/// Pause after a connection could not be accepted, for lack of descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves HTTP/1.1 and HTTP/2 until the intake stops; calls that run then end by themselves, or with the work stage.
///
/// Every request passes the [`SitePolicy`] first, whichever router answers it.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: Shutdown,
) -> Result<(), ServiceError> {
    let site = SitePolicy {
        loopback: listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_loopback()),
    };
    let router = router.layer(from_fn(move |request, next| site.middleware(request, next)));
    let group = TaskGroup::new();
    let places = Arc::new(Semaphore::new(connections_max(descriptors::limit())));
    let server = Arc::new(server());
    loop {
        let stream = tokio::select! {
            biased;
            () = shutdown.intake_stopped() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, place) = stream;
        let connection = serve_one(stream, server.clone(), router.clone(), shutdown.clone());
        group.spawn_infallible("http connection", async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    group.wait().await
}

/// Most connections of a process that may have `descriptors` open. Half of the descriptors stay for the store, for
/// calls to other services and for commands: idle connections must not keep tasks from running.
fn connections_max(descriptors: Option<u64>) -> usize {
    let half = descriptors.map_or(usize::MAX, |limit| {
        usize::try_from(limit / 2).unwrap_or(usize::MAX)
    });
    half.clamp(1, CONNECTIONS_MAX)
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
                prepare(&stream, STALL_MAX);
                return (stream, place);
            }
            Err(error) => {
                tracing::warn!(%error, "connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Sets the options of a connection.
fn prepare(stream: &TcpStream, stall_max: Duration) {
    // Answers are written whole: waiting for more to send only costs time.
    let _ = stream.set_nodelay(true);
    // Answers to readers that do not read would stay in memory. The system closes the connection, because the server
    // does not see how far an answer has come.
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(stall_max));
    #[cfg(not(target_os = "linux"))]
    let _ = stall_max;
}

async fn serve_one(
    stream: TcpStream,
    server: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
    shutdown: Shutdown,
) {
    let called = Arc::new(AtomicBool::new(false));
    let seen = called.clone();
    let answers = Answers::default();
    let io = FollowedIo {
        io: TokioIo::new(stream),
        answers: answers.clone(),
    };
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        seen.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(answers.clone());
        let router = router.clone();
        async move { router.oneshot(request.map(axum::body::Body::new)).await }
    });
    let mut connection = pin!(server.serve_connection(io, service));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_whose_peer_reads_nothing_is_closed() {
        use tokio::io::AsyncWriteExt as _;

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = TcpStream::connect(address).await.unwrap();
        let (mut stream, _place) = accept(&listener, &Arc::new(Semaphore::new(1))).await;
        prepare(&stream, Duration::from_secs(1));
        let answer = vec![0; 64 * 1024 * 1024];
        let written =
            tokio::time::timeout(Duration::from_secs(30), stream.write_all(&answer)).await;
        let error = written.expect("the write ends").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        drop(peer);
    }

    #[test]
    fn connections_leave_half_of_the_descriptors_to_the_rest_of_the_process() {
        assert_eq!(connections_max(Some(200)), 100);
        assert_eq!(connections_max(Some(1)), 1);
        assert_eq!(connections_max(Some(1_000_000)), CONNECTIONS_MAX);
        assert_eq!(connections_max(None), CONNECTIONS_MAX);
    }
}
