//! Sends the messages of enqueued tasks, always after the store has marked the tasks as enqueued.

use std::collections::BTreeSet;

use dueline_domain::{JobName, Task, TaskRef};
use dueline_trace::{Began, Step, TaskSpan};

use crate::{QueueError, TaskQueue};

/// Sends the message of every enqueued task among `tasks`; returns how many messages the queue accepted. `began` is when
/// the write that enqueued the tasks began.
///
/// A message that cannot be sent is not an error: the task is durable. Its message is sent again after the enqueue
/// timeout, or by a refill of the queue.
///
/// A missing queue is created once and its messages are sent again. Without that, each task of a deleted queue would
/// wait for its enqueue timeout.
pub async fn send_enqueued<'a>(
    queue: &dyn TaskQueue,
    tasks: impl Iterator<Item = &'a Task>,
    began: Began,
) -> usize {
    let mut messages: Vec<TaskRef> = tasks.filter_map(Task::message).collect();
    if messages.is_empty() {
        return 0;
    }
    let spans = SendSpans::start(&mut messages, began);
    let results = queue.send(messages.clone()).await;
    let sent = results.iter().filter(|result| result.is_ok()).count();
    let missing = |result: &Result<(), QueueError>| matches!(result, Err(QueueError::NotFound(_)));
    spans.record(&results);
    let mut unsent: Vec<TaskRef> = messages
        .into_iter()
        .zip(&results)
        .filter_map(|(message, result)| missing(result).then_some(message))
        .collect();
    if unsent.is_empty() {
        return sent;
    }
    let jobs: BTreeSet<JobName> = unsent.iter().map(|message| message.job.clone()).collect();
    for job in jobs {
        if queue.ensure(&job).await.is_err() {
            unsent.retain(|message| message.job != job);
        }
    }
    if unsent.is_empty() {
        return sent;
    }
    let results = queue.send(unsent).await;
    sent + results.iter().filter(|result| result.is_ok()).count()
}

/// The spans of messages on their way to the queue. Empty while tracing is off.
struct SendSpans(Vec<Option<TaskSpan>>);

impl SendSpans {
    /// Records that the tasks of `messages` were enqueued, and begins to send. Each message carries the context of its
    /// span from here on.
    fn start(messages: &mut [TaskRef], began: Began) -> Self {
        if !dueline_trace::is_on() {
            return Self(Vec::new());
        }
        let start = |message: &mut TaskRef| {
            let (job, id) = (&message.job, &message.id);
            let enqueue = TaskSpan::start(Step::Enqueue, message.trace.as_deref(), job, id, began)?;
            let trace = enqueue.traceparent();
            drop(enqueue);
            let send = TaskSpan::start(Step::Send, Some(&trace), job, id, Began::now())?;
            message.trace = Some(send.traceparent());
            Some(send)
        };
        Self(messages.iter_mut().map(start).collect())
    }

    /// Records which messages the queue refused. A message that is sent again after its queue was created belongs to
    /// the same span.
    fn record(&self, results: &[Result<(), QueueError>]) {
        for (span, result) in self.0.iter().zip(results) {
            if let (Some(span), Err(error)) = (span, result)
                && !matches!(error, QueueError::NotFound(_))
            {
                span.failed("send_failed", error.to_string());
            }
        }
    }
}

#[cfg(all(test, feature = "fakes"))]
mod tests {
    use bytes::Bytes;
    use dueline_domain::{NewTask, Policy, Timestamp};

    use super::*;
    use crate::{
        Rng as _,
        fakes::{MessageLog, SeededRng},
    };

    fn task(job: &str) -> Task {
        let (rng, now) = (SeededRng::new(1), Timestamp::clamped(5));
        let job = JobName::parse(job).expect("a name");
        let new = NewTask::now(rng.task_id(now), job, Bytes::new());
        new.into_task(&Policy::default(), now, rng.token(), rng.write_id(), true)
    }

    #[tokio::test]
    async fn a_missing_queue_is_created_and_a_failure_to_do_so_affects_no_other_queue() {
        let queues = MessageLog::default();
        let tasks = [task("a"), task("b"), task("a")];
        assert_eq!(send_enqueued(&queues, tasks.iter(), Began::now()).await, 3);
        let queues = MessageLog::refusing(JobName::parse("a").expect("a name"));
        assert_eq!(
            send_enqueued(&queues, tasks.iter(), Began::now()).await,
            1,
            "only b can be created"
        );
    }
}
