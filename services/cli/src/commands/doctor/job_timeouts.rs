//! Checks the timeouts of stored jobs against the settings and the queue. A job keeps the default timeouts of the
//! settings under which it was stored, so they can contradict later settings although each value is valid.

use std::time::Duration;

use dueline_backends::doctor::Finding;
use dueline_settings::Settings;

use super::facts::{JobFacts, StoreFacts};

const AREA: &str = "jobs";
/// Heartbeats that must fail in a row before an executor stops its run, as in the check of the settings.
const HEARTBEATS_LOST_MAX: u32 = 3;

/// The findings about all jobs. The jobs without a finding share one line.
pub(super) fn check(
    settings: &Settings,
    facts: Option<&StoreFacts>,
    visibility: Option<Duration>,
) -> Vec<Finding> {
    let jobs = match facts.map(|facts| &facts.jobs) {
        Some(Ok(jobs)) => jobs,
        Some(Err(why)) => {
            return vec![Finding::unknown(
                AREA,
                "all",
                format!("cannot be read: {why}"),
            )];
        }
        None => {
            return vec![Finding::unknown(
                AREA,
                "all",
                "neither a store nor a server is available to read jobs from",
            )];
        }
    };
    let by_job: Vec<_> = jobs
        .iter()
        .map(|job| check_job(settings, job, visibility))
        .collect();
    let consistent = by_job.iter().filter(|findings| findings.is_empty()).count();
    let mut findings: Vec<_> = by_job.into_iter().flatten().collect();
    if consistent > 0 || jobs.is_empty() {
        let detail = format!(
            "{consistent} of {} have timeouts that are consistent with the settings",
            jobs.len()
        );
        findings.insert(0, Finding::ok(AREA, "timeouts", detail));
    }
    findings
}

fn check_job(settings: &Settings, job: &JobFacts, visibility: Option<Duration>) -> Vec<Finding> {
    let name = job.name.as_str();
    let apply = |flag: &str| format!("'dueline job apply {name} … --{flag}'");
    let mut findings = Vec::new();
    let interval = settings.worker.heartbeat_interval();
    let silence = interval.saturating_mul(HEARTBEATS_LOST_MAX);
    if silence >= job.heartbeat_timeout {
        let most = job.heartbeat_timeout.saturating_sub(MILLISECOND) / HEARTBEATS_LOST_MAX;
        findings.push(Finding::defect(
            AREA,
            name,
            format!(
                "an executor stops its run after {HEARTBEATS_LOST_MAX} lost heartbeats ({} ms); that must happen \
                 before the lease expires and another worker may claim the task (heartbeat timeout {} ms)",
                silence.as_millis(),
                job.heartbeat_timeout.as_millis()
            ),
            format!(
                "raise the timeout above {} ms with {}, or lower worker.heartbeat_interval_ms to at most {}",
                silence.as_millis(),
                apply("heartbeat-timeout"),
                most.as_millis()
            ),
        ));
    }
    let poll_period = settings.scheduler.poll_period();
    if poll_period >= job.enqueue_timeout {
        findings.push(Finding::defect(
            AREA,
            name,
            format!(
                "each scan, every {} ms, finds every enqueued task overdue and enqueues it again (enqueue timeout \
                 {} ms)",
                poll_period.as_millis(),
                job.enqueue_timeout.as_millis()
            ),
            format!(
                "raise the timeout with {}, or lower scheduler.poll_period_ms",
                apply("enqueue-timeout")
            ),
        ));
    }
    if let Some(run_timeout) = job
        .run_timeout
        .filter(|timeout| *timeout <= job.heartbeat_timeout)
    {
        findings.push(Finding::warning(
            AREA,
            name,
            format!(
                "a run ends after {} ms at the latest, which is not longer than the heartbeat timeout ({} ms): \
                 heartbeats have no effect, and a lost worker is not noticed earlier",
                run_timeout.as_millis(),
                job.heartbeat_timeout.as_millis()
            ),
            format!(
                "raise the run timeout with {}, or lower the heartbeat timeout",
                apply("timeout")
            ),
        ));
    }
    if let Some(visibility) = visibility {
        findings.extend(check_visibility(job, visibility));
    }
    findings
}

