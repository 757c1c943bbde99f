//! The faulty store and queue do what they are told, and nothing without being told.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_domain::{
    Claim, Event, Handler, Job, JobName, NewTask, Policy, Priority, Quota, StateKind, TaskId,
    TaskRef, Timestamp, Token, Weight, WorkerId, WriteId,
};
use dueline_ports::{
    Command, Create, Delivery, Depth, DueQuery, JobStore as _, PutJob, QueueError, Receipt, Store,
    TaskQueue, TaskStore as _, fakes::MemoryStore,
};
use dueline_testkit::{
    Counters, DueFaults, FaultyQueue, FaultyStore, History, HostGate, QueueFaults, RecordingStore,
    Site, StoreFaults, StoreMethod, StoreRates, Switch, What,
};
use tokio::{sync::Mutex, time::Instant};

fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(millis)
}

fn name() -> JobName {
    JobName::parse("mail").unwrap()
}

fn site() -> Site {
    Site::new(HostGate::new(), Switch::new(true), Counters::new(), 7)
}

async fn store(rates: StoreRates, method: StoreMethod) -> (Arc<MemoryStore>, FaultyStore) {
    let memory = Arc::new(MemoryStore::new());
    let job = Job {
        name: name(),
        info: "".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        paused: false,
        created_by: "test".into(),
        created_at: at(1),
        changed_at: at(1),
    };
    let put = PutJob {
        job,
        if_absent: false,
    };
    memory.put_job(put).await.unwrap();
    let faults = StoreFaults {
        by_method: [(method, rates)].into(),
        ..StoreFaults::default()
    };
    let faulty = FaultyStore::new(memory.clone(), site(), faults);
    (memory, faulty)
}

fn create(number: u8) -> Create {
    Create {
        task: NewTask::now(TaskId::from_bytes([number; 16]), name(), Bytes::new()),
        token: Token::from_random(u64::from(number)),
        write: WriteId::from_random(u64::from(number)),
        hand_on: true,
        claim_for: None,
    }
}

