//! Properties of the file: one owner, the right schema, WAL, and a full disk that loses no task.

use std::path::Path;

use dueline_domain::{Event, Job, JobName, Policy, RunningCancel, Sink, Timestamp, WriteId};
use dueline_ports::{Command, JobStore as _, PutJob, StoreError, TaskStore as _};
use dueline_store_sqlite::{OpenError, SCHEMA_VERSION, SqliteOptions, SqliteStore};
use rusqlite::Connection;

use self::kit::{create, job, with_job};

mod kit;

fn pragma(path: &Path, name: &str) -> String {
    let db = Connection::open(path).unwrap();
    db.pragma_query_value(None, name, |row| {
        row.get::<_, rusqlite::types::Value>(0)
            .map(|v| format!("{v:?}"))
    })
    .unwrap()
}

#[tokio::test]
async fn d_03_the_journal_mode_reads_back_as_wal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let _store = with_job(SqliteOptions::at(&path)).await;
    assert_eq!(pragma(&path, "journal_mode"), "Text(\"wal\")");
    assert_eq!(
        pragma(&path, "user_version"),
        format!("Integer({SCHEMA_VERSION})")
    );
}

#[tokio::test]
async fn f_131_tasks_survive_closing_and_opening() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("t.db"));
    let store = with_job(options.clone()).await;
    let created = store
        .create(Timestamp::clamped(5), vec![create(1, 5_000)])
        .await;
    let id = created[0].as_ref().unwrap().task.id;
    drop(store);
    let store = SqliteStore::open(options).unwrap();
    let name = JobName::parse("j").unwrap();
    let task = store.get(&name, &id).await.unwrap().unwrap();
    assert_eq!(task.payload.len(), 5_000);
    assert_eq!(store.stats(&name).await.unwrap().by_state.len(), 1);
}

#[tokio::test]
async fn a_closed_file_needs_no_log_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    for round in 0..20 {
        let store = with_job(SqliteOptions::at(&path)).await;
        let now = Timestamp::clamped(5);
        assert!(store.create(now, vec![create(round, 10)]).await[0].is_ok());
        let name = JobName::parse("j").unwrap();
        store.stats(&name).await.unwrap();
        store.owned(Timestamp::clamped(5), None).await.unwrap();
        drop(store);
        assert!(!folder.path().join("t.db-wal").exists(), "round {round}");
    }
}

#[tokio::test]
async fn d_08_a_second_server_on_the_same_file_is_refused_and_the_owner_named() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("t.db"));
    let first = SqliteStore::open(options.clone()).unwrap();
    let Err(error) = SqliteStore::open(options.clone()) else {
        panic!("opened twice");
    };
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("process"), "{error}");
    drop(first);
    SqliteStore::open(options).unwrap();
}

/// The error of an open that must not succeed.
fn refused(path: &Path) -> OpenError {
    match SqliteStore::open(SqliteOptions::at(path)) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

#[cfg(unix)]
#[test]
fn d_08_a_second_server_that_uses_a_symbolic_link_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // The link exists before the file does and still leads to the same file.
    std::os::unix::fs::symlink("a.db", at("b.db")).unwrap();
    std::os::unix::fs::symlink(folder.path(), at("folder")).unwrap();
    for (first, others) in [
        ("a.db", ["b.db", "folder/a.db"]),
        ("b.db", ["a.db", "folder/b.db"]),
    ] {
        let store = SqliteStore::open(SqliteOptions::at(at(first))).unwrap();
        for other in others {
            let error = refused(&at(other));
            assert!(matches!(error, OpenError::InUse { .. }), "{other}: {error}");
            let pid = format!("process {};", std::process::id());
            assert!(error.to_string().contains(&pid), "{other}: {error}");
        }
        drop(store);
    }
    assert!(!at("b.db.lock").exists() && !at("b.db-wal").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn d_08_a_second_server_is_refused_although_the_lock_file_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = with_job(SqliteOptions::at(&path)).await;
    for round in 0..3 {
        std::fs::remove_file(folder.path().join("t.db.lock")).unwrap();
        let error = refused(&path);
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        // The refused attempt did not release the owner's SQLite locks.
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        assert!(has_sqlite_lock(&path, &locks), "round {round}: {locks}");
        let now = Timestamp::clamped(5);
        assert!(store.create(now, vec![create(round, 10)]).await[0].is_ok());
    }
    drop(store);
    SqliteStore::open(SqliteOptions::at(&path)).unwrap();
}

/// Whether this process has a POSIX lock on a file, which is how SQLite marks one as in use.
#[cfg(target_os = "linux")]
fn has_sqlite_lock(path: &Path, locks: &str) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let pid = format!(" {} ", std::process::id());
    locks
        .lines()
        .any(|lock| lock.contains("POSIX") && lock.contains(&inode) && lock.contains(&pid))
}

