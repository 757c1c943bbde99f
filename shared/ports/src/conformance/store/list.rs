//! Lists of tasks.

use std::sync::Arc;

use dueline_domain::{
    Event, FairShare, Job, Modification, NewTask, Priority, StateKind, Task, TaskId, TaskOptions,
};

use super::kit::{StoreKit, at, fatal, ids, job, job_name, retriable};
use crate::{ListOrder, ListQuery, Rng as _, Store, StoreError};

fn of_mail() -> ListQuery {
    ListQuery::of(job_name("mail"))
}

async fn listed(kit: &StoreKit, query: &ListQuery) -> Vec<TaskId> {
    let by_hundred = ids(&kit.list_by(query, 100).await);
    let one_by_one = ids(&kit.list_by(query, 1).await);
    assert_eq!(
        by_hundred, one_by_one,
        "pages of any size list the same tasks"
    );
    by_hundred
}

pub async fn a_job_without_tasks_has_an_empty_list(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    kit.create(0, kit.new_task_of("post")).await;
    let page = kit.store.list(of_mail()).await.expect("a page");
    assert!(page.tasks.is_empty());
    assert_eq!(page.next, None);
}

pub async fn f_024_the_newest_task_is_listed_first(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut expected = Vec::new();
    for n in 0..7 {
        // A later submit may be due earlier: the order is that of the submits.
        expected.insert(0, kit.create(n, kit.task_due(1_000 - n)).await);
    }
    // Within a batch, the last task is listed first.
    let batch = (0..5).map(|_| kit.new_task()).collect();
    for task in kit.create_all(7, batch).await {
        expected.insert(0, task);
    }
    // Later transitions do not change the position of a task.
    let oldest = kit.trigger(2_000, &expected[11]).await;
    expected[11] = kit.run(2_000, &oldest, "w").await;
    assert_eq!(kit.list_by(&of_mail(), 100).await, expected);
    for limit in [1, 4, 11, 12, 13] {
        let paged = kit.list_by(&of_mail(), limit).await;
        assert_eq!(paged, expected, "pages of {limit}");
    }
}

pub async fn f_024_the_oldest_task_is_listed_first_on_request(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut expected = Vec::new();
    for n in 0..7 {
        // A later submit may be due earlier, and large payloads are stored apart.
        let task = NewTask {
            payload: vec![7; if n == 0 { 10 } else { 3_000 }].into(),
            ..kit.task_due(1_000 - n)
        };
        expected.push(kit.create(n, task).await);
    }
    let batch = (0..5).map(|_| kit.new_task()).collect();
    expected.extend(kit.create_all(7, batch).await);
    let oldest = kit.trigger(2_000, &expected[0]).await;
    expected[0] = kit.run(2_000, &oldest, "w").await;
    let query = ListQuery {
        order: ListOrder::Oldest,
        ..of_mail()
    };
    for limit in [1, 4, 11, 12, 13, 100] {
        let paged = kit.list_by(&query, limit).await;
        assert_eq!(paged, expected, "pages of {limit}");
    }
}

pub async fn f_024_tasks_that_wait_are_listed_by_due_time(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut expected = Vec::new();
    // In no order, of several priorities, some of them due at the same time.
    for n in [5, 2, 9, 2, 7, 0, 4, 9, 1] {
        let task = NewTask {
            priority: Priority::new((n % 3) * 100).expect("a priority"),
            ..kit.task_due(10_000 + n * 1_000)
        };
        expected.push(kit.create(n, task).await);
    }
    // A user has moved one, by less than the hints of an index follow.
    let moved = Event::Modify {
        change: Modification {
            run_at: Some(at(13_500)),
            ..Modification::default()
        },
        token: kit.rng.token(),
    };
    expected[5] = kit.apply(50, &expected[5], moved).await;
    // One waits for its next try.
    let failing = kit.create(60, kit.new_task()).await;
    let failing = kit.run(60, &failing, "w").await;
    let failing = kit.finish(60, &failing, retriable("later")).await;
    assert_eq!(failing.kind(), StateKind::Retriable);
    expected.push(failing);
    // Others are in the index, too.
    for n in 0..3 {
        kit.create(70 + n, kit.new_task()).await;
    }
    kit.succeeded(80).await;
    let due = |task: &Task| task.trigger_at().expect("a time");
    for order in [ListOrder::DueFirst, ListOrder::DueLast] {
        let query = ListQuery {
            order,
            states: ListOrder::WITH_DUE_TIME.to_vec(),
            ..of_mail()
        };
        let all = kit.list_by(&query, 100).await;
        let mut times: Vec<_> = expected.iter().map(due).collect();
        times.sort_unstable();
        if order.is_descending() {
            times.reverse();
        }
        assert_eq!(all.iter().map(due).collect::<Vec<_>>(), times, "{order}");
        let (mut found, mut wanted) = (ids(&all), ids(&expected));
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        for limit in [1, 3, 9, 10, 11] {
            let paged = kit.list_by(&query, limit).await;
            assert_eq!(ids(&paged), ids(&all), "pages of {limit}, {order}");
        }
        let only_new = ListQuery {
            states: vec![StateKind::New],
            ..query
        };
        assert_eq!(kit.list_by(&only_new, 2).await.len(), 9);
    }
}

