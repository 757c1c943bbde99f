//! A simulated host and the processes that run on it one after another.

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
use dueline_testkit::{FaultInjector, FaultySinks, HostGate, Switch};

use crate::{
    families::Stager, handler::ScriptedHandler, link::StatusLink, scenario::HostKind,
    world::SimulatedWorld,
};

/// How long runs may continue after the host was asked to stop.
const GRACE: Duration = Duration::from_secs(3);

/// A host. When its process dies, a new one takes its place.
pub(crate) struct SimulatedHost {
    pub(crate) number: usize,
    pub(crate) kind: HostKind,
    /// The host's clock; it survives restarts of the process.
    pub(crate) clock: Arc<TokioClock>,
    /// While on, the host reaches neither the store nor the status controllers.
    pub(crate) cut_off: Switch,
    /// Number of processes that were started on the host.
    starts: AtomicU32,
    /// The current process.
    process: Mutex<HostProcess>,
}

/// One process of a host.
#[derive(Clone, Default)]
struct HostProcess {
    gate: HostGate,
    stop: Shutdown,
    /// Time from its death to the start of the next process; `None` for never.
    restart_after: Option<Duration>,
}

impl SimulatedHost {
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

    /// The gate of the current process.
    pub(crate) fn gate(&self) -> HostGate {
        self.process().gate
    }

