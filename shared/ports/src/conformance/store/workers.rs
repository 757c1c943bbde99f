//! Worker records.

use std::sync::Arc;

use super::kit::{StoreKit, at, job_name, worker};
use crate::{Store, WorkerRecord};

fn record(name: &str) -> WorkerRecord {
    WorkerRecord {
        id: worker(name),
        kind: "executor".into(),
        jobs: vec![job_name("mail"), job_name("post")],
        handlers: vec!["exec".into(), "http".into()],
        concurrency: 17,
        embedded: false,
        started_at: at(0),
        seen_at: at(5),
        metadata: [("zone".into(), "a".into())].into(),
    }
}

pub async fn f_115_worker_records_are_kept_replaced_and_removed(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    assert!(kit.store.workers().await.expect("workers").is_empty());
    let bare = WorkerRecord {
        jobs: Vec::new(),
        handlers: Vec::new(),
        embedded: true,
        concurrency: u32::MAX,
        ..record("a")
    };
    let put = kit.store.put_workers(vec![record("c"), bare.clone()]).await;
    put.expect("records can be stored");
    let all = kit.store.workers().await.expect("workers");
    assert_eq!(all, [bare.clone(), record("c")], "sorted by id");

    let updated = WorkerRecord {
        seen_at: at(9_000),
        concurrency: 3,
        jobs: vec![job_name("mail")],
        ..record("c")
    };
    let records = vec![updated.clone(), record("b")];
    let put = kit.store.put_workers(records).await;
    put.expect("records can be stored");
    let all = kit.store.workers().await.expect("workers");
    assert_eq!(all, [bare.clone(), record("b"), updated.clone()]);

    let ids = vec![worker("b"), worker("unknown")];
    let removed = kit.store.remove_workers(ids).await;
    removed.expect("a missing record is not an error");
    assert_eq!(kit.store.workers().await.expect("workers"), [bare, updated]);
    let empty = kit.store.put_workers(Vec::new()).await;
    empty.expect("an empty call is not an error");
}
