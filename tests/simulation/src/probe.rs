//! Probe tasks: submitted after all faults have healed, so they must run without errors or delays.

use std::{collections::BTreeSet, time::Duration};

use dueline_domain::{StateKind, TaskId};
use tokio::time::{Instant, sleep};

use crate::{
    scenario::{PlannedFamily, PlannedSubmit, Scenario},
    script::TaskScript,
    start_delays::start_delays,
    world::{SimulatedWorld, wait_until_quiet},
};

/// Fewest probe tasks of a world.
pub(crate) const PROBE_TASKS: usize = 3;
/// After this time no message is still delayed and no host still restarts.
const SETTLE_TIME: Duration = Duration::from_secs(25);
/// Longest start delay: the poll period, and two seconds for everything else.
const LATE_MAX: Duration = Duration::from_secs(3);
/// Counters that must not grow any more.
const ERRORS: [&str; 3] = [
    "store answered an error",
    "queue answered an error",
    "status answered an error",
];

fn task(job: usize, delay: Option<Duration>) -> PlannedSubmit {
    PlannedSubmit {
        at: Duration::ZERO,
        job,
        script: TaskScript::Succeed(10),
        delay,
        priority: 0,
        client_dies: false,
        family: PlannedFamily::default(),
    }
}

/// Submits a few tasks of a job whose queue works.
pub(crate) async fn submit(world: &SimulatedWorld) {
    let (scenario, dead_jobs) = (&world.scenario, world.scenario.jobs_with_dead_queue());
    let job = scenario.jobs.iter();
    let job = job.clone().position(|job| !dead_jobs.contains(&job.name));
    let last = scenario.submits.len();
    for number in last..last + PROBE_TASKS {
        world
            .client()
            .submit(number, task(job.unwrap_or(0), None))
            .await;
    }
}

/// Submits tasks of every job, due at once and later. Checks that no call fails, and that each task begins in time and
/// succeeds in its first run.
pub(crate) async fn submit_and_check(world: &SimulatedWorld) {
    sleep(SETTLE_TIME).await;
    // The first tasks are not checked: the first task of a job whose queue was deleted in the meantime waits for its
    // enqueue timeout.
    let mut number = world.scenario.submits.len();
    submit_all(world, &mut number, &[None]).await;
    sleep(SETTLE_TIME).await;

    let errors = || ERRORS.map(|name| world.counters.get(name));
    let (before, first) = (errors(), number);
    submit_all(world, &mut number, &[None, Some(Duration::from_secs(3))]).await;
    let probes: BTreeSet<TaskId> = (first..number).map(Scenario::task_id).collect();
    // The checker reports tasks that have not ended by then.
    wait_until_quiet(world, Instant::now() + Duration::from_secs(60)).await;
    for (name, (before, after)) in ERRORS.iter().zip(before.iter().zip(errors())) {
        if after > *before {
            let times = after - before;
            world.fail(format!(
                "probe tasks run without errors: {times} times '{name}'"
            ));
        }
    }
    for task in world.memory.snapshot() {
        let (id, state, tries) = (task.id, &task.state, task.tries);
        let is_fine = task.kind() == StateKind::Succeeded && tries == 1;
        if probes.contains(&id) && !is_fine {
            world.fail(format!(
                "a probe task succeeds in its first run: {id} is {state:?} after {tries} runs"
            ));
        }
    }
    let starts = start_delays(&world.history).into_iter();
    for start in starts.filter(|start| probes.contains(&start.id)) {
        if start.delay.is_none_or(|delay| delay > LATE_MAX) {
            world.fail(format!("a probe task begins in time: {start:?}"));
        }
    }
}

/// Submits a task of each job for each of the delays.
async fn submit_all(world: &SimulatedWorld, number: &mut usize, delays: &[Option<Duration>]) {
    for delay in delays {
        for job in 0..world.scenario.jobs.len() {
            world.client().submit(*number, task(job, *delay)).await;
            *number += 1;
        }
    }
}
