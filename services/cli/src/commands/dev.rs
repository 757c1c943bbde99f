//! `dueline dev`.

use dueline_api::{Call, operation::PutJob};
use std::path::PathBuf;

use clap::Args;
use dueline_all_in_one::Node;
use dueline_api::v1::JobSpec;
use dueline_domain::{Job, JobName, Policy};
use dueline_settings::ConfigArgs;

use super::process;
use crate::{
    context::Context,
    exit::{CliError, Exit},
};

/// Sample jobs, as the JSON that `PUT /v1/jobs/NAME` takes.
const SAMPLE_JOBS: [(&str, &str); 3] = [
    (
        "hello",
        r#"{"info": "Says hello to its payload", "handler": {"kind": "exec", "config": {"command": ["sh", "-c", "printf 'hello '; cat"]}}}"#,
    ),
    (
        "sleep",
        r#"{"info": "Sleeps for as many seconds as its payload says", "handler": {"kind": "exec", "config": {"command": ["sh", "-c", "sleep \"$(cat)\""]}}}"#,
    ),
    (
        "flaky",
        r#"{"info": "Fails in two runs and then succeeds", "handler": {"kind": "exec", "config": {"command": ["sh", "-c", "test \"$DUELINE_ATTEMPT\" -ge 2 && echo finally"]}}, "backoff": {"standard": {"initial_ms": 1000, "multiplier": 2.0, "jitter": 0.1, "max_ms": 10000}}}"#,
    ),
];

/// Runs everything in one process, with sample jobs.
#[derive(Debug, Args)]
pub struct Dev {
    /// Folder of the SQLite file; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "dueline-dev")]
    dir: PathBuf,

    #[command(flatten)]
    config: ConfigArgs,
}

impl Dev {
    pub(super) async fn run(mut self, context: &Context) -> Result<Exit, CliError> {
        if self.config.data.is_none() && self.config.store.is_none() {
            let data = self.dir.join("dueline.db");
            self.config.data = Some(data.display().to_string());
        }
        let Some(prepared) = process::prepare(context, &self.config)? else {
            return Ok(Exit::Ok);
        };
        let settings = &prepared.settings;
        let mut config = process::node(&prepared);
        config.workers.push(process::worker(settings, true)?);
        let _upkeep = process::upkeep(prepared.metrics.clone());
        let node = Node::start(config)
            .await
            .map_err(|error| process::start_error(&error))?;
        for (name, spec) in SAMPLE_JOBS {
            node.frontend()
                .call(
                    &Call::by("dev"),
                    PutJob::from(job(name, spec, &settings.policy())?),
                )
                .await?;
        }
        let address = node.address().unwrap_or(settings.server.listen);
        for line in usage(&address.to_string()) {
            context.output.line(&line)?;
        }
        let grace = settings.shutdown.grace();
        let executors = node.executors().to_vec();
        process::until_stopped(node.failed(), &executors).await?;
        process::stop(grace, &executors, node.stop(grace)).await
    }
}

/// Where the server listens, and commands to try.
fn usage(address: &str) -> [String; 4] {
    [
        format!("listening on http://{address}"),
        format!(
            "submit   curl -s http://{address}/v1/jobs/hello/tasks -H 'content-type: application/json' -d '{{\"payload\": \"world\"}}'"
        ),
        format!("watch    dueline --server http://{address} task list hello"),
        format!("API      http://{address}/v1/jobs   (description: http://{address}/openapi.json)"),
    ]
}

fn job(name: &str, spec: &str, default: &Policy) -> Result<Job, CliError> {
    let name = JobName::parse(name).map_err(|error| CliError::invalid(error.to_string()))?;
    let spec: JobSpec =
        serde_json::from_str(spec).map_err(|error| CliError::invalid(error.to_string()))?;
    Ok(spec.into_job(name, default)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_jobs_are_valid() {
        for (name, spec) in SAMPLE_JOBS {
            job(name, spec, &Policy::default()).unwrap();
        }
    }
}
