//! Edges.

use std::ops::Bound;

use async_trait::async_trait;
use dueline_domain::{EdgeKind, TaskAddress, TaskEnd};

use super::MemoryStore;
use crate::{Edge, EdgePage, EdgeQuery, FamilyStore, StoreError, StoredEdge};

#[async_trait]
impl FamilyStore for MemoryStore {
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        let mut contents = self.lock();
        for edge in &edges {
            contents.job(&edge.from.job)?;
        }
        for Edge { from, kind, to } in edges {
            let edges = contents.edges.entry(from).or_default();
            edges.entry((kind, to)).or_insert(None);
        }
        Ok(())
    }

    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        let contents = self.lock();
        let Some(edges) = contents.edges.get(&query.from) else {
            return Ok(EdgePage::default());
        };
        let kind = query.kind;
        let from = query
            .after
            .map_or(Bound::Unbounded, |after| Bound::Excluded((kind, after)));
        let later = edges.range((from, Bound::Unbounded));
        let of_kind = later.filter(|((other, _), _)| *other == kind);
        let mut of_kind = of_kind.map(|((_, to), end)| StoredEdge {
            to: to.clone(),
            end: *end,
        });
        Ok(EdgePage {
            edges: of_kind.by_ref().take(query.limit).collect(),
            more: of_kind.next().is_some(),
        })
    }

    async fn end_edge(&self, edge: Edge, end: TaskEnd) -> Result<(), StoreError> {
        let mut contents = self.lock();
        contents.job(&edge.from.job)?;
        let edges = contents.edges.entry(edge.from).or_default();
        edges.insert((edge.kind, edge.to), Some(end));
        Ok(())
    }

    async fn reopen_edge(&self, edge: Edge) -> Result<(), StoreError> {
        let mut contents = self.lock();
        contents.job(&edge.from.job)?;
        let edges = contents.edges.entry(edge.from).or_default();
        edges.insert((edge.kind, edge.to), None);
        Ok(())
    }

    async fn open_children(
        &self,
        parent: &TaskAddress,
        limit: usize,
    ) -> Result<Vec<TaskAddress>, StoreError> {
        let contents = self.lock();
        let edges = contents.edges.get(parent).into_iter().flatten();
        let open = edges.filter(|((kind, _), end)| *kind == EdgeKind::Child && end.is_none());
        Ok(open.map(|((_, to), _)| to.clone()).take(limit).collect())
    }
}
