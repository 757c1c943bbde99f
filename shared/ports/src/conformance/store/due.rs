//! The reads of the consumer: due tasks, ready tasks, owned tasks.

use std::sync::Arc;

use dueline_domain::{Due, NewTask, Priority, StateKind, Task, TaskId};

use super::kit::{StoreKit, at, ids, job, job_name, retriable, success, token, worker};
use crate::{DuePage, DueTask, OwnedTask, Rng as _, Share, Store};

fn due_ids(page: &DuePage) -> Vec<TaskId> {
    page.tasks.iter().map(|due| due.id).collect()
}

fn sorted(mut ids: Vec<TaskId>) -> Vec<TaskId> {
    ids.sort_unstable();
    ids
}

pub async fn nothing_is_due_in_an_empty_store(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    assert_eq!(kit.due(0).await, DuePage::default());
}

pub async fn f_009_a_task_is_due_at_its_time_and_not_before(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let late = kit.create(0, kit.task_due(9_000)).await;
    let task = kit.create(0, kit.task_due(5_000)).await;
    let page = kit.due(4_999).await;
    assert!(page.tasks.is_empty());
    assert_eq!(page.next_at, Some(at(5_000)));
    let page = kit.due(5_000).await;
    let expected = DueTask {
        job: task.job.clone(),
        id: task.id,
        kind: StateKind::New,
        trigger_at: at(5_000),
    };
    assert_eq!(page.tasks, [expected]);
    assert_eq!((page.next_at, page.more), (Some(at(9_000)), false));
    let page = kit.due(9_000).await;
    assert_eq!(due_ids(&page), [task.id, late.id], "oldest first");
    assert_eq!(page.next_at, None);
}

pub async fn an_unfinished_task_becomes_due_in_every_state(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut tasks = vec![kit.create(0, kit.task_due(1_000)).await];
    let mut enqueued = Vec::new();
    for _ in 0..4 {
        enqueued.push(kit.create(0, kit.new_task()).await);
    }
    tasks.push(kit.claim(0, &enqueued[1], "w").await);
    tasks.push(kit.run(0, &enqueued[2], "w").await);
    let failed_once = kit.run(0, &enqueued[3], "w").await;
    tasks.push(kit.finish(0, &failed_once, retriable("once")).await);
    tasks.push(enqueued.swap_remove(0));
    kit.succeeded(0).await;
    for task in &tasks {
        let trigger_at = task.state.trigger_at().expect("a trigger time");
        let before = kit.due(trigger_at.millis() - at(0).millis() - 1).await;
        assert!(!due_ids(&before).contains(&task.id), "{}", task.kind());
        let page = kit.due(trigger_at.millis() - at(0).millis()).await;
        let seen = page.tasks.iter().find(|due| due.id == task.id);
        let seen = seen.unwrap_or_else(|| panic!("{} is never due", task.kind()));
        assert_eq!((seen.kind, seen.trigger_at), (task.kind(), trigger_at));
    }
    assert_eq!(kit.due(90_000_000).await.tasks.len(), tasks.len());
}

pub async fn a_task_is_due_until_it_has_moved(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.task_due(1_000)).await;
    for _ in 0..2 {
        assert_eq!(
            kit.due(1_000).await.tasks.len(),
            1,
            "a read changes nothing"
        );
    }
    let task = kit.trigger(1_000, &task).await;
    let page = kit.due(1_000).await;
    assert!(page.tasks.is_empty());
    assert_eq!(page.next_at, Some(at(61_000)));
    let task = kit.run(2_000, &task, "w").await;
    assert_eq!(kit.due(2_000).await.next_at, Some(at(10_000)));
    kit.finish(3_000, &task, success("ok")).await;
    assert_eq!(kit.due(9_000_000).await, DuePage::default());
}

pub async fn the_limit_is_per_job_and_the_page_says_that_there_is_more(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let mut mail = Vec::new();
    for n in (1..=5).rev() {
        mail.insert(0, kit.create(0, kit.task_due(n * 10)).await);
    }
    let post = NewTask {
        due: Due::At(at(7)),
        ..kit.new_task_of("post")
    };
    let post = kit.create(0, post).await;
    let page = kit.due_by(1_000, 3, &[]).await;
    assert!(page.more);
    let (of_mail, of_post): (Vec<_>, Vec<_>) =
        page.tasks.iter().partition(|due| due.job == mail[0].job);
    let seen: Vec<_> = of_mail.iter().map(|due| due.id).collect();
    assert_eq!(seen, ids(&mail)[..3], "the oldest three, oldest first");
    assert_eq!(
        of_post.len(),
        1,
        "the backlog of one job hides no other job"
    );
    assert_eq!(of_post[0].id, post.id);

    let page = kit.due_by(1_000, 5, &[]).await;
    assert_eq!((page.tasks.len(), page.more), (6, false));

    let page = kit.due_by(1_000, 5, &[("mail", 2)]).await;
    assert_eq!((page.tasks.len(), page.more), (3, true));
    let page = kit.due_by(1_000, 3, &[("mail", 4)]).await;
    assert_eq!((page.tasks.len(), page.more), (4, true));
}

