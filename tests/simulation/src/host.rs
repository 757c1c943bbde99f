//! One host: what runs on it, from its start to its end.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dueline_consumer as consumer;
use dueline_controller as controller;
use dueline_domain::WorkerId;
use dueline_executor as executor;
use dueline_ports::{
    Rng, Store, TaskQueue,
    fakes::{SeededRng, TokioClock},
};
use dueline_runtime::{DueSignal, EndSignal, ServiceError, Shutdown};
use dueline_status_controller as status;
use dueline_testkit::{HostGate, Site, Switch};

use crate::{handler::Scripted, link::StatusLink, scenario::HostKind, world::World};

/// How long a host that is told to stop may go on with what it runs.
const GRACE: Duration = Duration::from_secs(3);

/// A place for a host; whoever runs there is replaced when it dies.
pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) kind: HostKind,
    /// Its clock, which outlives the processes.
    pub(crate) clock: Arc<TokioClock>,
    /// While on, it reaches neither store nor status controllers.
    pub(crate) cut_off: Switch,
    /// How many processes have run there.
    starts: AtomicU32,
    /// The process that runs there now.
    process: Mutex<Process>,
}

/// One process, from its start to its death.
#[derive(Clone, Default)]
struct Process {
    gate: HostGate,
    stop: Shutdown,
    /// How long after its death the next one starts; `None` for never.
    comes_back: Option<Duration>,
}

impl Host {
    pub(crate) fn new(number: usize, kind: HostKind, clock: TokioClock) -> Self {
        Self {
            number,
            kind,
            clock: Arc::new(clock),
            cut_off: Switch::new(false),
            starts: AtomicU32::new(0),
            process: Mutex::default(),
        }
    }

    /// The gate of the process that runs there now.
    pub(crate) fn gate(&self) -> HostGate {
        self.process().gate
    }

