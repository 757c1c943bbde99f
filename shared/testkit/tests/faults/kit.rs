//! A faulty store with one job, and calls for its tasks.

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{
    Claim, Event, Handler, Job, JobName, NewTask, Policy, Quota, TaskId, Timestamp, Token,
    WorkerId, WriteId,
};
use dueline_ports::{Command, Create, DueQuery, JobStore as _, PutJob, fakes::MemoryStore};
use dueline_testkit::{
    Counters, FaultInjector, FaultyStore, HostGate, StoreFaults, StoreMethod, StoreRates, Switch,
};

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(millis)
}

pub(crate) fn name() -> JobName {
    JobName::parse("mail").unwrap()
}

pub(crate) fn injector() -> FaultInjector {
    FaultInjector::new(HostGate::new(), Switch::new(true), Counters::new(), 7)
}

pub(crate) async fn store(
    rates: StoreRates,
    method: StoreMethod,
) -> (Arc<MemoryStore>, FaultyStore) {
    let memory = Arc::new(MemoryStore::new());
    let job = Job {
        name: name(),
        info: "".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        fair_share: None,
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
    let faulty = FaultyStore::new(memory.clone(), injector(), faults);
    (memory, faulty)
}

pub(crate) fn create(number: u8) -> Create {
    Create {
        task: NewTask::now(TaskId::from_bytes([number; 16]), name(), Bytes::new()),
        token: Token::from_random(u64::from(number)),
        write: WriteId::from_random(u64::from(number)),
        may_enqueue: true,
        claim_for: None,
    }
}

pub(crate) fn claim(number: u8) -> Command {
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

/// A query for all tasks that are due at `now`.
pub(crate) fn due_at(now: i64) -> DueQuery {
    DueQuery {
        now: at(now),
        limit_per_job: 100,
        pending_limits: Default::default(),
        owed_limit: 100,
        owed_limits: Default::default(),
        share: None,
    }
}
