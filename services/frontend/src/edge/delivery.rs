//! Knows which answers are written. Tasks whose answer is not written when its connection ends are given back.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use dueline_api::Undelivered;
use hyper::{
    body::{Body as HttpBody, Frame, SizeHint},
    rt::{Read, ReadBufCursor, Write},
};

/// The answers with claimed tasks of one connection that were begun and are not written yet.
#[derive(Clone, Default)]
pub(super) struct Answers(Arc<AnswersState>);

#[derive(Default)]
struct AnswersState {
    begun: Mutex<Vec<Undelivered>>,
    /// Whether there are any. Most connections never have one.
    any: AtomicBool,
}

impl Answers {
    fn begun(&self) -> MutexGuard<'_, Vec<Undelivered>> {
        let begun = &self.0.begun;
        begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, answer: Undelivered) {
        self.begun().push(answer);
        self.0.any.store(true, Ordering::Release);
    }

    /// Everything that the server had to write is with the operating system.
    fn written(&self) {
        if self.0.any.swap(false, Ordering::AcqRel) {
            for answer in self.begun().drain(..) {
                answer.delivered();
            }
        }
    }
}

/// Follows an answer that carries claimed tasks until it is written.
pub(super) fn follow(mut response: Response, answers: Option<Answers>) -> Response {
    match response.extensions_mut().remove::<Undelivered>() {
        None => response,
        Some(undelivered) => response.map(|inner| {
            undelivered.follow();
            Body::new(FollowedBody {
                inner,
                undelivered: Some(undelivered),
                answers,
            })
        }),
    }
}

/// The body of an answer with claimed tasks. A body that is dropped before the connection has taken all of it gives them
/// back.
struct FollowedBody {
    inner: Body,
    undelivered: Option<Undelivered>,
    answers: Option<Answers>,
}

impl FollowedBody {
    fn taken(&mut self) {
        match (self.undelivered.take(), &self.answers) {
            (Some(undelivered), Some(answers)) => answers.add(undelivered),
            // Without a connection there is nothing to wait for.
            (Some(undelivered), None) => undelivered.delivered(),
            (None, _) => {}
        }
    }
}

impl HttpBody for FollowedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let is_last = match &frame {
            None => true,
            Some(Ok(frame)) => frame.is_trailers() || self.inner.is_end_stream(),
            Some(Err(_)) => false,
        };
        if is_last {
            self.taken();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A connection that knows when its answers are written. The server flushes only when it has written all it had.
pub(super) struct FollowedIo<T> {
    pub(super) io: T,
    pub(super) answers: Answers,
}

impl<T: Read + Unpin> Read for FollowedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for FollowedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.io).poll_flush(context));
        if flushed.is_ok() {
            self.answers.written();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }
}
