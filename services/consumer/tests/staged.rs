//! What a run has staged goes on with its success, and is discarded with its end, also when the processes that should do
//! that have died.

mod kit;

use dueline_domain::{
    Claim, Event, Family, FromRun, NewTask, Outcome, RetryClass, StateKind, Task, TaskEnd,
    TaskOptions,
};
use dueline_ports::{Clock as _, Rng as _};
use dueline_runtime::{Families, Follower, Linked, Performer};
use kit::{Kit, fatal, ms, secs, success, worker};
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

/// A task that a worker runs.
async fn running(kit: &Kit) -> Task {
    let task = kit.store_as_enqueued(kit.task("a", ms(0))).await;
    claimed(kit, &task).await
}

async fn claimed(kit: &Kit, task: &Task) -> Task {
    let task = kit.get(task).await;
    let claim = Claim {
        token: task.state.token().unwrap(),
        worker: worker(),
        start: true,
    };
    kit.apply(&task, Event::Claim(claim)).await
}

fn submit(kit: &Kit, from: &Task) -> NewTask {
    let mut new = kit.task("b", ms(0));
    let from_run = Some(FromRun {
        task: from.address(),
        token: from.state.token().unwrap(),
        end: None,
    });
    new.options = Some(Box::new(TaskOptions {
        family: Some(Box::new(Family {
            from_run,
            ..Family::default()
        })),
        ..TaskOptions::default()
    }));
    new
}

/// Marks the run, and stores a task that the process does not connect before it dies.
async fn stage_without_edge(kit: &Kit, from: &Task) -> Task {
    let run = from.state.token().unwrap();
    families(kit).stage(&from.address(), run).await.unwrap();
    let task = kit.store_as_enqueued(submit(kit, from)).await;
    assert_eq!(task.kind(), StateKind::Waiting);
    task
}

async fn link(kit: &Kit, task: &Task) -> Linked {
    let follower = Follower::of(task.address(), task.family());
    families(kit).link(&[follower]).await.unwrap()
}

async fn stage(kit: &Kit, from: &Task) -> Task {
    let task = stage_without_edge(kit, from).await;
    assert_eq!(link(kit, &task).await, Linked::default());
    task
}

async fn finish(kit: &Kit, task: &Task, outcome: Outcome) -> Task {
    let finish = Event::Finish {
        token: task.state.token().unwrap(),
        started_at: None,
        outcome,
        jitter: kit.rng.jitter(),
    };
    let ended = kit.apply(task, finish).await;
    kit.due.announce(kit.clock.now());
    ended
}

fn retriable() -> Outcome {
    Outcome::Retriable {
        class: RetryClass::Standard,
        delay: Some(secs(1)),
        error: "no luck".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_13_the_end_of_a_task_decides_about_all_that_its_runs_have_staged() {
    let kit = Kit::new().await;
    kit.start();
    let first = running(&kit).await;
    // The process that should discard it dies: the end of the task does it, or a check, whichever is first.
    let discarded = stage(&kit, &first).await;
    let again = finish(&kit, &first, retriable()).await;
    kit.wait_for_state(&again, StateKind::Enqueued, secs(3))
        .await;
    assert_eq!(kit.get(&discarded).await.kind(), StateKind::Waiting);
    let second = claimed(&kit, &again).await;
    let (one, two) = (stage(&kit, &second).await, stage(&kit, &second).await);
    sleep(secs(5)).await;
    for task in [&one, &two] {
        assert_eq!(kit.get(task).await.kind(), StateKind::Waiting);
    }
    let done = finish(&kit, &second, success()).await;
    for task in [&one, &two] {
        kit.wait_for_state(task, StateKind::Enqueued, secs(1)).await;
    }
    let lost = kit.get(&discarded).await;
    assert_eq!(lost.family_end(), Some(TaskEnd::Discarded), "{lost:?}");
    sleep(secs(1)).await;
    assert_eq!(kit.get(&done).await.owed, None);

    let failing = running(&kit).await;
    let task = stage(&kit, &failing).await;
    finish(&kit, &failing, fatal()).await;
    kit.wait_for_state(&task, StateKind::Cancelled, secs(1))
        .await;
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_13_a_run_whose_lease_ends_discards_what_it_has_staged() {
    let kit = Kit::new().await;
    kit.start();
    let from = running(&kit).await;
    let task = stage(&kit, &from).await;
    let lost = kit
        .wait_for_state(&from, StateKind::Enqueued, secs(120))
        .await;
    assert_ne!(lost.state.token(), from.state.token());
    let task = kit
        .wait_for_state(&task, StateKind::Cancelled, secs(1))
        .await;
    let end = task.family().unwrap().from_run.as_ref().unwrap().end;
    assert_eq!(end, Some(TaskEnd::Discarded));
    kit.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_13_a_run_that_ends_while_a_task_is_submitted_is_noticed_by_one_of_both() {
    let kit = Kit::new().await;
    // It ends after the mark and before the edge: the call that connects the two decides.
    for (outcome, expected) in [
        (success(), StateKind::Enqueued),
        (fatal(), StateKind::Cancelled),
        (retriable(), StateKind::Cancelled),
    ] {
        let from = running(&kit).await;
        let task = stage_without_edge(&kit, &from).await;
        finish(&kit, &from, outcome).await;
        let linked = link(&kit, &task).await;
        assert_eq!(linked.moved, [(task.address(), expected)]);
        assert_eq!(link(&kit, &task).await, Linked::default());
        // A run that has ended stages nothing.
        let run = from.state.token().unwrap();
        assert!(families(&kit).stage(&from.address(), run).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_13_a_staged_task_that_was_never_connected_is_found_by_its_check() {
    let kit = Kit::new().await;
    kit.start();
    let mut staged = Vec::new();
    for outcome in [success(), fatal()] {
        let from = running(&kit).await;
        staged.push(stage_without_edge(&kit, &from).await);
        finish(&kit, &from, outcome).await;
    }
    kit.run_until(secs(59)).await;
    for task in &staged {
        assert_eq!(kit.get(task).await.kind(), StateKind::Waiting);
    }
    kit.run_until(secs(62)).await;
    assert_eq!(kit.get(&staged[0]).await.kind(), StateKind::Enqueued);
    assert_eq!(kit.get(&staged[1]).await.kind(), StateKind::Cancelled);
    kit.stop().await;
}