pub async fn a_limit_of_zero_hides_pending_tasks_but_never_owned_ones(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut owned = Vec::new();
    for _ in 0..2 {
        let task = kit.create(0, kit.new_task()).await;
        owned.push(kit.run(0, &task, "w").await);
    }
    for _ in 0..3 {
        kit.create(0, kit.task_due(500)).await;
    }
    let page = kit.due_by(8_000, 100, &[("mail", 0)]).await;
    assert_eq!(sorted(due_ids(&page)), sorted(ids(&owned)));
    assert!(!page.more, "tasks hidden by a limit of zero do not count");
    let page = kit.due_by(8_000, 100, &[("mail", 1)]).await;
    assert_eq!((page.tasks.len(), page.more), (3, true));
    assert!(ids(&owned).iter().all(|id| due_ids(&page).contains(id)));
    let page = kit.due_by(8_000, 1, &[("mail", 0)]).await;
    assert_eq!((page.tasks.len(), page.more), (1, true));
}

pub async fn due_tasks_of_a_paused_job_are_still_returned(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let paused = kit.store.pause_job(&job_name("mail"), true, at(0)).await;
    paused.expect("the job can be paused");
    let task = kit.create(0, kit.new_task()).await;
    // The caller leaves them out by its limits.
    assert_eq!(due_ids(&kit.due(0).await), [task.id]);
    assert!(kit.due_by(0, 9, &[("mail", 0)]).await.tasks.is_empty());
}

pub async fn a_share_returns_only_its_jobs_and_all_shares_together_return_all(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    for n in 0..12 {
        let name = format!("job-{n}");
        kit.put(job(&name)).await;
        kit.create(
            0,
            NewTask {
                due: Due::At(at(5)),
                ..kit.new_task_of(&name)
            },
        )
        .await;
    }
    let unshared = kit.due(10).await;
    assert_eq!(unshared.tasks.len(), 12);
    let members = ["a", "b", "c"].map(worker);
    let mut union = Vec::new();
    for me in &members {
        let share = Share::of(me, &members);
        let page = kit.due_of(10, share.clone()).await;
        let is_covered = |due: &&DueTask| share.covers(&due.job, 0);
        let covered = unshared.tasks.iter().filter(is_covered).count();
        assert_eq!(page.tasks.len(), covered, "exactly the tasks of the share");
        union.extend(due_ids(&page));
    }
    assert_eq!(sorted(union), sorted(due_ids(&unshared)));
}

fn urgent(priority: i64, new: NewTask) -> NewTask {
    let priority = Priority::new(priority).expect("a priority");
    NewTask { priority, ..new }
}

pub async fn f_022_higher_priority_is_ready_first(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let low = kit.create(0, urgent(-50, kit.task_due(-9_000))).await;
    let high = kit.create(0, urgent(50, kit.task_due(-10))).await;
    assert_eq!(kit.ready("mail").await, [high.id, low.id]);

    let random = |_| {
        let priority = i64::try_from(kit.rng.below(2_001)).expect("small") - 1_000;
        urgent(priority, kit.new_task())
    };
    kit.create_all(1, (0..100).map(random).collect()).await;
    let ready = kit.store.ready(&job_name("mail"), 1_000).await;
    let ready = ready.expect("ready tasks");
    assert_eq!(ready.len(), 102);
    assert!(ready.is_sorted_by(|a, b| a.priority >= b.priority));
    assert_ne!(ready[0].priority, ready[101].priority);
}

pub async fn f_024_the_oldest_submit_is_ready_first_within_a_priority(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    // Ids whose order is not the submit order.
    let new = (0..50).map(|_| NewTask {
        id: kit.rng.task_id(at(kit.rng.below(1_000_000).cast_signed())),
        ..kit.new_task()
    });
    let mut submitted = ids(&kit.create_all(0, new.collect()).await);
    for _ in 0..10 {
        submitted.push(kit.create(0, kit.new_task()).await.id);
    }
    assert_eq!(kit.ready("mail").await, submitted);
}

/// F-152: a backlog of low priority does not hide due tasks of high priority.
pub async fn f_152_due_tasks_of_higher_priority_come_first(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut expected = Vec::new();
    for (priority, due_ms) in [(50, 800), (50, 900), (0, 100), (-50, 1), (-50, 2), (-50, 3)] {
        let task = kit.create(0, urgent(priority, kit.task_due(due_ms)));
        expected.push(task.await.id);
    }
    assert_eq!(due_ids(&kit.due(1_000).await), expected);
    let page = kit.due_by(1_000, 4, &[]).await;
    assert_eq!((due_ids(&page), page.more), (expected[..4].to_vec(), true));
    let page = kit.due_by(1_000, 4, &[("mail", 3)]).await;
    assert_eq!((due_ids(&page), page.more), (expected[..3].to_vec(), true));
}