    /// Kills the process; a new one starts after `restart_after`.
    pub(crate) fn crash(&self, restart_after: Option<Duration>) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.restart_after = restart_after;
        process.gate.kill();
    }

    /// Shuts the process down in order; a new one starts when it has ended.
    pub(crate) fn restart(&self) {
        self.process().stop.stop_intake();
    }

    fn process(&self) -> HostProcess {
        self.process
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn new_process(&self) -> HostProcess {
        let process = HostProcess {
            restart_after: Some(Duration::from_secs(2)),
            ..HostProcess::default()
        };
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process.clone();
        process
    }

    /// Runs one process after another until the world ends.
    pub(crate) async fn run_processes(self: Arc<Self>, world: Arc<SimulatedWorld>) {
        loop {
            let process = self.new_process();
            let (ended, end) = tokio::sync::oneshot::channel();
            world.group.spawn_infallible("process", {
                let (world, host) = (world.clone(), self.clone());
                let process = process.clone();
                async move {
                    let answer = host.run(&world, &process).await;
                    // The receiver is gone if the host has died meanwhile.
                    let _ = ended.send(answer);
                }
            });
            tokio::select! {
                biased;
                () = process.gate.wait_until_dead() => {
                    world.counters.count("host crashed");
                    // The gate blocks all further effects of the dead process; what still runs may stop.
                    process.stop.stop_work();
                    let Some(after) = self.process().restart_after else { return };
                    tokio::time::sleep(after).await;
                }
                answer = end => {
                    let was_stopped = process.stop.is_intake_stopped();
                    match answer {
                        Ok(Ok(())) if was_stopped => world.counters.count("host stopped in order"),
                        answer => world.fail(format!("host {} ended: {answer:?}", self.number)),
                    }
                    // A process that has ended has no further effects.
                    process.gate.kill();
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    async fn run(&self, world: &SimulatedWorld, process: &HostProcess) -> Result<(), ServiceError> {
        let injector = FaultInjector {
            gate: process.gate.clone(),
            outages: vec![self.cut_off.clone()],
            rng: Arc::new(SeededRng::new(world.rng.next_u64())),
            ..world.injector.clone()
        };
        match self.kind {
            HostKind::Consumer => self.consumer(world, &injector, process).await,
            HostKind::Status => self.status(world, &injector, process).await,
            HostKind::Worker => self.worker(world, &injector, process).await,
        }
    }

    fn store(&self, world: &SimulatedWorld, injector: &FaultInjector) -> Arc<dyn Store> {
        world.store_for(injector.with_outages(&[&self.cut_off, &world.store_outage]))
    }

    fn queue(&self, world: &SimulatedWorld, injector: &FaultInjector) -> Arc<dyn TaskQueue> {
        let injector = injector.with_outages(&[&world.queue_outage]);
        Arc::new(world.queue.for_injector(injector))
    }

    fn due(&self, world: &SimulatedWorld) -> Arc<DueSignal> {
        match world.scenario.signals {
            true => world.due.clone(),
            false => Arc::default(),
        }
    }

    async fn consumer(
        &self,
        world: &SimulatedWorld,
        injector: &FaultInjector,
        process: &HostProcess,
    ) -> Result<(), ServiceError> {
        let deps = consumer::Deps {
            store: self.store(world, injector),
            queue: self.queue(world, injector),
            clock: self.clock.clone(),
            rng: rng(injector),
            due: self.due(world),
            ended: Arc::<EndSignal>::default(),
            sinks: Arc::new(FaultySinks::new(
                injector.with_outages(&[&self.cut_off]),
                world.history.clone(),
            )),
        };
        let config = consumer::Config {
            sharing: self.sharing(world, injector),
            ..consumer::Config::default()
        };
        consumer::run(config, deps, process.stop.clone()).await
    }

    /// Membership of a consumer that shares partitions. Each process is a new member.
    fn sharing(
        &self,
        world: &SimulatedWorld,
        injector: &FaultInjector,
    ) -> Option<consumer::Sharing> {
        let fleet = world.scenario.fleet.as_ref()?;
        if !fleet.shares(self.number) {
            return None;
        }
        if self.starts.fetch_add(1, Ordering::Relaxed) > 0 {
            world.counters.count("member restarted under a new id");
        }
        let name = format!("consumer-{}", self.number);
        Some(consumer::Sharing {
            me: WorkerId::new(&name, injector.rng.next_u64()).unwrap_or_else(|_| unreachable!()),
            interval: fleet.membership_interval,
        })
    }

    async fn status(
        &self,
        world: &SimulatedWorld,
        injector: &FaultInjector,
        process: &HostProcess,
    ) -> Result<(), ServiceError> {
        let deps = status::Deps {
            store: self.store(world, injector),
            queue: self.queue(world, injector),
            clock: self.clock.clone(),
            rng: rng(injector),
            due: self.due(world),
            ended: Arc::<EndSignal>::default(),
        };
        let config = status::Config {
            interval: Duration::from_secs(1),
            claims_start: world.scenario.claims_start,
            heartbeats_coalesced: world.scenario.heartbeats_coalesced,
            ..status::Config::default()
        };
        let service = status::StatusControllerService::new(config, deps);
        let (gate, cut_off) = (process.gate.clone(), self.cut_off.clone());
        let endpoint = service.clone();
        world.directory.put(self.number, gate, cut_off, endpoint);
        status::run(service, process.stop.clone()).await
    }

    async fn worker(
        &self,
        world: &SimulatedWorld,
        injector: &FaultInjector,
        process: &HostProcess,
    ) -> Result<(), ServiceError> {
        let link = StatusLink::new(
            injector.with_outages(&[&self.cut_off]),
            world.directory.clone(),
            world.group.clone(),
            world.scenario.store.rates.unavailable,
            world.scenario.store.rates.latency_max,
        );
        let deps = controller::Deps {
            queue: self.queue(world, injector),
            status: Arc::new(link),
            jobs_changed: Arc::default(),
        };
        let service = controller::ControllerService::new(controller::Config::default(), deps);
        let stop_controller = Shutdown::new();
        let serving = controller::run(service.clone(), stop_controller.clone());

        let first = self.executor(world, injector, process, service.clone())?;
        let more = world.scenario.fleet.as_ref().map_or(1, |f| f.executors) > 1;
        let second = match more {
            true => Some(self.executor(world, injector, process, service)?),
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
            // The controller stops after the executors, so that their last reports get through.
            stop_controller.stop_work();
            ended
        };
        let (served, ran) = tokio::join!(biased; serving, running);
        served.and(ran)
    }

    fn executor(
        &self,
        world: &SimulatedWorld,
        injector: &FaultInjector,
        process: &HostProcess,
        service: Arc<controller::ControllerService>,
    ) -> Result<Arc<executor::Executor>, ServiceError> {
        let mut registry = executor::Registry::builder();
        let stager = world.scenario.mode.has_families().then(|| Stager {
            store: self.store(world, injector),
            queue: self.queue(world, injector),
            clock: self.clock.clone(),
            rng: rng(injector),
            due: self.due(world),
            history: world.history.clone(),
        });
        for job in &world.scenario.jobs {
            let handler = ScriptedHandler {
                host: self.number,
                gate: process.gate.clone(),
                history: world.history.clone(),
                injector: injector.with_outages(&[]),
                stalls: world.scenario.stalls,
                group: world.group.clone(),
                stager: stager.clone(),
            };
            registry = registry.job(job.name.as_str(), handler);
        }
        let deps = executor::Deps {
            controller: service,
            clock: self.clock.clone(),
            rng: rng(injector),
            registry: registry.build().unwrap_or_default(),
        };
        let config = executor::Config {
            concurrency: 3,
            heartbeat_interval: Duration::from_secs(1),
            kill_grace: Duration::from_millis(800),
            ..executor::Config::new(format!("host-{}", self.number), injector.rng.next_u64())
        };
        executor::Executor::new(config, deps).map_err(|error| ServiceError {
            task: "executor",
            what: error.to_string(),
        })
    }
}

fn rng(injector: &FaultInjector) -> Arc<dyn Rng> {
    Arc::new(SeededRng::new(injector.rng.next_u64()))
}
