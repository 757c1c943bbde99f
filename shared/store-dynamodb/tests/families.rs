//! What tasks that wait for others cost, counted by the store's meter.

mod kit;

use dueline_domain::{
    EdgeKind, Effect, Event, Family, NewTask, Predecessor, Release, Settle, StateKind, Task,
    TaskEnd, TaskOptions,
};
use dueline_ports::{Edge, FamilyStore as _, Rng as _};
use kit::TaskDriver;

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
