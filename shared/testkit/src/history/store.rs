//! Records the writes of a store in the order in which the store accepts them.

use std::sync::Arc;

use async_trait::async_trait;
use dueline_domain::{Task, Timestamp, Verb};
use dueline_ports::{
    Applied, Command, Create, Created, PutSchedule, Store, StoreError, fakes::StoreLayer,
};

use super::{EventHistory, HistoryEvent};

/// A store whose writes are recorded.
///
/// The order is true only if the store completes a batch within one poll of its future. Only a store in memory does,
/// so no other store may be below.
pub struct RecordingStore {
    inner: Arc<dyn Store>,
    history: EventHistory,
}

impl RecordingStore {
    /// Records the writes of `inner` in `history`.
    pub fn new(inner: Arc<dyn Store>, history: EventHistory) -> Self {
        Self { inner, history }
    }

    fn stored(&self, verb: Option<Verb>, now: Timestamp, task: &Task, repeated: bool) {
        let id = task.id;
        self.history.record(match repeated {
            true => HistoryEvent::Repeated { verb, id },
            false => HistoryEvent::Stored {
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
            let verb = created.replaced.then_some(Verb::Replace);
            let repeated = created.existed && !created.replaced;
            self.stored(verb, now, &created.task, repeated);
        }
        answers
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let verbs: Vec<_> = commands.iter().map(|c| (c.event.verb(), c.id)).collect();
        let answers = self.inner.apply(now, commands).await;
        for ((verb, id), answer) in verbs.into_iter().zip(&answers) {
            match answer {
                Ok(applied) => self.stored(Some(verb), now, &applied.task, applied.repeated),
                Err(StoreError::Rejected(rejected)) => self.history.record(HistoryEvent::Refused {
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

    async fn put_schedules(&self, puts: Vec<PutSchedule>) -> Vec<Result<bool, StoreError>> {
        let mut results = Vec::with_capacity(puts.len());
        for put in puts {
            let schedule = Box::new(put.schedule.clone());
            let stored = self.inner.schedule(&schedule.job, &schedule.name).await;
            let write = stored.ok().flatten().map(|stored| stored.write);
            let result = self.inner.put_schedules(vec![put]).await;
            if matches!(result[..], [Ok(true)]) && write != Some(schedule.write) {
                self.history
                    .record(HistoryEvent::ScheduleStored { schedule });
            } else if matches!(result[..], [Ok(false)]) {
                self.history
                    .record(HistoryEvent::Note("schedule had changed"));
            }
            results.extend(result);
        }
        results
    }
}
