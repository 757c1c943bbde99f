//! What all long-running commands share: settings, telemetry, signals and shutdown.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use dueline_all_in_one::{Drained, NodeConfig, StartError, WorkerConfig};
use dueline_api::{ErrorKind, ErrorReason};
use dueline_backends::{BackendError, Fault, error_chain};
use dueline_executor::{BuiltIn, Executor, HttpSettings, Registry};
use dueline_runtime::{ServiceError, TaskGroup, incarnation};
use dueline_settings::{ConfigArgs, ConfigError, Settings};
use dueline_telemetry::{Metrics, TelemetryGuard};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    context::Context,
    exit::{CliError, Exit},
    output,
};

/// Valid settings, with logging and metrics switched on.
pub(crate) struct ProcessSetup {
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    _telemetry: TelemetryGuard,
}

/// Loads the settings and switches telemetry on. With `--print-config` it prints the settings and returns `None`.
pub(crate) fn prepare(
    context: &Context,
    args: &ConfigArgs,
) -> Result<Option<ProcessSetup>, CliError> {
    let loaded = args.load().map_err(config_error)?;
    if args.print_config {
        let text = if context.output.is_json() {
            let origins = loaded.origins.iter();
            let origins: BTreeMap<_, _> = origins
                .map(|(name, origin)| (name, origin.to_string()))
                .collect();
            json!({ "settings": loaded.settings, "origins": origins }).to_string()
        } else {
            loaded.to_toml().trim_end().to_owned()
        };
        // TOML and JSON are for programs too.
        context.output.verbatim(&text)?;
        return Ok(None);
    }
    let loaded = loaded.checked().map_err(config_error)?;
    let prepared = switch_on(loaded.settings)?;
    for note in &loaded.notes {
        tracing::warn!("{note}");
    }
    Ok(Some(prepared))
}

/// As [`prepare`], for settings that a command composes itself.
pub(crate) fn with_settings(settings: Settings) -> Result<ProcessSetup, CliError> {
    settings
        .check()
        .map_err(|problems| config_error(ConfigError::Problems(problems)))?;
    switch_on(settings)
}

fn switch_on(settings: Settings) -> Result<ProcessSetup, CliError> {
    dueline_runtime::descriptors::raise_limit();
    let (metrics, guard) = dueline_telemetry::init(&settings.log)
        .map_err(|error| CliError::invalid(error_chain(&error)))?;
    Ok(ProcessSetup {
        settings,
        metrics,
        _telemetry: guard,
    })
}

fn config_error(error: ConfigError) -> CliError {
    CliError::new(ErrorKind::Invalid, ErrorReason::Config, error_chain(&error))
}

/// Refuses a SQLite file in a folder that does not exist. A server that created the folder of a misspelt path would
/// seem to have lost all its tasks.
pub(crate) fn check_folder(settings: &Settings) -> Result<(), CliError> {
    let folder = settings.server.data.parent().unwrap_or(Path::new(""));
    if !settings.store.is_empty() || folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let folder = folder.display();
    let message = format!("the folder of the data file does not exist: {folder}");
    Err(
        CliError::new(ErrorKind::Invalid, ErrorReason::Config, message)
            .with_hint("create the folder first, or name another file with --data"),
    )
}

/// The error of a store or queue that cannot be opened or set up.
pub(crate) fn backend_error(error: &BackendError) -> CliError {
    CliError::new(kind_of(error), ErrorReason::Start, error_chain(error))
}

fn kind_of(error: &BackendError) -> ErrorKind {
    match error.fault() {
        Fault::InUse => ErrorKind::Conflict,
        Fault::Missing => ErrorKind::NotFound,
        Fault::Denied => ErrorKind::Denied,
        Fault::Unreachable => ErrorKind::Unavailable,
        Fault::Wrong => ErrorKind::Invalid,
    }
}

/// The error of services that cannot be started.
pub(crate) fn start_error(error: &StartError) -> CliError {
    let kind = match error {
        StartError::Backend(error) => kind_of(error),
        StartError::LocalQueue
        | StartError::Worker(_)
        | StartError::Server(_)
        | StartError::NoServer => ErrorKind::Invalid,
        StartError::Store(_) | StartError::Queue(_) | StartError::Listen { .. } => {
            ErrorKind::Unavailable
        }
    };
    CliError::new(kind, ErrorReason::Start, error_chain(error))
}

/// The executor that the settings describe.
pub(crate) fn worker(settings: &Settings, embedded: bool) -> Result<WorkerConfig, CliError> {
    let worker = &settings.worker;
    let has = |kind: &str| worker.handlers.iter().any(|handler| handler == kind);
    let registry = Registry::built_in(BuiltIn {
        exec: has("exec"),
        http: has("http").then_some(HttpSettings {
            allow_private: worker.http_allow_private,
        }),
        noop: has("noop"),
    });
    let name = if worker.name.is_empty() {
        host_name()
    } else {
        worker.name.clone()
    };
    let executor = dueline_executor::Config {
        concurrency: worker.concurrency,
        concurrency_min: (worker.concurrency_min > 0).then_some(worker.concurrency_min),
        embedded,
        heartbeat_interval: worker.heartbeat_interval(),
        kill_grace: worker.kill_grace(),
        ..dueline_executor::Config::new(name, incarnation())
    };
    executor.check().map_err(|error| {
        CliError::new(ErrorKind::Invalid, ErrorReason::Config, error_chain(&error))
    })?;
    Ok(WorkerConfig { executor, registry })
}

