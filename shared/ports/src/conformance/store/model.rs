//! Compares the store with the pure function: the same commands, in a seeded random order, must have the same results
//! and leave the same tasks. This finds a store that decides by itself or stores a field differently.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use dueline_domain::{
    ClaimChosen, ClaimLifetime, Close, Due, EdgeKind, Effect, Event, Family, Job, Modification,
    NewTask, Outcome, Overrides, Policy, Predecessor, Priority, Reclaim, Rejected, Release,
    RetryClass, RetryPolicy, RunningCancel, Settle, Sink, StateKind, Task, TaskAddress, TaskEnd,
    TaskId, TaskOptions, Timestamp, Token, Trigger, check_transition,
};

use super::kit::{StoreKit, at, job, retriable, secs, success, token, worker};
use crate::{Applied, Command, DueTask, ListQuery, Rng as _, Store, StoreError};

pub async fn random_commands_match_the_pure_function_seed_1(store: Arc<dyn Store>) {
    run(store, 1).await;
}

pub async fn random_commands_match_the_pure_function_seed_2(store: Arc<dyn Store>) {
    run(store, 2).await;
}

pub async fn random_commands_match_the_pure_function_seed_3(store: Arc<dyn Store>) {
    run(store, 3).await;
}

const COMMANDS: usize = 300;
const TASKS: usize = 8;

/// The tasks as the store should have them, and the latest commands.
struct StoreModel {
    kit: StoreKit,
    policy: Policy,
    tasks: Vec<Task>,
    sent: VecDeque<Command>,
    now_ms: i64,
}

/// The result of a command by the pure function: the task and whether the command is a repetition.
type Expected = Result<(Task, bool), Rejected>;

async fn run(store: Arc<dyn Store>, seed: u64) {
    let mut model = StoreModel::new(store, seed).await;
    let mut left = COMMANDS;
    while left > 0 {
        let batch = (1 + model.below(4)).min(left);
        left -= batch;
        // The clock mostly advances a little, sometimes steps back, and sometimes jumps past a timeout.
        model.now_ms += match model.below(10) {
            0 => -2_000,
            1 | 2 => 9_000,
            _ => i64::try_from(model.below(1_500)).expect("small"),
        };
        model.send(batch, seed).await;
        if left.is_multiple_of(7) {
            model.compare(seed).await;
        }
    }
    model.compare(seed).await;
}

impl StoreModel {
    async fn new(store: Arc<dyn Store>, seed: u64) -> Self {
        let mut kit = StoreKit::new(store).await;
        kit.rng = crate::fakes::SeededRng::new(seed);
        let policy = Policy {
            retry: RetryPolicy {
                retries_max: Some(2),
                ..RetryPolicy::default()
            },
            run_timeout: Some(secs(30)),
            losses_max: 2,
            sink: Sink::parse("file:done").ok(),
            ..Policy::default()
        };
        kit.put(Job {
            policy: policy.clone(),
            ..job("mail")
        })
        .await;
        let mut tasks = Vec::new();
        for n in 0..TASKS {
            let overrides = (n % 3 == 0).then(|| Overrides {
                retries_max: Some(5),
                heartbeat_timeout: Some(secs(3)),
                ..Overrides::default()
            });
            let family = (n % 4 == 2).then(|| {
                let after = (0..3).map(predecessor).map(Predecessor::open).collect();
                Box::new(Family {
                    after,
                    ..Family::default()
                })
            });
            let options = (n % 2 == 0).then(|| {
                Box::new(TaskOptions {
                    name: Some("model".into()),
                    overrides,
                    family,
                    ..TaskOptions::default()
                })
            });
            let new = NewTask {
                due: Due::from((n % 4 == 1).then(|| at(2_000))),
                options,
                ..kit.new_task()
            };
            tasks.push(kit.create(0, new).await);
        }
        Self {
            kit,
            policy,
            tasks,
            sent: VecDeque::new(),
            now_ms: 0,
        }
    }

    fn below(&self, bound: usize) -> usize {
        let number = self.kit.rng.below(bound as u64);
        usize::try_from(number).expect("small")
    }

