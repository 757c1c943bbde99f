//! What the file promises: one owner, the right schema, real WAL, a full disk that loses nothing.

use std::path::Path;

use bytes::Bytes;
use dueline_domain::{
    Handler, Job, JobName, NewTask, Policy, Quota, TaskId, Timestamp, Token, WriteId,
};
use dueline_ports::{Create, JobStore as _, PutJob, StoreError, TaskStore as _};
use dueline_store_sqlite::{OpenError, SCHEMA_VERSION, SqliteOptions, SqliteStore};
use rusqlite::Connection;

fn job(name: &str) -> Job {
    let at = Timestamp::clamped(1_000);
    Job {
        name: JobName::parse(name).unwrap(),
        info: "".into(),
        handler: Handler::worker(),
        policy: Policy::default(),
        quota: Quota::default(),
        paused: false,
        created_by: "test".into(),
        created_at: at,
        changed_at: at,
    }
}

fn create(number: u64, bytes: usize) -> Create {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    let job = JobName::parse("j").unwrap();
    Create {
        task: NewTask::now(TaskId::from_bytes(id), job, Bytes::from(vec![7; bytes])),
        token: Token::from_random(number + 1),
        write: WriteId::from_random(number + 1),
        hand_on: true,
        claim_for: None,
    }
}

async fn with_job(options: SqliteOptions) -> SqliteStore {
    let store = SqliteStore::open(options).unwrap();
    let put = PutJob {
        job: job("j"),
        if_absent: true,
    };
    store.put_job(put).await.unwrap();
    store
}

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
fn d_08_a_second_server_that_comes_through_a_symbolic_link_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // The link is there before the file is: it leads to the same file all the same.
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
async fn d_08_a_second_server_is_refused_though_the_lock_file_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = with_job(SqliteOptions::at(&path)).await;
    for round in 0..3 {
        std::fs::remove_file(folder.path().join("t.db.lock")).unwrap();
        let error = refused(&path);
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        // Being asked did the owner no harm: nobody else may take the file from under it.
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        assert!(sqlite_holds(&path, &locks), "round {round}: {locks}");
        let now = Timestamp::clamped(5);
        assert!(store.create(now, vec![create(round, 10)]).await[0].is_ok());
    }
    drop(store);
    SqliteStore::open(SqliteOptions::at(&path)).unwrap();
}

/// Whether this process has a POSIX lock on a file, which is how SQLite marks one as in use.
#[cfg(target_os = "linux")]
fn sqlite_holds(path: &Path, locks: &str) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let pid = format!(" {} ", std::process::id());
    locks
        .lines()
        .any(|lock| lock.contains("POSIX") && lock.contains(&inode) && lock.contains(&pid))
}

#[cfg(unix)]
#[test]
fn d_08_a_file_with_a_second_name_is_refused_under_each_of_them() {
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
fn a_file_that_this_user_may_not_write_is_refused_when_it_is_opened() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    drop(SqliteStore::open(SqliteOptions::at(&path)).unwrap());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    // Permissions bind everybody but root, for whom the file is as good as any.
    let binds = std::fs::File::options().write(true).open(&path).is_err();
    match SqliteStore::open(SqliteOptions::at(&path)) {
        Ok(_) => assert!(!binds, "opened"),
        Err(error) => assert!(
            binds && matches!(error, OpenError::ReadOnly { .. }),
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
async fn what_a_newer_program_says_of_a_job_survives_an_older_one() {
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
async fn f_137_a_full_disk_refuses_writes_keeps_reads_and_recovers_by_itself() {
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
    // Room comes back, and the same process writes again without being told.
    store.limit_pages(1_000_000).await.unwrap();
    let again = store.create(now, vec![create(90_000, 900)]).await.remove(0);
    assert!(again.is_ok());
}

#[tokio::test]
async fn f_109_polls_are_served_by_the_open_index_and_finished_tasks_are_not_in_it() {
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
async fn a_job_that_cannot_be_read_keeps_its_tasks_and_comes_back_when_it_is_put_again() {
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
        "its task is gone"
    );
    assert_eq!(store.stats(&name).await.unwrap().by_state.len(), 1);
}

#[tokio::test]
async fn f_144_a_definition_of_an_older_program_gets_the_defaults_of_what_it_lacks() {
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
async fn f_137_another_program_that_holds_the_file_for_a_while_does_not_end_the_store() {
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
