//! Random families with random ends, against what must hold for each task at the end.

mod kit;

use std::collections::{BTreeMap, BTreeSet};

use dueline_domain::{
    Event, Family, Outcome, Predecessor, RunningCancel, StateKind, Task, TaskAddress, TaskEnd,
    TaskOptions, Timestamp, TriggerOn,
};
use dueline_ports::{Clock as _, Rng as _};
use dueline_runtime::{Families, Follower, Performer};
use kit::{Kit, ms};
use tokio::time::sleep;

const TASKS: usize = 40;

fn below(kit: &Kit, bound: usize) -> usize {
    usize::try_from(kit.rng.below(bound as u64)).unwrap()
}

/// Stores a task that waits for random earlier ones, some of which may have ended already, and connects it. Answers also
/// whether the task was connected.
async fn submit(kit: &Kit, earlier: &[Task]) -> (Task, bool) {
    let mut family = Family {
        trigger_on: TriggerOn::ALL[below(kit, 4) % 3],
        fail_on_child: below(kit, 3) == 0,
        ..Family::default()
    };
    for _ in 0..below(kit, 3).min(earlier.len()) {
        let one = Predecessor::open(earlier[below(kit, earlier.len())].address());
        if !family.after.contains(&one) {
            family.after.push(one);
        }
    }
    if family.after.is_empty() && !earlier.is_empty() && below(kit, 2) == 0 {
        let parent = &earlier[below(kit, earlier.len())];
        family.parent = Some(Predecessor::open(parent.address()));
    }
    let mut new = kit.task(["a", "b"][below(kit, 2)], ms(0));
    new.options = Some(Box::new(TaskOptions {
        family: Some(Box::new(family)),
        ..TaskOptions::default()
    }));
    let task = kit.store_as_enqueued(new).await;
    let open = task.family().unwrap().open();
    let open: Vec<_> = open.map(|(kind, from)| (kind, from.clone())).collect();
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
    // Sometimes the process dies before it connects the task.
    let is_connected = below(kit, 8) > 0;
    if is_connected {
        let follower = Follower {
            task: task.address(),
            open,
            run: None,
        };
        families.link(&[follower]).await.unwrap();
    }
    (task, is_connected)
}

/// Ends a task that is enqueued, or cancels one that waits.
async fn step(kit: &Kit, task: &Task) {
    let task = kit.get(task).await;
    match task
        .state
        .token()
        .filter(|_| task.kind() == StateKind::Enqueued)
    {
        Some(token) => {
            let claim = dueline_domain::Claim {
                token,
                worker: kit::worker(),
                start: false,
            };
            kit.apply(&task, Event::Claim(claim)).await;
            let outcome = match below(kit, 4) {
                0 => Outcome::Fatal { error: "no".into() },
                _ => Outcome::Success { result: None },
            };
            let finish = Event::Finish {
                token,
                started_at: Some(kit.clock.now()),
                outcome,
                jitter: kit.rng.jitter(),
            };
            kit.apply(&task, finish).await;
        }
        None if task.kind() == StateKind::Waiting && below(kit, 60) == 0 => {
            let cancel = Event::Cancel {
                running: RunningCancel::Refuse,
                reason: Some("by chance".into()),
            };
            kit.apply(&task, cancel).await;
        }
        None => return,
    }
    kit.due.announce(kit.clock.now());
}

/// How a task and its children have ended, by the states alone.
fn family_end(tasks: &BTreeMap<TaskAddress, Task>, task: &Task) -> TaskEnd {
    let end = TaskEnd::of(task.kind()).unwrap_or_else(|| panic!("{:?} is open", task.state));
    let family = task.family();
    let is_child = |child: &&Task| {
        let parent = child.family().and_then(|family| family.parent.as_ref());
        parent.is_some_and(|parent| parent.task == task.address())
    };
    let failed = tasks.values().filter(is_child);
    let failed = failed.filter(|child| family_end(tasks, child) != TaskEnd::Succeeded);
    let fails = family.is_some_and(|family| family.fail_on_child) && failed.count() > 0;
    match end {
        // Children that were added to a family that was closed already do not count.
        TaskEnd::Succeeded if fails && family.is_some_and(|f| f.children_failed > 0) => {
            TaskEnd::ChildrenFailed
        }
        end => end,
    }
}