    /// Sends a batch of commands and checks each result.
    async fn send(&mut self, batch: usize, seed: u64) {
        let (mut commands, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..batch {
            let command = self.command();
            expected.push(self.expect(&command));
            commands.push(command);
        }
        let now = at(self.now_ms);
        let answers = self.kit.store.apply(now, commands.clone()).await;
        assert_eq!(answers.len(), batch);
        for ((command, expected), answer) in commands.iter().zip(expected).zip(answers) {
            let context = format!("seed {seed}, at {now}: {command:?}");
            check(&context, expected, answer);
        }
    }

    /// Applies `command` to the model and returns the expected result.
    fn expect(&mut self, command: &Command) -> Expected {
        let find = |task: &&mut Task| task.id == command.id;
        let task = self.tasks.iter_mut().find(find).expect("a task");
        if task.write == command.write {
            return Ok((task.clone(), true));
        }
        let now = at(self.now_ms);
        let decided =
            dueline_domain::apply(task, &self.policy, &command.event, command.write, now)?;
        let before = task.clone();
        task.advance(decided);
        check_transition(&before, task).unwrap_or_else(|broken| panic!("{command:?}: {broken}"));
        Ok((task.clone(), false))
    }

    /// A random command, sometimes a repetition of the latest one.
    fn command(&mut self) -> Command {
        if self.below(8) == 0
            && let Some(latest) = self.sent.back()
        {
            return latest.clone();
        }
        let task = &self.tasks[self.below(TASKS)];
        let command = self.kit.command(task, self.event(task));
        self.sent.push_back(command.clone());
        if self.sent.len() > 3 {
            self.sent.pop_front();
        }
        command
    }

    /// The token of the task, or an unknown one.
    fn token(&self, task: &Task) -> Token {
        match task.state.token() {
            Some(token) if self.below(8) > 0 => token,
            _ => self.kit.rng.token(),
        }
    }

    /// A random event. Half of the events lead the task towards its end.
    fn event(&self, task: &Task) -> Event {
        let token = self.token(task);
        if self.below(2) == 0 {
            match task.kind() {
                StateKind::New | StateKind::Retriable => return self.trigger(task),
                StateKind::Waiting => return self.release(),
                StateKind::Enqueued => return self.claim(task),
                StateKind::Claimed => return Event::Start { token },
                StateKind::Processing => return self.finish(token),
                _ if self.below(3) == 0 => return self.close(task),
                _ if self.below(2) == 0 => return self.settle(task),
                _ => return Event::Redrive,
            }
        }
        let text = || format!("text {}", self.below(100)).into();
        let bytes = || Bytes::from(vec![7; self.below(40)]);
        match self.below(16) {
            0 if self.below(3) == 0 => {
                Event::Follow([EdgeKind::Follower, EdgeKind::Child][self.below(2)])
            }
            0 => self.release(),
            1 | 2 => self.trigger(task),
            3 => Event::Reclaim(Reclaim {
                token,
                next: self.kit.rng.token(),
                jitter: self.kit.rng.jitter(),
            }),
            4 => self.claim(task),
            5 => Event::Start { token },
            6 => Event::Heartbeat { token },
            7 => Event::Extend {
                token,
                by: secs(self.below(60) as u64),
            },
            8 => Event::Checkpoint {
                token,
                payload: bytes(),
            },
            9 => self.finish(token),
            10 => Event::Abandon {
                token,
                next: self.kit.rng.token(),
            },
            11 => Event::Trash {
                token,
                reason: text(),
            },
            12 => Event::Cancel {
                running: [RunningCancel::Request, RunningCancel::Refuse][self.below(2)],
                reason: (self.below(2) == 0).then(text),
            },
            13 => Event::Modify {
                change: Modification {
                    run_at: (self.below(2) == 0).then(|| at(self.now_ms + 500)),
                    priority: Priority::new(self.below(9) as i64).ok(),
                    weight: None,
                    payload: (self.below(2) == 0).then(bytes),
                },
                token: self.kit.rng.token(),
            },
            14 if self.below(4) == 0 => Event::Drop { reason: text() },
            _ => Event::Redrive,
        }
    }

    /// One of the tasks that the waiting ones of the model wait for has ended.
    fn release(&self) -> Event {
        let ends = [TaskEnd::Succeeded, TaskEnd::Succeeded, TaskEnd::Failed];
        Event::Release(Release {
            kind: EdgeKind::Follower,
            from: predecessor(self.below(3)),
            end: ends[self.below(3)],
            token: (self.below(3) > 0).then(|| self.kit.rng.token()),
        })
    }

    fn trigger(&self, task: &Task) -> Event {
        let seen_at = task.state.trigger_at().unwrap_or(Timestamp::EPOCH);
        let stale = self.below(10) == 0;
        Event::Trigger(Trigger {
            seen: if stale { StateKind::New } else { task.kind() },
            seen_at,
            token: self.kit.rng.token(),
            jitter: self.kit.rng.jitter(),
        })
    }

    fn settle(&self, task: &Task) -> Event {
        let failed = (self.below(2) == 0).then(|| ("down".into(), self.kit.rng.jitter()));
        Event::Settle(Settle {
            seen: task.write,
            effect: Effect::ALL[self.below(Effect::ALL.len())],
            failed,
        })
    }

    fn close(&self, task: &Task) -> Event {
        Event::Close(Close {
            seen: task.write,
            failed: (self.below(2) == 0).then_some(1),
        })
    }

    fn claim(&self, task: &Task) -> Event {
        let name = ["a", "b", "c"][self.below(3)];
        if self.below(3) == 0 {
            let lifetimes = [
                ClaimLifetime::OfJob,
                ClaimLifetime::For(secs(90)),
                ClaimLifetime::Never,
            ];
            return Event::ClaimChosen(ClaimChosen {
                token: self.kit.rng.token(),
                worker: worker(name),
                lifetime: lifetimes[self.below(3)],
            });
        }
        Event::Claim(dueline_domain::Claim {
            token: self.token(task),
            worker: worker(name),
            start: self.below(2) == 0,
        })
    }

    fn finish(&self, token: Token) -> Event {
        let outcome = match self.below(5) {
            0 => success("done"),
            1 => super::kit::fatal("fatal"),
            2 => Outcome::Cancelled,
            3 => retriable("once more"),
            _ => Outcome::Retriable {
                class: RetryClass::ALL[self.below(RetryClass::ALL.len())],
                delay: (self.below(2) == 0).then(|| secs(4)),
                error: "once more".into(),
            },
        };
        Event::Finish {
            token,
            started_at: (self.below(3) == 0).then(|| at(self.now_ms - 100)),
            outcome,
            jitter: self.kit.rng.jitter(),
        }
    }

    /// Compares the result of every read call with the model.
    async fn compare(&self, seed: u64) {
        let job = &self.tasks[0].job;
        for task in &self.tasks {
            assert_eq!(self.kit.get(task).await, *task, "seed {seed}");
        }
        let newest_first: Vec<Task> = self.tasks.iter().rev().cloned().collect();
        let listed = self.kit.list_by(&ListQuery::of(job.clone()), 3).await;
        assert_eq!(listed, newest_first, "seed {seed}");

        let page = self.kit.due(self.now_ms).await;
        let priority = |due: &DueTask| {
            let task = self.tasks.iter().find(|task| task.id == due.id);
            task.expect("a known task").priority
        };
        let in_order = |due: &DueTask| {
            let comes_last = matches!(due.kind, StateKind::Enqueued | StateKind::Waiting);
            (comes_last, Reverse(priority(due)), due.trigger_at)
        };
        assert!(page.tasks.is_sorted_by_key(in_order));
        assert!(page.owed.is_sorted_by_key(|due| due.trigger_at));
        let mut due: Vec<_> = page.tasks.into_iter().chain(page.owed).collect();
        due.sort_unstable_by_key(|due| due.id);
        let due: Vec<_> = due.iter().map(|d| (d.id, d.kind, d.trigger_at)).collect();
        let is_due = |task: &&Task| {
            let at_or_before = task.trigger_at();
            at_or_before.is_some_and(|trigger_at| trigger_at <= at(self.now_ms))
        };
        let expected = self.tasks.iter().filter(is_due);
        let expected = expected.map(|t| (t.id, t.kind(), t.trigger_at().expect("due")));
        let mut expected: Vec<_> = expected.collect();
        expected.sort_unstable_by_key(|due| due.0);
        assert_eq!(due, expected, "seed {seed}");

        let mut owned = self
            .kit
            .store
            .owned(at(10), None)
            .await
            .expect("owned tasks");
        owned.sort_unstable_by_key(|owned| owned.id);
        let owned: Vec<_> = owned.iter().map(|o| (o.id, o.kind, o.token)).collect();
        let expected = self.tasks.iter().filter(|task| task.kind().is_owned());
        let mut expected: Vec<_> = expected.map(|t| (t.id, t.kind(), token(t))).collect();
        expected.sort_unstable_by_key(|owned| owned.0);
        assert_eq!(owned, expected, "seed {seed}");

        let mut ready: Vec<_> = self.tasks.iter().filter_map(Task::message).collect();
        ready.sort_by_key(|message| (std::cmp::Reverse(message.priority), message.due_at));
        let read = self.kit.store.ready(job, 100).await.expect("ready tasks");
        assert_eq!(read, ready, "seed {seed}");

        let mut counts = BTreeMap::new();
        for task in &self.tasks {
            *counts.entry(task.kind()).or_default() += 1;
        }
        let stats = self.kit.store.stats(job).await.expect("stats");
        assert_eq!(stats.by_state, counts, "seed {seed}");
    }
}

/// A task that the waiting tasks of the model wait for. It is not stored: events name it.
fn predecessor(number: usize) -> TaskAddress {
    let number = u8::try_from(number).expect("small");
    let id = TaskId::from_bytes([number; 16]);
    let job = super::kit::job_name("import");
    TaskAddress { job, id }
}

fn check(context: &str, expected: Expected, answer: Result<Applied, StoreError>) {
    match (expected, answer) {
        (Ok((task, repeated)), Ok(applied)) => {
            assert_eq!(*applied.task, task, "{context}");
            assert_eq!(applied.repeated, repeated, "{context}");
        }
        (Err(expected), Err(StoreError::Rejected(rejected))) => {
            assert_eq!(rejected, expected, "{context}");
        }
        (expected, answer) => panic!("{context}: expected {expected:?}, got {answer:?}"),
    }
}
