//! The whole cluster in one thread, from its start until all is quiet.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dueline_domain::Task;
use dueline_ports::{
    JobStore as _, PutJob, Rng as _, Store, TaskQueue,
    fakes::{MemoryStore, SeededRng, TokioClock},
};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use dueline_runtime::{DueSignal, TaskGroup};
use dueline_testkit::{
    Checker, Counters, Engine, Expected, FaultyQueue, FaultyStore, History, HostGate, LaggingStore,
    RecordingQueue, RecordingStore, Site, Switch, What, sometimes,
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    bad::{Bad, BadStore, HastyQueue},
    client::Client,
    host::Host,
    link::Directory,
    nemesis::Nemesis,
    scenario::{BASE, HostKind, Mode, Scenario},
    tail::{self, TAIL},
};

/// What everybody in a world shares.
pub(crate) struct World {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) rng: SeededRng,
    pub(crate) memory: Arc<MemoryStore>,
    /// The store and the queue as the network leads to them.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Engine,
    pub(crate) queue: FaultyQueue,
    /// The queue itself, for those who delete it.
    pub(crate) local_queue: Arc<LocalQueue>,
    /// What sites have in common; each host has its own gate and outages.
    pub(crate) site: Site,
    pub(crate) store_outage: Switch,
    pub(crate) queue_outage: Switch,
    /// While on, the index of due tasks lags.
    index_lags: Switch,
    pub(crate) directory: Directory,
    pub(crate) due: Arc<DueSignal>,
    pub(crate) history: History,
    pub(crate) counters: Counters,
    pub(crate) hosts: Vec<Arc<Host>>,
    pub(crate) group: TaskGroup,
    bad: Option<Bad>,
    failures: Mutex<Vec<String>>,
}

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// Broken promises and failed services, as sentences; empty when all is well.
    pub failures: Vec<String>,
    /// What happened at all.
    pub counters: Counters,
    /// Two runs of one scenario have the same.
    pub fingerprint: u64,
    /// Everything that happened.
    pub history: History,
}

impl World {
    fn new(scenario: Scenario, bad: Option<Bad>, counters: Counters) -> Self {
        let rng = SeededRng::new(scenario.seed);
        let history = History::new(BASE);
        let memory = Arc::new(MemoryStore::new());
        let recording: Arc<dyn Store> =
            Arc::new(RecordingStore::new(memory.clone(), history.clone()));
        let mut store = match bad {
            Some(bad) if !bad.is_of_hosts() => {
                Arc::new(BadStore::new(recording, bad, rng.next_u64()))
            }
            _ => recording,
        };
        // A queue that somebody else runs has room.
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
        if bad == Some(Bad::DeleteBeforeClaim) {
            queue = Arc::new(HastyQueue(queue));
        }
        let site = Site::new(
            HostGate::new(),
            Switch::new(true),
            counters.clone(),
            rng.next_u64(),
        );
        let index_lags = Switch::new(true);
        if let Some(fleet) = &scenario.fleet {
            let site = Site {
                faults: index_lags.clone(),
                ..site.with(&[])
            };
            store = Arc::new(LaggingStore::new(store, site, fleet.index));
        }
        let kinds = [HostKind::Consumer, HostKind::Status, HostKind::Worker];
        let kinds = kinds.into_iter().zip(scenario.hosts);
        let kinds = kinds.flat_map(|(kind, count)| std::iter::repeat_n(kind, count));
        let hosts = kinds.zip(&scenario.skews_ms).enumerate();
        let hosts = hosts.map(|(number, (kind, skew))| {
            Arc::new(Host::new(number, kind, TokioClock::skewed(BASE, *skew)))
        });
        Self {
            hosts: hosts.collect(),
            queue: FaultyQueue::new(queue, site.clone(), scenario.queue),
            scenario: Arc::new(scenario),
            rng,
            memory,
            store,
            engine: Engine::new(),
            local_queue,
            site,
            store_outage: Switch::default(),
            queue_outage: Switch::default(),
            index_lags,
            directory: Directory::default(),
            due: Arc::default(),
            history,
            counters,
            group: TaskGroup::new(),
            bad,
            failures: Mutex::default(),
        }
    }

    /// Something ended that should not have.
    pub(crate) fn fail(&self, what: String) {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }

    /// The store as a host at `site` sees it.
    pub(crate) fn store_for(&self, site: Site) -> Arc<dyn Store> {
        let seed = site.rng.next_u64();
        let faulty = FaultyStore::new(self.store.clone(), site, self.scenario.store.clone());
        let store: Arc<dyn Store> = Arc::new(faulty.of(self.engine.clone()));
        match self.bad {
            Some(bad) if bad.is_of_hosts() => Arc::new(BadStore::new(store, bad, seed)),
            _ => store,
        }
    }

