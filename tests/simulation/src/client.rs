//! Clients: they submit and change tasks, and may die between the store's answer and the message.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Due, Event, Family, Modification, NewTask, Predecessor, Priority, RunningCancel, Task,
    TaskAddress, TaskId, TaskOptions, Token, Weight, WriteId,
};
use dueline_ports::{
    Clock, Command, Create, PutSchedule, Rng, Store, StoreError, TaskQueue, send_enqueued,
};
use dueline_runtime::{DueSignal, EndSignal, Families, Follower, Performer};
use dueline_schedule::Change;
use dueline_testkit::{EventHistory, HistoryEvent};
use dueline_trace::Began;
use tokio::time::{Instant, sleep};

use crate::scenario::{PlannedChange, PlannedFamily, PlannedSubmit, Scenario, UserAction};

/// The pause between tries doubles at most this many times.
const PAUSE_DOUBLINGS_MAX: u32 = 4;

/// A client, with the store and queue that its frontend uses.
#[derive(Clone)]
pub(crate) struct SimulatedClient {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn TaskQueue>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) history: EventHistory,
    pub(crate) scenario: Arc<Scenario>,
}

impl SimulatedClient {
    /// Submits the task with this number until the store accepts it, for two minutes at most.
    pub(crate) async fn submit(self, number: usize, submit: PlannedSubmit) {
        let id = Scenario::task_id(number);
        let create = self.create(id, &submit);
        if !self.wait_for_family(&create).await {
            return;
        }
        self.history.record(HistoryEvent::SubmitSent { id });
        let until = Instant::now() + Duration::from_secs(120);
        let mut tries = 0;
        while Instant::now() < until {
            let create = vec![create.clone()];
            match self.store.create(self.clock.now(), create).await.pop() {
                Some(Ok(created)) => {
                    self.history.record(HistoryEvent::SubmitAcked { id });
                    if !submit.client_dies {
                        self.send_enqueued(&created.task).await;
                        self.link(&created.task).await;
                    }
                    return;
                }
                Some(Err(error)) if error.is_retryable() => {
                    sleep(self.pause() * (1 << tries)).await;
                    tries = (tries + 1).min(PAUSE_DOUBLINGS_MAX);
                }
                // An earlier try was stored, its answer was lost, and a user has changed the task since.
                Some(Err(StoreError::Exists(_))) => return,
                Some(Err(error)) => panic!("submit of task {number}: {error}"),
                None => panic!("no answer for task {number}"),
            }
        }
    }