/// Tasks whose messages are late do not hide tasks that wait for the scan, or runs that lapsed.
pub async fn enqueued_tasks_are_due_after_all_others(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut late = Vec::new();
    for priority in [50, 0, 0, 0] {
        let task = kit.create(0, urgent(priority, kit.new_task())).await;
        late.push((-priority, task.id));
    }
    let lapsed = kit.create(0, kit.new_task()).await;
    let lapsed = kit.claim(0, &lapsed, "w").await;
    let due_ms = 3_600_000;
    let new = kit
        .create(0, urgent(-50, kit.task_due(due_ms - 1_000)))
        .await;
    let page = kit.due_by(due_ms, 2, &[]).await;
    assert_eq!((due_ids(&page), page.more), (vec![lapsed.id, new.id], true));
    let page = kit.due_by(due_ms, 2, &[("mail", 1)]).await;
    assert_eq!((due_ids(&page), page.more), (vec![lapsed.id, new.id], true));
    let page = kit.due(due_ms).await;
    let ids = due_ids(&page);
    assert_eq!(ids[..2], [lapsed.id, new.id]);
    assert_eq!(ids[2], late[0].1, "by priority");
    let late: Vec<_> = late.into_iter().map(|(_, id)| id).collect();
    assert_eq!(
        (sorted(ids[2..].to_vec()), page.more),
        (sorted(late), false)
    );
}

pub async fn a_15_ready_order_is_priority_then_due_time_then_submit_order(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut expected = Vec::new();
    let keys = [(1, -5), (0, -9), (1, -5), (0, -3), (1, -8), (0, -9)];
    for (number, (priority, due_ms)) in keys.into_iter().enumerate() {
        let new = urgent(priority, kit.task_due(due_ms));
        let task = kit.create(0, new).await;
        expected.push((-priority, due_ms, number, task.id));
    }
    expected.sort_unstable();
    let expected: Vec<TaskId> = expected.into_iter().map(|(.., id)| id).collect();
    assert_eq!(kit.ready("mail").await, expected);
    let first = kit.store.ready(&job_name("mail"), 2).await;
    let first: Vec<_> = first.expect("ready").into_iter().map(|m| m.id).collect();
    assert_eq!(first, expected[..2]);
}

pub async fn only_enqueued_tasks_of_the_job_are_ready(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    kit.create(0, kit.task_due(9_000)).await;
    kit.create(0, kit.new_task_of("post")).await;
    kit.succeeded(0).await;
    let claimed = kit.create(0, kit.new_task()).await;
    kit.claim(0, &claimed, "w").await;
    let task = kit.create(0, kit.new_task()).await;
    let ready = kit.store.ready(&job_name("mail"), 10).await;
    let message = task.message().expect("a message");
    assert_eq!(ready.expect("ready tasks"), [message]);
    let unknown = kit.store.ready(&job_name("unknown"), 10).await;
    assert!(unknown.expect("an answer").is_empty());
}

pub async fn a_task_that_is_enqueued_again_keeps_its_place_in_the_ready_order(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    let first = kit.create(0, kit.new_task()).await;
    let second = kit.create(0, kit.new_task()).await;
    let first = kit.claim(1, &first, "w").await;
    assert_eq!(kit.ready("mail").await, [second.id]);
    let first = kit.trigger(11_000, &first).await;
    assert_eq!(kit.ready("mail").await, [first.id, second.id]);
}

fn sorted_owned(mut owned: Vec<OwnedTask>) -> Vec<OwnedTask> {
    owned.sort_unstable_by_key(|owned| owned.id);
    owned
}

fn as_owned(task: &Task) -> OwnedTask {
    OwnedTask {
        job: task.job.clone(),
        id: task.id,
        kind: task.kind(),
        token: token(task),
        worker: task.lease().expect("a lease").worker.clone(),
    }
}

pub async fn owned_tasks_are_returned_by_worker(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let mut tasks = Vec::new();
    for _ in 0..2 {
        tasks.push(kit.create(0, kit.new_task()).await);
    }
    tasks.push(kit.create(0, kit.new_task_of("post")).await);
    assert!(
        kit.store
            .owned(at(10), None)
            .await
            .expect("owned")
            .is_empty()
    );

    let claimed = kit.claim(1, &tasks[0], "w").await;
    let running = kit.run(1, &tasks[1], "v").await;
    let elsewhere = kit.run(1, &tasks[2], "w").await;
    let all = kit.store.owned(at(10), None).await.expect("owned tasks");
    let mut expected: Vec<_> = [&claimed, &running, &elsewhere].map(as_owned).into();
    assert_eq!(sorted_owned(all), sorted_owned(expected.clone()));
    let of_w = kit.store.owned(at(10), Some(&worker("w"))).await;
    expected.remove(1);
    assert_eq!(sorted_owned(of_w.expect("owned")), sorted_owned(expected));

    kit.finish(2, &running, success("ok")).await;
    kit.apply(2, &claimed, kit.reclaim_event(&claimed)).await;
    let left = kit.store.owned(at(10), None).await.expect("owned tasks");
    assert_eq!(left, [as_owned(&elsewhere)]);
    let unknown = kit.store.owned(at(10), Some(&worker("unknown"))).await;
    assert!(unknown.expect("an answer").is_empty());
}
