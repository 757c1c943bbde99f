//! Tasks that wait for others go on when these have ended, and a release that was lost is repaired and counted.

mod kit;

use dueline_domain::{
    EdgeKind, Event, Family, NewTask, Predecessor, Quota, RunningCancel, Sink, StateKind, Task,
    TaskEnd, TaskOptions, TriggerOn,
};
use dueline_ports::{Clock as _, Edge, FamilyStore as _};
use dueline_runtime::{Families, Follower, Linked, Performer};
use kit::{Kit, START, definition, end, fatal, ms, secs, success};
use tokio::time::sleep;

/// A new task of `job` that waits for these.
fn waiting_for(kit: &Kit, job: &str, after: &[&Task], trigger_on: TriggerOn) -> NewTask {
    let open = |task: &&Task| Predecessor::open(task.address());
    let mut new = kit.task(job, ms(0));
    new.options = Some(Box::new(TaskOptions {
        family: Some(Box::new(Family {
            after: after.iter().map(open).collect(),
            trigger_on,
            ..Family::default()
        })),
        ..TaskOptions::default()
    }));
    new
}

/// Connects a stored task with those that it waits for, as the frontend does.
async fn link(kit: &Kit, task: &Task) -> Linked {
    let families = Families {
        store: &*kit.store,
        clock: &*kit.clock,
        rng: &*kit.rng,
        performer: Performer {
            queue: &*kit.queue,
            due: &kit.due,
            ended: &kit.ended,
        },
    };
    let follower = Follower::of(task.address(), task.family());
    families.link(&[follower]).await.unwrap()
}

async fn submit_after(kit: &Kit, job: &str, after: &[&Task], rule: TriggerOn) -> Task {
    let new = waiting_for(kit, job, after, rule);
    let task = kit.store_as_enqueued(new).await;
    assert_eq!(task.kind(), StateKind::Waiting);
    link(kit, &task).await;
    task
}