    /// Kills the process; another one starts after `comes_back`.
    pub(crate) fn crash(&self, comes_back: Option<Duration>) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.comes_back = comes_back;
        process.gate.kill();
    }

    /// Tells the process to stop in order; another one starts when it has.
    pub(crate) fn restart(&self) {
        self.process().stop.stop_intake();
    }

    fn process(&self) -> Process {
        self.process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn new_process(&self) -> Process {
        let process = Process {
            comes_back: Some(Duration::from_secs(2)),
            ..Process::default()
        };
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process.clone();
        process
    }

    /// Runs one process after another, for as long as the world lasts.
    pub(crate) async fn live(self: Arc<Self>, world: Arc<World>) {
        loop {
            let process = self.new_process();
            let (ended, end) = tokio::sync::oneshot::channel();
            world.group.spawn_infallible("process", {
                let (world, host) = (world.clone(), self.clone());
                let process = process.clone();
                async move {
                    let answer = host.run(&world, &process).await;
                    // Nobody listens when the host has died meanwhile.
                    let _ = ended.send(answer);
                }
            });
            tokio::select! {
                biased;
                () = process.gate.died() => {
                    world.counters.count("host crashed");
                    // What is left of it may stop; nothing it does gets out any more.
                    process.stop.stop_work();
                    let Some(after) = self.process().comes_back else { return };
                    tokio::time::sleep(after).await;
                }
                answer = end => {
                    let told = process.stop.is_intake_stopped();
                    match answer {
                        Ok(Ok(())) if told => world.counters.count("host stopped in order"),
                        answer => world.fail(format!("host {} ended: {answer:?}", self.number)),
                    }
                    // A process that has ended holds nothing and hears of nothing.
                    process.gate.kill();
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    async fn run(&self, world: &World, process: &Process) -> Result<(), ServiceError> {
        let site = Site {
            gate: process.gate.clone(),
            outages: vec![self.cut_off.clone()],
            rng: Arc::new(SeededRng::new(world.rng.next_u64())),
            ..world.site.clone()
        };
        match self.kind {
            HostKind::Consumer => self.consumer(world, &site, process).await,
            HostKind::Status => self.status(world, &site, process).await,
            HostKind::Worker => self.worker(world, &site, process).await,
        }
    }

    fn store(&self, world: &World, site: &Site) -> Arc<dyn Store> {
        world.store_for(site.with(&[&self.cut_off, &world.store_outage]))
    }

    fn queue(&self, world: &World, site: &Site) -> Arc<dyn TaskQueue> {
        let site = site.with(&[&world.queue_outage]);
        Arc::new(world.queue.for_site(site))
    }

    fn due(&self, world: &World) -> Arc<DueSignal> {
        match world.scenario.signals {
            true => world.due.clone(),
            false => Arc::default(),
        }
    }

    async fn consumer(
        &self,
        world: &World,
        site: &Site,
        process: &Process,
    ) -> Result<(), ServiceError> {
        let deps = consumer::Deps {
            store: self.store(world, site),
            queue: self.queue(world, site),
            clock: self.clock.clone(),
            rng: rng(site),
            due: self.due(world),
        };
        let config = consumer::Config {
            sharing: self.sharing(world, site),
            ..consumer::Config::default()
        };
        consumer::run(config, deps, process.stop.clone()).await
    }

    /// Each process is a member of its own.
    fn sharing(&self, world: &World, site: &Site) -> Option<consumer::Sharing> {
        let fleet = world.scenario.fleet.as_ref()?;
        if !fleet.shares(self.number) {
            return None;
        }
        if self.starts.fetch_add(1, Ordering::Relaxed) > 0 {
            world.counters.count("member came back as another one");
        }
        let name = format!("consumer-{}", self.number);
        Some(consumer::Sharing {
            me: WorkerId::new(&name, site.rng.next_u64()).unwrap_or_else(|_| unreachable!()),
            interval: fleet.membership,
        })
    }

    async fn status(
        &self,
        world: &World,
        site: &Site,
        process: &Process,
    ) -> Result<(), ServiceError> {
        let deps = status::Deps {
            store: self.store(world, site),
            queue: self.queue(world, site),
            clock: self.clock.clone(),
            rng: rng(site),
            due: self.due(world),
            ended: Arc::<EndSignal>::default(),
        };
        let (claims_start, heartbeats_coalesced) = world.scenario.economy;
        let config = status::Config {
            interval: Duration::from_secs(1),
            claims_start,
            heartbeats_coalesced,
            ..status::Config::default()
        };
        let service = status::StatusController::new(config, deps);
        let (gate, cut_off) = (process.gate.clone(), self.cut_off.clone());
        let up = service.clone();
        world.directory.put(self.number, gate, cut_off, up);
        status::run(service, process.stop.clone()).await
    }

    async fn worker(
        &self,
        world: &World,
        site: &Site,
        process: &Process,
    ) -> Result<(), ServiceError> {
        let link = StatusLink::new(
            site.with(&[&self.cut_off]),
            world.directory.clone(),
            world.group.clone(),
            world.scenario.store.rates.unavailable,
            world.scenario.store.rates.latency_max,
        );
        let deps = controller::Deps {
            queue: self.queue(world, site),
            status: Arc::new(link),
            jobs_changed: Arc::default(),
        };
        let work = controller::Controller::new(controller::Config::default(), deps);
        let stop_controller = Shutdown::new();
        let serving = controller::run(work.clone(), stop_controller.clone());

        let first = self.executor(world, site, process, work.clone())?;
        let more = world.scenario.fleet.as_ref().map_or(1, |f| f.executors) > 1;
        let second = match more {
            true => Some(self.executor(world, site, process, work)?),
            false => None,
        };
        let executors = async {
            let run_second = async {
                match second {
                    Some(second) => executor::run(second, process.stop.clone()).await,
                    None => Ok(()),
                }
            };
            let run_first = executor::run(first, process.stop.clone());
            let (first, second) = tokio::join!(biased; run_first, run_second);
            first.and(second)
        };
        let running = async {
            let drain = async {
                process.stop.intake_stopped().await;
                tokio::time::sleep(GRACE).await;
                process.stop.stop_work();
                std::future::pending().await
            };
            let ended = tokio::select! {
                biased;
                ended = executors => ended,
                () = drain => Ok(()),
            };
            // Its controller must outlive it, or its last words are lost.
            stop_controller.stop_work();
            ended
        };
        let (served, ran) = tokio::join!(biased; serving, running);
        served.and(ran)
    }

    fn executor(
        &self,
        world: &World,
        site: &Site,
        process: &Process,
        work: Arc<controller::Controller>,
    ) -> Result<Arc<executor::Executor>, ServiceError> {
        let mut registry = executor::Registry::builder();
        for job in &world.scenario.jobs {
            let handler = Scripted {
                host: self.number,
                gate: process.gate.clone(),
                history: world.history.clone(),
                site: site.with(&[]),
                stalls: world.scenario.stalls,
                group: world.group.clone(),
            };
            registry = registry.job(job.name.as_str(), handler);
        }
        let deps = executor::Deps {
            work,
            clock: self.clock.clone(),
            rng: rng(site),
            registry: registry.build().unwrap_or_default(),
        };
        let config = executor::Config {
            concurrency: 3,
            heartbeat_interval: Duration::from_secs(1),
            kill_grace: Duration::from_millis(800),
            ..executor::Config::new(format!("host-{}", self.number), site.rng.next_u64())
        };
        executor::Executor::new(config, deps).map_err(|error| ServiceError {
            task: "executor",
            what: error.to_string(),
        })
    }
}

fn rng(site: &Site) -> Arc<dyn Rng> {
    Arc::new(SeededRng::new(site.rng.next_u64()))
}
