//! Lanes: the waiting tasks of jobs whose fairness keys take turns.

use std::{collections::BTreeMap, sync::Arc};

use dueline_domain::{Due, FairShare, Job, NewTask, Priority, StateKind, Task, TaskOptions};

use super::kit::{StoreKit, at, ids, job, job_name, retriable, success};
use crate::{LanePage, LaneQuery, PlaceRequest, Store, TakePlaces};

/// A store with the job `mail`, whose fairness keys take turns.
async fn fair_kit(store: Arc<dyn Store>) -> StoreKit {
    let kit = StoreKit::new(store).await;
    kit.put(Job {
        fair_share: Some(FairShare::default()),
        ..job("mail")
    })
    .await;
    kit
}

fn keyed(kit: &StoreKit, key: &str) -> NewTask {
    kit.task_with(TaskOptions {
        fairness_key: (!key.is_empty()).then(|| key.into()),
        ..TaskOptions::default()
    })
}

async fn read(kit: &StoreKit, ms: i64, after: Option<&str>, tasks_max: usize) -> LanePage {
    let query = LaneQuery {
        job: job_name("mail"),
        now: at(ms),
        after: after.map(Arc::from),
        tasks_max,
        share: None,
    };
    kit.store.lanes(query).await.expect("lanes")
}

/// The lanes of a page that have tasks, each with the numbers of its tasks.
fn shown(page: &LanePage, tasks: &[Task]) -> BTreeMap<String, Vec<usize>> {
    let number = |id| tasks.iter().position(|task| task.id == id);
    let lanes = page.lanes.iter().filter(|lane| !lane.tasks.is_empty());
    let lane = lanes.map(|lane| {
        let numbers = lane.tasks.iter().filter_map(|task| number(task.id));
        (lane.name.to_string(), numbers.collect())
    });
    lane.collect()
}

fn expected(lanes: &[(&str, &[usize])]) -> BTreeMap<String, Vec<usize>> {
    let lanes = lanes.iter();
    lanes
        .map(|(name, tasks)| ((*name).to_owned(), tasks.to_vec()))
        .collect()
}