/// The name of this host, without the characters that a worker's name may not hold, and cut to its greatest length.
fn host_name() -> String {
    let name = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .chars()
        .filter(char::is_ascii_graphic)
        .take(64)
        .collect();
    if name.is_empty() {
        "worker".into()
    } else {
        name
    }
}

/// The services that the settings describe, without workers.
pub(crate) fn node(setup: &ProcessSetup) -> NodeConfig {
    let settings = &setup.settings;
    let metrics = setup.metrics.clone();
    let mut node = NodeConfig::embedded(settings.store_uri());
    node.queue.clone_from(&settings.queue);
    node.listen = Some(settings.server.listen);
    node.consumer.poll_period = settings.scheduler.poll_period();
    node.status.interval = settings.worker.heartbeat_interval();
    node.default_policy = settings.policy();
    let folder = &settings.sinks.folder;
    node.sinks.folder = (!folder.as_os_str().is_empty()).then(|| folder.clone());
    node.sinks.http_allow_private = settings.sinks.http_allow_private;
    node.metrics = Some(std::sync::Arc::new(move || metrics.render()));
    node
}

/// Waits for a signal to stop and returns `Ok`, or returns the failure of a service as soon as `failed` reports one.
/// The process ends after a failure, so the commands that run here are killed.
pub(crate) async fn until_stopped(
    failed: impl Future<Output = ServiceError>,
    executors: &[Arc<Executor>],
) -> Result<(), CliError> {
    let stopped = StopSignals::listen()?.received(failed).await;
    if stopped.is_err() {
        kill_commands(executors);
    }
    stopped
}

/// SIGINT, SIGTERM, and SIGHUP, which a closed terminal sends. From [`StopSignals::listen`] on, they no longer end the
/// process by themselves.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the process was started to ignore it, as `nohup` does.
    hangup: Option<Signal>,
}

impl StopSignals {
    pub(crate) fn listen() -> Result<Self, CliError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match is_hangup_ignored() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    /// As [`until_stopped`], for any signal since [`StopSignals::listen`].
    pub(crate) async fn received(
        &mut self,
        failed: impl Future<Output = ServiceError>,
    ) -> Result<(), CliError> {
        tokio::select! {
            biased;
            error = failed => Err(service_error(&error)),
            _ = self.interrupt.recv() => Ok(()),
            _ = self.terminate.recv() => Ok(()),
            Some(_) = async { self.hangup.as_mut()?.recv().await } => Ok(()),
        }
    }
}

/// Whether SIGHUP was set to be ignored when this process started. Known on Linux only.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores_hangup(&status)
}

/// Whether SIGHUP, number 1, is in the mask of ignored signals of a process.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Stops the services gracefully. A second SIGINT or SIGTERM ends the process at once. A second SIGHUP does not: a shell
/// may send one in addition to that of the terminal.
pub(crate) async fn stop(
    grace: Duration,
    executors: &[Arc<Executor>],
    stopped: impl Future<Output = Result<Drained, ServiceError>>,
) -> Result<Exit, CliError> {
    output::note(&format!(
        "stopping: running tasks have {} s to end; a second signal ends the process at once",
        grace.as_secs()
    ));
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        biased;
        ended = stopped => match ended {
            Ok(Drained::InTime) => Ok(Exit::Ok),
            Ok(Drained::Abandoned) => Ok(Exit::Abandoned),
            Err(error) => Err(service_error(&error)),
        },
        _ = interrupt.recv() => Ok(end_at_once(executors)),
        _ = terminate.recv() => Ok(end_at_once(executors)),
    }
}

fn end_at_once(executors: &[Arc<Executor>]) -> Exit {
    let killed = kill_commands(executors);
    output::note(&format!(
        "ended at once: {killed} running commands were killed; their tasks run again later"
    ));
    Exit::Internal
}

/// Kills the commands that run here, because they would otherwise go on without a process that controls them. Returns
/// how many there were.
fn kill_commands(executors: &[Arc<Executor>]) -> usize {
    executors.iter().map(|executor| executor.kill_all()).sum()
}

/// The error of a service that failed while it ran.
pub(crate) fn service_error(error: &ServiceError) -> CliError {
    CliError::new(
        ErrorKind::Internal,
        ErrorReason::ServiceFailed,
        error.to_string(),
    )
    .with_hint("see the log above for the cause")
}

/// Bounds the memory of the metrics recorder when no scraper reads the metrics.
pub(crate) fn upkeep(metrics: Metrics) -> TaskGroup {
    let group = TaskGroup::new();
    group.spawn_infallible("metrics upkeep", async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(5));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            metrics.upkeep();
        }
    });
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_started_to_ignore_hangups_goes_on_ignoring_them() {
        let status = |mask: &str| format!("Name:\tdueline\nSigBlk:\t1\nSigIgn:\t{mask}\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup(""));
    }
}
