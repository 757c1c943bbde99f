//! Job definitions to store.

use dueline_domain::{Handler, Job, JobName, Policy, PolicyError, QuotaError, limits};
use serde::Deserialize;

use super::task::too_long;
use crate::{
    ApiError, ErrorReason,
    v1::{ExecConfig, HttpConfig, handler_config, millis},
};

/// Largest settings of a handler in bytes. A hundred assignments with the largest inputs and these settings fit into
/// one gRPC message.
pub(crate) const HANDLER_CONFIG_BYTES_MAX: usize = 48 * 1024;

/// Checks a definition to store.
pub fn job(job: &Job) -> Result<(), ApiError> {
    // Destructured without `..`, so that a new field does not compile before it is checked or listed here.
    let Job {
        // Its characters are checked when it is parsed, and the rest only if the job is new: see `new_job_name`.
        name: _,
        info,
        handler: runs,
        policy: timeouts,
        quota,
        fair_share,
        paused: _,
        // The transport takes it from the principal of the call.
        created_by: _,
        // The frontend sets both.
        created_at: _,
        changed_at: _,
    } = job;
    let info_max = limits().details_bytes_max;
    if info.len() > info_max {
        return Err(too_long("info", info.len(), info_max));
    }
    handler(runs)?;
    policy(timeouts)?;
    quota.check().map_err(|error| {
        let field = match error {
            QuotaError::Rate => "quota.rate_per_s",
            QuotaError::Burst => "quota.burst",
            QuotaError::Running => "quota.running_max",
        };
        ApiError::invalid(field, ErrorReason::InvalidQuota, error)
    })?;
    fair_share.unwrap_or_default().check().map_err(|error| {
        ApiError::invalid("fair_share.running_max", ErrorReason::InvalidQuota, error)
    })
}

/// Checks the name of a job that does not exist. Jobs of earlier versions may have names that are refused now; they can be
/// replaced and deleted.
pub fn new_job_name(name: &JobName) -> Result<(), ApiError> {
    name.check_new()
        .map_err(|error| ApiError::invalid("job", ErrorReason::InvalidName, error))
}

/// Checks the handler of a job with its settings.
pub fn handler(handler: &Handler) -> Result<(), ApiError> {
    let config = &*handler.config;
    if config.len() > HANDLER_CONFIG_BYTES_MAX {
        return Err(too_long(
            "handler.config",
            config.len(),
            HANDLER_CONFIG_BYTES_MAX,
        ));
    }
    match &*handler.kind {
        "worker" | "noop" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Nothing {}
            handler_config(config).map(|Nothing {}| ())
        }
        "exec" => ExecConfig::parse(config).map(drop),
        "http" => HttpConfig::parse(config).map(drop),
        other => {
            let message =
                format!("unknown handler '{other:.64}'; known are worker, exec, http and noop");
            Err(ApiError::invalid(
                "handler.kind",
                ErrorReason::UnknownHandler,
                message,
            ))
        }
    }
}

/// Checks the timeouts of a job, or those of a task that replace them.
pub(crate) fn policy(policy: &Policy) -> Result<(), ApiError> {
    use PolicyError::{TooLong, TooShort, Zero};
    policy.check().map_err(|error| {
        let (name, message) = match error {
            Zero(name) => (name, "must be longer than zero".to_owned()),
            TooShort(name, given) => {
                let (min, given) = (millis(Policy::TIMEOUT_MIN), millis(given));
                (name, format!("must be at least {min} ms, not {given} ms"))
            }
            TooLong(name) => (name, "must be at most 366 days".to_owned()),
        };
        ApiError::invalid(format!("{name}_ms"), ErrorReason::InvalidTimeout, message)
    })
}