    fn create(&self, id: TaskId, submit: &PlannedSubmit) -> Create {
        let job = self.scenario.jobs[submit.job].name.clone();
        let now = self.clock.now();
        let task = NewTask {
            id_is_given: true,
            due: Due::from(submit.delay.map(|delay| now.after(delay))),
            priority: Priority::new(submit.priority).unwrap_or_default(),
            weight: Weight::ONE,
            options: self.options(&submit.family),
            ..NewTask::now(id, job, submit.script.payload())
        };
        Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            may_enqueue: true,
            claim_for: None,
        }
    }

    fn options(&self, planned: &PlannedFamily) -> Option<Box<TaskOptions>> {
        let predecessor = |number: &usize| {
            let job = &self.scenario.jobs[self.scenario.submits[*number].job];
            Predecessor::open(TaskAddress {
                job: job.name.clone(),
                id: Scenario::task_id(*number),
            })
        };
        let family = Family {
            after: planned.after.iter().map(predecessor).collect(),
            parent: planned.parent.as_ref().map(predecessor),
            trigger_on: planned.trigger_on,
            ..Family::default()
        };
        (!family.after.is_empty() || family.parent.is_some()).then(|| {
            Box::new(TaskOptions {
                family: Some(Box::new(family)),
                ..TaskOptions::default()
            })
        })
    }

    /// Waits until what the task waits for is stored, as a user does who submits one after the other. Answers whether it is.
    async fn wait_for_family(&self, create: &Create) -> bool {
        let mut named = Vec::new();
        if let Some(family) = create.task.family() {
            named.extend(family.after.iter().map(|one| one.task.clone()));
            named.extend(family.parent.iter().map(|one| one.task.clone()));
        }
        for task in named {
            let until = Instant::now() + Duration::from_secs(120);
            while !matches!(self.store.get(&task.job, &task.id).await, Ok(Some(_))) {
                if Instant::now() > until {
                    return false;
                }
                sleep(self.pause()).await;
            }
        }
        true
    }

    /// Connects a stored task with what it waits for, with a few retries. The consumer finds what is missing.
    async fn link(&self, task: &Task) {
        if task.family().is_none() {
            return;
        }
        let follower = Follower::of(task.address(), task.family());
        let ended = EndSignal::default();
        for _ in 0..3 {
            let performer = Performer {
                queue: &*self.queue,
                due: &self.due,
                ended: &ended,
            };
            let families = Families {
                store: &*self.store,
                clock: &*self.clock,
                rng: &*self.rng,
                performer,
            };
            if families.link(std::slice::from_ref(&follower)).await.is_ok() {
                return;
            }
            sleep(self.pause()).await;
        }
    }

    /// Applies a user's action to a task, with a few retries.
    pub(crate) async fn apply(self, action: UserAction) {
        let now = self.clock.now();
        let (number, event) = match action {
            UserAction::Cancel(number) => (number, cancel(RunningCancel::Refuse)),
            UserAction::Stop(number) => (number, cancel(RunningCancel::Request)),
            UserAction::Postpone(number, by) => {
                let run_at = Some(now.after(by));
                let change = Modification {
                    run_at,
                    ..Modification::default()
                };
                (number, modify(change, self.rng.token()))
            }
            UserAction::RaisePriority(number) => {
                let priority = Priority::new(500).ok();
                let change = Modification {
                    priority,
                    ..Modification::default()
                };
                (number, modify(change, self.rng.token()))
            }
            UserAction::Redrive(number) => (number, Event::Redrive),
        };
        let command = Command {
            job: self.scenario.jobs[self.scenario.submits[number].job]
                .name
                .clone(),
            id: Scenario::task_id(number),
            event,
            write: self.rng.write_id(),
        };
        for _ in 0..5 {
            let commands = vec![command.clone()];
            match self.store.apply(self.clock.now(), commands).await.pop() {
                Some(Ok(applied)) => return self.send_enqueued(&applied.task).await,
                Some(Err(StoreError::Rejected(_) | StoreError::NotFound { .. })) | None => return,
                Some(Err(_)) => sleep(self.pause()).await,
            }
        }
    }

    /// Changes a schedule, with a few retries. A change whose answer was lost may happen twice.
    pub(crate) async fn change_schedule(self, planned: PlannedChange) {
        let write = self.rng.write_id();
        for _ in 0..8 {
            let change = planned.change.clone();
            match self.try_change(planned.schedule, change, write).await {
                Ok(true) => return,
                Ok(false) | Err(_) => sleep(self.pause()).await,
            }
        }
    }

    /// Changes a schedule unless another process changes it in the meantime. Answers whether there is nothing left to do.
    async fn try_change(
        &self,
        number: usize,
        change: Change,
        write: WriteId,
    ) -> Result<bool, StoreError> {
        let planned = &self.scenario.schedules[number];
        let job = &self.scenario.jobs[planned.job].name;
        let Some(stored) = self.store.schedule(job, &planned.name).await? else {
            return Ok(false);
        };
        let seen = Some(stored.write);
        if seen == Some(write) {
            return Ok(true);
        }
        let Ok(schedule) = change.apply(stored, self.clock.now(), write) else {
            return Ok(true);
        };
        let puts = vec![PutSchedule { schedule, seen }];
        let result = self.store.put_schedules(puts).await.pop();
        result.unwrap_or(Ok(false))
    }

    async fn send_enqueued(&self, task: &Task) {
        if let Some(at) = task.state.trigger_at() {
            self.due.announce(at);
        }
        send_enqueued(&*self.queue, [task].into_iter(), Began::now()).await;
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(50 + self.rng.next_u64() % 500)
    }
}

fn cancel(running: RunningCancel) -> Event {
    Event::Cancel {
        running,
        reason: Some("changed my mind".into()),
    }
}

fn modify(change: Modification, token: Token) -> Event {
    Event::Modify { change, token }
}