fn claim(number: u8) -> Command {
    let event = Event::Claim(Claim {
        token: Token::from_random(u64::from(number)),
        worker: WorkerId::parse("w@1").unwrap(),
        start: false,
    });
    Command {
        job: name(),
        id: TaskId::from_bytes([number; 16]),
        event,
        write: WriteId::from_random(99),
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_timed_out_afterwards_has_happened() {
    let rates = StoreRates {
        execute_and_timeout: 1_000,
        ..StoreRates::default()
    };
    let (memory, faulty) = store(rates, StoreMethod::Create).await;
    let error = faulty.create(at(2), vec![create(1)]).await.remove(0);
    assert!(error.unwrap_err().outcome_unknown());
    assert_eq!(memory.snapshot().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_timed_out_before_or_was_refused_has_not_happened() {
    for (timeout, unavailable, throttled) in [(1_000, 0, 0), (0, 1_000, 0), (0, 0, 1_000)] {
        let rates = StoreRates {
            timeout,
            unavailable,
            throttled,
            ..StoreRates::default()
        };
        let (memory, faulty) = store(rates, StoreMethod::Create).await;
        let error = faulty.create(at(2), vec![create(1)]).await.remove(0);
        assert_eq!(error.unwrap_err().outcome_unknown(), timeout > 0);
        assert!(memory.snapshot().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_done_twice_is_recognised_by_its_name() {
    let rates = StoreRates {
        execute_twice: 1_000,
        ..StoreRates::default()
    };
    let (_, faulty) = store(rates, StoreMethod::Apply).await;
    faulty
        .create(at(2), vec![create(1)])
        .await
        .remove(0)
        .unwrap();
    let applied = faulty.apply(at(3), vec![claim(1)]).await.remove(0).unwrap();
    assert!(applied.repeated);
    assert_eq!(applied.task.kind(), StateKind::Claimed);
}

#[tokio::test(start_paused = true)]
async fn items_of_a_batch_fail_alone_and_answers_keep_their_order() {
    let rates = StoreRates {
        item_throttled: 500,
        ..StoreRates::default()
    };
    let (memory, faulty) = store(rates, StoreMethod::Create).await;
    let answers = faulty.create(at(2), (1..=20).map(create).collect()).await;
    let stored = memory.snapshot();
    assert!(stored.len() > 2 && stored.len() < 18);
    for (number, answer) in (1..).zip(&answers) {
        let there = stored.iter().any(|task| task.id == create(number).task.id);
        assert_eq!(answer.is_ok(), there);
        if let Ok(created) = answer {
            assert_eq!(created.task.id, create(number).task.id);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn due_rows_come_late_and_stay_after_they_moved() {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let faults = StoreFaults {
        due: DueFaults {
            moved: 1_000,
            late: 500,
        },
        ..StoreFaults::default()
    };
    let faulty = FaultyStore::new(memory.clone(), site(), faults);
    memory.create(at(2), (1..=20).map(create).collect()).await;
    let query = DueQuery {
        now: at(10_000_000),
        limit_per_job: 100,
        pending_limits: Default::default(),
        share: None,
    };
    let first = faulty.due(query.clone()).await.unwrap().tasks.len();
    assert!(first > 2 && first < 18);
    let none = DueQuery {
        now: at(0),
        ..query
    };
    assert_eq!(faulty.due(none).await.unwrap().tasks.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn the_history_keeps_the_order_of_the_store_and_tells_repeats() {
    let (memory, _) = store(StoreRates::default(), StoreMethod::Due).await;
    let history = History::new(at(1));
    let store: Arc<dyn Store> = Arc::new(RecordingStore::new(memory, history.clone()));
    store.create(at(2), vec![create(1)]).await;
    store.apply(at(3), vec![claim(1), claim(1), claim(2)]).await;
    let entries = history.entries();
    assert!(matches!(entries[0].what, What::Stored { verb: None, .. }));
    assert!(
        matches!(&entries[1].what, What::Stored { task, .. } if task.kind() == StateKind::Claimed)
    );
    assert!(matches!(entries[2].what, What::Repeated { .. }));
    assert_eq!(entries.len(), 3);
}

/// Remembers what was sent; everything is received once.
#[derive(Default)]
struct Pipe(Mutex<Vec<TaskRef>>);

#[async_trait]
impl TaskQueue for Pipe {
    async fn ensure(&self, _: &JobName) -> Result<(), QueueError> {
        Ok(())
    }
    async fn remove(&self, _: &JobName) -> Result<(), QueueError> {
        Ok(())
    }
    async fn send(&self, messages: Vec<TaskRef>) -> Vec<Result<(), QueueError>> {
        let answers = messages.iter().map(|_| Ok(())).collect();
        self.0.lock().await.extend(messages);
        answers
    }
    async fn receive(
        &self,
        job: &JobName,
        _: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let got = std::mem::take(&mut *self.0.lock().await);
        if got.is_empty() {
            tokio::time::sleep(wait).await;
        }
        let receipt = Receipt::Local {
            job: job.clone(),
            number: 1,
        };
        let got = got.into_iter().map(|task| Delivery {
            task,
            receipt: receipt.clone(),
            received: 1,
        });
        Ok(got.collect())
    }
    async fn ack(&self, _: Vec<Receipt>) -> Result<(), QueueError> {
        Ok(())
    }
    async fn nack(&self, _: Vec<Receipt>, _: Duration) -> Result<(), QueueError> {
        Ok(())
    }
    async fn extend(&self, _: Vec<Receipt>) -> Result<(), QueueError> {
        Ok(())
    }
    async fn depth(&self, _: &JobName) -> Result<Depth, QueueError> {
        Ok(Depth::default())
    }
    fn visibility_timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
}

fn message(number: u8) -> TaskRef {
    TaskRef {
        job: name(),
        id: TaskId::from_bytes([number; 16]),
        token: Token::from_random(u64::from(number)),
        priority: Priority::default(),
        weight: Weight::ONE,
        due_at: at(1),
        trace: None,
    }
}

async fn received(faults: QueueFaults) -> usize {
    let queue = FaultyQueue::new(Arc::new(Pipe::default()), site(), faults);
    queue.send(vec![message(1)]).await;
    let mut received = 0;
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let wait = Duration::from_secs(1);
        received += queue.receive(&name(), 10, wait).await.unwrap().len();
    }
    received
}

#[tokio::test(start_paused = true)]
async fn messages_are_lost_doubled_and_late_as_told() {
    let faults = QueueFaults {
        delay_max: Duration::from_secs(5),
        ..QueueFaults::default()
    };
    assert_eq!(received(faults).await, 1);
    let lose = 1_000;
    assert_eq!(received(QueueFaults { lose, ..faults }).await, 0);
    let lose_received = 1_000;
    assert_eq!(
        received(QueueFaults {
            lose_received,
            ..faults
        })
        .await,
        0
    );
    let double = 1_000;
    assert_eq!(received(QueueFaults { double, ..faults }).await, 2);
    let delay = 1_000;
    assert_eq!(received(QueueFaults { delay, ..faults }).await, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_random_happens_once_faults_are_off_and_an_outage_refuses_all() {
    let (outage, mut site) = (Switch::new(false), site());
    site.faults.set(false);
    site = site.with(&[&outage]);
    let rates = StoreRates {
        timeout: 1_000,
        ..StoreRates::default()
    };
    let (memory, _) = store(rates, StoreMethod::Create).await;
    let faults = StoreFaults {
        rates,
        ..StoreFaults::default()
    };
    let faulty = FaultyStore::new(memory, site, faults);
    assert!(
        faulty
            .create(at(2), vec![create(1)])
            .await
            .remove(0)
            .is_ok()
    );
    outage.set(true);
    assert!(faulty.job(&name()).await.is_err());
}
