//! Assignments as a stream, within the room that the client has announced.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use dueline_domain::limits;
use dueline_runtime::TaskGroup;
use futures_util::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream};
use tokio::time::Instant;
use tonic::Status;

use crate::{
    ApiError, Assignment, Controller, ErrorReason, PollRequest,
    grpc::{convert::field, message::ASSIGNMENTS_MAX, proto},
    undelivered::{ClaimedTask, claimed, give_back},
};

/// How long the controller is asked to wait at a time. Nothing is lost when this passes: the stream asks again.
const WAIT: Duration = Duration::from_secs(20);

/// Pause after an empty answer that came long before its time, so that a controller that does not wait is not asked
/// in a busy loop.
const EMPTY_PAUSE: Duration = Duration::from_millis(50);

/// Serves one client until its stream ends. Tasks that the client has not confirmed by then are abandoned.
pub(super) fn assignments<I>(
    work: Arc<dyn Controller>,
    returns: TaskGroup,
    client: I,
) -> impl Stream<Item = Result<proto::StreamResponse, Status>> + Send + 'static
where
    I: Stream<Item = Result<proto::StreamRequest, Status>> + Send + Unpin + 'static,
{
    let feed = Feed {
        client,
        room: None,
        asking: None,
        unconfirmed: Unconfirmed {
            work,
            returns,
            tasks: VecDeque::new(),
            confirmed: 0,
        },
    };
    stream::unfold(Some(feed), async |feed| {
        let mut feed = feed?;
        match feed.next().await {
            Ok(Some(assignments)) => Some((Ok(assignments), Some(feed))),
            Ok(None) => None,
            Err(error) => Some((Err(error.into()), None)),
        }
    })
}

/// One client's stream.
struct Feed<I> {
    client: I,
    /// What the client wants; its counts are what is left of the announced room.
    room: Option<PollRequest>,
    /// The question to the controller. It is not dropped when the client announces more room, because an answer
    /// under way could be lost with it.
    asking: Option<BoxFuture<'static, Result<Vec<Assignment>, ApiError>>>,
    unconfirmed: Unconfirmed,
}

impl<I> Feed<I>
where
    I: Stream<Item = Result<proto::StreamRequest, Status>> + Send + Unpin + 'static,
{
    /// The next assignments; `None` when the client has gone.
    async fn next(&mut self) -> Result<Option<proto::StreamResponse>, ApiError> {
        loop {
            self.ask();
            tokio::select! {
                biased;
                said = self.client.next() => match said {
                    Some(Ok(said)) => self.hear(said)?,
                    Some(Err(_)) | None => return Ok(None),
                },
                answer = answer(&mut self.asking) => {
                    self.asking = None;
                    let assignments = answer?;
                    if !assignments.is_empty() {
                        return Ok(Some(self.send(assignments)));
                    }
                }
            }
        }
    }

    /// Asks the controller if the client has room and is not asked for already.
    fn ask(&mut self) {
        let Some(room) = self.room.as_ref().filter(|_| self.asking.is_none()) else {
            return;
        };
        let unconfirmed = self.unconfirmed.tasks.len();
        let tasks_max = room
            .tasks_max
            .min(ASSIGNMENTS_MAX)
            .min(limits().batch_len_max.saturating_sub(unconfirmed));
        if tasks_max == 0 || room.weight_max == 0 {
            return;
        }
        let ask = PollRequest {
            tasks_max,
            wait: WAIT,
            ..room.clone()
        };
        let work = self.unconfirmed.work.clone();
        self.asking = Some(ask_once(work, ask).boxed());
    }

    /// Takes in what the client said.
    fn hear(&mut self, said: proto::StreamRequest) -> Result<(), ApiError> {
        self.unconfirmed.confirm(said.received)?;
        let Some(next) = said.poll else {
            field::required("next", self.room.as_ref())?;
            return Ok(());
        };
        let mut next = PollRequest::try_from(next)?;
        if let Some(room) = &self.room {
            if next.worker != room.worker {
                let text = "must be the same on the whole stream";
                return Err(ApiError::invalid("next.worker", ErrorReason::Changed, text));
            }
            next.tasks_max = next.tasks_max.saturating_add(room.tasks_max);
            next.weight_max = next.weight_max.saturating_add(room.weight_max);
        }
        self.room = Some(next);
        Ok(())
    }

    /// Takes assignments off the room and makes them a message.
    fn send(&mut self, assignments: Vec<Assignment>) -> proto::StreamResponse {
        if let Some(room) = &mut self.room {
            let weights = assignments.iter().map(|a| u32::from(a.weight.get()));
            room.weight_max = room.weight_max.saturating_sub(weights.sum());
            room.tasks_max = room.tasks_max.saturating_sub(assignments.len());
        }
        let names = assignments.iter().map(claimed);
        self.unconfirmed.tasks.extend(names);
        proto::StreamResponse {
            assignments: assignments.into_iter().map(Into::into).collect(),
        }
    }
}

/// The controller's answer; never comes when it was not asked.
async fn answer(
    asking: &mut Option<BoxFuture<'static, Result<Vec<Assignment>, ApiError>>>,
) -> Result<Vec<Assignment>, ApiError> {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

async fn ask_once(
    work: Arc<dyn Controller>,
    ask: PollRequest,
) -> Result<Vec<Assignment>, ApiError> {
    let asked_at = Instant::now();
    let assignments = work.poll(ask).await?;
    if assignments.is_empty() && asked_at.elapsed() < EMPTY_PAUSE {
        tokio::time::sleep(EMPTY_PAUSE).await;
    }
    Ok(assignments)
}

/// Tasks that were sent but not confirmed. Dropping this, which is what happens when a stream ends or breaks, gives
/// them back.
struct Unconfirmed {
    work: Arc<dyn Controller>,
    returns: TaskGroup,
    /// In the order they were sent.
    tasks: VecDeque<ClaimedTask>,
    /// How many were confirmed.
    confirmed: u64,
}

impl Unconfirmed {
    /// The client has received this many since the stream began.
    fn confirm(&mut self, received: u64) -> Result<(), ApiError> {
        let fresh = received.saturating_sub(self.confirmed);
        let fresh = usize::try_from(fresh)
            .ok()
            .filter(|fresh| *fresh <= self.tasks.len())
            .ok_or_else(|| {
                ApiError::invalid(
                    "received",
                    ErrorReason::TooMany,
                    "is more than were ever sent",
                )
            })?;
        self.tasks.drain(..fresh);
        self.confirmed = self.confirmed.max(received);
        Ok(())
    }
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        give_back(&self.work, &self.returns, std::mem::take(&mut self.tasks));
    }
}
