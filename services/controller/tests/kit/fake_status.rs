//! A fake status controller: claims each task once and records every call.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use dueline_api::{
    Action, ApiError, Assignment, ErrorKind, ErrorReason, Registered, Registration, Report,
    ReportAck, ServedJob, StatusController,
};
use dueline_domain::{Handler, JobName, StateKind, TaskId, TaskRef, Timestamp, Token, WorkerId};
use dueline_ports::TaskQueue as _;
use dueline_queue_local::LocalQueue;
use tokio::sync::Semaphore;

pub(crate) struct FakeStatus {
    queue: Arc<LocalQueue>,
    jobs: Mutex<Vec<ServedJob>>,
    /// The owned tasks with their owners.
    owned: Mutex<BTreeMap<TaskId, (WorkerId, TaskRef)>>,
    /// Every successful claim.
    claims: Mutex<Vec<(WorkerId, TaskId)>>,
    /// Claims wait while this is closed.
    gate: Semaphore,
    pub(crate) is_down: AtomicBool,
    /// A job whose claims the store throttles.
    pub(crate) throttled: Mutex<Option<JobName>>,
    claim_calls: AtomicUsize,
    /// How many tasks were owned at each deregistration.
    owned_at_deregistrations: Mutex<Vec<usize>>,
}

impl FakeStatus {
    pub(crate) fn new(queue: Arc<LocalQueue>, jobs: &[(&str, &str)]) -> Self {
        let served = |(name, handler): &(&str, &str)| ServedJob {
            name: JobName::parse(name).unwrap(),
            handler: Arc::from(*handler),
        };
        Self {
            queue,
            jobs: Mutex::new(jobs.iter().map(served).collect()),
            owned: Mutex::default(),
            claims: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            is_down: AtomicBool::new(false),
            throttled: Mutex::default(),
            claim_calls: AtomicUsize::new(0),
            owned_at_deregistrations: Mutex::default(),
        }
    }

    pub(crate) fn add_job(&self, name: &str) {
        self.jobs.lock().unwrap().push(ServedJob {
            name: JobName::parse(name).unwrap(),
            handler: Arc::from("worker"),
        });
    }

    /// Makes claims wait.
    pub(crate) fn close_gate(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets claims continue.
    pub(crate) fn open_gate(&self) {
        self.gate.add_permits(1_000);
    }

    pub(crate) fn claims(&self) -> Vec<(WorkerId, TaskId)> {
        self.claims.lock().unwrap().clone()
    }

    /// How many claim calls there were, successful or not.
    pub(crate) fn claim_calls(&self) -> usize {
        self.claim_calls.load(Ordering::Relaxed)
    }

    pub(crate) fn owned_at_deregistrations(&self) -> Vec<usize> {
        self.owned_at_deregistrations.lock().unwrap().clone()
    }

    pub(crate) fn owned(&self) -> usize {
        self.owned.lock().unwrap().len()
    }

    fn claim_one(
        &self,
        worker: &WorkerId,
        message: TaskRef,
        start: bool,
    ) -> Result<Assignment, ApiError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(ApiError::unavailable("the store is down"));
        }
        if self.throttled.lock().unwrap().as_ref() == Some(&message.job) {
            return Err(dueline_ports::StoreError::Throttled.into());
        }
        let mut owned = self.owned.lock().unwrap();
        if owned.contains_key(&message.id) {
            let text = "another worker owns it";
            return Err(ApiError::new(
                ErrorKind::Conflict,
                ErrorReason::AlreadyClaimed,
                text,
            ));
        }
        owned.insert(message.id, (worker.clone(), message.clone()));
        let mut claims = self.claims.lock().unwrap();
        claims.push((worker.clone(), message.id));
        Ok(Assignment {
            job: message.job,
            id: message.id,
            token: message.token,
            attempt: 0,
            input: Bytes::new(),
            content_type: None,
            name: None,
            weight: message.weight,
            run_at: message.due_at,
            claimed_at: Timestamp::EPOCH,
            handler: Handler::worker(),
            claim_timeout: Duration::from_secs(10),
            heartbeat_timeout: Duration::from_secs(8),
            heartbeat_increment: Duration::from_secs(8),
            run_timeout: None,
            start_first: false,
            started_before: false,
            trace: None,
            started: start,
            results: Vec::new(),
            waited: Duration::ZERO,
        })
    }

    /// As the real status controller does: the task is enqueued again under a new token.
    async fn abandon(&self, report: Report) -> Result<ReportAck, ApiError> {
        let owned = self.owned.lock().unwrap().remove(&report.id);
        let Some((_, message)) = owned.filter(|(_, message)| message.token == report.token) else {
            let text = "another worker owns it";
            return Err(ApiError::new(ErrorKind::Conflict, ErrorReason::Lost, text));
        };
        let token = Token::from_random(message.token.get() + 1_000_000);
        self.queue.send(vec![TaskRef { token, ..message }]).await;
        Ok(ReportAck {
            state: StateKind::Enqueued,
            cancel_requested: false,
            lease: None,
        })
    }
}

#[async_trait]
impl StatusController for FakeStatus {
    async fn claim(
        &self,
        worker: &WorkerId,
        messages: Vec<TaskRef>,
        start: bool,
    ) -> Vec<Result<Assignment, ApiError>> {
        self.claim_calls.fetch_add(1, Ordering::Relaxed);
        let _open = self.gate.acquire().await.unwrap();
        let claim = |message| self.claim_one(worker, message, start);
        messages.into_iter().map(claim).collect()
    }

    async fn report(&self, reports: Vec<Report>) -> Vec<Result<ReportAck, ApiError>> {
        let mut results = Vec::new();
        for report in reports {
            assert_eq!(report.action, Action::Abandon);
            results.push(self.abandon(report).await);
        }
        results
    }

    async fn register_worker(&self, _worker: Registration) -> Result<Registered, ApiError> {
        let interval = Duration::from_secs(5);
        Ok(Registered {
            interval,
            claims_start: false,
        })
    }

    async fn deregister_worker(&self, _worker: &WorkerId) -> Result<(), ApiError> {
        let owned = self.owned();
        let mut counts = self.owned_at_deregistrations.lock().unwrap();
        counts.push(owned);
        Ok(())
    }

    async fn jobs(&self) -> Result<Vec<ServedJob>, ApiError> {
        Ok(self.jobs.lock().unwrap().clone())
    }
}
