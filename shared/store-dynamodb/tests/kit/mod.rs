//! What every test of the store needs: an engine, a table of its own, a store on it.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

pub mod wire;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use bytes::Bytes;
use dueline_aws::{AwsSettings, Cost, Meter};
use dueline_domain::{
    Claim, Event, Handler, Jitter, Job, JobName, NewTask, Outcome, Policy, Quota, RetryClass, Task,
    Timestamp, Trigger, WorkerId,
};
use dueline_ports::{
    Applied, Command, Create, DuePage, DueQuery, JobStore as _, PutJob, Rng as _, StoreError,
    TaskStore as _, fakes::SeededRng,
};
use dueline_store_dynamodb::{
    DynamoOptions, DynamoStore,
    setup::{self, Site, Wanted},
};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY};

#[allow(unused_imports, reason = "each test file uses a part of it")]
pub use wire::{Act, Wire};

pub fn aws(endpoint: &str) -> AwsSettings {
    AwsSettings {
        region: Some(REGION.into()),
        endpoint: Some(endpoint.into()),
        keys: Some((ACCESS_KEY.into(), SECRET_KEY.into())),
        timeout: Duration::from_secs(20),
        ..AwsSettings::default()
    }
}

/// The engine that all tests of this process share.
pub async fn endpoint() -> String {
    dueline_tests_engines::dynamodb().await.url.to_string()
}

pub async fn site() -> Site {
    let settings = aws(&endpoint().await);
    Site::of(&settings).await.expect("a client")
}

pub async fn client() -> Client {
    site().await.client
}

/// Makes a table and answers options for it, with everything that waits set to zero.
pub async fn table(slots: u16) -> DynamoOptions {
    let site = site().await;
    let name = dueline_tests_engines::unique("store");
    let wanted = Wanted {
        table: name.to_string(),
        slots,
        backups: false,
    };
    let found = site.inspect(&wanted.table).await.expect("an answer");
    let steps = setup::plan(&found, &wanted);
    site.carry_out(&wanted.table, &steps)
        .await
        .expect("a table");
    DynamoOptions {
        aws: aws(&endpoint().await),
        slots,
        definitions_ttl: Duration::ZERO,
        idle_poll: Duration::ZERO,
        ..DynamoOptions::of(wanted.table)
    }
}

/// A store on a table.
pub async fn open(options: &DynamoOptions) -> Arc<DynamoStore> {
    let store = DynamoStore::open(options.clone(), Meter::default()).await;
    Arc::new(store.expect("a store"))
}

/// A store on a table of its own.
pub async fn fresh() -> Arc<DynamoStore> {
    open(&table(4).await).await
}

/// A store on a table of its own whose calls go over a wire.
pub async fn wired() -> (Arc<DynamoStore>, Wire) {
    let options = table(4).await;
    wired_to(&options).await
}

/// A store on a table whose calls go over a wire.
pub async fn wired_to(options: &DynamoOptions) -> (Arc<DynamoStore>, Wire) {
    let (client, wire) = Wire::client(&endpoint().await).await;
    let store = DynamoStore::open_at(client.into(), options.clone(), Meter::default()).await;
    let store = Arc::new(store.expect("a store"));
    wire.take();
    (store, wire)
}

/// A point in time, told from the beginning of the test.
pub fn at(ms: i64) -> Timestamp {
    Timestamp::clamped(1_800_000_000_000 + ms)
}

pub fn job(name: &str) -> Job {
    Job {
        name: JobName::parse(name).expect("a name"),
        info: "for tests".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        paused: false,
        created_by: "test".into(),
        created_at: at(0),
        changed_at: at(0),
    }
}

/// Steps of tasks, without ceremony.
pub struct Play {
    pub store: Arc<DynamoStore>,
    pub rng: SeededRng,
}

impl Play {
    pub async fn new(store: Arc<DynamoStore>) -> Self {
        let rng = SeededRng::new(fastrand());
        let play = Self { store, rng };
        play.put(job("mail")).await;
        play
    }

    pub fn with(&self, store: &Arc<DynamoStore>) -> Self {
        Self {
            store: store.clone(),
            rng: SeededRng::new(self.rng.next_u64()),
        }
    }

    pub async fn put(&self, job: Job) {
        let if_absent = false;
        let put = self.store.put_job(PutJob { job, if_absent }).await;
        put.expect("a job");
    }

    pub fn task(&self, payload_bytes: usize) -> NewTask {
        let name = JobName::parse("mail").expect("a name");
        NewTask::now(self.rng.task_id(at(0)), name, vec![7; payload_bytes].into())
    }

