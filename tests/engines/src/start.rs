//! Starts the process of an engine and waits until it answers.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use tokio::time::Instant;

use crate::{EngineName, dynoxide, http, paths, port, process::EngineProcess, runtime};

/// Time limit of a start; a JVM on a busy machine takes seconds.
const START_MAX: Duration = Duration::from_secs(90);
/// Interval of checks whether the engine answers.
const CHECK_EVERY: Duration = Duration::from_millis(5);
/// Attempts to start: another process may take the port between its choice and the start.
const ATTEMPTS_MAX: usize = 3;

/// An engine that answers.
#[derive(Debug)]
pub(crate) struct RunningEngine {
    pub(crate) process: EngineProcess,
    pub(crate) port: u16,
}

impl RunningEngine {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Installs an engine if necessary, starts it on a free port, and waits until it answers. Blocks the thread.
pub(crate) fn start(engine: EngineName) -> Result<RunningEngine, String> {
    prepare(engine)?;
    let mut last_error = String::new();
    for _ in 0..ATTEMPTS_MAX {
        match start_on(engine, port::free()) {
            Ok(running) => return Ok(running),
            Err(why) => last_error = why,
        }
    }
    Err(last_error)
}

/// Starts an installed engine on this port.
pub(crate) fn start_on(engine: EngineName, port: u16) -> Result<RunningEngine, String> {
    let mut process = EngineProcess::start(command(engine, port)?)?;
    let url = format!("http://127.0.0.1:{port}");
    let identified = runtime::runtime().block_on(wait_until_answers(&mut process, &url));
    match identified {
        Ok(found) if found == engine => Ok(RunningEngine { process, port }),
        Ok(found) => Err(format!("{found} answers at {url} instead of {engine}")),
        Err(why) => Err(format!("{engine} {why}\n{}", process.log())),
    }
}

/// Installs or builds an engine. The script reports what is missing for its engines.
fn prepare(engine: EngineName) -> Result<(), String> {
    if engine == EngineName::Dynoxide {
        return dynoxide::program().map(|_| ());
    }
    let mut command = script(engine);
    command.arg("--prepare").arg(engine.as_str());
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("failed to run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "failed to prepare {engine}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

fn command(engine: EngineName, port: u16) -> Result<Command, String> {
    if engine == EngineName::Dynoxide {
        let mut command = Command::new(dynoxide::program()?);
        command.arg(port.to_string());
        return Ok(command);
    }
    let mut command = script(engine);
    command
        .arg("--until-stdin-closes")
        .arg(engine.as_str())
        .arg(port.to_string());
    Ok(command)
}

fn script(engine: EngineName) -> Command {
    assert_ne!(
        engine,
        EngineName::Other,
        "an unknown engine cannot be started"
    );
    // Run by `bash`, because the script may have lost its executable permission.
    let mut command = Command::new("bash");
    command
        .arg(paths::script())
        .env("DUELINE_ENGINES_DIR", paths::engines());
    command
}

/// Waits until the engine answers; fails if its process ends.
async fn wait_until_answers(process: &mut EngineProcess, url: &str) -> Result<EngineName, String> {
    let since = Instant::now();
    loop {
        if process.has_ended() {
            return Err("ended instead of answering".to_owned());
        }
        let why = match http::identify(url).await {
            Ok(engine) => return Ok(engine),
            Err(why) => why,
        };
        if since.elapsed() > START_MAX {
            return Err(format!("does not answer within {START_MAX:?}: {why}"));
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}
