//! Does to the world what the scenario says.

use std::{sync::Arc, time::Duration};

use dueline_ports::TaskQueue as _;
use dueline_testkit::{Switch, What};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{scenario::Blow, world::World};

/// How often the queue that is to deliver nothing is deleted.
const DEAD_QUEUE_PERIOD: Duration = Duration::from_millis(100);

pub(crate) struct Nemesis(pub(crate) Arc<World>);

impl Nemesis {
    pub(crate) async fn rage(self, begun: Instant) {
        let scenario = self.0.scenario.clone();
        for (at, blow) in &scenario.blows {
            sleep_until(begun + *at).await;
            self.strike(blow).await;
        }
    }

    async fn strike(&self, blow: &Blow) {
        let world = &self.0;
        let note = |note| world.history.record(What::Note(note));
        match blow {
            Blow::Crash(host, comes_back) => {
                note("crash");
                world.hosts[*host].crash(*comes_back);
            }
            Blow::Pause(host, lasts) => {
                note("pause");
                let fleet = world.scenario.fleet.as_ref();
                if fleet.is_some_and(|f| f.shares(*host) && *lasts > f.missed_after()) {
                    note("member paused for longer than others wait");
                }
                let gate = world.hosts[*host].gate();
                gate.pause();
                self.after(*lasts, move || gate.resume());
            }
            Blow::Restart(host) => {
                note("restart");
                world.hosts[*host].restart();
            }
            Blow::CutOff(host, lasts) => {
                note("cut off");
                self.on_for(&world.hosts[*host].cut_off, *lasts);
            }
            Blow::StoreOutage(lasts) => {
                note("store outage");
                self.on_for(&world.store_outage, *lasts);
            }
            Blow::QueueOutage(lasts) => {
                note("queue outage");
                self.on_for(&world.queue_outage, *lasts);
            }
            Blow::DropQueue(job) => {
                note("queue deleted");
                // The queue in memory cannot fail.
                let _ = world.local_queue.remove(job).await;
            }
            Blow::LoseQueue(job, blocked_for) => {
                note("queue deleted");
                let _ = world.queue.delete(job, *blocked_for).await;
            }
            Blow::Hot(hot, rate, lasts) => {
                note("store hot");
                world.engine.heat(hot.clone(), *rate);
                let (engine, hot, counters) =
                    (world.engine.clone(), hot.clone(), world.counters.clone());
                let before = engine.requests();
                self.after(*lasts, move || {
                    counters.add("requests while hot", engine.requests() - before);
                    engine.cool(&hot);
                });
            }
            Blow::DeadQueue(job) => {
                note("queue dead");
                let (queue, job) = (world.local_queue.clone(), job.clone());
                world.group.spawn_infallible("dead queue", async move {
                    loop {
                        let _ = queue.remove(&job).await;
                        sleep(DEAD_QUEUE_PERIOD).await;
                    }
                });
            }
            Blow::Clock(host, skew_ms) => {
                note("clock jumped");
                world.hosts[*host].clock.set_skew(*skew_ms);
            }
        }
    }

    fn on_for(&self, switch: &Switch, lasts: Duration) {
        switch.set(true);
        let switch = switch.clone();
        self.after(lasts, move || switch.set(false));
    }

    fn after(&self, lasts: Duration, then: impl FnOnce() + Send + 'static) {
        self.0.group.spawn_infallible("end of a blow", async move {
            sleep(lasts).await;
            then();
        });
    }
}
