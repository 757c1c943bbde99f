//! Lists of a job with more tasks than one page scans.

use std::sync::Arc;

use dueline_domain::{Due, JobName, TaskId, TaskOptions, Timestamp};
use dueline_ports::{Create, ListOrder, ListQuery, StoreError, TaskStore as _};
use dueline_store_sqlite::{SqliteOptions, SqliteStore};

use self::kit::{create, with_job};

mod kit;

/// More than one page scans.
const NEWER: u64 = 60_000;

fn of_job() -> ListQuery {
    ListQuery::of(JobName::parse("j").unwrap())
}

fn text(text: &str) -> Option<Arc<str>> {
    Some(Arc::from(text))
}

/// The oldest task of the job: it has a key, a name, a tag and a due time that no other task has.
fn oldest() -> Create {
    let mut oldest = create(0, 10);
    oldest.task.due = Due::At(Timestamp::clamped(9_000_000));
    oldest.task.options = Some(Box::new(TaskOptions {
        key: text("the key"),
        name: text("the name"),
        tags: vec![Arc::from("the tag")],
        ..TaskOptions::default()
    }));
    oldest
}

/// A store whose oldest task has [`NEWER`] newer ones.
async fn store(folder: &tempfile::TempDir) -> (SqliteStore, TaskId) {
    let store = with_job(SqliteOptions::at(folder.path().join("t.db"))).await;
    let now = Timestamp::clamped(5);
    let first = store.create(now, vec![oldest()]).await.remove(0).unwrap();
    for batch in 0..NEWER / 4_000 {
        let tasks = (1..=4_000).map(|n| create(batch * 4_000 + n, 10)).collect();
        let created = store.create(now, tasks).await;
        assert!(created.iter().all(Result::is_ok));
    }
    (store, first.task.id)
}

#[tokio::test]
async fn a_key_is_found_behind_more_tasks_than_one_page_scans() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id) = store(&folder).await;
    let query = ListQuery {
        key: text("the key"),
        limit: 1,
        ..of_job()
    };
    let page = store.list(query.clone()).await.unwrap();
    let found: Vec<_> = page.tasks.iter().map(|task| task.id).collect();
    assert_eq!((found, page.next), (vec![id], None));
    let other = ListQuery {
        key: text("another key"),
        ..query
    };
    let page = store.list(other).await.unwrap();
    assert_eq!((page.tasks.len(), page.next), (0, None));
    // The same key again, with another time: the error names the task that has it.
    let mut again = oldest();
    again.task.id = TaskId::from_bytes([9; 16]);
    again.task.id_is_given = false;
    again.task.due = Due::At(Timestamp::clamped(8_000_000));
    let refused = store.create(Timestamp::clamped(6), vec![again]).await;
    assert!(
        matches!(refused[0], Err(StoreError::Exists(existing)) if existing == id),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_rare_task_is_found_through_empty_pages_that_have_a_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id) = store(&folder).await;
    let filters = [
        ListQuery {
            name: text("the name"),
            ..of_job()
        },
        ListQuery {
            tag: text("the tag"),
            ..of_job()
        },
        ListQuery {
            states: vec![dueline_domain::StateKind::New],
            ..of_job()
        },
        ListQuery {
            due_from: Some(Timestamp::clamped(8_000_000)),
            ..of_job()
        },
    ];
    for mut query in filters {
        let first = store.list(query.clone()).await.unwrap();
        assert!(first.tasks.is_empty(), "{query:?}");
        assert!(
            first.next.is_some(),
            "a page that ends early says so: {query:?}"
        );
        query.cursor = first.next;
        let second = store.list(query.clone()).await.unwrap();
        let found: Vec<_> = second.tasks.iter().map(|task| task.id).collect();
        assert_eq!((found, second.next), (vec![id], None), "{query:?}");
    }
}

#[tokio::test]
async fn f_024_a_list_by_due_time_goes_on_behind_more_entries_than_one_page_reads() {
    let folder = tempfile::tempdir().unwrap();
    let (store, id) = store(&folder).await;
    let mut query = ListQuery {
        order: ListOrder::DueFirst,
        states: ListOrder::WITH_DUE_TIME.to_vec(),
        ..of_job()
    };
    // The other tasks are enqueued, and their entries come first.
    let first = store.list(query.clone()).await.unwrap();
    assert!(first.tasks.is_empty() && first.next.is_some());
    query.cursor = first.next;
    let second = store.list(query.clone()).await.unwrap();
    let found: Vec<_> = second.tasks.iter().map(|task| task.id).collect();
    assert_eq!((found, second.next), (vec![id], None));
    let last_first = ListQuery {
        order: ListOrder::DueLast,
        cursor: None,
        ..query
    };
    let page = store.list(last_first).await.unwrap();
    let found: Vec<_> = page.tasks.iter().map(|task| task.id).collect();
    assert_eq!(found, [id]);
}