pub async fn f_024_tasks_that_wait_in_lanes_are_listed_by_due_time_with_the_others(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    let mut expected = Vec::new();
    // Some are posted before the job has lanes.
    for n in [7, 1, 4] {
        expected.push((n, kit.create(0, kit.task_due(10_000 + n * 1_000)).await.id));
    }
    kit.put(Job {
        fair_share: Some(FairShare::default()),
        ..job("mail")
    })
    .await;
    for (n, key) in [(6, "a"), (2, "b"), (8, "a"), (3, "c")] {
        let task = NewTask {
            due: Some(at(10_000 + n * 1_000)).into(),
            ..kit.task_with(TaskOptions {
                fairness_key: text(key),
                ..TaskOptions::default()
            })
        };
        expected.push((n, kit.create(n, task).await.id));
    }
    expected.sort_unstable();
    let mut expected: Vec<_> = expected.into_iter().map(|(_, id)| id).collect();
    for order in [ListOrder::DueFirst, ListOrder::DueLast] {
        let query = ListQuery {
            order,
            states: ListOrder::WITH_DUE_TIME.to_vec(),
            ..of_mail()
        };
        for limit in [1, 3, 100] {
            let listed = kit.list_by(&query, limit).await;
            assert_eq!(ids(&listed), expected, "{order}, pages of {limit}");
        }
        expected.reverse();
    }
}

