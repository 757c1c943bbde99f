//! Edges: which tasks wait for a task.

use async_trait::async_trait;
use dueline_domain::{EdgeKind, TaskAddress, TaskEnd};

use crate::StoreError;

/// Which tasks wait for a task: its followers and its children. An edge is a record of its own, beside the task that is
/// waited for, so that a task does not grow with the number of those that wait for it.
#[async_trait]
pub trait FamilyStore: Send + Sync + 'static {
    /// Stores edges. One that exists stays as it is. `NotFound` if the job of a task that is waited for does not exist.
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError>;

    /// The edges of one task, page by page, in the order of the jobs and ids of the tasks that wait. The answer contains
    /// every edge whose write was acknowledged before the first page was asked for.
    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError>;

    /// Records how a child has ended. An edge that does not exist is stored. `NotFound` if the job of the parent does not
    /// exist.
    async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError>;

    /// Records that a child has not ended. An edge that does not exist is stored. `NotFound` if the job of the parent does
    /// not exist.
    async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError>;

    /// Up to `limit` children of a task whose end is not recorded, in any order. As with [`FamilyStore::edges`], what was
    /// acknowledged before counts.
    async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError>;
}

/// One task waits for another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// The task that is waited for.
    pub from: TaskAddress,
    /// Why.
    pub kind: EdgeKind,
    /// The task that waits.
    pub to: TaskAddress,
}

/// Which edges to read.
#[derive(Clone, Debug)]
pub struct EdgeQuery {
    /// Of the tasks that wait for this one.
    pub from: TaskAddress,
    /// Of this kind.
    pub kind: EdgeKind,
    /// Only those after this one, the last of the page before.
    pub after: Option<TaskAddress>,
    /// Most edges on the page.
    pub limit: usize,
}

/// A page of edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgePage {
    /// The tasks that wait, in order.
    pub edges: Vec<StoredEdge>,
    /// Whether there are more behind the last one.
    pub more: bool,
}

/// The other end of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEdge {
    /// The task that waits.
    pub to: TaskAddress,
    /// How it has ended. Only recorded for children.
    pub end: Option<TaskEnd>,
}
