//! What tasks that wait for others cost, counted by the store's meter.

mod kit;

use dueline_domain::{
    EdgeKind, Effect, Event, Family, FromRun, NewTask, Predecessor, Release, RunEnded, Settle,
    StateKind, Task, TaskEnd, TaskOptions,
};
use dueline_ports::{Edge, FamilyStore as _, Rng as _};
use kit::{TaskDriver, at};

/// A driver whose write units are counted for each step.
struct MeteredDriver {
    driver: TaskDriver,
    units: f64,
}

impl MeteredDriver {
    async fn new() -> Self {
        let (store, _) = kit::faulty().await;
        let driver = TaskDriver::new(store).await;
        let units = driver.cost().write_units;
        Self { driver, units }
    }

    /// Write units since the last call.
    fn step_units(&mut self) -> f64 {
        let now = self.driver.cost().write_units;
        let units = now - self.units;
        self.units = now;
        units
    }
}

fn waiting_for(metered: &MeteredDriver, task: &Task) -> NewTask {
    let mut new = metered.driver.task(500);
    new.options = Some(Box::new(TaskOptions {
        family: Some(Box::new(Family {
            after: vec![Predecessor::open(task.address())],
            ..Family::default()
        })),
        ..TaskOptions::default()
    }));
    new
}

#[tokio::test]
async fn f_095_a_follower_costs_four_write_units_more_and_so_does_its_predecessor_once() {
    let mut metered = MeteredDriver::new().await;
    let first = metered.driver.create(0, metered.driver.task(500)).await;
    assert_eq!(metered.step_units(), 2.0);
    let first = metered
        .driver
        .apply(1, &first, Event::Follow(EdgeKind::Follower))
        .await;
    let mark = metered.step_units();
    let (mut waiting, mut edges) = (Vec::new(), 0.0);
    for _ in 0..3 {
        let task = metered
            .driver
            .create(2, waiting_for(&metered, &first))
            .await;
        assert_eq!(
            (task.kind(), metered.step_units()),
            (StateKind::Waiting, 2.0)
        );
        let edge = Edge {
            from: first.address(),
            kind: EdgeKind::Follower,
            to: task.address(),
        };
        metered.driver.store.put_edges(vec![edge]).await.unwrap();
        edges += metered.step_units();
        waiting.push(task);
    }
    assert_eq!(edges, 3.0, "one for each edge");
    let first = metered.driver.run(20, &first).await;
    let first = metered.driver.succeed(900, &first).await;
    let run = metered.step_units();
    let settle = Event::Settle(Settle {
        seen: first.write,
        effect: Effect::Release,
        failed: None,
    });
    metered.driver.apply(910, &first, settle).await;
    let settle = metered.step_units();
    // A plain task costs one unit for its claim and two for its end.
    assert_eq!([mark, run, settle], [1.0, 4.0, 2.0]);
    for task in waiting {
        let release = Event::Release(Release {
            kind: EdgeKind::Follower,
            from: first.address(),
            end: TaskEnd::Succeeded,
            token: Some(metered.driver.rng.token()),
        });
        let task = metered.driver.apply(920, &task, release).await;
        assert_eq!(task.kind(), StateKind::Enqueued);
        let release = metered.step_units();
        let task = metered.driver.run(940, &task).await;
        let claim = metered.step_units();
        metered.driver.succeed(1_900, &task).await;
        let finish = metered.step_units();
        assert_eq!([release, claim, finish], [1.0, 3.0, 2.0]);
    }
}

#[tokio::test]
async fn f_094_a_child_costs_eight_write_units_more_than_a_plain_task() {
    let mut metered = MeteredDriver::new().await;
    let parent = metered.driver.create(0, metered.driver.task(500)).await;
    let follow = Event::Follow(EdgeKind::Child);
    let parent = metered.driver.apply(1, &parent, follow).await;
    metered.step_units();
    let mut new = waiting_for(&metered, &parent);
    let family = new.options.as_mut().unwrap().family.as_mut().unwrap();
    family.parent = family.after.pop();
    let child = metered.driver.create(2, new).await;
    let edge = Edge {
        from: parent.address(),
        kind: EdgeKind::Child,
        to: child.address(),
    };
    let store = metered.driver.store.clone();
    store.put_edges(vec![edge.clone()]).await.unwrap();
    let added = metered.step_units();
    let release = Event::Release(Release {
        kind: EdgeKind::Child,
        from: parent.address(),
        end: TaskEnd::Succeeded,
        token: Some(metered.driver.rng.token()),
    });
    let child = metered.driver.apply(920, &child, release).await;
    let child = metered.driver.run(940, &child).await;
    let begun = metered.step_units();
    let child = metered.driver.succeed(1_900, &child).await;
    let ended = metered.step_units();
    store.end_edge(edge, TaskEnd::Succeeded).await.unwrap();
    let recorded = metered.step_units();
    let settle = Event::Settle(Settle {
        seen: child.write,
        effect: Effect::Leave,
        failed: None,
    });
    metered.driver.apply(1_910, &child, settle).await;
    let settled = metered.step_units();
    // A plain task costs five: two, one and two.
    let units = [added, begun, ended, recorded, settled];
    assert_eq!(units, [3.0, 4.0, 3.0, 1.0, 2.0]);
}

