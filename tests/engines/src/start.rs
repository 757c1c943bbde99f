//! From the name of an engine to a process that answers.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use tokio::time::Instant;

use crate::{EngineName, dynoxide, http, place, port, process::Process, runtime};

/// A JVM on a busy machine takes seconds; what has not answered by then never will.
const START_MAX: Duration = Duration::from_secs(90);
/// Between two looks whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Somebody else may take a port between the choice and the start. Not several times in a row.
const TRIES_MAX: usize = 3;

/// An engine that answers.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl Running {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Makes what the engine needs when it is not there yet, starts it on a port of its own, and waits until it answers.
/// Blocks: to be called where that hurts nobody.
pub(crate) fn start(engine: EngineName) -> Result<Running, String> {
    prepare(engine)?;
    let mut last = String::new();
    for _ in 0..TRIES_MAX {
        match start_on(engine, port::free()) {
            Ok(running) => return Ok(running),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Starts an engine, which is prepared already, on this port.
pub(crate) fn start_on(engine: EngineName, port: u16) -> Result<Running, String> {
    let mut process = Process::start(command(engine, port)?)?;
    let url = format!("http://127.0.0.1:{port}");
    let answers = runtime::runtime().block_on(answers(&mut process, &url));
    match answers {
        Ok(found) if found == engine => Ok(Running { process, port }),
        Ok(found) => Err(format!("{found} answers at {url}, where {engine} should")),
        Err(why) => Err(format!("{engine} {why}\n{}", process.log())),
    }
}

/// Installs or builds; the engines of the script say themselves what they lack.
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
    assert_ne!(engine, EngineName::Other, "that is nothing to start");
    // Named, as a script may have lost its permission to run on the way here.
    let mut command = Command::new("bash");
    command
        .arg(place::script())
        .env("DUELINE_ENGINES_DIR", place::engines());
    command
}

/// Waits until it answers as long as it runs.
async fn answers(process: &mut Process, url: &str) -> Result<EngineName, String> {
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
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
