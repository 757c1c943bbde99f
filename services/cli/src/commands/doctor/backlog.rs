//! Checks for due tasks that no worker claims.

use std::time::Duration;

use dueline_backends::doctor::Finding;
use dueline_domain::Timestamp;
use dueline_settings::Settings;

use super::facts::StoreFacts;
use crate::units::span;

const AREA: &str = "backlog";
/// How late a due task may be, in addition to two poll periods of the consumer.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn check(
    settings: &Settings,
    facts: Option<&StoreFacts>,
    now: Timestamp,
) -> Vec<Finding> {
    let Some(facts) = facts else {
        let detail = "neither a store nor a server is available to read due tasks from";
        return vec![Finding::unknown(AREA, "all", detail)];
    };
    let (jobs, oldest) = match (&facts.jobs, &facts.oldest) {
        (Ok(jobs), Ok(oldest)) => (jobs, oldest),
        (Err(why), _) | (_, Err(why)) => {
            return vec![Finding::unknown(
                AREA,
                "all",
                format!("cannot be read: {why}"),
            )];
        }
    };
    let late_max = settings
        .scheduler
        .poll_period()
        .saturating_mul(2)
        .saturating_add(GRACE);
    let mut findings = Vec::new();
    // The tasks of a paused job wait on purpose.
    for job in jobs.iter().filter(|job| !job.is_paused) {
        let late = oldest.get(&job.name).map(|at| now.since(*at));
        let Some(late) = late.filter(|late| *late > late_max) else {
            continue;
        };
        let fix = if job.has_quota {
            "tasks may wait because of the job's quota; raise it with --rate, or see 'processes' above"
        } else {
            "see 'processes' above: consumers must enqueue the tasks, and executors that run this job must claim them"
        };
        let detail = format!("its oldest unclaimed due task is {} late", span(late));
        findings.push(Finding::warning(AREA, job.name.as_str(), detail, fix));
    }
    if findings.is_empty() {
        let detail = format!("no unclaimed due task is more than {} late", span(late_max));
        findings.push(Finding::ok(AREA, "all", detail));
    }
    findings
}

#[cfg(test)]
mod tests {
    use dueline_backends::doctor::State;
    use dueline_domain::{JobName, Policy};

    use super::{super::facts::JobFacts, *};

    const NOW: i64 = 10_000_000;

    fn check_late(late_s: i64, change: impl FnOnce(&mut JobFacts)) -> Finding {
        let policy = Policy::default();
        let mut job = JobFacts {
            name: JobName::parse("mail").unwrap(),
            is_paused: false,
            has_quota: false,
            enqueue_timeout: policy.enqueue_timeout,
            claim_timeout: policy.claim_timeout,
            heartbeat_timeout: policy.heartbeat_timeout,
            run_timeout: None,
        };
        change(&mut job);
        let at = Timestamp::clamped(NOW - late_s * 1_000);
        let facts = StoreFacts {
            oldest: Ok([(job.name.clone(), at)].into()),
            jobs: Ok(vec![job]),
            workers: Ok(Vec::new()),
        };
        let findings = check(&Settings::default(), Some(&facts), Timestamp::clamped(NOW));
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings[0].clone()
    }

    #[test]
    fn g_18_an_unclaimed_late_task_is_a_warning_with_its_lateness() {
        assert_eq!(check_late(12, |_| ()).state, State::Ok);
        let finding = check_late(13, |_| ());
        assert_eq!(finding.state, State::Warning);
        assert!(finding.detail.contains("13 s late"), "{finding:?}");
        assert_eq!(
            check_late(-60, |_| ()).state,
            State::Ok,
            "it is not due yet"
        );
        assert_eq!(check_late(13, |job| job.is_paused = true).state, State::Ok);
        let quota = check_late(13, |job| job.has_quota = true);
        assert!(quota.fix.unwrap().contains("--rate"));
    }
}
