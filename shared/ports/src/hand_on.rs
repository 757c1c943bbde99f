//! Mark, then send: the one order in which a task reaches its queue.

use dueline_domain::{Task, TaskRef, Timestamp};

use crate::{Applied, Command, StoreError, TaskQueue, TaskStore};

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
pub async fn hand_on(queue: &dyn TaskQueue, tasks: impl Iterator<Item = &Task>) -> usize {
    let messages: Vec<TaskRef> = tasks.filter_map(Task::message).collect();
    if messages.is_empty() {
        return 0;
    }
    let results = queue.send(messages).await;
    results.iter().filter(|result| result.is_ok()).count()
}
