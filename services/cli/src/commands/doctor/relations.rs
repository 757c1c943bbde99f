//! The timeouts of stored jobs beside the settings and the queue. A job that was stored under other settings keeps its
//! timeouts, so this can go wrong without anybody having written nonsense.

use std::time::Duration;

use dueline_backends::doctor::Finding;
use dueline_runtime::config::Settings;

use super::facts::{Facts, JobFacts};

const AREA: &str = "jobs";
/// Heartbeats that must fail in a row before an executor ends its own attempt, as in the check of the settings.
const HEARTBEATS_LOST_MAX: u32 = 3;

/// All jobs; one line for those that have nothing wrong.
pub(super) fn judge(
    settings: &Settings,
    facts: Option<&Facts>,
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
                "there is no store and no server to read them from",
            )];
        }
    };
    let wrong: Vec<_> = jobs
        .iter()
        .map(|job| of_job(settings, job, visibility))
        .collect();
    let fine = wrong.iter().filter(|findings| findings.is_empty()).count();
    let mut findings: Vec<_> = wrong.into_iter().flatten().collect();
    if fine > 0 || jobs.is_empty() {
        let detail = format!(
            "{fine} of {} have timeouts that go with the settings",
            jobs.len()
        );
        findings.insert(0, Finding::ok(AREA, "timeouts", detail));
    }
    findings
}

fn of_job(settings: &Settings, job: &JobFacts, visibility: Option<Duration>) -> Vec<Finding> {
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
                "an executor ends its attempt after {HEARTBEATS_LOST_MAX} lost heartbeats ({} ms), which must come before \
                 the task is handed to another (heartbeat timeout {} ms)",
                silence.as_millis(),
                job.heartbeat_timeout.as_millis()
            ),
            format!(
                "raise it above {} ms by {}, or lower worker.heartbeat_interval_ms to at most {}",
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
                "each look, every {} ms, finds every enqueued task overdue and sends it again (enqueue timeout {} ms)",
                poll_period.as_millis(),
                job.enqueue_timeout.as_millis()
            ),
            format!("raise it by {}, or lower scheduler.poll_period_ms", apply("enqueue-timeout")),
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
                "a run ends after {} ms at the latest, before its worker can be missed (heartbeat timeout {} ms): \
                 heartbeats serve no purpose, and a lost worker is noticed no earlier",
                run_timeout.as_millis(),
                job.heartbeat_timeout.as_millis()
            ),
            format!("raise the longest run by {}, or lower the heartbeat timeout", apply("timeout")),
        ));
    }
    if let Some(visibility) = visibility {
        findings.extend(beside_queue(job, visibility));
    }
    findings
}

fn beside_queue(job: &JobFacts, visibility: Duration) -> Vec<Finding> {
    let name = job.name.as_str();
    let (seconds, mut findings) = (visibility.as_secs(), Vec::new());
    if visibility < job.claim_timeout {
        findings.push(Finding::warning(
            AREA,
            name,
            format!(
                "a message comes back after {seconds} s, while a task may take {} ms from its claim to its start: slow \
                 claims are received twice",
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
                "the message of a lost controller comes back after {seconds} s, when the task was sent again already \
                 (enqueue timeout {} ms): each loss costs a message for nothing",
                job.enqueue_timeout.as_millis()
            ),
            format!(
                "raise it by 'dueline job apply {name} … --enqueue-timeout', or lower visibility_timeout_s in the queue URI"
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
    fn is(change: impl FnOnce(&mut JobFacts), state: State, mend: &str) {
        let mut job = job();
        change(&mut job);
        let findings = of_job(&Settings::default(), &job, Some(SECOND * 30));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].state, state, "{findings:?}");
        let told = findings[0].mend.as_deref().unwrap_or_default();
        assert!(told.contains(mend), "'{mend}' is not in: {told}");
    }

    #[test]
    fn g_18_each_timeout_that_does_not_go_with_the_settings_is_named_with_its_mend() {
        assert_eq!(of_job(&Settings::default(), &job(), Some(SECOND * 30)), []);
        is(
            |job| job.heartbeat_timeout = SECOND * 6,
            State::Defect,
            "above 6000 ms",
        );
        is(
            |job| job.heartbeat_timeout = SECOND * 6,
            State::Defect,
            "at most 1999",
        );
        is(
            |job| job.run_timeout = Some(SECOND * 8),
            State::Warning,
            "--timeout",
        );
        is(
            |job| job.claim_timeout = SECOND * 31,
            State::Warning,
            "visibility_timeout_s",
        );
        is(
            |job| job.enqueue_timeout = SECOND * 30,
            State::Warning,
            "--enqueue-timeout",
        );
        let mut job = job();
        job.enqueue_timeout = SECOND;
        let findings = of_job(&Settings::default(), &job, None);
        assert_eq!(findings[0].state, State::Defect, "{findings:?}");
    }

    #[test]
    fn jobs_that_cannot_be_read_are_unknown_and_no_defect() {
        let settings = Settings::default();
        let facts = |jobs| Facts {
            jobs,
            workers: Ok(Vec::new()),
            oldest: Ok(BTreeMap::new()),
        };
        let state = |facts: Option<&Facts>| judge(&settings, facts, None)[0].state;
        assert_eq!(state(None), State::Unknown);
        assert_eq!(state(Some(&facts(Err("why".into())))), State::Unknown);
        assert_eq!(state(Some(&facts(Ok(Vec::new())))), State::Ok);
        assert_eq!(state(Some(&facts(Ok(vec![job()])))), State::Ok);
    }
}