pub async fn f_024_a_cursor_belongs_to_its_order(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for n in 0..4 {
        kit.create(n, kit.task_due(10_000 + n)).await;
    }
    let query = |order: ListOrder| ListQuery {
        order,
        states: ListOrder::WITH_DUE_TIME.to_vec(),
        limit: 2,
        ..of_mail()
    };
    for order in ListOrder::ALL {
        let page = kit.store.list(query(order)).await.expect("a page");
        for other in ListOrder::ALL {
            let query = ListQuery {
                cursor: page.next.clone(),
                ..query(other)
            };
            match kit.store.list(query).await {
                Ok(page) => assert!(other == order && page.tasks.len() == 2),
                Err(StoreError::Invalid(_)) => assert_ne!(other, order),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub async fn paging_is_stable_while_tasks_are_added(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut expected = Vec::new();
    for n in 0..9 {
        expected.insert(0, kit.create(n, kit.new_task()).await.id);
    }
    let mut query = ListQuery {
        limit: 2,
        ..of_mail()
    };
    let mut seen = Vec::new();
    for n in 0..100 {
        let page = kit.store.list(query.clone()).await.expect("a page");
        seen.extend(ids(&page.tasks));
        kit.create(100 + n, kit.new_task()).await;
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(
        seen, expected,
        "each of the first nine once, and no later task"
    );
}

pub async fn a_foreign_cursor_is_refused(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.create(0, kit.new_task()).await;
    let query = ListQuery {
        cursor: Some("?? foreign cursor ??".into()),
        ..of_mail()
    };
    let answer = kit.store.list(query).await;
    let refused = matches!(answer, Err(StoreError::Invalid(_)));
    assert!(refused, "{answer:?}");
}

pub async fn a_list_can_be_filtered_by_state(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = kit.create(0, kit.task_due(9_000)).await;
    let done = kit.succeeded(1).await;
    let enqueued = kit.create(2, kit.new_task()).await;
    let failed = kit.create(3, kit.new_task()).await;
    let failed = kit.run(3, &failed, "w").await;
    let failed = kit.finish(3, &failed, fatal("no")).await;
    let running = kit.create(4, kit.new_task()).await;
    let running = kit.run(4, &running, "w").await;
    let by = |states: &[StateKind]| ListQuery {
        states: states.to_vec(),
        ..of_mail()
    };
    use StateKind::{Dropped, Enqueued, Failed, New, Processing, Succeeded};
    assert_eq!(listed(&kit, &by(&[New])).await, [new.id]);
    assert_eq!(listed(&kit, &by(&[Processing])).await, [running.id]);
    let ended = listed(&kit, &by(&[Succeeded, Failed])).await;
    assert_eq!(ended, [failed.id, done.id]);
    let pending = listed(&kit, &by(&[Enqueued, New])).await;
    assert_eq!(pending, [enqueued.id, new.id]);
    assert!(listed(&kit, &by(&[Dropped])).await.is_empty());
    assert_eq!(listed(&kit, &of_mail()).await.len(), 5);
}

fn text(text: &str) -> Option<Arc<str>> {
    Some(Arc::from(text))
}

pub async fn a_list_can_be_filtered_by_tag_name_or_key(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let options = |name: &str, tags: &[&str], key: Option<&str>| TaskOptions {
        name: text(name),
        tags: tags.iter().map(|tag| Arc::from(*tag)).collect(),
        key: key.map(Arc::from),
        ..TaskOptions::default()
    };
    let a = kit.task_with(options("n", &["red", "blue"], Some("k1")));
    let a = kit.create(0, a).await;
    let b = kit.task_with(options("n", &["blue"], None));
    let b = kit.create(1, b).await;
    let c = kit.task_with(options("N", &["reddish"], Some("k2")));
    let c = kit.create(2, c).await;
    kit.create(3, kit.new_task()).await;
    let elsewhere = NewTask {
        job: job_name("post"),
        ..kit.task_with(options("n", &["red"], Some("k1")))
    };
    kit.create(4, elsewhere).await;

    let tagged = |tag| ListQuery {
        tag: text(tag),
        ..of_mail()
    };
    assert_eq!(listed(&kit, &tagged("red")).await, [a.id]);
    assert_eq!(listed(&kit, &tagged("blue")).await, [b.id, a.id]);
    assert!(listed(&kit, &tagged("gree")).await.is_empty());
    let named = |name| ListQuery {
        name: text(name),
        ..of_mail()
    };
    // f_006: names are not unique, and the newest comes first.
    assert_eq!(listed(&kit, &named("n")).await, [b.id, a.id]);
    assert_eq!(listed(&kit, &named("N")).await, [c.id]);
    let keyed = |key| ListQuery {
        key: text(key),
        ..of_mail()
    };
    assert_eq!(listed(&kit, &keyed("k1")).await, [a.id]);
    let first = ListQuery {
        limit: 1,
        ..keyed("k1")
    };
    let page = kit.store.list(first).await.expect("a page");
    assert_eq!((ids(&page.tasks), page.next), (vec![a.id], None));
    assert!(listed(&kit, &keyed("k")).await.is_empty());
    let both = ListQuery {
        states: vec![StateKind::Enqueued],
        tag: text("blue"),
        name: text("n"),
        key: text("k1"),
        ..of_mail()
    };
    assert_eq!(listed(&kit, &both).await, [a.id]);
}

pub async fn a_list_can_be_filtered_by_due_time(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut tasks = Vec::new();
    for (n, due_ms) in [(0, 3_000), (1, 1_000), (2, 2_000)] {
        tasks.push(kit.create(n, kit.task_due(due_ms)).await.id);
    }
    let between = |from: Option<i64>, before: Option<i64>| ListQuery {
        due_from: from.map(at),
        due_before: before.map(at),
        ..of_mail()
    };
    let from = listed(&kit, &between(Some(2_000), None)).await;
    assert_eq!(from, [tasks[2], tasks[0]]);
    let before = listed(&kit, &between(None, Some(2_000))).await;
    assert_eq!(before, [tasks[1]], "`due_before` is exclusive");
    let within = listed(&kit, &between(Some(1_001), Some(3_000))).await;
    assert_eq!(within, [tasks[2]]);
}

pub async fn f_153_a_list_that_drops_what_it_shows_misses_no_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let tagged = |tag: &str| {
        kit.task_with(TaskOptions {
            tags: vec![tag.into()],
            ..TaskOptions::default()
        })
    };
    let batch = |tag| (0..40).map(|_| tagged(tag)).collect();
    let wanted = kit.create_all(0, batch("a")).await;
    let others = kit.create_all(1, batch("b")).await;
    let mut query = ListQuery {
        states: vec![StateKind::New, StateKind::Enqueued, StateKind::Retriable],
        tag: Some("a".into()),
        limit: 7,
        ..ListQuery::of(job_name("mail"))
    };
    let mut dropped = 0;
    loop {
        let page = kit.store.list(query.clone()).await.expect("a page");
        for task in page.tasks {
            let reason = "no use".into();
            kit.apply(2, &task, Event::Drop { reason }).await;
            dropped += 1;
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(dropped, wanted.len(), "each is shown once");
    for task in wanted {
        let task = kit.get(&task).await;
        assert_eq!(task.kind(), StateKind::Dropped);
        assert_eq!(task.error.as_deref(), Some("no use"));
    }
    for task in others {
        assert_eq!(kit.get(&task).await, task);
    }
}
