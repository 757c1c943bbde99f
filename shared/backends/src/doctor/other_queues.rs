//! Checks queues that begin with this deployment's prefix but belong to none of its jobs.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_sqs::Client;
use dueline_aws::Failure;
use dueline_domain::JobName;
use dueline_queue_sqs::{SqsOptions, SqsQueue};
use futures_util::{StreamExt as _, stream};

use super::{
    Finding,
    permissions::{RequiredBy, outcome, permission_finding},
    queues::{AREA, AT_ONCE},
};

/// The tags that name the job and the deployment of a queue; see the documentation of the SQS queue.
const TAG_JOB: &str = "dueline:job";
const TAG_PREFIX: &str = "dueline:prefix";
/// Most queues whose tags are read; enough to show a problem.
const QUEUES_MAX: usize = 200;

pub(super) struct OtherQueues {
    pub(super) findings: Vec<Finding>,
    /// The finding about the permission to list queues.
    pub(super) list_permission: Finding,
}

pub(super) async fn check(
    client: &Client,
    queue: &SqsQueue,
    options: &SqsOptions,
    jobs: Option<&[JobName]>,
) -> OtherQueues {
    let prefix = options.prefix.as_str();
    let listed = client
        .list_queues()
        .queue_name_prefix(format!("{prefix}-"))
        .max_results(1);
    let listed = outcome(Box::pin(listed.send()).await);
    let list_permission = permission_finding(
        "sqs:ListQueues",
        RequiredBy::Setup,
        listed.as_ref().copied(),
    );
    let unknown = |detail: String| vec![Finding::unknown(AREA, "other queues", detail)];
    let (Some(jobs), Ok(())) = (jobs, &listed) else {
        let why = "without a list of queues and of jobs, leftover queues cannot be found";
        let findings = unknown(why.into());
        return OtherQueues {
            findings,
            list_permission,
        };
    };
    let own_names: BTreeSet<String> = jobs.iter().flat_map(|job| queue.queue_names(job)).collect();
    let findings = match queue.list().await {
        Ok(names) => {
            let is_other =
                |name: &String| !own_names.contains(name) && name != queue.quarantine_name();
            let others: Vec<_> = names.into_iter().filter(is_other).collect();
            let tagged = stream::iter(others.iter().take(QUEUES_MAX));
            let tagged =
                tagged.map(async |name| (name.clone(), Box::pin(tags(client, name)).await));
            let tagged: Vec<_> = tagged.buffered(AT_ONCE).collect().await;
            let mut findings = judge_by_tags(prefix, jobs, tagged);
            if others.len() > QUEUES_MAX {
                let more = others.len() - QUEUES_MAX;
                findings.extend(unknown(format!(
                    "{more} more begin with '{prefix}-' and were not checked"
                )));
            }
            findings
        }
        Err(error) => unknown(format!("not determined: {error}")),
    };
    OtherQueues {
        findings,
        list_permission,
    }
}

type Tags = BTreeMap<String, String>;

async fn tags(client: &Client, name: &str) -> Result<Tags, Failure> {
    let found = Box::pin(client.get_queue_url().queue_name(name).send()).await;
    let url = found
        .map_err(|error| dueline_aws::classify(&error))?
        .queue_url;
    let request = client.list_queue_tags().set_queue_url(url);
    let answer = Box::pin(request.send()).await;
    let answer = answer.map_err(|error| dueline_aws::classify(&error))?;
    Ok(answer.tags.unwrap_or_default().into_iter().collect())
}

