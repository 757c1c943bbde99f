//! A store that counts its writes.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dueline_domain::{Timestamp, Verb};
use dueline_ports::{
    Applied, Command, Create, Created, Store, StoreError,
    fakes::{MemoryStore, StoreLayer},
};

/// Counts the writes to a store below it.
#[derive(Debug, Default)]
pub(crate) struct CountingStore {
    inner: Arc<MemoryStore>,
    commands: Mutex<Vec<Verb>>,
    creates: Mutex<usize>,
    is_unavailable: Mutex<bool>,
}

impl CountingStore {
    /// A layer above `inner`.
    pub(crate) fn new(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            ..Self::default()
        }
    }

    /// The commands since the last call.
    pub(crate) fn commands(&self) -> Vec<Verb> {
        std::mem::take(&mut self.commands.lock().unwrap())
    }

    /// How many tasks were created since the last call.
    pub(crate) fn creates(&self) -> usize {
        std::mem::take(&mut self.creates.lock().unwrap())
    }

    /// Sets whether every command fails.
    pub(crate) fn set_unavailable(&self, is_unavailable: bool) {
        *self.is_unavailable.lock().unwrap() = is_unavailable;
    }
}

#[async_trait]
impl StoreLayer for CountingStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        *self.creates.lock().unwrap() += new.len();
        self.below().create(now, new).await
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let verbs = commands.iter().map(|command| command.event.verb());
        self.commands.lock().unwrap().extend(verbs);
        if *self.is_unavailable.lock().unwrap() {
            let error = || StoreError::Unavailable {
                message: "unavailable".into(),
                outcome_unknown: false,
            };
            return commands.iter().map(|_| Err(error())).collect();
        }
        self.below().apply(now, commands).await
    }
}
