//! Edges.

use std::ops::Bound;

use async_trait::async_trait;

use super::MemoryStore;
use crate::{Edge, EdgePage, EdgeQuery, FamilyStore, StoreError};

#[async_trait]
impl FamilyStore for MemoryStore {
    async fn put_edges(&self, edges: Vec<Edge>) -> Result<(), StoreError> {
        let mut contents = self.lock();
        for edge in &edges {
            contents.job(&edge.from.job)?;
        }
        for Edge { from, to } in edges {
            contents.edges.entry(from).or_default().insert(to);
        }
        Ok(())
    }

    async fn edges(&self, query: EdgeQuery) -> Result<EdgePage, StoreError> {
        let contents = self.lock();
        let Some(followers) = contents.edges.get(&query.from) else {
            return Ok(EdgePage::default());
        };
        let from = query.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = followers.range((from, Bound::Unbounded)).cloned();
        let followers = later.by_ref().take(query.limit).collect();
        Ok(EdgePage {
            followers,
            more: later.next().is_some(),
        })
    }
}
