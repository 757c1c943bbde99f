//! Edges: which tasks wait for a task. An edge is an item of its own, without attributes beyond its key and the end of a
//! child. It is deleted some time after its task, see `prune/edges.rs`.

use std::collections::BTreeMap;

use dueline_domain::{EdgeKind, JobName, TaskAddress, TaskEnd, TaskId};
use dueline_ports::{Edge, EdgePage, EdgeQuery, StoreError, StoredEdge};
use futures_util::{StreamExt as _, stream};

use crate::{
    attr::{self, Item, get_bytes, get_text},
    calls::{CallContext, ItemChange, ItemKey, QueryRequest, SortRange, WriteCondition},
    schema,
    store::{CONCURRENT_CALLS, DynamoStore},
};

/// How a child has ended.
const END: &str = "e";
/// Edges of the first page of a search for an open child. Children that were added last tend to end last, so the search
/// begins with them.
const OPEN_PAGE: usize = 25;

/// The kind in a sort key.
const fn code(kind: EdgeKind) -> u8 {
    match kind {
        EdgeKind::Follower => b'f',
        EdgeKind::Child => b'c',
        EdgeKind::Staged => b's',
    }
}

/// What the sort keys of the edges of a task begin with.
fn prefix(from: &TaskId, kind: EdgeKind) -> Vec<u8> {
    let mut key = from.as_bytes().to_vec();
    key.push(code(kind));
    key
}

/// The sort key of an edge: the id of the task that is waited for, the kind, then the job and the id of the one that
/// waits. A zero byte ends the job, so that keys sort by the job first.
fn sort_key(from: &TaskId, kind: EdgeKind, to: &TaskAddress) -> Vec<u8> {
    let mut key = prefix(from, kind);
    key.extend(to.job.as_str().as_bytes());
    key.push(0);
    key.extend(to.id.as_bytes());
    key
}

/// The task that is waited for and the one that waits, from a sort key.
pub(crate) fn split_key(key: &[u8]) -> Option<(TaskId, TaskAddress)> {
    let (from, to) = key.split_at_checked(16)?;
    let (_, to) = to.split_first()?;
    let (job, id) = to.split_at_checked(to.len().checked_sub(16)?)?;
    let job = std::str::from_utf8(job.strip_suffix(&[0])?).ok()?;
    let task = TaskAddress {
        job: JobName::parse(job).ok()?,
        id: TaskId::from_bytes(id.try_into().ok()?),
    };
    Some((TaskId::from_bytes(from.try_into().ok()?), task))
}

fn stored_edge(item: &Item) -> Option<StoredEdge> {
    let key = get_bytes(item, schema::SK).ok()??;
    let (_, to) = split_key(key)?;
    let end = get_text(item, END).ok()?.map(TaskEnd::from_name);
    Some(StoredEdge {
        to,
        end: end.flatten(),
    })
}