fn check_visibility(job: &JobFacts, visibility: Duration) -> Vec<Finding> {
    let name = job.name.as_str();
    let (seconds, mut findings) = (visibility.as_secs(), Vec::new());
    if visibility < job.claim_timeout {
        findings.push(Finding::warning(
            AREA,
            name,
            format!(
                "a message becomes visible again after {seconds} s, but a task may take {} ms from its claim to its \
                 start: the messages of slow claims are received twice",
                job.claim_timeout.as_millis()
            ),
            "raise visibility_timeout_s in the queue URI of every process, then run 'dueline setup'",
        ));
    }
    if visibility >= job.enqueue_timeout {
        findings.push(Finding::warning(
            AREA,
            name,
            format!(
                "the message of a lost controller becomes visible again after {seconds} s, when the task is enqueued \
                 again already (enqueue timeout {} ms): each loss costs a needless message",
                job.enqueue_timeout.as_millis()
            ),
            format!(
                "raise the timeout with 'dueline job apply {name} … --enqueue-timeout', or lower visibility_timeout_s \
                 in the queue URI"
            ),
        ));
    }
    findings
}

const MILLISECOND: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dueline_backends::doctor::State;
    use dueline_domain::{JobName, Policy};

    use super::*;

    fn job() -> JobFacts {
        let policy = Policy::default();
        JobFacts {
            name: JobName::parse("mail").unwrap(),
            is_paused: false,
            has_quota: false,
            enqueue_timeout: policy.enqueue_timeout,
            claim_timeout: policy.claim_timeout,
            heartbeat_timeout: policy.heartbeat_timeout,
            run_timeout: policy.run_timeout,
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[track_caller]
    fn assert_finding(change: impl FnOnce(&mut JobFacts), state: State, fix: &str) {
        let mut job = job();
        change(&mut job);
        let findings = check_job(&Settings::default(), &job, Some(SECOND * 30));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].state, state, "{findings:?}");
        let text = findings[0].fix.as_deref().unwrap_or_default();
        assert!(text.contains(fix), "'{fix}' is not in: {text}");
    }

    #[test]
    fn g_18_each_timeout_that_contradicts_the_settings_is_named_with_its_fix() {
        let consistent = check_job(&Settings::default(), &job(), Some(SECOND * 30));
        assert_eq!(consistent, []);
        assert_finding(
            |job| job.heartbeat_timeout = SECOND * 6,
            State::Defect,
            "above 6000 ms",
        );
        assert_finding(
            |job| job.heartbeat_timeout = SECOND * 6,
            State::Defect,
            "at most 1999",
        );
        assert_finding(
            |job| job.run_timeout = Some(SECOND * 8),
            State::Warning,
            "--timeout",
        );
        assert_finding(
            |job| job.claim_timeout = SECOND * 31,
            State::Warning,
            "visibility_timeout_s",
        );
        assert_finding(
            |job| job.enqueue_timeout = SECOND * 30,
            State::Warning,
            "--enqueue-timeout",
        );
        let mut job = job();
        job.enqueue_timeout = SECOND;
        let findings = check_job(&Settings::default(), &job, None);
        assert_eq!(findings[0].state, State::Defect, "{findings:?}");
    }

    #[test]
    fn jobs_that_cannot_be_read_are_unknown_and_not_a_defect() {
        let settings = Settings::default();
        let facts = |jobs| StoreFacts {
            jobs,
            workers: Ok(Vec::new()),
            oldest: Ok(BTreeMap::new()),
        };
        let state = |facts: Option<&StoreFacts>| check(&settings, facts, None)[0].state;
        assert_eq!(state(None), State::Unknown);
        assert_eq!(state(Some(&facts(Err("why".into())))), State::Unknown);
        assert_eq!(state(Some(&facts(Ok(Vec::new())))), State::Ok);
        assert_eq!(state(Some(&facts(Ok(vec![job()])))), State::Ok);
    }
}
