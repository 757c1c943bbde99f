//! A store whose writes are counted.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dueline_domain::{Timestamp, Verb};
use dueline_ports::{
    Applied, Command, Create, Created, Store, StoreError,
    fakes::{MemoryStore, StoreLayer},
};

/// Counts what each task costs.
#[derive(Debug, Default)]
pub(crate) struct CountingStore {
    inner: Arc<MemoryStore>,
    commands: Mutex<Vec<Verb>>,
    creates: Mutex<usize>,
    is_away: Mutex<bool>,
}

impl CountingStore {
    /// Counts what `inner` is asked for from now on.
    pub(crate) fn new(inner: Arc<MemoryStore>) -> Self {
        Self {
            inner,
            ..Self::default()
        }
    }

    /// The commands since this was asked last.
    pub(crate) fn commands(&self) -> Vec<Verb> {
        std::mem::take(&mut self.commands.lock().unwrap())
    }

    /// The tasks created since this was asked last.
    pub(crate) fn creates(&self) -> usize {
        std::mem::take(&mut self.creates.lock().unwrap())
    }

    /// Whether every command fails.
    pub(crate) fn set_away(&self, is_away: bool) {
        *self.is_away.lock().unwrap() = is_away;
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
        if *self.is_away.lock().unwrap() {
            let away = || StoreError::Unavailable {
                message: "away".into(),
                outcome_unknown: false,
            };
            return commands.iter().map(|_| Err(away())).collect();
        }
        self.below().apply(now, commands).await
    }
}