    pub fn order(&self, task: NewTask) -> Create {
        Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            hand_on: true,
            claim_for: None,
        }
    }

    pub async fn create(&self, ms: i64, new: NewTask) -> Task {
        let order = self.order(new);
        let mut created = self.store.create(at(ms), vec![order]).await;
        *created.remove(0).expect("a task").task
    }

    pub fn command(&self, task: &Task, event: Event) -> Command {
        Command {
            job: task.job.clone(),
            id: task.id,
            event,
            write: self.rng.write_id(),
        }
    }

    pub async fn send(&self, ms: i64, command: Command) -> Result<Applied, StoreError> {
        self.store.apply(at(ms), vec![command]).await.remove(0)
    }

    pub async fn step(&self, ms: i64, task: &Task, event: Event) -> Task {
        let applied = self.send(ms, self.command(task, event)).await;
        *applied.expect("a legal step").task
    }

    pub fn claim_event(&self, task: &Task) -> Event {
        Event::Claim(Claim {
            token: task.state.token().expect("a token"),
            worker: WorkerId::new("some-executor-7", 0x1234_5678_9abc_def0).expect("a worker"),
            start: true,
        })
    }

    pub async fn run(&self, ms: i64, task: &Task) -> Task {
        self.step(ms, task, self.claim_event(task)).await
    }

    pub fn finish_event(&self, task: &Task, outcome: Outcome) -> Event {
        Event::Finish {
            token: task.state.token().expect("a token"),
            started_at: None,
            outcome,
            jitter: Jitter::default(),
        }
    }

    pub async fn finish(&self, ms: i64, task: &Task, outcome: Outcome) -> Task {
        self.step(ms, task, self.finish_event(task, outcome)).await
    }

    pub async fn succeed(&self, ms: i64, task: &Task) -> Task {
        let result = Some(Bytes::from_static(b"done"));
        self.finish(ms, task, Outcome::Success { result }).await
    }

    pub async fn fail(&self, ms: i64, task: &Task, error: &str) -> Task {
        let outcome = Outcome::Retriable {
            class: RetryClass::Standard,
            delay: None,
            error: error.into(),
        };
        self.finish(ms, task, outcome).await
    }

    pub async fn trigger(&self, ms: i64, task: &Task) -> Task {
        let event = Event::Trigger(Trigger {
            seen: task.kind(),
            seen_at: task.state.trigger_at().expect("a trigger time"),
            token: self.rng.token(),
            jitter: Jitter::default(),
        });
        self.step(ms, task, event).await
    }

    pub async fn get(&self, task: &Task) -> Option<Task> {
        self.store
            .get(&task.job, &task.id)
            .await
            .expect("an answer")
    }

    pub async fn due(&self, ms: i64, limit: usize) -> DuePage {
        let query = DueQuery {
            now: at(ms),
            limit_per_job: limit,
            pending_limits: BTreeMap::new(),
            share: None,
        };
        self.store.due(query).await.expect("a page")
    }

    pub fn spent(&self) -> Cost {
        self.store.meter().total()
    }
}

/// Seeds differ, so that ids of tests that share a table do.
fn fastrand() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

/// Bytes of a task's own item, as DynamoDB counts them for everything but numbers, which are taken at their longest.
pub async fn size_of(play: &Play, task: &Task) -> usize {
    let item = raw(play, task).await;
    let value = |value: &AttributeValue| match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::B(blob) => blob.as_ref().len(),
        AttributeValue::N(digits) => digits.len() / 2 + 2,
        AttributeValue::L(list) => {
            let each = list.iter().map(|value| match value {
                AttributeValue::S(text) => 1 + text.len(),
                AttributeValue::B(blob) => 1 + blob.as_ref().len(),
                other => panic!("{other:?} in a list"),
            });
            3 + each.sum::<usize>()
        }
        AttributeValue::Bool(_) => 1,
        other => panic!("{other:?} in a task"),
    };
    item.iter()
        .map(|(name, found)| name.len() + value(found))
        .sum()
}

/// A task's own item as it is stored, found by going through the slots.
pub async fn raw(play: &Play, task: &Task) -> HashMap<String, AttributeValue> {
    let key = key_of(play, task).await;
    let client = client().await;
    let call = client
        .get_item()
        .table_name(play.store.table())
        .set_key(Some(key));
    let answer = call.consistent_read(true).send().await.expect("an answer");
    answer.item.expect("the item")
}

/// The key of a task's own item.
pub async fn key_of(play: &Play, task: &Task) -> HashMap<String, AttributeValue> {
    let client = client().await;
    let id = AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new(task.id.as_bytes()));
    let found = client
        .scan()
        .table_name(play.store.table())
        .filter_expression("sk = :id")
        .expression_attribute_values(":id", id)
        .send()
        .await
        .expect("an answer");
    let mut item = found.items.expect("items").remove(0);
    item.retain(|name, _| name == "pk" || name == "sk");
    item
}