#[tokio::test]
async fn a_13_a_staged_task_costs_what_a_follower_does_and_its_run_one_write_unit_once() {
    let mut metered = MeteredDriver::new().await;
    let from = metered.driver.create(0, metered.driver.task(500)).await;
    let from = metered.driver.run(20, &from).await;
    metered.step_units();
    let run = from.state.token().unwrap();
    let stage = Event::Stage { token: run };
    let from = metered.driver.apply(30, &from, stage).await;
    assert_eq!(metered.step_units(), 1.0);
    let mut new = metered.driver.task(500);
    new.options = Some(Box::new(TaskOptions {
        family: Some(Box::new(Family {
            from_run: Some(FromRun {
                task: from.address(),
                token: run,
                end: None,
            }),
            ..Family::default()
        })),
        ..TaskOptions::default()
    }));
    let task = metered.driver.create(40, new).await;
    let edge = Edge {
        from: from.address(),
        kind: EdgeKind::Staged,
        to: task.address(),
    };
    metered.driver.store.put_edges(vec![edge]).await.unwrap();
    let added = metered.step_units();
    let from = metered.driver.succeed(900, &from).await;
    let settle = Event::Settle(Settle {
        seen: from.write,
        effect: Effect::Staged,
        failed: None,
    });
    metered.step_units();
    metered.driver.apply(910, &from, settle).await;
    let settled = metered.step_units();
    let ended = Event::RunEnded(RunEnded {
        run,
        succeeded: true,
        token: Some(metered.driver.rng.token()),
    });
    let task = metered.driver.apply(920, &task, ended).await;
    let released = metered.step_units();
    let task = metered.driver.run(940, &task).await;
    let begun = metered.step_units();
    metered.driver.succeed(1_900, &task).await;
    let finished = metered.step_units();
    // As of a follower: nine in all.
    let units = [added, released, begun, finished, settled];
    assert_eq!(units, [3.0, 1.0, 3.0, 2.0, 2.0]);
}

/// Units (written, read) of the end of one child whose parent has this many, and of the check whether others are open.
async fn units_of_one_end(children: u64) -> (f64, f64) {
    let mut metered = MeteredDriver::new().await;
    let parent = metered.driver.create(0, metered.driver.task(500)).await;
    let follow = Event::Follow(EdgeKind::Child);
    let parent = metered.driver.apply(1, &parent, follow).await;
    let mut new = waiting_for(&metered, &parent);
    let family = new.options.as_mut().unwrap().family.as_mut().unwrap();
    family.parent = family.after.pop();
    let child = metered.driver.create(2, new).await;
    let edge_to = |to| Edge {
        from: parent.address(),
        kind: EdgeKind::Child,
        to,
    };
    let store = metered.driver.store.clone();
    let edge = edge_to(child.address());
    let others = (1..children).map(|number| {
        let id = metered
            .driver
            .rng
            .task_id(at(i64::try_from(number).unwrap()));
        edge_to(dueline_domain::TaskAddress {
            job: parent.job.clone(),
            id,
        })
    });
    let edges: Vec<_> = others.chain([edge.clone()]).collect();
    for edges in edges.chunks(1_000) {
        store.put_edges(edges.to_vec()).await.unwrap();
    }
    let release = Event::Release(Release {
        kind: EdgeKind::Child,
        from: parent.address(),
        end: TaskEnd::Succeeded,
        token: Some(metered.driver.rng.token()),
    });
    let child = metered.driver.apply(920, &child, release).await;
    let child = metered.driver.run(940, &child).await;
    metered.step_units();
    let read = metered.driver.cost().read_units;
    let child = metered.driver.succeed(1_900, &child).await;
    store.end_edge(edge, TaskEnd::Succeeded).await.unwrap();
    let open = store.open_children(&parent.address(), 1).await.unwrap();
    assert_eq!(open.len(), 1);
    let settle = Event::Settle(Settle {
        seen: child.write,
        effect: Effect::Leave,
        failed: None,
    });
    metered.driver.apply(1_910, &child, settle).await;
    let read = metered.driver.cost().read_units - read;
    (metered.step_units(), read)
}

#[tokio::test]
async fn f_094_the_end_of_a_child_costs_the_same_beside_ten_and_ten_thousand_others() {
    let (few, many) = (units_of_one_end(10).await, units_of_one_end(10_000).await);
    assert_eq!(few.0, 6.0);
    assert_eq!(many.0, few.0, "write units");
    assert!(
        many.1 <= few.1 + 1.0,
        "read units: {} and {}",
        many.1,
        few.1
    );
}