/// When a task and the children that were connected with it before its own end have ended.
fn family_ended_at(
    tasks: &BTreeMap<TaskAddress, Task>,
    connected: &BTreeSet<TaskAddress>,
    task: &Task,
) -> Option<Timestamp> {
    let is_child = |child: &&Task| {
        let parent = child.family().and_then(|family| family.parent.as_ref());
        parent.is_some_and(|parent| parent.task == task.address())
            && connected.contains(&child.address())
            && Some(child.created_at) < task.finished_at
    };
    let children = tasks.values().filter(is_child);
    let ended = children.map(|child| family_ended_at(tasks, connected, child));
    let own = task.finished_at;
    match task.kind() {
        StateKind::Succeeded => ended.chain([own]).max().flatten(),
        _ => own,
    }
}

/// What must hold for a task after everything has ended.
fn check(
    tasks: &BTreeMap<TaskAddress, Task>,
    connected: &BTreeSet<TaskAddress>,
    task: &Task,
    seed: u64,
) {
    let context = format!("seed {seed}: {task:#?}");
    assert!(task.kind().is_final(), "{context}");
    assert_eq!(task.owed, None, "{context}");
    assert!(!task.is_open_family(), "{context}");
    let family = task.family().unwrap();
    let end_of = |one: &Predecessor| family_end(tasks, &tasks[&one.task]);
    let accepted = |one: &Predecessor| family.trigger_on.accepts(end_of(one));
    let parent_ran = |one: &Predecessor| tasks[&one.task].kind() == StateKind::Succeeded;
    let may_run = family.after.iter().all(accepted) && family.parent.iter().all(parent_ran);
    let by_chance = task.error.as_deref() == Some("by chance");
    let has_run = matches!(task.kind(), StateKind::Succeeded | StateKind::Failed);
    assert_eq!(has_run, may_run && !by_chance, "{context}");
    if has_run {
        assert_eq!(task.tries, 1, "{context}");
        let before = family.after.iter().chain(&family.parent);
        for one in before {
            let ended = tasks[&one.task].finished_at;
            assert!(ended <= task.started_at, "{context}");
        }
        for one in &family.after {
            let ended = family_ended_at(tasks, connected, &tasks[&one.task]);
            assert!(ended <= task.started_at, "{context}");
        }
    } else {
        let why = task.error.as_deref().unwrap_or_default();
        let is_named = family
            .after
            .iter()
            .chain(&family.parent)
            .any(|one| why.contains(&one.task.to_string()));
        assert!(by_chance || is_named, "{context}");
    }
}

#[tokio::test(start_paused = true)]
async fn f_095_a_12_random_families_end_as_their_rules_say() {
    for seed in 1..=40 {
        let kit = Kit::seeded(seed).await;
        kit.start();
        let (mut tasks, mut connected) = (Vec::new(), BTreeSet::new());
        while tasks.len() < TASKS {
            let (task, is_connected) = submit(&kit, &tasks).await;
            if is_connected {
                connected.insert(task.address());
            }
            tasks.push(task);
            for _ in 0..below(&kit, 3) {
                step(&kit, &tasks[below(&kit, tasks.len())]).await;
            }
            sleep(ms(kit.rng.below(40))).await;
        }
        // Two hours are enough for the checks of everything that was not connected.
        for _ in 0..7_200 {
            for task in &tasks {
                step(&kit, task).await;
            }
            sleep(ms(1_000)).await;
            let mut are_over = true;
            for task in &tasks {
                let task = kit.get(task).await;
                are_over &= task.kind().is_final() && task.owed.is_none();
            }
            if are_over {
                break;
            }
        }
        let mut ended = BTreeMap::new();
        for task in &tasks {
            ended.insert(task.address(), kit.get(task).await);
        }
        for task in ended.values() {
            check(&ended, &connected, task, seed);
        }
        let ran = ended.values().filter(|task| task.tries > 0).count();
        assert!(
            (5..TASKS - 2).contains(&ran),
            "seed {seed}: {ran} tasks have run"
        );
        kit.stop().await;
    }
}