#[cfg(unix)]
#[test]
fn d_08_a_file_with_two_hard_links_is_refused_under_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = SqliteStore::open(SqliteOptions::at(at("a.db"))).unwrap();
    std::fs::hard_link(at("a.db"), at("c.db")).unwrap();
    let error = refused(&at("c.db"));
    assert!(
        matches!(error, OpenError::Linked { names: 2, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("hard links"), "{error}");
    assert!(!at("c.db.lock").exists() && !at("c.db-wal").exists());
    drop(store);
    for name in ["a.db", "c.db"] {
        let error = refused(&at(name));
        assert!(matches!(error, OpenError::Linked { .. }), "{name}: {error}");
    }
    std::fs::remove_file(at("c.db")).unwrap();
    SqliteStore::open(SqliteOptions::at(at("a.db"))).unwrap();
}

#[cfg(unix)]
#[test]
fn a_file_without_write_permission_is_refused_at_open() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    drop(SqliteStore::open(SqliteOptions::at(&path)).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    // The permission does not apply to root, who can open the file.
    let applies = std::fs::File::options().write(true).open(&path).is_err();
    match SqliteStore::open(SqliteOptions::at(&path)) {
        Ok(_) => assert!(!applies, "opened"),
        Err(error) => assert!(
            applies && matches!(error, OpenError::ReadOnly { .. }),
            "{error}"
        ),
    }
}

#[test]
fn a_file_of_another_program_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1);")
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(
        SqliteStore::open(SqliteOptions::at(&path)),
        Err(OpenError::Foreign)
    ));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let text = folder.path().join("notes.txt");
    std::fs::write(
        &text,
        "not a database at all, but long enough to look like a header",
    )
    .unwrap();
    assert!(matches!(
        SqliteStore::open(SqliteOptions::at(&text)),
        Err(OpenError::Foreign)
    ));
}

#[test]
fn a_file_of_a_newer_program_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("t.db"));
    drop(SqliteStore::open(options.clone()).unwrap());
    Connection::open(&options.path)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let Err(error) = SqliteStore::open(options) else {
        panic!("opened a newer file");
    };
    assert!(error.to_string().contains("99"), "{error}");
}

#[tokio::test]
async fn fields_of_a_newer_program_in_a_definition_survive_an_older_program() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("t.db"));
    drop(with_job(options.clone()).await);
    let definition = |set: &str| {
        let db = Connection::open(&options.path).unwrap();
        let sql = format!("UPDATE job SET definition = {set} RETURNING definition");
        let stored: String = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        stored
    };
    definition("json_set(definition, '$.newer', 'kept')");
    let store = SqliteStore::open(options.clone()).unwrap();
    let name = JobName::parse("j").unwrap();
    let now = Timestamp::clamped(9_000);
    store.pause_job(&name, true, now).await.unwrap();
    drop(store);
    let stored = definition("definition");
    for part in [r#""newer":"kept""#, r#""paused":true"#] {
        assert!(stored.contains(part), "{stored}");
    }
}

