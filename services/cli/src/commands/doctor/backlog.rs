//! Due tasks that nobody takes.

use std::time::Duration;

use dueline_backends::doctor::Finding;
use dueline_domain::Timestamp;
use dueline_runtime::config::Settings;

use super::facts::Facts;
use crate::units::span;

const AREA: &str = "backlog";
/// Beyond two looks of the consumer a due task may be this late.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn judge(settings: &Settings, facts: Option<&Facts>, now: Timestamp) -> Vec<Finding> {
    let Some(facts) = facts else {
        let detail = "there is no store and no server to read due tasks from";
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
    // A paused job lets its tasks wait on purpose.
    for job in jobs.iter().filter(|job| !job.is_paused) {
        let late = oldest.get(&job.name).map(|at| now.since(*at));
        let Some(late) = late.filter(|late| *late > late_max) else {
            continue;
        };
        let mend = if job.has_quota {
            "its quota lets tasks wait; raise it by --rate if they should not, or see 'processes' above"
        } else {
            "see 'processes' above: consumers hand tasks on, executors that can run this job take them"
        };
        let detail = format!(
            "its oldest due task that nobody has taken is {} late",
            span(late)
        );
        findings.push(Finding::warning(AREA, job.name.as_str(), detail, mend));
    }
    if findings.is_empty() {
        let detail = format!("no due task is left lying for more than {}", span(late_max));
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

    fn late(late_s: i64, change: impl FnOnce(&mut JobFacts)) -> Finding {
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
        let facts = Facts {
            oldest: Ok([(job.name.clone(), at)].into()),
            jobs: Ok(vec![job]),
            workers: Ok(Vec::new()),
        };
        let found = judge(&Settings::default(), Some(&facts), Timestamp::clamped(NOW));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    #[test]
    fn g_18_a_task_that_is_left_lying_is_warned_of_with_its_age() {
        assert_eq!(late(12, |_| ()).state, State::Ok);
        let found = late(13, |_| ());
        assert_eq!(found.state, State::Warning);
        assert!(found.detail.contains("13 s late"), "{found:?}");
        assert_eq!(late(-60, |_| ()).state, State::Ok, "it is not due yet");
        assert_eq!(late(13, |job| job.is_paused = true).state, State::Ok);
        let quota = late(13, |job| job.has_quota = true);
        assert!(quota.mend.unwrap().contains("--rate"));
    }
}