    pub(crate) fn client(&self) -> Client {
        let queue = self.queue.for_site(self.site.with(&[&self.queue_outage]));
        Client {
            store: self.store_for(self.site.with(&[&self.store_outage])),
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

    /// Everything works again that is to, by hand where it does not by itself: first the hosts, then the store and
    /// the queues, then the index, with a gap in between for those who have one.
    async fn heal(&self) {
        let gap = self.scenario.fleet.as_ref().map(|fleet| fleet.heal_gap);
        let gap = async || match gap {
            Some(gap) if !gap.is_zero() => sleep(gap).await,
            _ => {}
        };
        let lost = self.scenario.lost();
        for host in self
            .hosts
            .iter()
            .filter(|host| !lost.contains(&host.number))
        {
            host.cut_off.set(false);
            host.gate().resume();
        }
        gap().await;
        self.site.faults.set(false);
        self.store_outage.set(false);
        self.queue_outage.set(false);
        self.engine.cool_all();
        gap().await;
        self.index_lags.set(false);
        self.history.record(What::Note("healed"));
    }

    pub(crate) fn unfinished(&self) -> usize {
        let (tasks, given_up) = (self.memory.snapshot(), self.scenario.given_up());
        let open = |task: &&Task| !task.kind().is_final() && !given_up.contains(&task.job);
        tasks.iter().filter(open).count()
    }
}

/// Plays a scenario to its end and checks it.
pub(crate) async fn play(scenario: Scenario, bad: Option<Bad>, counters: Counters) -> Report {
    let begun = Instant::now();
    let world = Arc::new(World::new(scenario, bad, counters));
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
    for host in &world.hosts {
        let live = host.clone().live(world.clone());
        world.group.spawn_infallible("host", live);
    }
    for (number, submit) in scenario.submits.iter().cloned().enumerate() {
        let (client, at) = (world.client(), begun + submit.at);
        world.group.spawn_infallible("client", async move {
            sleep_until(at).await;
            client.submit(number, submit).await;
        });
    }
    for (at, act) in scenario.acts.iter().copied() {
        let (client, at) = (world.client(), begun + at);
        world.group.spawn_infallible("user", async move {
            sleep_until(at).await;
            client.act(act).await;
        });
    }
    let nemesis = Nemesis(world.clone()).rage(begun);
    world.group.spawn_infallible("nemesis", nemesis);

    sleep_until(begun + scenario.heal_at).await;
    if scenario.mode != Mode::Liveness {
        world.heal().await;
    } else {
        world.site.faults.set(false);
        world.history.record(What::Note("healed"));
    }
    let until = begun + scenario.quiet_by;
    if scenario.mode.is_fleet() {
        quiet(&world, until).await;
        tail::watched(&world).await;
    } else {
        tail::submit(&world).await;
    }
    quiet(&world, until).await;
    report(&world)
}

/// Waits until every task has ended that is to.
pub(crate) async fn quiet(world: &World, until: Instant) {
    while world.unfinished() > 0 && Instant::now() < until {
        sleep(Duration::from_millis(500)).await;
    }
}

fn report(world: &World) -> Report {
    let entries = world.history.entries();
    let checker = Checker {
        policies: world.scenario.policies(),
        skew_max: world.scenario.skew_max,
        given_up: world.scenario.given_up(),
    };
    let expected = Expected {
        quiet: true,
        acked_min: world.scenario.submits.len() / 2,
        // A watchdog whose clock is minutes ahead takes every run back until no try is left, and poison may take a
        // neighbour's last try.
        successes_after_heal_min: match world.scenario.mode {
            Mode::WildClocks => 0,
            Mode::Safety => 1,
            Mode::Liveness | Mode::Fleet | Mode::FleetLiveness => TAIL,
        },
    };
    let broken = checker.check(&entries, &world.memory.snapshot(), expected);
    let failures = world.failures.lock();
    let mut failures = failures.unwrap_or_else(PoisonError::into_inner).clone();
    failures.extend(broken.iter().map(ToString::to_string));
    sometimes(&entries, &world.counters);
    // Nobody can promise that it never happens; but it needs a cause.
    let late = world
        .counters
        .get("user code began after its claim was lost");
    if late > 0 && !world.scenario.may_begin_late() {
        failures.push(format!("{late} runs began late without a cause"));
    }
    Report {
        failures,
        counters: world.counters.clone(),
        fingerprint: world.history.fingerprint(),
        history: world.history.clone(),
    }
}
