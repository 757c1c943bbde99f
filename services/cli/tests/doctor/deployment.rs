//! A deployment with its own names on the engines that all tests share, and the doctor that checks it.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use dueline_backends::{
    BackendError, QueueAddress, StoreAddress,
    deploy::{self, Action},
    dueline_aws::{AwsSettings, Meter, Service, connect},
    dueline_store_dynamodb::{DynamoOptions, DynamoStore, setup},
};
use dueline_domain::{Handler, Job, JobName, NewTask, Policy, Quota, Timestamp, WorkerId};
use dueline_ports::{
    Clock as _, Create, JobStore as _, PutJob, Rng as _, TaskStore as _, WorkerRecord,
    WorkerStore as _,
};
use dueline_runtime::{SystemClock, SystemRng};
use dueline_tests_engines::{ACCESS_KEY, REGION, SECRET_KEY, unique};
use serde_json::Value;
use tokio::process::Command;

pub(crate) const JOB: &str = "mail";

/// The names and endpoints of one deployment.
pub(crate) struct TestDeployment {
    pub(crate) table: String,
    pub(crate) prefix: String,
    pub(crate) dynamodb: String,
    pub(crate) sqs: String,
}

/// The exit code and the JSON output of the doctor.
pub(crate) struct DoctorOutput {
    pub(crate) code: i32,
    pub(crate) json: Value,
}

impl TestDeployment {
    /// Names without a table or queues.
    pub(crate) async fn bare() -> Self {
        Self {
            table: unique("doctor"),
            prefix: unique("d"),
            dynamodb: dueline_tests_engines::dynamodb().await.url,
            sqs: dueline_tests_engines::sqs().await.url,
        }
    }

    /// A healthy deployment: table, queues, a job, and records of a consumer and an executor that were active just now.
    pub(crate) async fn healthy() -> Self {
        let deployment = Self::bare().await;
        deployment.set_up().await;
        let store = deployment.store().await;
        let put = PutJob {
            job: job(),
            if_absent: false,
        };
        store.put_job(put).await.expect("a job");
        // Again, to create the queue of the job.
        deployment.set_up().await;
        store
            .put_workers(vec![worker("consumer"), worker("executor")])
            .await
            .expect("records");
        deployment
    }

    fn aws(endpoint: &str) -> AwsSettings {
        AwsSettings {
            region: Some(REGION.to_owned()),
            endpoint: Some(endpoint.to_owned()),
            keys: Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())),
            ..AwsSettings::default()
        }
    }

    pub(crate) fn store_uri(&self) -> String {
        format!(
            "dynamodb://{}?region={REGION}&endpoint={}",
            self.table, self.dynamodb
        )
    }

    pub(crate) fn queue_uri(&self) -> String {
        format!(
            "sqs://{}?region={REGION}&endpoint={}",
            self.prefix, self.sqs
        )
    }

    fn addresses(&self) -> (StoreAddress, QueueAddress) {
        let store = StoreAddress::parse(&self.store_uri()).expect("a store");
        let queue = QueueAddress::parse(&self.queue_uri()).expect("a queue");
        let (StoreAddress::DynamoDb(mut store), QueueAddress::Sqs(mut queue)) = (store, queue)
        else {
            panic!("they are in AWS");
        };
        store.aws = Self::aws(&self.dynamodb);
        queue.aws = Self::aws(&self.sqs);
        (StoreAddress::DynamoDb(store), QueueAddress::Sqs(queue))
    }

    pub(crate) async fn set_up(&self) {
        self.try_set_up().await.expect("it is set up");
    }

    pub(crate) async fn try_set_up(&self) -> Result<Vec<Action>, BackendError> {
        let (store, queue) = self.addresses();
        deploy::set_up(&store, &queue).await
    }

    /// The changes that setup would make.
    pub(crate) async fn plan(&self) -> Vec<String> {
        let plan = self.actions().await.into_iter();
        let plan = plan.filter(|action| action.changes);
        plan.map(|action| format!("{} {}", action.what, action.text))
            .collect()
    }

    /// The changes that setup would make, and its notes.
    pub(crate) async fn actions(&self) -> Vec<Action> {
        let (store, queue) = self.addresses();
        deploy::plan(&store, &queue).await.expect("a plan")
    }

    pub(crate) async fn store(&self) -> DynamoStore {
        let options = DynamoOptions {
            aws: Self::aws(&self.dynamodb),
            ..DynamoOptions::of(&self.table)
        };
        DynamoStore::open(options, Meter::default())
            .await
            .expect("a store")
    }

    pub(crate) async fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        let deployment = setup::SetupClient::of(&Self::aws(&self.dynamodb)).await;
        deployment.expect("a client").client
    }

    pub(crate) async fn sqs(&self) -> aws_sdk_sqs::Client {
        let config = connect(Service::Sqs, &Self::aws(&self.sqs)).await;
        aws_sdk_sqs::Client::new(&config.expect("a configuration"))
    }

    /// Stores a task that is due since `late_ms`.
    pub(crate) async fn overdue_task(&self, late_ms: i64) {
        let then = Timestamp::clamped(SystemClock.now().millis() - late_ms);
        let task = NewTask::now(SystemRng.task_id(then), name(JOB), Bytes::new());
        let create = Create {
            task,
            token: SystemRng.token(),
            write: SystemRng.write_id(),
            may_enqueue: false,
            claim_for: None,
        };
        for created in self.store().await.create(then, vec![create]).await {
            created.expect("a task");
        }
    }

    /// Runs the doctor on the deployment, with further arguments.
    pub(crate) async fn doctor(&self, more: &[&str]) -> DoctorOutput {
        let (store, queue) = (self.store_uri(), self.queue_uri());
        let mut args = vec!["--store", &store, "--queue", &queue];
        args.extend(more);
        let home = tempfile::tempdir().expect("a folder");
        doctor(home.path(), &args).await
    }
}

