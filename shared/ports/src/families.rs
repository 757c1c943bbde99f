//! Edges: which tasks wait for a task.

use async_trait::async_trait;
use dueline_domain::TaskAddress;

use crate::StoreError;

/// Which tasks wait for a task. An edge is a record of its own, beside the task that is waited for, so that a task does
/// not grow with the number of those that wait for it.
#[async_trait]
pub trait FamilyStore: Send + Sync + 'static {
    /// Stores edges. One that exists is not an error. `NotFound` if the job of a predecessor does not exist.
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError>;

    /// The edges of the tasks that wait for one task, page by page, in the order of the followers' jobs and ids. The answer contains
    /// every edge whose write was acknowledged before the first page was asked for.
    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError>;
}

/// One task waits for another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// The task that is waited for.
    pub from: TaskAddress,
    /// The task that waits.
    pub to: TaskAddress,
}

/// Which edges to read.
#[derive(Clone, Debug)]
pub struct EdgeQuery {
    /// Of the tasks that wait for this one.
    pub from: TaskAddress,
    /// Only those after this one, the last of the page before.
    pub after: Option<TaskAddress>,
    /// Most edges on the page.
    pub limit: usize,
}

/// A page of edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgePage {
    /// The tasks that wait, in order.
    pub followers: Vec<TaskAddress>,
    /// Whether there are more behind the last one.
    pub more: bool,
}
