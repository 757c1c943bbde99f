//! The whole cluster in one thread, from its start until all tasks have ended.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dueline_domain::{Task, Timestamp};
use dueline_ports::{
    DueSchedulesQuery, JobStore as _, PutJob, Rng as _, ScheduleStore as _, Store, TaskQueue,
    fakes::{MemoryStore, SeededRng, TokioClock},
};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use dueline_runtime::{DueSignal, TaskGroup};
use dueline_testkit::{
    Checker, Counters, EventHistory, FaultInjector, FaultyQueue, FaultyStore, HistoryEvent,
    HostGate, LaggingStore, RecordingQueue, RecordingStore, RunExpectations, StoreEngine, Switch,
    count_events,
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    client::SimulatedClient,
    families,
    host::SimulatedHost,
    link::StatusDirectory,
    nemesis::Nemesis,
    planted_bugs::{AckOnReceiveQueue, BuggyStore, PlantedBug},
    probe::{self, PROBE_TASKS},
    scenario::{BASE, HostKind, Scenario, WorldMode},
    schedules,
};

/// The state that all hosts, clients and faults of a world share.
pub(crate) struct SimulatedWorld {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) rng: SeededRng,
    pub(crate) memory: Arc<MemoryStore>,
    /// The store with its recorder and index lag; each host adds its own faults.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: StoreEngine,
    /// The queue with its faults.
    pub(crate) queue: FaultyQueue,
    /// The queue without faults, for deleting it.
    pub(crate) local_queue: Arc<LocalQueue>,
    /// Common faults of all hosts and clients; each host adds its own gate and outages.
    pub(crate) injector: FaultInjector,
    pub(crate) store_outage: Switch,
    pub(crate) queue_outage: Switch,
    /// While on, the due index lags behind the store.
    index_lags: Switch,
    pub(crate) directory: StatusDirectory,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) history: EventHistory,
    pub(crate) counters: Counters,
    pub(crate) hosts: Vec<Arc<SimulatedHost>>,
    pub(crate) group: TaskGroup,
    bug: Option<PlantedBug>,
    failures: Mutex<Vec<String>>,
}

/// The result of a played scenario.
#[derive(Clone, Debug)]
pub struct WorldReport {
    /// Violated properties and failed services, as sentences; empty when the world passed.
    pub failures: Vec<String>,
    /// How often each event happened.
    pub counters: Counters,
    /// Hash of the history; equal in all runs of a scenario.
    pub fingerprint: u64,
    /// All recorded entries.
    pub history: EventHistory,
}

impl SimulatedWorld {
    fn new(scenario: Scenario, bug: Option<PlantedBug>, counters: Counters) -> Self {
        let rng = SeededRng::new(scenario.seed);
        let history = EventHistory::new(BASE);
        let memory = Arc::new(MemoryStore::new());
        let recording: Arc<dyn Store> =
            Arc::new(RecordingStore::new(memory.clone(), history.clone()));
        let mut store = match bug {
            Some(bug) if !bug.is_per_host() => {
                Arc::new(BuggyStore::new(recording, bug, rng.next_u64()))
            }
            _ => recording,
        };
        // A queue service is practically unbounded; the local queue has little room.
        let capacity = if scenario.mode.is_fleet() {
            100_000
        } else {
            12
        };
        let local_queue = LocalQueue::new(LocalQueueConfig {
            visibility_timeout: Duration::from_secs(8),
            ..LocalQueueConfig::with_capacity(capacity)
        });
        let mut queue: Arc<dyn TaskQueue> =
            Arc::new(RecordingQueue::new(local_queue.clone(), history.clone()));
        if bug == Some(PlantedBug::DeleteBeforeClaim) {
            queue = Arc::new(AckOnReceiveQueue(queue));
        }
        let injector = FaultInjector::new(
            HostGate::new(),
            Switch::new(true),
            counters.clone(),
            rng.next_u64(),
        );
        let index_lags = Switch::new(true);
        if let Some(fleet) = &scenario.fleet {
            let injector = FaultInjector {
                faults: index_lags.clone(),
                ..injector.with_outages(&[])
            };
            store = Arc::new(LaggingStore::new(store, injector, fleet.index));
        }
        let kinds = [HostKind::Consumer, HostKind::Status, HostKind::Worker];
        let kinds = kinds.into_iter().zip(scenario.hosts);
        let kinds = kinds.flat_map(|(kind, count)| std::iter::repeat_n(kind, count));
        let hosts = kinds.zip(&scenario.skews_ms).enumerate();
        let hosts = hosts.map(|(number, (kind, skew))| {
            Arc::new(SimulatedHost::new(
                number,
                kind,
                TokioClock::skewed(BASE, *skew),
            ))
        });
        Self {
            hosts: hosts.collect(),
            queue: FaultyQueue::new(queue, injector.clone(), scenario.queue),
            scenario: Arc::new(scenario),
            rng,
            memory,
            store,
            engine: StoreEngine::new(),
            local_queue,
            injector,
            store_outage: Switch::default(),
            queue_outage: Switch::default(),
            index_lags,
            directory: StatusDirectory::default(),
            due: Arc::default(),
            history,
            counters,
            group: TaskGroup::new(),
            bug,
            failures: Mutex::default(),
        }
    }

