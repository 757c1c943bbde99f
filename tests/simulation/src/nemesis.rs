//! Injects the disruptions of a scenario.

use std::{sync::Arc, time::Duration};

use dueline_ports::TaskQueue as _;
use dueline_testkit::{HistoryEvent, Switch};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{scenario::Disruption, world::SimulatedWorld};

/// Period in which a queue that must deliver nothing is deleted.
const DEAD_QUEUE_PERIOD: Duration = Duration::from_millis(100);

/// Injects the disruptions of a scenario at their times.
pub(crate) struct Nemesis(pub(crate) Arc<SimulatedWorld>);

impl Nemesis {
    pub(crate) async fn run(self, begun: Instant) {
        let scenario = self.0.scenario.clone();
        for (at, disruption) in &scenario.disruptions {
            sleep_until(begun + *at).await;
            self.inject(disruption).await;
        }
    }

    async fn inject(&self, disruption: &Disruption) {
        let world = &self.0;
        let note = |note| world.history.record(HistoryEvent::Note(note));
        match disruption {
            Disruption::Crash(host, restart_after) => {
                note("crash");
                world.hosts[*host].crash(*restart_after);
            }
            Disruption::Pause(host, lasts) => {
                note("pause");
                let fleet = world.scenario.fleet.as_ref();
                if fleet.is_some_and(|f| f.shares(*host) && *lasts > f.silent_after()) {
                    note("member paused past its silence limit");
                }
                let gate = world.hosts[*host].gate();
                gate.pause();
                self.after(*lasts, move || gate.resume());
            }
            Disruption::Restart(host) => {
                note("restart");
                world.hosts[*host].restart();
            }
            Disruption::CutOff(host, lasts) => {
                note("cut off");
                self.switch_on_for(&world.hosts[*host].cut_off, *lasts);
            }
            Disruption::StoreOutage(lasts) => {
                note("store outage");
                self.switch_on_for(&world.store_outage, *lasts);
            }
            Disruption::QueueOutage(lasts) => {
                note("queue outage");
                self.switch_on_for(&world.queue_outage, *lasts);
            }
            Disruption::DeleteQueue(job) => {
                note("queue deleted");
                // Deleting a queue in memory cannot fail.
                let _ = world.local_queue.remove(job).await;
            }
            Disruption::DeleteAndBlockQueue(job, blocked_for) => {
                note("queue deleted");
                let _ = world.queue.delete(job, *blocked_for).await;
            }
            Disruption::HotSpot(hot, rate, lasts) => {
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
            Disruption::DeadQueue(job) => {
                note("queue dead");
                let (queue, job) = (world.local_queue.clone(), job.clone());
                world.group.spawn_infallible("dead queue", async move {
                    loop {
                        let _ = queue.remove(&job).await;
                        sleep(DEAD_QUEUE_PERIOD).await;
                    }
                });
            }
            Disruption::ClockJump(host, skew_ms) => {
                note("clock jumped");
                world.hosts[*host].clock.set_skew(*skew_ms);
            }
        }
    }

    fn switch_on_for(&self, switch: &Switch, lasts: Duration) {
        switch.set(true);
        let switch = switch.clone();
        self.after(lasts, move || switch.set(false));
    }

    fn after(&self, lasts: Duration, then: impl FnOnce() + Send + 'static) {
        self.0
            .group
            .spawn_infallible("end of a disruption", async move {
                sleep(lasts).await;
                then();
            });
    }
}
