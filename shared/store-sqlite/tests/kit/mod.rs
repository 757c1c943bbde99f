//! A store with one job, and tasks of it.
#![allow(
    dead_code,
    reason = "each test file that includes the kit uses another part of it"
)]

use bytes::Bytes;
use dueline_domain::{
    Handler, Job, JobName, NewTask, Policy, Quota, TaskId, Timestamp, Token, WriteId,
};
use dueline_ports::{Create, JobStore as _, PutJob};
use dueline_store_sqlite::{SqliteOptions, SqliteStore};

pub(crate) fn job(name: &str) -> Job {
    let at = Timestamp::clamped(1_000);
    Job {
        name: JobName::parse(name).unwrap(),
        info: "".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: "test".into(),
        created_at: at,
        changed_at: at,
    }
}

pub(crate) fn create(number: u64, bytes: usize) -> Create {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    let job = JobName::parse("j").unwrap();
    Create {
        task: NewTask::now(TaskId::from_bytes(id), job, Bytes::from(vec![7; bytes])),
        token: Token::from_random(number + 1),
        write: WriteId::from_random(number + 1),
        may_enqueue: true,
        claim_for: None,
    }
}

pub(crate) async fn with_job(options: SqliteOptions) -> SqliteStore {
    let store = SqliteStore::open(options).unwrap();
    let put = PutJob {
        job: job("j"),
        if_absent: true,
    };
    store.put_job(put).await.unwrap();
    store
}