    /// Records a failure of the world.
    pub(crate) fn fail(&self, what: String) {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }

    /// The store as seen by a host with this `injector`.
    pub(crate) fn store_for(&self, injector: FaultInjector) -> Arc<dyn Store> {
        let seed = injector.rng.next_u64();
        let faulty = FaultyStore::new(self.store.clone(), injector, self.scenario.store.clone());
        let store: Arc<dyn Store> = Arc::new(faulty.with_engine(self.engine.clone()));
        match self.bug {
            Some(bug) if bug.is_per_host() => Arc::new(BuggyStore::new(store, bug, seed)),
            _ => store,
        }
    }

    pub(crate) fn client(&self) -> SimulatedClient {
        let queue = self
            .queue
            .for_injector(self.injector.with_outages(&[&self.queue_outage]));
        SimulatedClient {
            store: self.store_for(self.injector.with_outages(&[&self.store_outage])),
            queue: Arc::new(queue),
            clock: Arc::new(TokioClock::new(BASE.after(self.started()))),
            rng: Arc::new(SeededRng::new(self.rng.next_u64())),
            due: self.due.clone(),
            history: self.history.clone(),
            scenario: self.scenario.clone(),
        }
    }

    fn started(&self) -> Duration {
        self.history.now().since(BASE)
    }

    /// Ends all faults that are not permanent: first on the hosts, then on the store and the queues, then on the
    /// index. Fleets wait for a gap between these steps.
    async fn heal(&self) {
        let gap = self.scenario.fleet.as_ref().map(|fleet| fleet.heal_gap);
        let gap = async || match gap {
            Some(gap) if !gap.is_zero() => sleep(gap).await,
            _ => {}
        };
        let lost = self.scenario.lost_hosts();
        for host in self
            .hosts
            .iter()
            .filter(|host| !lost.contains(&host.number))
        {
            host.cut_off.set(false);
            host.gate().resume();
        }
        gap().await;
        self.injector.faults.set(false);
        self.store_outage.set(false);
        self.queue_outage.set(false);
        self.engine.cool_all();
        gap().await;
        self.index_lags.set(false);
        self.history.record(HistoryEvent::Note("healed"));
    }

    pub(crate) fn unfinished(&self) -> usize {
        let (tasks, dead_jobs) = (self.memory.snapshot(), self.scenario.jobs_with_dead_queue());
        let is_settled = |task: &Task| task.kind().is_final() && task.owed.is_none();
        let open = |task: &&Task| !is_settled(task) && !dead_jobs.contains(&task.job);
        tasks.iter().filter(open).count()
    }

    /// Whether a consumer has to process a schedule at some time.
    async fn has_open_schedules(&self) -> bool {
        if !self.scenario.mode.has_schedules() {
            return false;
        }
        let query = DueSchedulesQuery {
            now: Timestamp::MAX,
            limit: 1,
            share: None,
        };
        let page = self.memory.due_schedules(query).await;
        page.is_ok_and(|page| !page.schedules.is_empty())
    }
}

