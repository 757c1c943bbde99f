//! Mark, then send: the one order in which a task reaches its queue.

use std::collections::BTreeSet;

use dueline_domain::{JobName, Task, TaskRef, Timestamp};

use crate::{Applied, Command, QueueError, StoreError, TaskQueue, TaskStore};

/// Applies `commands` and sends the message of every task that became enqueued by them.
///
/// A message that cannot be sent is not an error here: the task is durable, and its enqueue timeout (or the queue's
/// refill) brings it back. Results are in the order of the commands.
pub async fn apply_and_hand_on(
    store: &dyn TaskStore,
    queue: &dyn TaskQueue,
    now: Timestamp,
    commands: Vec<Command>,
) -> Vec<Result<Applied, StoreError>> {
    let results = store.apply(now, commands).await;
    let moved = results.iter().filter_map(|result| result.as_ref().ok());
    hand_on(queue, moved.map(|applied| &*applied.task)).await;
    results
}

/// Sends the message of every enqueued task among `tasks`; returns how many the queue took.
///
/// A queue that somebody deleted is made again, once: else only the enqueue timeout of a task would notice.
pub async fn hand_on(queue: &dyn TaskQueue, tasks: impl Iterator<Item = &Task>) -> usize {
    let messages: Vec<TaskRef> = tasks.filter_map(Task::message).collect();
    if messages.is_empty() {
        return 0;
    }
    let results = queue.send(messages.clone()).await;
    let taken = results.iter().filter(|result| result.is_ok()).count();
    let missing = |result: &Result<(), QueueError>| matches!(result, Err(QueueError::NotFound(_)));
    let mut left: Vec<TaskRef> = messages
        .into_iter()
        .zip(&results)
        .filter_map(|(message, result)| missing(result).then_some(message))
        .collect();
    if left.is_empty() {
        return taken;
    }
    let jobs: BTreeSet<JobName> = left.iter().map(|message| message.job.clone()).collect();
    for job in jobs {
        if queue.ensure(&job).await.is_err() {
            left.retain(|message| message.job != job);
        }
    }
    if left.is_empty() {
        return taken;
    }
    let again = queue.send(left).await;
    taken + again.iter().filter(|result| result.is_ok()).count()
}

#[cfg(all(test, feature = "fakes"))]
mod tests {
    use bytes::Bytes;
    use dueline_domain::{NewTask, Policy};

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
    async fn a_queue_that_is_gone_is_made_again_and_no_other_is_held_up() {
        let queues = MessageLog::default();
        let tasks = [task("a"), task("b"), task("a")];
        assert_eq!(hand_on(&queues, tasks.iter()).await, 3);
        let queues = MessageLog::refusing(JobName::parse("a").expect("a name"));
        assert_eq!(
            hand_on(&queues, tasks.iter()).await,
            1,
            "only b can be made"
        );
    }
}