#[tokio::test]
async fn f_137_a_full_disk_refuses_writes_still_reads_and_recovers_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = SqliteOptions::at(folder.path().join("t.db"));
    options.pages_max = Some(60);
    let store = with_job(options).await;
    let now = Timestamp::clamped(5);
    let mut stored = Vec::new();
    let refused = loop {
        let number = u64::try_from(stored.len()).unwrap();
        assert!(number < 10_000, "the disk never became full");
        match store.create(now, vec![create(number, 900)]).await.remove(0) {
            Ok(created) => stored.push(created.task.id),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full(_)), "{refused}");
    assert!(refused.is_retryable() && !refused.outcome_unknown());
    let name = JobName::parse("j").unwrap();
    for id in &stored {
        assert!(store.get(&name, id).await.unwrap().is_some());
    }
    let total: u64 = store.stats(&name).await.unwrap().by_state.values().sum();
    assert_eq!(total, u64::try_from(stored.len()).unwrap());
    // The store says so for as long as it lasts.
    store.prune(now, 10).await.unwrap();
    let why = store.refuses_writes();
    assert!(
        why.as_ref().is_some_and(|why| why.contains("full")),
        "{why:?}"
    );
    // Once there is room again, the same store writes again without a restart.
    store.limit_pages(1_000_000).await.unwrap();
    store.prune(now, 10).await.unwrap();
    assert_eq!(store.refuses_writes(), None);
    let again = store.create(now, vec![create(90_000, 900)]).await.remove(0);
    assert!(again.is_ok());
    let blobs = "SELECT count(*) FROM body WHERE seq = 0";
    let blobs: i64 = Connection::open(folder.path().join("t.db"))
        .and_then(|db| db.query_row(blobs, [], |row| row.get(0)))
        .unwrap();
    assert_eq!(blobs, 0, "what was written to find room is left behind");
}

#[tokio::test]
async fn f_109_scans_use_the_due_index_and_finished_tasks_are_not_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let _store = with_job(SqliteOptions::at(&path)).await;
    let db = Connection::open(&path).unwrap();
    let plan: String = db
        .query_row(
            "EXPLAIN QUERY PLAN SELECT id FROM task INDEXED BY task_due \
             WHERE job = 1 AND trigger_at <= 5 ORDER BY trigger_at LIMIT 10",
            [],
            |row| row.get(3),
        )
        .unwrap();
    assert!(plan.contains("SEARCH task USING INDEX task_due"), "{plan}");
    let partial: String = db
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE name = 'task_due'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(
        partial.contains("WHERE trigger_at IS NOT NULL"),
        "{partial}"
    );
}

#[tokio::test]
async fn f_138_requests_that_arrive_together_share_a_commit_and_a_bad_one_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = std::sync::Arc::new(with_job(SqliteOptions::at(folder.path().join("t.db"))).await);
    let now = Timestamp::clamped(5);
    let mut calls = Vec::new();
    for number in 0..50 {
        let store = store.clone();
        let mut one = create(number, 10);
        if number == 17 {
            one.task.job = JobName::parse("unknown").unwrap();
        }
        calls.push(async move { store.create(now, vec![one]).await.remove(0) });
    }
    let mut results = Vec::new();
    for call in calls {
        results.push(call.await);
    }
    let failed: Vec<_> = results.iter().filter(|result| result.is_err()).collect();
    assert_eq!(failed.len(), 1);
    assert!(matches!(failed[0], Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn a_job_with_an_unreadable_definition_keeps_its_tasks_until_a_new_definition_is_put() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("t.db"));
    let store = with_job(options.clone()).await;
    let now = Timestamp::clamped(5);
    let id = store
        .create(now, vec![create(1, 10)])
        .await
        .remove(0)
        .unwrap()
        .task
        .id;
    drop(store);
    Connection::open(&options.path)
        .unwrap()
        .execute("UPDATE job SET definition = '{broken'", [])
        .unwrap();
    let store = SqliteStore::open(options).unwrap();
    assert!(store.jobs().await.unwrap().is_empty());
    while store.prune(Timestamp::MAX, 100).await.unwrap().more {}
    let put = PutJob {
        job: job("j"),
        if_absent: false,
    };
    store.put_job(put).await.unwrap();
    let name = JobName::parse("j").unwrap();
    assert!(
        store.get(&name, &id).await.unwrap().is_some(),
        "its task was deleted"
    );
    assert_eq!(store.stats(&name).await.unwrap().by_state.len(), 1);
}

