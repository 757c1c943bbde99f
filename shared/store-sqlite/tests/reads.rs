//! How many bytes of the file the consumer's calls read. The only test of this program, because it counts what the whole
//! process reads.
#![cfg(target_os = "linux")]

mod kit;

use std::collections::BTreeMap;

use dueline_domain::{Due, Event, Jitter, NewTask, State, Timestamp, Token, Trigger, WriteId};
use dueline_ports::{Command, Create, DueQuery, TaskStore as _};
use dueline_store_sqlite::{SqliteOptions, SqliteStore};

/// Together 100 MB: the check of a file that is opened leaves up to 64 MB of it in memory.
const TASKS: u64 = 2_000;
const PAYLOAD_BYTES: usize = 50 * 1024;

/// Bytes that this process has read, from files among others.
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn f_154_a_due_task_of_50_kilobytes_is_enqueued_by_reading_less_than_one() {
    let folder = tempfile::tempdir().unwrap();
    let options = || SqliteOptions::at(folder.path().join("t.db"));
    let store = kit::with_job(options()).await;
    let creates = (1..=TASKS).map(|number| {
        let create = kit::create(number, PAYLOAD_BYTES);
        Create {
            task: NewTask {
                due: Due::At(Timestamp::clamped(2_000)),
                ..create.task
            },
            ..create
        }
    });
    let at = Timestamp::clamped(1_000);
    for created in store.create(at, creates.collect()).await {
        created.unwrap();
    }
    drop(store);

    let store = SqliteStore::open(options()).unwrap();
    let now = Timestamp::clamped(3_000);
    let before = bytes_read();
    let query = DueQuery {
        now,
        limit_per_job: 10_000,
        pending_limits: BTreeMap::new(),
        owed_limit: 10,
        owed_limits: BTreeMap::new(),
        share: None,
    };
    let page = store.due(query).await.unwrap();
    assert_eq!(page.tasks.len() as u64, TASKS);
    let commands = page.tasks.iter().zip(1..).map(|(due, number)| Command {
        job: due.job.clone(),
        id: due.id,
        event: Event::Trigger(Trigger {
            seen: due.kind,
            seen_at: due.trigger_at,
            token: Token::from_random(number + 10_000),
            jitter: Jitter::default(),
        }),
        write: WriteId::from_random(number + 10_000),
    });
    for applied in store.apply(now, commands.collect()).await {
        let task = applied.unwrap().task;
        assert!(matches!(task.state, State::Enqueued { .. }));
    }
    let each = (bytes_read() - before) / TASKS;
    assert!(each < 1_024, "{each} bytes are read for each task");

    let found = store.get(&page.tasks[0].job, &page.tasks[0].id).await;
    assert_eq!(found.unwrap().unwrap().payload.len(), PAYLOAD_BYTES);
}
