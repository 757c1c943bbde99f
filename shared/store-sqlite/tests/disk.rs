//! What is on the disk: who may read it, what survives a loss of power, and a file that is taken away.
#![cfg(unix)]

use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use dueline_domain::{JobName, Timestamp};
use dueline_ports::TaskStore as _;
use dueline_store_sqlite::{SqliteOptions, SqliteStore};

use self::kit::{create, with_job};

mod kit;

fn now() -> Timestamp {
    Timestamp::clamped(5)
}

fn metadata(folder: &Path, name: &str) -> Metadata {
    std::fs::metadata(folder.join(name)).unwrap()
}

#[tokio::test]
async fn only_the_user_of_the_server_can_read_the_files_of_a_new_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_job(SqliteOptions::at(folder.path().join("t.db"))).await;
    assert!(store.create(now(), vec![create(1, 10)]).await[0].is_ok());
    for name in ["t.db", "t.db-wal", "t.db-shm", "t.db.lock"] {
        let mode = metadata(folder.path(), name).mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
}

/// Copies the files of a running store, which is what a kill of its process would leave.
fn copy_of_running(folder: &Path) -> PathBuf {
    let copy = folder.join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in ["t.db", "t.db-wal"] {
        std::fs::copy(folder.join(name), copy.join(name)).unwrap();
    }
    copy
}

#[tokio::test]
async fn a_log_that_a_killed_process_detached_calls_is_written_again_at_open() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_job(SqliteOptions::at(folder.path().join("t.db"))).await;
    let created = store.create(now(), vec![create(1, 500_000)]).await;
    let id = created[0].as_ref().unwrap().task.id;
    let copy = copy_of_running(folder.path());
    let log = copy.join("t.db-wal");
    let before = std::fs::read(&log).unwrap();
    assert!(before.len() > 500_000);
    File::options()
        .write(true)
        .open(&log)
        .and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH))
        .unwrap();
    let inode = metadata(&copy, "t.db-wal").ino();

    let opened = SqliteStore::open(SqliteOptions::at(copy.join("t.db"))).unwrap();
    let after = metadata(&copy, "t.db-wal");
    assert_ne!(after.modified().unwrap(), SystemTime::UNIX_EPOCH);
    assert_eq!(after.ino(), inode);
    assert!(std::fs::read(&log).unwrap() == before, "other bytes");
    let job = JobName::parse("j").unwrap();
    assert!(opened.get(&job, &id).await.unwrap().is_some());
}

/// Takes the files of a running store away, and shows that it notices.
async fn notices(take_away: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let store = with_job(SqliteOptions::at(folder.path().join("t.db"))).await;
    assert!(store.create(now(), vec![create(1, 10)]).await[0].is_ok());
    assert_eq!(store.refuses_writes(), None);

    take_away(folder.path());
    let refused = store.create(now(), vec![create(2, 10)]).await.remove(0);
    let refused = refused.expect_err("an answer for a task that would be lost");
    assert!(refused.outcome_unknown(), "{refused:?}");
    assert!(
        refused.to_string().contains("deleted or replaced"),
        "{refused}"
    );
    let why = store.broken().await;
    assert_eq!(store.refuses_writes(), Some(why.clone()));
    assert!(refused.to_string().contains(&*why), "{refused} {why}");
    assert!(store.create(now(), vec![create(3, 10)]).await[0].is_err());
    // The end of the store leaves alone what has taken the place of its files.
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        // The index of the log is of no use without its process.
        names.retain(|name| name != "t.db-shm");
        names.sort();
        names
    };
    let before = names();
    drop(store);
    assert_eq!(names(), before);
}

#[tokio::test]
async fn no_write_is_confirmed_after_the_file_was_deleted() {
    notices(|folder| std::fs::remove_file(folder.join("t.db")).unwrap()).await;
}

#[tokio::test]
async fn no_write_is_confirmed_after_the_log_was_deleted() {
    notices(|folder| std::fs::remove_file(folder.join("t.db-wal")).unwrap()).await;
}

#[tokio::test]
async fn no_write_is_confirmed_after_the_file_was_replaced() {
    notices(|folder| {
        for name in ["t.db", "t.db-wal", "t.db-shm"] {
            std::fs::copy(folder.join(name), folder.join("copy")).unwrap();
            std::fs::rename(folder.join("copy"), folder.join(name)).unwrap();
        }
    })
    .await;
}
