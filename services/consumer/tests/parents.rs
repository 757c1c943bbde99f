//! Children wait for the run of their parent, and the followers of a parent for all of its children.

mod kit;

use dueline_domain::{
    Children, Due, EdgeKind, Effect, Event, Family, NewTask, Outcome, Predecessor, RetryClass,
    RunningCancel, StateKind, Task, TaskOptions,
};
use dueline_ports::{Clock as _, Edge, FamilyStore as _};
use dueline_runtime::{Families, Follower, Performer};
use kit::{Kit, START, fatal, ms, secs, success};
use tokio::time::sleep;

fn families(kit: &Kit) -> Families<'_> {
    Families {
        store: &*kit.store,
        clock: &*kit.clock,
        rng: &*kit.rng,
        performer: Performer {
            queue: &*kit.queue,
            due: &kit.due,
            ended: &kit.ended,
        },
    }
}

fn with_family(kit: &Kit, job: &str, family: Family) -> NewTask {
    let mut new = kit.task(job, ms(0));
    new.options = Some(Box::new(TaskOptions {
        family: Some(Box::new(family)),
        ..TaskOptions::default()
    }));
    new
}

/// Ends the run of an enqueued task, and lets the consumer do what follows from it.
async fn end(kit: &Kit, task: &Task, outcome: Outcome) -> Task {
    let ended = kit::end(kit, task, outcome).await;
    sleep(ms(200)).await;
    ended
}

fn child_of(kit: &Kit, job: &str, parent: &Task) -> NewTask {
    let family = Family {
        parent: Some(Predecessor::open(parent.address())),
        ..Family::default()
    };
    with_family(kit, job, family)
}

fn follower_of(kit: &Kit, job: &str, task: &Task) -> NewTask {
    let family = Family {
        after: vec![Predecessor::open(task.address())],
        ..Family::default()
    };
    with_family(kit, job, family)
}

/// Stores a task and connects it with what it waits for, as the frontend does.
async fn submit(kit: &Kit, new: NewTask) -> Task {
    let task = kit.store_as_enqueued(new).await;
    let follower = Follower::of(task.address(), task.family());
    families(kit).link(&[follower]).await.unwrap();
    kit.get(&task).await
}