#[tokio::test]
async fn f_144_fields_that_a_definition_of_an_older_program_lacks_get_their_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("t.db"));
    drop(with_job(options.clone()).await);
    Connection::open(&options.path)
        .unwrap()
        .execute(
            "UPDATE job SET definition = json_remove(definition, '$.losses_max', '$.slow')",
            [],
        )
        .unwrap();
    let store = SqliteStore::open(options).unwrap();
    let read = store
        .job(&JobName::parse("j").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(read.policy, Policy::default());
}

#[tokio::test]
async fn f_137_another_program_that_locks_the_file_for_a_while_does_not_end_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions::at(folder.path().join("t.db"));
    let store = with_job(options.clone()).await;
    let shell = Connection::open(&options.path).unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let now = Timestamp::clamped(5);
    let refused = store
        .create(now, vec![create(1, 10)])
        .await
        .remove(0)
        .unwrap_err();
    assert!(
        refused.is_retryable() && !refused.outcome_unknown(),
        "{refused}"
    );
    shell.execute_batch("ROLLBACK").unwrap();
    assert!(
        store
            .create(now, vec![create(1, 10)])
            .await
            .remove(0)
            .is_ok()
    );
}

/// Turns a file into one of schema version 1, which knew nothing of owed effects, schedules, families and keys that are
/// taken over.
fn to_version_1(path: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "DROP TABLE schedule; DROP TABLE edge; DROP INDEX task_lane; DROP INDEX task_lane_due; DROP INDEX task_lane_running; \
         ALTER TABLE task DROP COLUMN lane; ALTER TABLE task DROP COLUMN lane_at; DROP INDEX task_owed; DROP INDEX task_key; ALTER TABLE task DROP COLUMN key_lost; \
         CREATE UNIQUE INDEX task_key ON task (job, key) WHERE key IS NOT NULL; ALTER TABLE task DROP COLUMN owed; ALTER TABLE task DROP COLUMN owed_at; \
         PRAGMA user_version = 1;",
    )
    .unwrap();
}

#[tokio::test]
async fn f_111_a_file_of_version_1_is_migrated_and_its_tasks_may_owe() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = with_job(SqliteOptions::at(&path)).await;
    let now = Timestamp::clamped(5);
    let created = store.create(now, vec![create(1, 5_000)]).await;
    let task = created[0].as_ref().unwrap().task.clone();
    drop(store);
    to_version_1(&path);
    let store = SqliteStore::open(SqliteOptions::at(&path)).unwrap();
    assert_eq!(
        pragma(&path, "user_version"),
        format!("Integer({SCHEMA_VERSION})")
    );
    let read = store.get(&task.job, &task.id).await.unwrap();
    assert_eq!(read.as_ref(), Some(&*task));
    let policy = Policy {
        sink: Sink::parse("file:done").ok(),
        ..Policy::default()
    };
    let job = Job { policy, ..job("j") };
    let if_absent = false;
    store.put_job(PutJob { job, if_absent }).await.unwrap();
    let cancel = Command {
        job: task.job.clone(),
        id: task.id,
        event: Event::Cancel {
            running: RunningCancel::Refuse,
            reason: None,
        },
        write: WriteId::from_random(99),
    };
    let applied = store.apply(now, vec![cancel]).await.remove(0).unwrap();
    assert!(applied.task.owed.is_some());
    drop(store);
    let store = SqliteStore::open(SqliteOptions::at(&path)).unwrap();
    let read = store.get(&task.job, &task.id).await.unwrap();
    assert_eq!(read.as_ref(), Some(&*applied.task));
}
