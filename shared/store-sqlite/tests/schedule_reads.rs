//! How many bytes of the file a poll for due schedules reads. The only test of this program, because it counts what the whole
//! process reads.
#![cfg(target_os = "linux")]

mod kit;

use std::sync::Arc;

use dueline_domain::{
    FiringCounts, JobName, RuleSpec, Schedule, ScheduleName, ScheduleSpec, TaskTemplate, Timestamp,
    WriteId,
};
use dueline_ports::{DueSchedulesQuery, PutSchedule, ScheduleStore as _};
use dueline_store_sqlite::{SqliteOptions, SqliteStore};

/// With their payloads some 100 MB; a reader keeps 4 MB of a file in memory.
const SCHEDULES: i64 = 120_000;
const DUE: i64 = 3;

fn schedule(number: i64) -> Schedule {
    // Three are due at once, the others in the years after that.
    let wake_at = Timestamp::clamped(if number < DUE {
        2_000
    } else {
        number * 1_000_000
    });
    Schedule {
        job: JobName::parse("j").unwrap(),
        name: ScheduleName::parse(&format!("s{number:06}")).unwrap(),
        spec: ScheduleSpec {
            rule: RuleSpec {
                timing: "30 2 * * *".to_owned(),
                ..RuleSpec::default()
            },
            template: TaskTemplate {
                payload: vec![b'x'; 500].into(),
                ..TaskTemplate::default()
            },
            ..ScheduleSpec::default()
        },
        paused: None,
        decided_until: Timestamp::clamped(1_000),
        next_at: Some(wake_at),
        active: Vec::new(),
        queued: None,
        triggers: Vec::new(),
        backfills: Vec::new(),
        counts: FiringCounts::default(),
        recent: Vec::new(),
        created_by: Arc::default(),
        created_at: Timestamp::clamped(1_000),
        changed_at: Timestamp::clamped(1_000),
        write: WriteId::from_random(7),
    }
}

/// Bytes that this process has read, from files among others.
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

/// Polls once; answers how many schedules are due and how many bytes were read.
async fn poll(store: &SqliteStore, now_ms: i64) -> (usize, u64) {
    let before = bytes_read();
    let query = DueSchedulesQuery {
        now: Timestamp::clamped(now_ms),
        limit: 1_000,
        share: None,
    };
    let page = store.due_schedules(query).await.unwrap();
    (page.schedules.len(), bytes_read() - before)
}

#[tokio::test]
async fn g_05_a_poll_reads_a_few_pages_beside_a_hundred_thousand_idle_schedules() {
    let folder = tempfile::tempdir().unwrap();
    let options = || SqliteOptions::at(folder.path().join("t.db"));
    let store = kit::with_job(options()).await;
    for from in (0..SCHEDULES).step_by(10_000) {
        let puts = (from..from + 10_000).map(|number| PutSchedule {
            schedule: schedule(number),
            seen: None,
        });
        let results = store.put_schedules(puts.collect()).await;
        assert!(results.into_iter().all(Result::unwrap));
    }
    drop(store);

    let store = SqliteStore::open(options()).unwrap();
    // The first one finds nothing in memory.
    let (due, first) = poll(&store, 1_000).await;
    assert_eq!(due, 0);
    assert!(first <= 20 * 4_096, "{first} bytes in the first poll");
    let mut idle = 0;
    for _ in 0..10 {
        idle += poll(&store, 1_500).await.1;
    }
    assert!(idle <= 20 * 4_096, "{idle} bytes in ten idle polls");
    let (due, some) = poll(&store, 2_000).await;
    assert_eq!(due, 3);
    assert!(some <= 30 * 4_096, "{some} bytes for three due schedules");
}
