//! When a job fires, as its definition says it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use dueline_domain::Schedule;
use dueline_frontend::{FrontendDeps, FrontendService, RestLimits};
use dueline_ports::{
    ScheduleQuery, Store, StoreError,
    fakes::{MemorySinks, MemoryStore, SeededRng, StoreLayer},
};
use serde_json::json;

use crate::kit::{Kit, call, routes};

#[tokio::test(start_paused = true)]
async fn f_015_a_job_shows_the_rule_of_its_only_schedule() {
    let kit = Kit::with_job().await;
    let shown = async || kit.get("/v1/jobs/mail").await.expect(200).json["frequency"].clone();
    assert_eq!(shown().await, json!(null), "no schedule");
    let path = "/v1/jobs/mail/schedules/nightly";
    let nightly = r#"{"timing": "30 2 * * *", "zone": "Europe/Berlin"}"#;
    kit.put(path, nightly).await.expect(200);
    assert_eq!(shown().await, "30 2 * * * Europe/Berlin");
    kit.post(&format!("{path}/pause"), "{}").await.expect(200);
    assert_eq!(shown().await, json!(null), "it is paused");
    kit.post(&format!("{path}/resume"), "{}").await.expect(200);
    kit.put(path, r#"{"timing": "@every 90s"}"#)
        .await
        .expect(200);
    assert_eq!(shown().await, "@every 90s");
    let other = "/v1/jobs/mail/schedules/other";
    kit.put(other, r#"{"timing": "@daily"}"#).await.expect(200);
    assert_eq!(shown().await, json!(null), "two schedules");
    kit.delete(path).await.expect(204);
    assert_eq!(shown().await, "@daily");
}

/// Counts reads of schedules.
struct CountingStore {
    inner: MemoryStore,
    reads: AtomicUsize,
}

#[async_trait]
impl StoreLayer for CountingStore {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    async fn schedules(&self, query: ScheduleQuery) -> Result<Vec<Schedule>, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        assert!(query.limit <= 2, "a job may have many schedules");
        self.below().schedules(query).await
    }
}

#[tokio::test(start_paused = true)]
async fn f_015_only_the_view_of_a_job_reads_its_schedules() {
    let kit = Kit::new();
    let store = Arc::new(CountingStore {
        inner: MemoryStore::new(),
        reads: AtomicUsize::new(0),
    });
    let frontend = FrontendService::new(FrontendDeps {
        dispatch: None,
        store: store.clone(),
        queue: kit.queue.clone(),
        clock: kit.clock.clone(),
        rng: Arc::new(SeededRng::new(7)),
        due: kit.due.clone(),
        ended: kit.ended.clone(),
        sinks: Arc::new(MemorySinks::default()),
        jobs_changed: kit.jobs_changed.clone(),
    });
    let router = routes(Arc::new(frontend), None, RestLimits::default());
    let send = async |method: &str, path: &str, body: &str| {
        call(&router, method, &format!("/v1/jobs{path}"), &[], body).await
    };
    let id = "6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e";
    send("PUT", "/mail", "{}").await.expect(201);
    send("PUT", "/mail", "{}").await.expect(200);
    let submit = format!(r#"{{"id": "{id}", "delay_ms": 60000}}"#);
    send("POST", "/mail/tasks", &submit).await.expect(201);
    send("GET", "/mail/tasks", "").await.expect(200);
    send("GET", &format!("/mail/tasks/{id}"), "")
        .await
        .expect(200);
    send("POST", &format!("/mail/tasks/{id}/cancel"), "{}")
        .await
        .expect(200);
    send("POST", "/mail/tasks?wait=1s", "{}").await;
    send("GET", "", "").await.expect(200);
    assert_eq!(store.reads.load(Ordering::Relaxed), 0);
    send("GET", "/mail", "").await.expect(200);
    assert_eq!(store.reads.load(Ordering::Relaxed), 1);
}
