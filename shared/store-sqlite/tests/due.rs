//! The order in which due tasks are read.

use std::collections::BTreeMap;

use bytes::Bytes;
use dueline_domain::{
    Due, Handler, Job, JobName, NewTask, Policy, Priority, Quota, TaskId, Timestamp, Token, WriteId,
};
use dueline_ports::{Create, DuePage, DueQuery, JobStore as _, PutJob, TaskStore as _};
use dueline_store_sqlite::{SqliteOptions, SqliteStore};

fn job() -> JobName {
    JobName::parse("j").unwrap()
}

fn id(number: u8) -> TaskId {
    TaskId::from_bytes([number; 16])
}

/// A task that is due at `due_ms`.
fn create(number: u8, priority: i64, due_ms: i64) -> Create {
    Create {
        task: NewTask {
            priority: Priority::new(priority).unwrap(),
            due: Due::At(Timestamp::clamped(due_ms)),
            ..NewTask::now(id(number), job(), Bytes::new())
        },
        token: Token::from_random(u64::from(number) + 1),
        write: WriteId::from_random(u64::from(number) + 1),
        may_enqueue: false,
        claim_for: None,
    }
}

async fn due(store: &SqliteStore, limit: usize, pending: Option<usize>) -> DuePage {
    let query = DueQuery {
        now: Timestamp::clamped(1_000),
        limit_per_job: limit,
        pending_limits: pending.map_or_else(BTreeMap::new, |max| BTreeMap::from([(job(), max)])),
        owed_limit: limit,
        owed_limits: BTreeMap::new(),
        share: None,
    };
    store.due(query).await.unwrap()
}

#[tokio::test]
async fn f_152_due_tasks_are_read_by_priority_and_then_by_age() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteOptions::at(folder.path().join("t.db"))).unwrap();
    let at = Timestamp::clamped(1);
    let definition = Job {
        name: job(),
        info: "".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: "test".into(),
        created_at: at,
        changed_at: at,
    };
    let put = PutJob {
        job: definition,
        if_absent: true,
    };
    store.put_job(put).await.unwrap();
    let mut new: Vec<_> = (0..50).map(|n| create(n, -50, 100)).collect();
    new.extend([create(60, 50, 900), create(61, 50, 800), create(62, 7, 999)]);
    new.extend([create(70, 50, 9_000), create(71, -1000, 7_000)]);
    for created in store.create(at, new).await {
        created.unwrap();
    }
    for pending in [None, Some(5)] {
        let page = due(&store, 5, pending).await;
        let order: Vec<_> = page.tasks.iter().map(|due| due.id).collect();
        assert_eq!(order[..3], [id(61), id(60), id(62)]);
        assert_eq!((order.len(), page.more), (5, true));
        assert_eq!(page.next_at, Some(Timestamp::clamped(7_000)));
    }
    let page = due(&store, 53, None).await;
    assert_eq!((page.tasks.len(), page.more), (53, false));
    assert_eq!(due(&store, 53, Some(0)).await, DuePage::default());
    let stats = store.stats(&job()).await.unwrap();
    assert_eq!(stats.oldest_due_at, Some(Timestamp::clamped(100)));
}
