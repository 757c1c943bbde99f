//! Sits directly on a store and records every write in the order in which the store accepted it.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_domain::{Task, Timestamp, Verb};
use dueline_ports::{Applied, Command, Create, Created, Store, StoreError, fakes::StoreLayer};

use super::{History, What};

/// A store whose writes are recorded.
///
/// The order is true only if the store answers a batch within one poll, as the one in memory does; so nothing but a
/// store in memory belongs below this.
pub struct RecordingStore {
    inner: Arc<dyn Store>,
    history: History,
}

impl RecordingStore {
    /// Records into `history` what happens to `inner`.
    pub fn new(inner: Arc<dyn Store>, history: History) -> Self {
        Self { inner, history }
    }

    fn stored(&self, verb: Option<Verb>, now: Timestamp, task: &Task, repeated: bool) {
        let id = task.id;
        self.history.record(match repeated {
            true => What::Repeated { verb, id },
            false => What::Stored {
                verb,
                now,
                task: Box::new(task.clone()),
            },
        });
    }
}

#[async_trait]
impl StoreLayer for RecordingStore {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let answers = self.inner.create(now, new).await;
        for created in answers.iter().flatten() {
            self.stored(None, now, &created.task, created.existed);
        }
        answers
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let told: Vec<_> = commands.iter().map(|c| (c.event.verb(), c.id)).collect();
        let answers = self.inner.apply(now, commands).await;
        for ((verb, id), answer) in told.into_iter().zip(&answers) {
            match answer {
                Ok(applied) => self.stored(Some(verb), now, &applied.task, applied.repeated),
                Err(StoreError::Rejected(rejected)) => self.history.record(What::Refused {
                    verb,
                    id,
                    state: rejected.state,
                    reason: rejected.reason,
                }),
                Err(_) => {}
            }
        }
        answers
    }
}
