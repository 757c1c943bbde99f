//! Tasks that are submitted after everything has healed: nothing stands in their way.

use std::{collections::BTreeSet, time::Duration};

use dueline_domain::{StateKind, TaskId};
use tokio::time::{Instant, sleep};

use crate::{
    delays::waits,
    scenario::{Scenario, Submit},
    script::Script,
    world::{World, quiet},
};

/// How many there are at least.
pub(crate) const TAIL: usize = 3;
/// How long messages may still be on their way, and hosts coming back.
const SETTLES_IN: Duration = Duration::from_secs(25);
/// How late a task may begin: the period of a poll, and two seconds for everything else.
const LATE_MAX: Duration = Duration::from_secs(3);
/// What must not happen any more.
const ERRORS: [&str; 3] = [
    "store answered an error",
    "queue answered an error",
    "status answered an error",
];

fn task(job: usize, delay: Option<Duration>) -> Submit {
    Submit {
        at: Duration::ZERO,
        job,
        script: Script::Succeed(10),
        delay,
        priority: 0,
        client_dies: false,
    }
}

/// Submits a few tasks of a job that is served.
pub(crate) async fn submit(world: &World) {
    let (scenario, given_up) = (&world.scenario, world.scenario.given_up());
    let job = scenario.jobs.iter();
    let job = job.clone().position(|job| !given_up.contains(&job.name));
    let last = scenario.submits.len();
    for number in last..last + TAIL {
        world
            .client()
            .submit(number, task(job.unwrap_or(0), None))
            .await;
    }
}

/// Submits tasks of every job, due at once and later, and watches what happens: no call fails, and each task begins in
/// time and succeeds at once.
pub(crate) async fn watched(world: &World) {
    sleep(SETTLES_IN).await;
    // A queue that was deleted while nobody needed it is missed by the first task, which waits for its enqueue
    // timeout; so the first tasks are not watched.
    let mut number = world.scenario.submits.len();
    submit_all(world, &mut number, &[None]).await;
    sleep(SETTLES_IN).await;

    let errors = || ERRORS.map(|name| world.counters.get(name));
    let (before, first) = (errors(), number);
    submit_all(world, &mut number, &[None, Some(Duration::from_secs(3))]).await;
    let tail: BTreeSet<TaskId> = (first..number).map(Scenario::task_id).collect();
    // If that is not enough, the checker says so.
    quiet(world, Instant::now() + Duration::from_secs(60)).await;
    for (name, (before, after)) in ERRORS.iter().zip(before.iter().zip(errors())) {
        if after > *before {
            let times = after - before;
            world.fail(format!(
                "the tail is free of errors: {times} times '{name}'"
            ));
        }
    }
    for task in world.memory.snapshot() {
        let (id, state, tries) = (task.id, &task.state, task.tries);
        let is_fine = task.kind() == StateKind::Succeeded && tries == 1;
        if tail.contains(&id) && !is_fine {
            world.fail(format!(
                "a tail task succeeds at once: {id} is {state:?} after {tries} runs"
            ));
        }
    }
    let waits = waits(&world.history).into_iter();
    for wait in waits.filter(|wait| tail.contains(&wait.id)) {
        if wait.waited.is_none_or(|waited| waited > LATE_MAX) {
            world.fail(format!("a tail task begins in time: {wait:?}"));
        }
    }
}

/// Submits a task of each job for each of the delays.
async fn submit_all(world: &World, number: &mut usize, delays: &[Option<Duration>]) {
    for delay in delays {
        for job in 0..world.scenario.jobs.len() {
            world.client().submit(*number, task(job, *delay)).await;
            *number += 1;
        }
    }
}