#[tokio::test(start_paused = true)]
async fn f_095_a_task_is_enqueued_once_when_its_last_predecessor_has_succeeded() {
    let kit = Kit::new().await;
    kit.put(definition("c")).await;
    kit.start();
    let one = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let two = kit.store_as_enqueued(kit.task("b", ms(0))).await;
    let task = submit_after(&kit, "c", &[&one, &two], TriggerOn::Success).await;
    end(&kit, &one, success()).await;
    sleep(secs(2)).await;
    assert_eq!(kit.get(&task).await.kind(), StateKind::Waiting);
    end(&kit, &two, success()).await;
    let at = kit.since_start();
    let task = kit
        .wait_for_state(&task, StateKind::Enqueued, secs(2))
        .await;
    assert!(kit.since_start() < at + ms(100), "{:?}", kit.since_start());
    // Its message is sent, and nothing is owed any more.
    let message = kit.receive_and_ack("c", secs(1)).await.unwrap();
    assert_eq!(Some(message.task), task.message());
    sleep(secs(1)).await;
    assert_eq!(kit.get(&one).await.owed, None);
    assert_eq!(kit.get(&two).await.owed, None);
    assert_eq!(kit.get(&task).await.state, task.state, "and not again");
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_12_a_chain_ends_as_cancelled_when_its_first_task_fails() {
    let kit = Kit::new().await;
    kit.start();
    let first = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let second = submit_after(&kit, "a", &[&first], TriggerOn::Success).await;
    let third = submit_after(&kit, "b", &[&second], TriggerOn::Success).await;
    let rescue = submit_after(&kit, "b", &[&second], TriggerOn::Failure).await;
    end(&kit, &first, fatal()).await;
    let third = kit
        .wait_for_state(&third, StateKind::Cancelled, secs(3))
        .await;
    let second = kit.get(&second).await;
    let why = format!("predecessor a/{} failed", first.id);
    assert_eq!(second.error.as_deref(), Some(&*why));
    let why = format!("predecessor a/{} was cancelled", second.id);
    assert_eq!(third.error.as_deref(), Some(&*why));
    kit.wait_for_state(&rescue, StateKind::Enqueued, secs(1))
        .await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_096_a_released_task_waits_for_its_time_and_for_the_quota_of_its_job() {
    let kit = Kit::new().await;
    kit.put(dueline_domain::Job {
        quota: Quota {
            rate_per_s: Some(1.0),
            burst: Some(1),
            running_max: None,
        },
        ..definition("b")
    })
    .await;
    kit.start();
    let first = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let mut later = waiting_for(&kit, "a", &[&first], TriggerOn::Success);
    later.due = dueline_domain::Due::At(START.after(secs(20)));
    let later = kit.store_as_enqueued(later).await;
    link(&kit, &later).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(submit_after(&kit, "b", &[&first], TriggerOn::Success).await);
    }
    end(&kit, &first, success()).await;
    sleep(ms(500)).await;
    assert_eq!(
        kit.count("b", StateKind::Enqueued).await,
        1,
        "one of a burst"
    );
    assert_eq!(kit.get(&later).await.kind(), StateKind::New);
    kit.run_until(ms(19_900)).await;
    assert_eq!(kit.count("b", StateKind::Enqueued).await, 4);
    assert_eq!(kit.get(&later).await.kind(), StateKind::New);
    kit.wait_for_state(&later, StateKind::Enqueued, secs(2))
        .await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_095_a_predecessor_that_ends_while_it_is_followed_is_noticed_by_one_of_both() {
    let kit = Kit::new().await;
    let first = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let new = waiting_for(&kit, "a", &[&first], TriggerOn::Success);
    let task = kit.store_as_enqueued(new).await;
    // It ends before it is marked: the call that connects the two notifies the follower.
    let ended = end(&kit, &first, success()).await;
    assert_eq!(ended.owed, None, "no follower was known");
    let linked = link(&kit, &task).await;
    assert_eq!(linked.moved, [(task.address(), StateKind::Enqueued)]);
    // Connecting is done again without harm.
    assert_eq!(link(&kit, &task).await, Linked::default());
}

#[tokio::test(start_paused = true)]
async fn f_095_a_lost_release_is_repaired_by_the_next_check() {
    let kit = Kit::new().await;
    kit.start();
    // The process that stored these tasks died before it connected them.
    let first = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let second = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let new = waiting_for(&kit, "a", &[&first, &second], TriggerOn::Success);
    let task = kit.store_as_enqueued(new).await;
    end(&kit, &first, success()).await;
    kit.run_until(secs(59)).await;
    assert_eq!(kit.get(&task).await.kind(), StateKind::Waiting);
    kit.run_until(secs(62)).await;
    let checked = kit.get(&task).await;
    assert_eq!(checked.family().unwrap().open().count(), 1);
    assert!(kit.get(&second).await.has_followers());
    end(&kit, &second, success()).await;
    kit.wait_for_state(&task, StateKind::Enqueued, secs(2))
        .await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_095_a_predecessor_that_was_deleted_cancels_those_that_it_would_have_to_succeed_for() {
    let kit = Kit::new().await;
    kit.start();
    let mut gone = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    gone.id = dueline_domain::TaskId::from_bytes([9; 16]);
    let strict = submit_after(&kit, "a", &[&gone], TriggerOn::Success).await;
    let strict = kit.get(&strict).await;
    assert_eq!(strict.kind(), StateKind::Cancelled);
    let end = strict.family().unwrap().after[0].end;
    assert_eq!(end, Some(TaskEnd::Deleted));
    let any = submit_after(&kit, "a", &[&gone], TriggerOn::Always).await;
    assert_eq!(kit.get(&any).await.kind(), StateKind::Enqueued);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_095_ten_thousand_followers_are_each_told_once() {
    let kit = Kit::new().await;
    kit.start();
    let first = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let new = (0..10_000).map(|_| waiting_for(&kit, "b", &[&first], TriggerOn::Success));
    let tasks = kit.store_all_as_enqueued(new.collect()).await;
    let edges = tasks.iter().map(|task| Edge {
        from: first.address(),
        kind: EdgeKind::Follower,
        to: task.address(),
    });
    kit.store.put_edges(edges.collect()).await.unwrap();
    kit.apply(&first, Event::Follow(EdgeKind::Follower)).await;
    let row = kit.get(&first).await;
    assert_eq!(row.family().unwrap().after, [], "it does not grow");
    end(&kit, &first, success()).await;
    sleep(secs(5)).await;
    assert_eq!(kit.count("b", StateKind::Enqueued).await, 10_000);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_111_a_finished_task_tells_its_followers_and_then_its_sink() {
    let kit = Kit::new().await;
    kit.put(dueline_domain::Job {
        policy: dueline_domain::Policy {
            sink: Sink::parse("file:done").ok(),
            ..Default::default()
        },
        ..definition("a")
    })
    .await;
    kit.start();
    let first = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let task = submit_after(&kit, "b", &[&first], TriggerOn::Success).await;
    end(&kit, &first, success()).await;
    sleep(secs(2)).await;
    assert_eq!(kit.get(&task).await.kind(), StateKind::Enqueued);
    assert_eq!(kit.get(&first).await.owed, None);
    assert_eq!(kit.sinks.delivered().len(), 1);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_task_can_be_cancelled_and_its_followers_are_too() {
    let kit = Kit::new().await;
    kit.start();
    let first = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let second = submit_after(&kit, "a", &[&first], TriggerOn::Success).await;
    let third = submit_after(&kit, "a", &[&second], TriggerOn::Success).await;
    let cancel = Event::Cancel {
        running: RunningCancel::Refuse,
        reason: Some("not needed".into()),
    };
    kit.apply(&second, cancel).await;
    kit.due.announce(kit.clock.now());
    kit.wait_for_state(&third, StateKind::Cancelled, secs(2))
        .await;
    end(&kit, &first, success()).await;
    sleep(secs(1)).await;
    assert_eq!(kit.get(&first).await.owed, None);
    kit.stop().await;
}
