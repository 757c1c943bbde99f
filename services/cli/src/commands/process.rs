//! What the commands have in common that stay until they are stopped.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use dueline_all_in_one::{Drained, NodeConfig, StartError, WorkerConfig};
use dueline_api::ErrorKind;
use dueline_backends::{BackendError, Fault};
use dueline_executor::{BuiltIn, Executor, HttpSettings, Registry};
use dueline_runtime::{
    Metrics, ServiceError, TaskGroup, TelemetryGuard,
    config::{ConfigArgs, ConfigError, Settings},
    incarnation, telemetry,
};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    cli::Context,
    exit::{CliError, Exit},
};

/// Settings that hold, with logging and metrics on.
pub(crate) struct Prepared {
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    _telemetry: TelemetryGuard,
}

/// Loads the settings, or prints them (`None`) when that was asked for.
pub(crate) fn prepare(context: &Context, args: &ConfigArgs) -> Result<Option<Prepared>, CliError> {
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
        context.output.line(&text)?;
        return Ok(None);
    }
    let loaded = loaded.checked().map_err(config_error)?;
    let prepared = switch_on(loaded.settings)?;
    for note in &loaded.notes {
        tracing::warn!("{note}");
    }
    Ok(Some(prepared))
}

/// As [`prepare`], for settings that were made here.
pub(crate) fn with_settings(settings: Settings) -> Result<Prepared, CliError> {
    settings
        .check()
        .map_err(|problems| config_error(ConfigError::Problems(problems)))?;
    switch_on(settings)
}

fn switch_on(settings: Settings) -> Result<Prepared, CliError> {
    let guard = telemetry::init(&settings.log).map_err(|error| CliError::invalid(chain(&error)))?;
    Ok(Prepared {
        settings,
        metrics: Metrics::install(),
        _telemetry: guard,
    })
}

fn config_error(error: ConfigError) -> CliError {
    CliError::new(ErrorKind::Invalid, "config", chain(&error))
}

/// An error with everything that caused it, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Refuses a SQLite file in a folder that does not exist: a server that makes one for a misspelt path looks as if it
/// had lost all its tasks.
pub(crate) fn check_folder(settings: &Settings) -> Result<(), CliError> {
    let folder = settings.server.data.parent().unwrap_or(Path::new(""));
    if !settings.store.is_empty() || folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let folder = folder.display();
    let message = format!("the folder of the data file does not exist: {folder}");
    Err(CliError::new(ErrorKind::Invalid, "config", message)
        .with_hint("make it first, or name another file by --data"))
}

/// Something did not start.
pub(crate) fn backend_error(error: &BackendError) -> CliError {
    CliError::new(kind_of(error), "start", chain(error))
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
    CliError::new(kind, "start", chain(error))
}

/// The executor that the settings describe.
pub(crate) fn worker(settings: &Settings, embedded: bool) -> Result<WorkerConfig, CliError> {
    let wanted = &settings.worker;
    let has = |kind: &str| wanted.handlers.iter().any(|handler| handler == kind);
    let registry = Registry::built_in(BuiltIn {
        exec: has("exec"),
        http: has("http").then_some(HttpSettings {
            allow_private: wanted.http_allow_private,
        }),
        noop: has("noop"),
    });
    let name = if wanted.name.is_empty() {
        host_name()
    } else {
        wanted.name.clone()
    };
    let executor = dueline_executor::Config {
        concurrency: wanted.concurrency,
        concurrency_min: (wanted.concurrency_min > 0).then_some(wanted.concurrency_min),
        embedded,
        heartbeat_interval: wanted.heartbeat_interval(),
        kill_grace: wanted.kill_grace(),
        ..dueline_executor::Config::new(name, incarnation())
    };
    executor
        .check()
        .map_err(|error| CliError::new(ErrorKind::Invalid, "config", chain(&error)))?;
    Ok(WorkerConfig { executor, registry })
}

/// The name of this host, as far as a worker's name can carry it.
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
pub(crate) fn node(prepared: &Prepared) -> NodeConfig {
    let settings = &prepared.settings;
    let metrics = prepared.metrics.clone();
    let mut node = NodeConfig::embedded(settings.store_uri());
    node.queue.clone_from(&settings.queue);
    node.listen = Some(settings.server.listen);
    node.consumer.poll_period = settings.scheduler.poll_period();
    node.status.interval = settings.worker.heartbeat_interval();
    node.default_policy = settings.policy();
    node.metrics = Some(std::sync::Arc::new(move || metrics.render()));
    node
}

/// Waits for SIGINT or SIGTERM (then `Ok`), or until `failed` tells of a failure.
pub(crate) async fn until_stopped(
    failed: impl Future<Output = ServiceError>,
) -> Result<(), CliError> {
    Signals::listen()?.received(failed).await
}

/// SIGINT and SIGTERM, which end nothing by themselves any more.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, CliError> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// As [`until_stopped`], for a signal that came since [`Signals::listen`].
    pub(crate) async fn received(
        &mut self,
        failed: impl Future<Output = ServiceError>,
    ) -> Result<(), CliError> {
        tokio::select! {
            biased;
            error = failed => Err(service_error(&error)),
            _ = self.interrupt.recv() => Ok(()),
            _ = self.terminate.recv() => Ok(()),
        }
    }
}

/// Stops in order; a second signal ends the process at once.
pub(crate) async fn stop(
    grace: Duration,
    executors: &[Arc<Executor>],
    stopped: impl Future<Output = Result<Drained, ServiceError>>,
) -> Result<Exit, CliError> {
    eprintln!(
        "stopping: running tasks have {} s to end, a second signal ends at once",
        grace.as_secs()
    );
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        biased;
        ended = stopped => match ended {
            Ok(Drained::InTime) => Ok(Exit::Ok),
            Ok(Drained::GivenBack) => Ok(Exit::GivenBack),
            Err(error) => Err(service_error(&error)),
        },
        _ = interrupt.recv() => Ok(end_at_once(executors)),
        _ = terminate.recv() => Ok(end_at_once(executors)),
    }
}

/// Commands that run here must not live on without anybody who knows of them.
fn end_at_once(executors: &[Arc<Executor>]) -> Exit {
    let killed: usize = executors.iter().map(|executor| executor.kill_all()).sum();
    eprintln!("ended at once; {killed} running commands were killed, their tasks run again later");
    Exit::Internal
}

pub(crate) fn service_error(error: &ServiceError) -> CliError {
    CliError::new(ErrorKind::Internal, "service_failed", error.to_string())
        .with_hint("the log above says what went wrong")
}

/// Keeps the metrics' memory bounded while nobody reads them.
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