/// Runs `dueline --json doctor` in the folder `home`, without the environment of the test.
pub(crate) async fn doctor(home: &Path, args: &[&str]) -> DoctorOutput {
    let output = dueline(home)
        .args(["--json", "doctor"])
        .args(args)
        .output()
        .await;
    let output = output.expect("it runs");
    let json = serde_json::from_slice(&output.stdout);
    DoctorOutput {
        code: output.status.code().expect("the program exits by itself"),
        json: json.unwrap_or_else(|_| panic!("not JSON: {output:?}")),
    }
}

pub(crate) fn dueline(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueline"));
    command
        .current_dir(home)
        .kill_on_drop(true)
        .env_clear()
        .env("HOME", home)
        .envs([
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_EC2_METADATA_DISABLED", "true"),
            // No default server: a test names its servers.
            ("DUELINE_SERVER", ""),
        ]);
    command
}

impl DoctorOutput {
    /// The findings of a state as `area name`.
    pub(crate) fn all(&self, state: &str) -> Vec<String> {
        let findings = self.json["findings"].as_array().expect("a list");
        let of_state = findings.iter().filter(|finding| finding["state"] == state);
        let text = |finding: &Value, field: &str| finding[field].as_str().expect(field).to_owned();
        of_state
            .map(|f| format!("{} {}", text(f, "area"), text(f, "name")))
            .collect()
    }

    /// Asserts that there is exactly one such finding, and that its detail and fix contain these texts.
    #[track_caller]
    pub(crate) fn has(&self, state: &str, what: &str, detail: &str, fix: &str) {
        let findings = self.json["findings"].as_array().expect("a list");
        let is_it = |finding: &&Value| {
            let (area, name) = (finding["area"].as_str(), finding["name"].as_str());
            let both = format!("{} {}", area.unwrap_or(""), name.unwrap_or(""));
            finding["state"] == state && both == what
        };
        let found: Vec<_> = findings.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{state} '{what}' in {:#}", self.json);
        let (found, text) = (found[0], |field: &str| {
            found[0][field].as_str().unwrap_or("")
        });
        assert!(
            text("detail").contains(detail),
            "'{detail}' is not in {found:#}"
        );
        assert!(text("fix").contains(fix), "'{fix}' is not in {found:#}");
    }

    /// Asserts that these are all the defects, and that the exit code agrees.
    #[track_caller]
    pub(crate) fn has_defects(&self, expected: &[&str]) {
        assert_eq!(self.all("defect"), expected, "{:#}", self.json);
        assert_eq!(self.code, if expected.is_empty() { 0 } else { 8 });
        assert_eq!(self.json["defects"], expected.len());
    }
}

pub(crate) fn name(name: &str) -> JobName {
    JobName::parse(name).expect("a legal name")
}

fn job() -> Job {
    let now = SystemClock.now();
    Job {
        name: name(JOB),
        info: "".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: "".into(),
        created_at: now,
        changed_at: now,
    }
}

fn worker(kind: &str) -> WorkerRecord {
    let now = SystemClock.now();
    WorkerRecord {
        id: WorkerId::new(kind, 7).expect("an id"),
        kind: Arc::from(kind),
        jobs: Vec::new(),
        handlers: Vec::new(),
        concurrency: 1,
        embedded: false,
        started_at: now,
        seen_at: now,
        metadata: dueline_ports::Metadata::new(),
    }
}