pub async fn g_07_waiting_tasks_of_a_fair_job_are_read_by_lane(store: Arc<dyn Store>) {
    let kit = fair_kit(store).await;
    let mut new = Vec::new();
    for key in ["noisy", "noisy", "quiet", "noisy", ""] {
        new.push(keyed(&kit, key));
    }
    new[3].priority = Priority::new(500).expect("a legal priority");
    let mut later = keyed(&kit, "later");
    later.due = Due::At(at(5_000));
    new.push(later);
    let tasks = kit.create_all(0, new).await;
    assert!(tasks.iter().all(|task| task.kind() == StateKind::New));
    // The scan of due tasks does not find them.
    assert_eq!(kit.due(10_000).await.tasks, []);

    let page = read(&kit, 0, None, 30).await;
    let all = expected(&[("", &[4]), ("noisy", &[3, 0, 1]), ("quiet", &[2])]);
    assert_eq!(shown(&page, &tasks), all);
    assert_eq!((&page.end, page.has_more), (&None, false));
    assert_eq!(page.next_at, Some(at(5_000)));
    let names: Vec<_> = page.lanes.iter().map(|lane| &*lane.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    // A small page has a task of each lane, and the next one goes on behind it.
    let page = read(&kit, 0, None, 2).await;
    assert_eq!(
        shown(&page, &tasks),
        expected(&[("", &[4]), ("noisy", &[3])])
    );
    assert!(page.has_more);
    let page = read(&kit, 0, page.end.as_deref(), 2).await;
    assert_eq!(shown(&page, &tasks), expected(&[("quiet", &[2])]));
    let page = read(&kit, 5_000, Some("a"), 1).await;
    assert_eq!(shown(&page, &tasks), expected(&[("later", &[5])]));
    assert!(page.end.is_some());
}

pub async fn g_07_a_task_is_in_its_lane_while_it_waits_and_only_then(store: Arc<dyn Store>) {
    let kit = fair_kit(store).await;
    let new = (0..2).map(|_| NewTask {
        priority: Priority::new(7).expect("a legal priority"),
        ..keyed(&kit, "acme")
    });
    let tasks = kit.create_all(0, new.collect()).await;
    let stats = kit.store.stats(&job_name("mail")).await.expect("counts");
    assert_eq!(stats.oldest_due_at, Some(at(0)));
    let enqueued = kit.trigger(1, &tasks[0]).await;
    assert_eq!(enqueued.kind(), StateKind::Enqueued);
    assert_eq!(kit.get(&tasks[0]).await.state, enqueued.state);
    let page = read(&kit, 1, None, 10).await;
    assert_eq!(shown(&page, &tasks), expected(&[("acme", &[1])]));
    assert_eq!(kit.ready("mail").await, ids(&tasks[..1]));
    // Its message has the order of the enqueue, so that no task of another lane passes it.
    let message = enqueued.message().expect("a message");
    assert_eq!(
        (message.due_at, message.priority),
        (at(1), Priority::default())
    );
    let ready = kit.store.ready(&job_name("mail"), 1).await;
    assert_eq!(ready.expect("messages"), [message]);

    // Its lease is watched like that of any other task.
    let running = kit.run(2, &enqueued, "w").await;
    let lapsed = running.trigger_at().expect("the end of a lease");
    let due = kit.due(lapsed.millis() - at(0).millis()).await;
    assert_eq!(due.tasks.len(), 1, "{due:?}");
    assert_eq!(due.tasks[0].kind, StateKind::Processing);

    // It waits for its next try in the lane, and for the next one of a user.
    let again = kit.finish(3, &running, retriable("later")).await;
    let retry_at = again.trigger_at().expect("a time").millis() - at(0).millis();
    assert!(retry_at > 3, "{retry_at}");
    let page = read(&kit, retry_at - 1, None, 10).await;
    assert_eq!(shown(&page, &tasks), expected(&[("acme", &[1])]));
    let page = read(&kit, retry_at, None, 10).await;
    assert_eq!(shown(&page, &tasks), expected(&[("acme", &[1, 0])]));
    assert_eq!(kit.due(retry_at).await.tasks, []);
    let enqueued = kit.trigger(retry_at, &again).await;
    let running = kit.run(retry_at, &enqueued, "w").await;
    let done = kit.finish(retry_at, &running, success("done")).await;
    assert_eq!(done.kind(), StateKind::Succeeded);
    let page = read(&kit, retry_at + 100_000, None, 10).await;
    assert_eq!(shown(&page, &tasks), expected(&[("acme", &[1])]));
    let refused = kit.store.delete_job(&job_name("mail")).await;
    assert!(refused.is_err(), "a task waits");
}

pub async fn g_07_tasks_from_before_the_fair_share_get_into_their_lanes_later(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    kit.store
        .pause_job(&job_name("mail"), true, at(0))
        .await
        .expect("paused");
    let task = kit.create(0, keyed(&kit, "acme")).await;
    let fair = Job {
        fair_share: Some(FairShare {
            running_max: Some(7),
        }),
        ..job("mail")
    };
    assert!(kit.put(fair.clone()).await.fair_share.is_some());
    // A definition that says nothing of it keeps it.
    let kept = kit.put(job("mail")).await;
    assert_eq!(kept.fair_share, fair.fair_share);

    assert_eq!(shown(&read(&kit, 0, None, 10).await, &[]), expected(&[]));
    let due: Vec<_> = kit.due(0).await.tasks;
    assert_eq!(due.len(), 1);
    // The write that enqueues it makes it one that takes turns: its message must not pass those of other keys.
    let trigger = kit.command(&task, kit.trigger_event(&task));
    let enqueued = *kit.send(0, trigger).await.expect("enqueued").task;
    let message = enqueued.message().expect("a message");
    assert_eq!(message.due_at, enqueued.changed_at);
    assert_eq!(kit.get(&task).await, enqueued);
    let running = kit.run(0, &enqueued, "w").await;
    let again = kit.finish(0, &running, retriable("later")).await;
    let retry_at = again.trigger_at().expect("a time").millis() - at(0).millis();
    let page = read(&kit, retry_at, None, 10).await;
    assert_eq!(shown(&page, &[task]), expected(&[("acme", &[0])]));
}

pub async fn g_07_places_are_limited_in_each_lane_and_ahead_of_the_workers(store: Arc<dyn Store>) {
    let kit = fair_kit(store).await;
    let keys = ["a", "a", "a", "b", "", "b"];
    let new = keys.iter().map(|key| keyed(&kit, key)).collect();
    let tasks = kit.create_all(0, new).await;
    let take = |ms: i64, lane_limit, enqueued_max, tasks: &[Task]| {
        let requests = tasks.iter().filter_map(PlaceRequest::of).collect();
        let take = TakePlaces {
            lane_limit,
            enqueued_max,
            ..TakePlaces::new(job_name("mail"), 1_000, requests, at(ms))
        };
        let store = kit.store.clone();
        async move { store.take_places(take).await.expect("an answer") }
    };
    let granted = take(0, Some(2), None, &tasks[..5]).await;
    let expected = [tasks[0].id, tasks[1].id, tasks[3].id, tasks[4].id];
    assert_eq!((granted.granted, granted.is_full), (expected.into(), false));
    let mut running = Vec::new();
    for number in [0, 1, 3, 4] {
        let enqueued = kit.trigger(1, &tasks[number]).await;
        running.push(kit.run(1, &enqueued, "w").await);
    }
    // Only lane a is full.
    let granted = take(2, Some(2), Some(9), &[tasks[2].clone(), tasks[5].clone()]).await;
    assert_eq!(
        (granted.granted, granted.is_full),
        (vec![tasks[5].id], false)
    );
    assert_eq!(granted.enqueued, 0);
    let enqueued = kit.trigger(3, &tasks[5]).await;
    kit.finish(4, &running[0], success("done")).await;
    // One task is enqueued, and no more may be.
    let granted = take(5, Some(2), Some(1), &tasks[2..3]).await;
    assert_eq!((granted.granted.len(), granted.is_full), (0, true));
    assert_eq!(granted.enqueued, 1);
    kit.run(6, &enqueued, "w").await;
    let granted = take(7, Some(2), Some(1), &tasks[2..3]).await;
    assert_eq!(
        (granted.granted, granted.is_full),
        (vec![tasks[2].id], true)
    );
}

pub async fn g_07_lanes_without_due_tasks_hide_none_that_have_some(store: Arc<dyn Store>) {
    let kit = fair_kit(store).await;
    let mut new = Vec::new();
    for number in 0..30 {
        let mut later = keyed(&kit, &format!("later {number:02}"));
        later.due = Due::At(at(60_000));
        new.push(later);
    }
    new.push(keyed(&kit, "now"));
    let tasks = kit.create_all(0, new).await;
    let (mut after, mut pages) = (None::<Arc<str>>, 0);
    let found = loop {
        let page = read(&kit, 0, after.as_deref(), 2).await;
        pages += 1;
        assert!(pages < 40, "the end of the lanes is not reached");
        if !page.lanes.is_empty() {
            break shown(&page, &tasks);
        }
        after = page.end;
        assert!(after.is_some(), "the lane with a due task was passed over");
    };
    assert_eq!(found, expected(&[("now", &[30])]));
}
