//! `dueline task claim`.

use std::time::Duration;

use dueline_api::v1::{AssignmentView, ClaimRequest, LeaseView, LifetimeSpec};
use dueline_domain::WriteId;
use reqwest::Method;

use crate::{
    client::RequestBody,
    commands::reference::TaskReference,
    context::Context,
    exit::{CliError, Exit},
    sanitize::clean,
    units::{millis, parse_duration, span},
};

const EXAMPLES: &str = "\
Examples:
  dueline task claim greet/0197b0c4-5a1e-7c4e-9a59-3f0c6b1d2e4f --owner ann
  TOKEN=$(dueline task claim greet/0197b0c4-5a1e-7c4e-9a59-3f0c6b1d2e4f --owner ann --lifetime 5m --print-token)";

/// Claims a task.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Claim {
    /// The task
    #[arg(value_name = "JOB/ID")]
    task: TaskReference,

    /// Name of the new owner
    #[arg(
        long,
        value_name = "NAME",
        env = "DUELINE_OWNER",
        hide_env_values = true
    )]
    owner: String,

    /// How long the claim lasts, or `never` for one that does not expire [default: the claim timeout of the job]
    #[arg(long, value_name = "DURATION|never", value_parser = parse_lifetime, allow_hyphen_values = true)]
    lifetime: Option<LifetimeSpec>,

    /// Name of this request, 16 hexadecimal digits; a repetition with the same name gets the same claim
    #[arg(long, value_name = "HEX")]
    write_id: Option<WriteId>,

    /// Print nothing but the token
    #[arg(long, conflicts_with = "json")]
    print_token: bool,
}

fn parse_lifetime(text: &str) -> Result<LifetimeSpec, String> {
    if text == "never" {
        return Ok(LifetimeSpec::Never);
    }
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be more than zero, or `never`".into()),
        lifetime => Ok(LifetimeSpec::Millis(
            // Part of a millisecond is no lifetime of zero.
            i64::try_from(millis(lifetime).max(1)).unwrap_or(i64::MAX),
        )),
    }
}

impl Claim {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let id = self.task.id.to_string();
        let path = ["jobs", self.task.job.as_str(), "tasks", &id, "claim"];
        let request = ClaimRequest {
            owner: self.owner,
            lifetime_ms: self.lifetime,
            write_id: self.write_id,
        };
        let body = RequestBody::json(&request)?;
        let answer = context.client()?.send(Method::POST, &path, body).await?;
        if self.print_token {
            let claimed: AssignmentView = answer.read()?;
            context.output.line(&claimed.token.to_string())?;
            return Ok(Exit::Ok);
        }
        context.output.show(&answer, context.now(), |_| {
            let claimed: AssignmentView = answer.read()?;
            Ok(format!(
                "task {} is {}'s (expires {})\ntoken {}",
                self.task,
                clean(&request.owner),
                claimed.lease.as_ref().map(ends).unwrap_or_default(),
                claimed.token,
            ))
        })?;
        Ok(Exit::Ok)
    }
}

/// When a claim ends, in words.
fn ends(lease: &LeaseView) -> String {
    match lease.expires_in_ms {
        Some(ms) => format!("in {}", span(Duration::from_millis(ms))),
        None => clean(&lease.expires).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_079_a_lifetime_is_a_duration_or_never() {
        assert_eq!(parse_lifetime("never"), Ok(LifetimeSpec::Never));
        assert_eq!(parse_lifetime("0.5"), Ok(LifetimeSpec::Millis(500)));
        assert_eq!(parse_lifetime("0.0001"), Ok(LifetimeSpec::Millis(1)));
        for bad in ["0", "-1", "forever", ""] {
            assert!(parse_lifetime(bad).is_err(), "{bad}");
        }
    }
}