async fn open_children(kit: &Kit, task: &Task) -> usize {
    let open = kit.store.open_children(&task.address(), 100).await;
    open.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn f_093_f_094_f_095_children_run_after_their_parent_and_followers_after_the_family() {
    let kit = Kit::new().await;
    kit.start();
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let mut children = Vec::new();
    for _ in 0..3 {
        children.push(submit(&kit, child_of(&kit, "b", &parent)).await);
    }
    let follower = submit(&kit, follower_of(&kit, "a", &parent)).await;
    for child in &children {
        assert_eq!(child.kind(), StateKind::Waiting);
    }
    end(&kit, &parent, success()).await;
    // They are let go at once, and not only by the next poll.
    for child in &children {
        kit.wait_for_state(child, StateKind::Enqueued, ms(100))
            .await;
    }
    for (number, child) in children.iter().enumerate() {
        assert_eq!(open_children(&kit, &parent).await, 3 - number);
        assert_eq!(kit.get(&follower).await.kind(), StateKind::Waiting);
        assert!(kit.get(&parent).await.is_open_family());
        let outcome = if number == 1 { fatal() } else { success() };
        end(&kit, child, outcome).await;
    }
    let closed = kit.get(&parent).await;
    assert_eq!(
        (closed.children(), closed.owed.clone()),
        (Children::Closed, None)
    );
    assert_eq!(closed.family().unwrap().children_failed, 1);
    kit.wait_for_state(&follower, StateKind::Enqueued, secs(1))
        .await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_097_d_12_a_child_that_is_scheduled_or_retried_keeps_its_family_open() {
    let kit = Kit::new().await;
    kit.start();
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let scheduled = NewTask {
        due: Due::At(START.after(secs(5))),
        ..child_of(&kit, "b", &parent)
    };
    let scheduled = submit(&kit, scheduled).await;
    let retried = submit(&kit, child_of(&kit, "b", &parent)).await;
    end(&kit, &parent, success()).await;
    assert_eq!(kit.get(&scheduled).await.kind(), StateKind::New);
    let again = Outcome::Retriable {
        class: RetryClass::Standard,
        delay: Some(secs(2)),
        error: "once more".into(),
    };
    end(&kit, &retried, again).await;
    assert_eq!(open_children(&kit, &parent).await, 2);
    let retried = kit
        .wait_for_state(&retried, StateKind::Enqueued, secs(4))
        .await;
    end(&kit, &retried, success()).await;
    let scheduled = kit
        .wait_for_state(&scheduled, StateKind::Enqueued, secs(4))
        .await;
    assert!(kit.get(&parent).await.is_open_family());
    end(&kit, &scheduled, success()).await;
    assert_eq!(kit.get(&parent).await.children(), Children::Closed);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_11_the_children_of_a_parent_that_fails_are_cancelled_and_name_it() {
    let kit = Kit::new().await;
    kit.start();
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let child = submit(&kit, child_of(&kit, "b", &parent)).await;
    let below = submit(&kit, child_of(&kit, "b", &child)).await;
    end(&kit, &parent, fatal()).await;
    let child = kit
        .wait_for_state(&child, StateKind::Cancelled, secs(1))
        .await;
    let why = format!("parent a/{} failed", parent.id);
    assert_eq!(child.error.as_deref(), Some(&*why));
    let below = kit
        .wait_for_state(&below, StateKind::Cancelled, secs(1))
        .await;
    let why = format!("parent b/{} was cancelled", child.id);
    assert_eq!(below.error.as_deref(), Some(&*why));
    sleep(secs(1)).await;
    for task in [&parent, &child, &below] {
        assert_eq!(kit.get(task).await.owed, None);
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_094_families_are_nested_and_close_from_below() {
    let kit = Kit::new().await;
    kit.start();
    let top = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let middle = submit(&kit, child_of(&kit, "a", &top)).await;
    let bottom = submit(&kit, child_of(&kit, "b", &middle)).await;
    let last = submit(&kit, follower_of(&kit, "b", &top)).await;
    end(&kit, &top, success()).await;
    end(&kit, &middle, success()).await;
    assert!(kit.get(&middle).await.is_open_family());
    assert!(kit.get(&top).await.is_open_family());
    assert_eq!(kit.get(&last).await.kind(), StateKind::Waiting);
    end(&kit, &bottom, success()).await;
    kit.wait_for_state(&last, StateKind::Enqueued, secs(1))
        .await;
    assert_eq!(kit.get(&top).await.children(), Children::Closed);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_14_a_failed_child_cancels_the_followers_only_if_the_parent_asks_for_that() {
    let kit = Kit::new().await;
    kit.start();
    for (fail_on_child, expected) in [(false, StateKind::Enqueued), (true, StateKind::Cancelled)] {
        let family = Family {
            fail_on_child,
            ..Family::default()
        };
        let parent = kit.store_as_enqueued(with_family(&kit, "a", family)).await;
        let child = submit(&kit, child_of(&kit, "b", &parent)).await;
        let follower = submit(&kit, follower_of(&kit, "a", &parent)).await;
        end(&kit, &parent, success()).await;
        end(&kit, &child, fatal()).await;
        let follower = kit.wait_for_state(&follower, expected, secs(1)).await;
        let why = format!(
            "predecessor a/{} succeeded, but not all of its children did",
            parent.id
        );
        assert_eq!(follower.error.is_some(), fail_on_child);
        assert!(follower.error.is_none_or(|error| *error == *why));
        assert_eq!(kit.get(&parent).await.kind(), StateKind::Succeeded);
    }
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_094_a_child_that_ends_before_its_parents_run_closes_the_family_with_that_run() {
    let kit = Kit::new().await;
    kit.start();
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let child = submit(&kit, child_of(&kit, "b", &parent)).await;
    let cancel = Event::Cancel {
        running: RunningCancel::Refuse,
        reason: None,
    };
    kit.apply(&child, cancel).await;
    kit.due.announce(kit.clock.now());
    sleep(ms(200)).await;
    assert_eq!(open_children(&kit, &parent).await, 0);
    end(&kit, &parent, success()).await;
    assert_eq!(kit.get(&parent).await.children(), Children::Closed);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_11_children_of_a_parent_that_has_run_count_until_its_family_is_closed() {
    let kit = Kit::new().await;
    kit.start();
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let first = submit(&kit, child_of(&kit, "b", &parent)).await;
    end(&kit, &parent, success()).await;
    let second = submit(&kit, child_of(&kit, "b", &parent)).await;
    assert_eq!(second.kind(), StateKind::Enqueued, "it goes straight on");
    end(&kit, &first, success()).await;
    assert!(kit.get(&parent).await.is_open_family());
    end(&kit, &second, success()).await;
    assert_eq!(kit.get(&parent).await.children(), Children::Closed);
    let late = submit(&kit, child_of(&kit, "b", &parent)).await;
    assert_eq!(late.kind(), StateKind::Enqueued);
    end(&kit, &late, success()).await;
    assert_eq!(kit.get(&late).await.owed, None);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_094_a_child_that_is_added_while_its_family_is_closed_is_not_left_out() {
    let kit = Kit::new().await;
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    kit.apply(&parent, Event::Follow(EdgeKind::Child)).await;
    let parent = end(&kit, &parent, success()).await;
    let seen = parent.write;
    let close = |seen, failed| Event::Close(dueline_domain::Close { seen, failed });
    let closing = kit.apply(&parent, close(seen, None)).await;
    // The child is added after the children were read for the second time.
    let child = submit(&kit, child_of(&kit, "b", &parent)).await;
    assert_eq!(child.kind(), StateKind::Enqueued);
    let (open, _) = families(&kit).close(&parent.address()).await.unwrap();
    assert_eq!(open.unwrap().children(), Children::Open);
    assert_ne!(kit.get(&parent).await.write, closing.write);
    end(&kit, &child, success()).await;
    families(&kit).leave(&kit.get(&child).await).await.unwrap();
    assert_eq!(kit.get(&parent).await.children(), Children::Closed);
}

#[tokio::test(start_paused = true)]
async fn f_094_a_lost_end_of_a_child_is_repaired_by_the_next_check_of_the_family() {
    let kit = Kit::new().await;
    kit.start();
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let child = submit(&kit, child_of(&kit, "b", &parent)).await;
    end(&kit, &parent, success()).await;
    sleep(secs(1)).await;
    let owed = kit.get(&parent).await.owed.unwrap();
    assert_eq!(owed.effects, [Effect::Close]);
    // A process recorded the end of the child, and died before it closed the family.
    let edge = Edge {
        from: parent.address(),
        kind: EdgeKind::Child,
        to: child.address(),
    };
    let end = dueline_domain::TaskEnd::Succeeded;
    kit.store.end_edge(edge, end).await.unwrap();
    kit.run_until(secs(59)).await;
    assert!(kit.get(&parent).await.is_open_family());
    kit.run_until(secs(63)).await;
    assert_eq!(kit.get(&parent).await.children(), Children::Closed);
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_094_ten_thousand_children_close_their_family_once() {
    let kit = Kit::new().await;
    kit.start();
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let new = (0..10_000).map(|_| child_of(&kit, "b", &parent));
    let children = kit.store_all_as_enqueued(new.collect()).await;
    let followers = children.iter().map(|task| Follower {
        task: task.address(),
        open: vec![(EdgeKind::Child, parent.address())],
        run: None,
    });
    let followers: Vec<_> = followers.collect();
    families(&kit).link(&followers).await.unwrap();
    let cancel = Event::Cancel {
        running: RunningCancel::Refuse,
        reason: None,
    };
    end(&kit, &parent, success()).await;
    sleep(secs(5)).await;
    assert_eq!(kit.count("b", StateKind::Enqueued).await, 10_000);
    for child in &children {
        kit.apply(child, cancel.clone()).await;
    }
    kit.due.announce(kit.clock.now());
    for _ in 0..600 {
        if kit.get(&parent).await.children() == Children::Closed {
            break;
        }
        sleep(secs(1)).await;
    }
    let closed = kit.get(&parent).await;
    assert_eq!(closed.family().unwrap().children_failed, 10_000);
    assert!(kit.since_start() < secs(120), "{:?}", kit.since_start());
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f_094_f_095_a_sink_that_is_down_does_not_hold_a_family_for_good() {
    let kit = Kit::new().await;
    kit.put(dueline_domain::Job {
        policy: dueline_domain::Policy {
            sink: dueline_domain::Sink::parse("file:done").ok(),
            ..Default::default()
        },
        ..kit::definition("b")
    })
    .await;
    kit.sinks.set_down(Some("disk is full"));
    kit.start();
    // Failures of the sink pause what the tasks of its job owe, for up to five minutes at a time.
    let first = kit.store_as_enqueued(kit.task("b", ms(0))).await;
    end(&kit, &first, success()).await;
    sleep(secs(900)).await;
    let parent = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    let child = submit(&kit, child_of(&kit, "b", &parent)).await;
    let follower = submit(&kit, follower_of(&kit, "a", &child)).await;
    end(&kit, &parent, success()).await;
    end(&kit, &child, success()).await;
    sleep(secs(200)).await;
    assert_eq!(kit.get(&follower).await.kind(), StateKind::Enqueued);
    assert_eq!(kit.get(&parent).await.children(), Children::Closed);
    kit.stop().await;
}