impl DynamoStore {
    pub(crate) async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        let mut jobs = self.jobs(false).await?;
        let (mut children, mut followers) = (BTreeMap::new(), BTreeMap::new());
        for Edge { from, kind, to } in &edges {
            jobs = self.jobs_including(jobs, &from.job).await?;
            let entry = jobs.get(&from.job);
            let entry = entry.ok_or_else(|| StoreError::no_job(&from.job))?;
            let partition = entry.partitions.edges_of(&from.id);
            let key = ItemKey::new(partition, sort_key(&from.id, *kind, to));
            // A batch must not contain an item twice.
            let items = match kind {
                EdgeKind::Child => &mut children,
                EdgeKind::Follower | EdgeKind::Staged => &mut followers,
            };
            items.insert((key.pk.clone(), key.sk.clone()), key.item());
        }
        let context = CallContext::of_table("put_edges");
        // The edge of a child that has ended must not be replaced.
        let puts = children.into_values().map(|item| {
            let put = self.table.put(context, item, Some(WriteCondition::Absent));
            Box::pin(async move { put.await.map(drop) })
        });
        let mut puts = stream::iter(puts).buffer_unordered(CONCURRENT_CALLS);
        while let Some(put) = puts.next().await {
            put?;
        }
        drop(puts);
        let items: Vec<_> = followers.into_values().collect();
        match <[Item; 1]>::try_from(items) {
            Ok([item]) => self.table.put(context, item, None).await.map(drop),
            Err(items) => self.table.put_many(context, items).await,
        }
    }

    pub(crate) async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        let jobs = self.jobs(false).await?;
        let Some(entry) = jobs.get(&query.from.job) else {
            return Ok(EdgePage::default());
        };
        let context = CallContext::of_job(query.from.job.as_str(), "edges");
        let (id, kind) = (&query.from.id, query.kind);
        let partition = entry.partitions.edges_of(id);
        let after = query.after.as_ref();
        let mut request = QueryRequest {
            partition: &partition,
            range: SortRange::BeginsWith(attr::bytes(prefix(id, kind))),
            limit: Some(query.limit.max(1)),
            after: after.map(|to| ItemKey::new(&partition, sort_key(id, kind, to)).item()),
            consistent: true,
            ..QueryRequest::default()
        };
        let mut edges = Vec::new();
        loop {
            let page = self.table.query(context, request.clone()).await?;
            edges.extend(page.items.iter().filter_map(stored_edge));
            request.after = page.next;
            if request.after.is_none() || edges.len() >= query.limit {
                let more = request.after.is_some() || edges.len() > query.limit;
                edges.truncate(query.limit);
                return Ok(EdgePage { edges, more });
            }
        }
    }

    pub(crate) async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError> {
        let Edge { from, kind, to } = edge;
        let jobs = self.jobs(false).await?;
        let jobs = self.jobs_including(jobs, &from.job).await?;
        let entry = jobs.get(&from.job);
        let entry = entry.ok_or_else(|| StoreError::no_job(&from.job))?;
        let context = CallContext::of_job(from.job.as_str(), "end_edge");
        let partition = entry.partitions.edges_of(&from.id);
        let key = ItemKey::new(partition, sort_key(&from.id, kind, &to));
        let change = ItemChange {
            set: vec![(END.to_owned(), attr::text(end.name()))],
            ..ItemChange::default()
        };
        self.table
            .update(context, &key, change, None)
            .await
            .map(drop)
    }

    /// The edge has nothing but its end, so it is replaced by one without.
    pub(crate) async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError> {
        let Edge { from, kind, to } = edge;
        let jobs = self.jobs(false).await?;
        let jobs = self.jobs_including(jobs, &from.job).await?;
        let entry = jobs.get(&from.job);
        let entry = entry.ok_or_else(|| StoreError::no_job(&from.job))?;
        let context = CallContext::of_job(from.job.as_str(), "reopen_edge");
        let partition = entry.partitions.edges_of(&from.id);
        let key = ItemKey::new(partition, sort_key(&from.id, kind, &to));
        let put = self.table.put(context, key.item(), None);
        put.await.map(drop)
    }

    pub(crate) async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError> {
        let jobs = self.jobs(false).await?;
        let Some(entry) = jobs.get(&parent.job) else {
            return Ok(Vec::new());
        };
        let context = CallContext::of_job(parent.job.as_str(), "open_children");
        let partition = entry.partitions.edges_of(&parent.id);
        let mut page_len = OPEN_PAGE.max(limit);
        let mut request = QueryRequest {
            partition: &partition,
            range: SortRange::BeginsWith(attr::bytes(prefix(&parent.id, EdgeKind::Child))),
            newest_first: true,
            consistent: true,
            ..QueryRequest::default()
        };
        let mut open = Vec::new();
        loop {
            request.limit = Some(page_len);
            let page = self.table.query(context, request.clone()).await?;
            let edges = page.items.iter().filter_map(stored_edge);
            open.extend(edges.filter(|edge| edge.end.is_none()).map(|edge| edge.to));
            request.after = page.next;
            if request.after.is_none() || open.len() >= limit {
                open.truncate(limit);
                return Ok(open);
            }
            page_len = page_len.saturating_mul(10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_099_the_key_of_an_edge_names_both_tasks() {
        let from = TaskId::from_bytes([0; 16]);
        let to = |job: &str, id| TaskAddress {
            job: JobName::parse(job).unwrap(),
            id: TaskId::from_bytes([id; 16]),
        };
        let mut keys = Vec::new();
        for to in [to("a", 0), to("a", 255), to("a-b", 0), to("b", 1)] {
            let key = sort_key(&from, EdgeKind::Child, &to);
            assert_eq!(split_key(&key), Some((from, to)));
            keys.push(key);
        }
        assert!(keys.is_sorted());
        assert_eq!(split_key(&[1; 32]), None);
    }
}