/// Plays a scenario to its end and checks it.
pub(crate) async fn play(
    scenario: Scenario,
    bug: Option<PlantedBug>,
    counters: Counters,
) -> WorldReport {
    let begun = Instant::now();
    let world = Arc::new(SimulatedWorld::new(scenario, bug, counters));
    let scenario = world.scenario.clone();
    for job in &scenario.jobs {
        let put = PutJob {
            job: job.clone(),
            if_absent: false,
        };
        if let Err(error) = world.memory.put_job(put).await {
            world.fail(format!("failed to put a job: {error}"));
        }
    }
    if let Err(error) = schedules::create(&world).await {
        world.fail(format!("failed to create a schedule: {error}"));
    }
    for host in &world.hosts {
        let processes = host.clone().run_processes(world.clone());
        world.group.spawn_infallible("host", processes);
    }
    for (number, submit) in scenario.submits.iter().cloned().enumerate() {
        let (client, at) = (world.client(), begun + submit.at);
        world.group.spawn_infallible("client", async move {
            sleep_until(at).await;
            client.submit(number, submit).await;
        });
    }
    for (at, action) in scenario.user_actions.iter().copied() {
        let (client, at) = (world.client(), begun + at);
        world.group.spawn_infallible("user", async move {
            sleep_until(at).await;
            client.apply(action).await;
        });
    }
    for (at, change) in scenario.schedule_changes.iter().cloned() {
        let (client, at) = (world.client(), begun + at);
        world.group.spawn_infallible("user", async move {
            sleep_until(at).await;
            client.change_schedule(change).await;
        });
    }
    let nemesis = Nemesis(world.clone()).run(begun);
    world.group.spawn_infallible("nemesis", nemesis);

    sleep_until(begun + scenario.heal_at).await;
    if scenario.mode != WorldMode::Liveness {
        world.heal().await;
    } else {
        world.injector.faults.set(false);
        world.history.record(HistoryEvent::Note("healed"));
    }
    let until = begun + scenario.quiet_by;
    if scenario.mode.is_fleet() {
        wait_until_quiet(&world, until).await;
        probe::submit_and_check(&world).await;
    } else {
        probe::submit(&world).await;
    }
    wait_until_quiet(&world, until).await;
    report(&world)
}

/// Waits until every task of a job whose queue works has ended and owes nothing, and no schedule has anything left to do.
pub(crate) async fn wait_until_quiet(world: &SimulatedWorld, until: Instant) {
    while Instant::now() < until && (world.unfinished() > 0 || world.has_open_schedules().await) {
        sleep(Duration::from_millis(500)).await;
    }
}

fn report(world: &SimulatedWorld) -> WorldReport {
    let entries = world.history.entries();
    let checker = Checker {
        policies: world.scenario.policies(),
        skew_max: world.scenario.skew_max,
        jobs_that_may_not_end: world.scenario.jobs_with_dead_queue(),
    };
    let expected = RunExpectations {
        all_tasks_end: true,
        acked_min: world.scenario.submits.len() / 2,
        // A watchdog whose clock is minutes ahead reclaims every run until no try is left, and a poison task may use
        // up the last try of another task on its host.
        successes_after_heal_min: match world.scenario.mode {
            WorldMode::WildClocks | WorldMode::Schedules => 0,
            WorldMode::Safety | WorldMode::Families => 1,
            WorldMode::Liveness
            | WorldMode::Fleet
            | WorldMode::FleetLiveness
            | WorldMode::FleetFamilies
            | WorldMode::FleetSchedules => PROBE_TASKS,
        },
    };
    let violations = checker.check(&entries, &world.memory.snapshot(), expected);
    let failures = world.failures.lock();
    let mut failures = failures.unwrap_or_else(PoisonError::into_inner).clone();
    failures.extend(violations.iter().map(ToString::to_string));
    if world.scenario.mode.has_families() {
        failures.extend(families::check(&entries, &world.counters));
    }
    if world.scenario.mode.has_schedules() {
        failures.extend(schedules::check(&entries, &world.scenario, &world.counters));
    }
    count_events(&entries, &world.counters);
    // A pause or a wrong clock can make user code begin late; without such a cause it must not.
    let late = world
        .counters
        .get("user code began after its claim was lost");
    if late > 0 && !world.scenario.may_begin_late() {
        failures.push(format!(
            "{late} runs began after their claims were lost, without a pause or clock skew"
        ));
    }
    WorldReport {
        failures,
        counters: world.counters.clone(),
        fingerprint: world.history.fingerprint(),
        history: world.history.clone(),
    }
}
