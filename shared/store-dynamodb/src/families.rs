//! Edges: which tasks wait for a task. An edge is an item of its own, without attributes beyond its key, and is written
//! once. It is deleted some time after its task, see `prune/edges.rs`.

use dueline_domain::{JobName, TaskAddress, TaskId};
use dueline_ports::{Edge, EdgePage, EdgeQuery, StoreError};

use crate::{
    attr::{self, Item, get_bytes},
    calls::{CallContext, ItemKey, QueryRequest, SortRange},
    schema,
    store::DynamoStore,
};

/// The kind of the edges to followers; a part of the sort key.
const FOLLOWER: u8 = b'f';

/// The sort key of an edge: the id of the task that is waited for, the kind, then the job and the id of the one that waits.
/// A zero byte ends the job, so that keys sort by the job first.
fn sort_key(from: &TaskId, to: &TaskAddress) -> Vec<u8> {
    let mut key = prefix(from);
    key.extend(to.job.as_str().as_bytes());
    key.push(0);
    key.extend(to.id.as_bytes());
    key
}

/// What the sort keys of the edges of a task begin with.
fn prefix(from: &TaskId) -> Vec<u8> {
    let mut key = from.as_bytes().to_vec();
    key.push(FOLLOWER);
    key
}

/// The task that is waited for and the one that waits, from a sort key.
pub(crate) fn split_key(key: &[u8]) -> Option<(TaskId, TaskAddress)> {
    let (from, to) = key.split_at_checked(16)?;
    let to = to.strip_prefix(&[FOLLOWER])?;
    let (job, id) = to.split_at_checked(to.len().checked_sub(16)?)?;
    let job = std::str::from_utf8(job.strip_suffix(&[0])?).ok()?;
    let task = TaskAddress {
        job: JobName::parse(job).ok()?,
        id: TaskId::from_bytes(id.try_into().ok()?),
    };
    Some((TaskId::from_bytes(from.try_into().ok()?), task))
}

fn follower(item: &Item) -> Option<TaskAddress> {
    let key = get_bytes(item, schema::SK).ok()??;
    split_key(key).map(|(_, to)| to)
}

impl DynamoStore {
    pub(crate) async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        let mut jobs = self.jobs(false).await?;
        let mut items = std::collections::BTreeMap::new();
        for Edge { from, to } in &edges {
            jobs = self.jobs_including(jobs, &from.job).await?;
            let entry = jobs.get(&from.job);
            let entry = entry.ok_or_else(|| StoreError::no_job(&from.job))?;
            let partition = entry.partitions.edges_of(&from.id);
            let key = ItemKey::new(partition, sort_key(&from.id, to));
            // A batch must not contain an item twice.
            items.insert((key.pk.clone(), key.sk.clone()), key.item());
        }
        let context = CallContext::of_table("put_edges");
        let items: Vec<_> = items.into_values().collect();
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
        let partition = entry.partitions.edges_of(&query.from.id);
        let after = query.after.as_ref();
        let mut request = QueryRequest {
            partition: &partition,
            range: SortRange::BeginsWith(attr::bytes(prefix(&query.from.id))),
            limit: Some(query.limit.max(1)),
            after: after.map(|to| ItemKey::new(&partition, sort_key(&query.from.id, to)).item()),
            consistent: true,
            ..QueryRequest::default()
        };
        let mut followers = Vec::new();
        loop {
            let page = self.table.query(context, request.clone()).await?;
            followers.extend(page.items.iter().filter_map(follower));
            request.after = page.next;
            if request.after.is_none() || followers.len() >= query.limit {
                let more = request.after.is_some() || followers.len() > query.limit;
                followers.truncate(query.limit);
                return Ok(EdgePage { followers, more });
            }
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
            let key = sort_key(&from, &to);
            assert_eq!(split_key(&key), Some((from, to)));
            keys.push(key);
        }
        assert!(keys.is_sorted());
        assert_eq!(split_key(&[FOLLOWER; 32]), None);
    }
}
