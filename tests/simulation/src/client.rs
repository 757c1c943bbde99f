//! Clients: they submit, change their minds, and may die in between.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Event, Modification, NewTask, Priority, RunningCancel, Task, TaskId, Token, Weight,
};
use dueline_ports::{Clock, Command, Create, Rng, Store, StoreError, TaskQueue, hand_on};
use dueline_runtime::DueSignal;
use dueline_testkit::{History, What};
use tokio::time::{Instant, sleep};

use crate::scenario::{Act, Scenario, Submit};

/// After so many tries a client waits no longer than before.
const TRIES_DOUBLED: u32 = 4;

/// What a frontend has at hand.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn TaskQueue>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) history: History,
    pub(crate) scenario: Arc<Scenario>,
}

impl Client {
    /// Submits the task with this number until the store says yes or the world has healed for long.
    pub(crate) async fn submit(self, number: usize, submit: Submit) {
        let id = Scenario::task_id(number);
        let create = self.create(id, &submit);
        self.history.record(What::SubmitSent { id });
        let until = Instant::now() + Duration::from_secs(120);
        let mut tries = 0;
        while Instant::now() < until {
            let create = vec![create.clone()];
            match self.store.create(self.clock.now(), create).await.pop() {
                Some(Ok(created)) => {
                    self.history.record(What::SubmitAcked { id });
                    if !submit.client_dies {
                        self.hand_on(&created.task).await;
                    }
                    return;
                }
                Some(Err(error)) if error.is_retryable() => {
                    sleep(self.pause() * (1 << tries)).await;
                    tries = (tries + 1).min(TRIES_DOUBLED);
                }
                // Our own submit, whose answer was lost and which a user has changed since.
                Some(Err(StoreError::Exists(_))) => return,
                Some(Err(error)) => panic!("submit of task {number}: {error}"),
                None => panic!("no answer for task {number}"),
            }
        }
    }

    fn create(&self, id: TaskId, submit: &Submit) -> Create {
        let job = self.scenario.jobs[submit.job].name.clone();
        let now = self.clock.now();
        let task = NewTask {
            id_is_given: true,
            run_at: submit.delay.map(|delay| now.after(delay)),
            priority: Priority::new(submit.priority).unwrap_or_default(),
            weight: Weight::ONE,
            ..NewTask::now(id, job, submit.script.payload())
        };
        Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            hand_on: true,
            claim_for: None,
        }
    }

    /// Does to a task what a user does, and tries again a few times.
    pub(crate) async fn act(self, act: Act) {
        let now = self.clock.now();
        let (number, event) = match act {
            Act::Cancel(number) => (number, cancel(RunningCancel::Refuse)),
            Act::Stop(number) => (number, cancel(RunningCancel::Request)),
            Act::Postpone(number, by) => {
                let run_at = Some(now.after(by));
                let change = Modification {
                    run_at,
                    ..Modification::default()
                };
                (number, modify(change, self.rng.token()))
            }
            Act::Hurry(number) => {
                let priority = Priority::new(500).ok();
                let change = Modification {
                    priority,
                    ..Modification::default()
                };
                (number, modify(change, self.rng.token()))
            }
            Act::Redrive(number) => (number, Event::Redrive),
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
                Some(Ok(applied)) => return self.hand_on(&applied.task).await,
                Some(Err(StoreError::Rejected(_) | StoreError::NotFound { .. })) | None => return,
                Some(Err(_)) => sleep(self.pause()).await,
            }
        }
    }

    async fn hand_on(&self, task: &Task) {
        if let Some(at) = task.state.trigger_at() {
            self.due.announce(at);
        }
        hand_on(&*self.queue, [task].into_iter()).await;
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