/// The findings about queues that begin with the prefix, by their tags.
fn judge_by_tags(
    prefix: &str,
    jobs: &[JobName],
    queues: Vec<(String, Result<Tags, Failure>)>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut nested: BTreeMap<String, usize> = BTreeMap::new();
    let mut foreign = 0;
    for (name, tags) in queues {
        let tags = match tags {
            Ok(tags) => tags,
            Err(failure) => {
                let detail = format!("its tags cannot be read: {}", failure.message);
                findings.push(Finding::unknown(AREA, name, detail));
                continue;
            }
        };
        match tags.get(TAG_PREFIX) {
            Some(tag) if tag == prefix => {
                findings.push(leftover_queue(name, jobs, tags.get(TAG_JOB)))
            }
            Some(tag) => *nested.entry(tag.clone()).or_default() += 1,
            None => foreign += 1,
        }
    }
    for (other, count) in nested {
        let detail = format!(
            "{count} queues begin with '{prefix}-' and belong to the deployment with the prefix '{other}': policies and \
             alarms for '{prefix}-*' apply to both"
        );
        let fix = "change the prefix of one of the two, so that neither begins with the other";
        findings.push(Finding::warning(
            AREA,
            format!("prefix {other}"),
            detail,
            fix,
        ));
    }
    if foreign > 0 {
        let detail =
            format!("{foreign} queues begin with '{prefix}-' and have no tag of this program");
        let fix =
            format!("rename them, or choose another prefix than '{prefix}' for this deployment");
        findings.push(Finding::warning(
            AREA,
            format!("names {prefix}-*"),
            detail,
            fix,
        ));
    }
    if findings.is_empty() {
        let detail = format!("no other queue begins with '{prefix}-'");
        findings.push(Finding::ok(AREA, "other queues", detail));
    }
    findings
}

fn leftover_queue(name: String, jobs: &[JobName], job: Option<&String>) -> Finding {
    let detail = match job {
        Some(job) if jobs.iter().any(|known| known.as_str() == job) => format!(
            "belongs to the job '{job}', whose queues now have other names; priority_queues may have been changed"
        ),
        Some(job) => format!("belongs to the job '{job}', which does not exist"),
        None => "belongs to this deployment, but to no job".to_owned(),
    };
    let fix = format!(
        "once it is empty: aws sqs delete-queue --queue-url \"$(aws sqs get-queue-url --queue-name {name} --query QueueUrl \
         --output text)\""
    );
    Finding::warning(AREA, name, detail, fix)
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    fn queue(name: &str, tags: &[(&str, &str)]) -> (String, Result<Tags, Failure>) {
        let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        (name.to_owned(), Ok(tags.collect()))
    }

    fn of(queues: Vec<(String, Result<Tags, Failure>)>) -> Vec<(State, String, String)> {
        let jobs = [JobName::parse("mail").expect("a name")];
        let findings = judge_by_tags("d", &jobs, queues).into_iter();
        findings.map(|f| (f.state, f.name, f.detail)).collect()
    }

    #[test]
    fn g_18_a_queue_of_a_deleted_job_is_reported() {
        let deleted = of(vec![queue("d-old", &[(TAG_PREFIX, "d"), (TAG_JOB, "old")])]);
        assert_eq!(
            (deleted[0].0, deleted[0].1.as_str()),
            (State::Warning, "d-old")
        );
        assert!(deleted[0].2.contains("'old', which does not exist"));
        let level = of(vec![queue(
            "d-mail-p3",
            &[(TAG_PREFIX, "d"), (TAG_JOB, "mail")],
        )]);
        assert!(level[0].2.contains("priority_queues"), "{level:?}");
    }

    #[test]
    fn g_18_foreign_queues_with_this_prefix_are_reported_once() {
        let others = of(vec![
            queue("d-test-a", &[(TAG_PREFIX, "d-test")]),
            queue("d-test-b", &[(TAG_PREFIX, "d-test")]),
            queue("d-x", &[]),
        ]);
        let names: Vec<_> = others.iter().map(|(_, name, _)| name.as_str()).collect();
        assert_eq!(names, ["prefix d-test", "names d-*"]);
        assert!(others.iter().all(|(state, ..)| *state == State::Warning));
        assert_eq!(of(Vec::new())[0].0, State::Ok);
    }
}
