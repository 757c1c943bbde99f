//! The kit of the store's tests: an engine, a table for each test, and stores on it.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

pub mod faulty_connection;

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
    setup::{self, SetupClient, TableSpec},
};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY};

#[allow(unused_imports, reason = "each test file uses a part of it")]
pub use faulty_connection::{Fault, FaultyConnection};

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

pub async fn setup_client() -> SetupClient {
    let settings = aws(&endpoint().await);
    SetupClient::of(&settings).await.expect("a client")
}

pub async fn client() -> Client {
    setup_client().await.client
}

/// Creates a table and answers options for it, without any waiting times.
pub async fn table(slots: u16) -> DynamoOptions {
    let setup_client = setup_client().await;
    let name = dueline_tests_engines::unique("store");
    let spec = TableSpec {
        table: name.to_string(),
        slots,
        backups: false,
    };
    let found = setup_client.inspect(&spec.table).await.expect("an answer");
    let steps = setup::plan(&found, &spec);
    setup_client
        .execute(&spec.table, &steps)
        .await
        .expect("a table");
    DynamoOptions {
        aws: aws(&endpoint().await),
        slots,
        definitions_ttl: Duration::ZERO,
        idle_poll: Duration::ZERO,
        ..DynamoOptions::of(spec.table)
    }
}

/// A store on a table.
pub async fn open(options: &DynamoOptions) -> Arc<DynamoStore> {
    let store = DynamoStore::open(options.clone(), Meter::default()).await;
    Arc::new(store.expect("a store"))
}

/// A store on a new table.
pub async fn fresh() -> Arc<DynamoStore> {
    open(&table(4).await).await
}

/// A store on a new table, over a connection that can be faulty.
pub async fn faulty() -> (Arc<DynamoStore>, FaultyConnection) {
    let options = table(4).await;
    faulty_on(&options).await
}

/// A store on a table, over a connection that can be faulty.
pub async fn faulty_on(options: &DynamoOptions) -> (Arc<DynamoStore>, FaultyConnection) {
    let (client, connection) = FaultyConnection::client(&endpoint().await).await;
    let store = DynamoStore::open_at(client.into(), options.clone(), Meter::default()).await;
    let store = Arc::new(store.expect("a store"));
    connection.take();
    (store, connection)
}

/// A time, in milliseconds since the beginning of the test.
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
        fair_share: None,
        paused: false,
        created_by: "test".into(),
        created_at: at(0),
        changed_at: at(0),
    }
}

/// Drives tasks of one store through their states.
pub struct TaskDriver {
    pub store: Arc<DynamoStore>,
    pub rng: SeededRng,
}

impl TaskDriver {
    pub async fn new(store: Arc<DynamoStore>) -> Self {
        let rng = SeededRng::new(fastrand());
        let driver = Self { store, rng };
        driver.put(job("mail")).await;
        driver
    }

    /// A driver for another store on the same table.
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

    pub fn request(&self, task: NewTask) -> Create {
        Create {
            task,
            token: self.rng.token(),
            write: self.rng.write_id(),
            may_enqueue: true,
            claim_for: None,
        }
    }

    pub async fn create(&self, ms: i64, new: NewTask) -> Task {
        let request = self.request(new);
        let mut created = self.store.create(at(ms), vec![request]).await;
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

    pub async fn apply(&self, ms: i64, task: &Task, event: Event) -> Task {
        let applied = self.send(ms, self.command(task, event)).await;
        *applied.expect("a legal transition").task
    }

    pub fn claim_event(&self, task: &Task) -> Event {
        Event::Claim(Claim {
            token: task.state.token().expect("a token"),
            worker: WorkerId::new("some-executor-7", 0x1234_5678_9abc_def0).expect("a worker"),
            start: true,
        })
    }

    pub async fn run(&self, ms: i64, task: &Task) -> Task {
        self.apply(ms, task, self.claim_event(task)).await
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
        self.apply(ms, task, self.finish_event(task, outcome)).await
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
        self.apply(ms, task, event).await
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
            owed_limit: limit,
            owed_limits: Default::default(),
            share: None,
        };
        self.store.due(query).await.expect("a page")
    }

    /// The cost of all calls of this store so far.
    pub fn cost(&self) -> Cost {
        self.store.meter().total()
    }
}

/// Seeds differ between drivers, so that the ids of tests that share a table differ.
fn fastrand() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

/// Size of a task's item as DynamoDB counts it, with numbers at their greatest size.
pub async fn size_of(driver: &TaskDriver, task: &Task) -> usize {
    let item = stored_item(driver, task).await;
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

/// Whether DynamoDB may delete a task by its expiry.
pub async fn expires(driver: &TaskDriver, task: &Task) -> bool {
    let item = stored_item(driver, task).await;
    item.contains_key(dueline_store_dynamodb::schema::TTL)
}

/// A task's item as it is stored.
pub async fn stored_item(driver: &TaskDriver, task: &Task) -> HashMap<String, AttributeValue> {
    let key = key_of(driver, task).await;
    let client = client().await;
    let call = client
        .get_item()
        .table_name(driver.store.table())
        .set_key(Some(key));
    let answer = call.consistent_read(true).send().await.expect("an answer");
    answer.item.expect("the item")
}

/// The key of a task's item, found by a table scan.
pub async fn key_of(driver: &TaskDriver, task: &Task) -> HashMap<String, AttributeValue> {
    let client = client().await;
    let id = AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new(task.id.as_bytes()));
    let found = client
        .scan()
        .table_name(driver.store.table())
        .filter_expression("sk = :id")
        .expression_attribute_values(":id", id)
        .send()
        .await
        .expect("an answer");
    let mut item = found.items.expect("items").remove(0);
    item.retain(|name, _| name == "pk" || name == "sk");
    item
}
