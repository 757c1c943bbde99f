//! Checks the SQS queues of one deployment. The queue adapter defines their expected attributes, and also creates them.

use aws_sdk_sqs::{
    Client,
    config::Builder,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
        QueueAttributeName,
    },
};
use dueline_aws::{Class, Failure, Meter, Service, connect};
use dueline_domain::JobName;
use dueline_ports::QueueError;
use dueline_queue_sqs::{QueueInfo, SqsOptions, SqsQueue};
use futures_util::{StreamExt as _, stream};

use super::{
    DoctorContext, Finding, QueueReport, Reach,
    call_recorder::CallRecorder,
    other_queues,
    permissions::{self, RequiredBy, outcome, permission_finding},
    table::{no_client, unreachable},
};

pub(super) const AREA: &str = "queues";
/// Queues checked concurrently.
pub(super) const AT_ONCE: usize = 16;
/// A receipt handle that no queue issues.
const NO_RECEIPT: &str = "doctor";
/// Actions that cannot be tried, because a try would move messages, or create or change queues.
const UNTRIED_ACTIONS: &str = "sqs:SendMessage, sqs:ReceiveMessage, sqs:CreateQueue, sqs:DeleteQueue, sqs:TagQueue, \
                       sqs:SetQueueAttributes";

pub(super) async fn check(
    options: &SqsOptions,
    jobs: Option<&[JobName]>,
    context: &DoctorContext,
) -> QueueReport {
    let config = match connect(Service::Sqs, &options.aws).await {
        Ok(config) => config,
        Err(error) => {
            let finding = no_client(AREA, &options.prefix, &error);
            return QueueReport::new(Reach::NotTried, vec![finding]);
        }
    };
    let recorder = CallRecorder::new(context.clock.clone());
    let settings = Builder::from(&config).interceptor(recorder.clone()).build();
    let client = Client::from_conf(settings);
    let queue = match SqsQueue::from_client(client.clone(), options.clone(), Meter::default()) {
        Ok(queue) => queue,
        Err(error) => {
            let fix = "correct the prefix or visibility timeout in the queue URI";
            let finding = Finding::defect(AREA, &options.prefix, error.to_string(), fix);
            return QueueReport::new(Reach::NotTried, vec![finding]);
        }
    };
    let found = client.get_queue_url().queue_name(queue.quarantine_name());
    let found = outcome(Box::pin(found.send()).await);
    if let Err(failure) = &found
        && !recorder.is_answered()
    {
        let finding = unreachable(AREA, &options.prefix, &recorder.address(), failure);
        return QueueReport::new(Reach::No, vec![finding]);
    }
    let mut report = QueueReport::new(Reach::Yes, Vec::new());
    report.visibility_timeout = Some(options.visibility_timeout);
    let mut permission_findings = vec![permission_finding(
        "sqs:GetQueueUrl",
        RequiredBy::Services,
        match &found {
            // A missing queue is reported only to callers with the permission.
            Err(failure) if failure.class != Class::Missing => Err(failure),
            _ => Ok(()),
        },
    )];
    report.findings = Box::pin(check_queues(&queue, jobs, context)).await;
    let others = Box::pin(other_queues::check(&client, &queue, options, jobs)).await;
    report.findings.extend(others.findings);
    permission_findings.push(others.list_permission);
    permission_findings.extend(Box::pin(check_permissions(&client, &queue, jobs)).await);
    report.findings.extend(permission_findings);
    report.clock = recorder.reading("SQS");
    report
}

/// The findings about the quarantine queue and the queues of all jobs.
async fn check_queues(
    queue: &SqsQueue,
    jobs: Option<&[JobName]>,
    context: &DoctorContext,
) -> Vec<Finding> {
    let mut findings = match queue.describe_quarantine().await {
        Ok(info) => quarantine(&info, &context.setup),
        Err(error) => vec![undetermined(queue.quarantine_name(), &error)],
    };
    let Some(jobs) = jobs else {
        let detail = "the jobs are not known, because the store cannot be read";
        findings.push(Finding::unknown(AREA, "queues of jobs", detail));
        return findings;
    };
    let described = stream::iter(jobs).map(async |job| (job, queue.describe(job).await));
    let described: Vec<_> = described.buffered(AT_ONCE).collect().await;
    for (job, infos) in described {
        match infos {
            Ok(infos) => findings.extend(
                infos
                    .iter()
                    .flat_map(|info| of_job(job, info, &context.setup)),
            ),
            Err(error) => findings.push(undetermined(&queue.queue_names(job).join(", "), &error)),
        }
    }
    findings
}

fn undetermined(name: &str, error: &QueueError) -> Finding {
    Finding::unknown(AREA, name, format!("not determined: {error}"))
}

/// The numbers of visible and of in-flight messages.
fn depth(info: &QueueInfo) -> (u64, u64) {
    let number = |name: &str| {
        let text = info.attributes.get(name);
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    let waiting =
        number("ApproximateNumberOfMessages") + number("ApproximateNumberOfMessagesDelayed");
    (waiting, number("ApproximateNumberOfMessagesNotVisible"))
}

fn drift(info: &QueueInfo) -> Option<String> {
    let each = info.drift.iter().map(|drift| {
        let actual = drift.actual.as_deref().unwrap_or("not set");
        format!(
            "{} is {actual} and should be {}",
            drift.name, drift.expected
        )
    });
    let all = each.collect::<Vec<_>>().join(", ");
    (!all.is_empty()).then_some(all)
}

/// The finding about a queue with the tag of another deployment, which setup does not change.
fn owner_conflict(info: &QueueInfo, queue: &str) -> Option<Finding> {
    let owner = info.other_owner()?;
    let detail = format!(
        "has the name of {queue}, but belongs to the deployment with the prefix '{owner}', so it is not used here"
    );
    let fix = "change the prefix of one of the two deployments, so that neither begins with the other; if the other \
               deployment is gone, delete the queue";
    Some(Finding::defect(AREA, &info.name, detail, fix))
}

fn quarantine(info: &QueueInfo, setup: &str) -> Vec<Finding> {
    let name = info.name.as_str();
    if !info.exists {
        let detail = "the quarantine queue does not exist; the first unreadable message creates it, if the role may create queues";
        return vec![Finding::warning(AREA, name, detail, setup)];
    }
    if let Some(conflict) = owner_conflict(info, "the quarantine queue") {
        return vec![conflict];
    }
    let mut findings = Vec::new();
    if let Some(drift) = drift(info) {
        findings.push(Finding::defect(AREA, name, drift, setup));
    }
    let (waiting, in_flight) = depth(info);
    findings.push(match waiting + in_flight {
        0 => Finding::ok(AREA, name, "quarantine queue, empty"),
        count => Finding::warning(
            AREA,
            name,
            format!("{count} messages were quarantined: another program, or a newer version of this one, sends to the queues"),
            "read their attributes source_queue and reason, stop their sender, then purge the queue",
        ),
    });
    findings
}

fn of_job(job: &JobName, info: &QueueInfo, setup: &str) -> Vec<Finding> {
    let name = info.name.as_str();
    if !info.exists {
        let detail = format!("the queue of job '{job}' does not exist; its tasks are not enqueued");
        return vec![Finding::defect(AREA, name, detail, setup)];
    }
    if let Some(conflict) = owner_conflict(info, &format!("the queue of job '{job}'")) {
        return vec![conflict];
    }
    if let Some(drift) = drift(info) {
        let detail = format!("queue of job '{job}': {drift}");
        return vec![Finding::defect(AREA, name, detail, setup)];
    }
    let (waiting, in_flight) = depth(info);
    let detail =
        format!("queue of job '{job}', {waiting} messages wait, {in_flight} are in flight");
    vec![Finding::ok(AREA, name, detail)]
}

/// Tries the actions of services on the first queue that exists.
async fn check_permissions(
    client: &Client,
    queue: &SqsQueue,
    jobs: Option<&[JobName]>,
) -> Vec<Finding> {
    let unknown = |action, why: &str| Finding::unknown(permissions::AREA, action, why);
    let untried = unknown(UNTRIED_ACTIONS, "cannot be tried without side effects");
    let names = std::iter::once(queue.quarantine_name().to_owned()).chain(
        jobs.unwrap_or_default()
            .iter()
            .flat_map(|job| queue.queue_names(job)),
    );
    let mut url = None;
    for name in names.take(AT_ONCE) {
        let found = Box::pin(client.get_queue_url().queue_name(name).send()).await;
        if let Ok(answer) = found {
            url = answer.queue_url;
            break;
        }
    }
    let Some(url) = url else {
        let actions = "sqs:GetQueueAttributes, sqs:ListQueueTags, sqs:DeleteMessage, sqs:ChangeMessageVisibility";
        return vec![
            unknown(actions, "there is no queue to try them on"),
            untried,
        ];
    };
    let attributes = client.get_queue_attributes().queue_url(&url);
    let attributes = attributes.attribute_names(QueueAttributeName::ApproximateNumberOfMessages);
    let attributes = outcome(Box::pin(attributes.send()).await);
    let tags = outcome(Box::pin(client.list_queue_tags().queue_url(&url).send()).await);
    let delete = Box::pin(delete_nothing(client, &url)).await;
    let extend = Box::pin(extend_nothing(client, &url)).await;
    let of = |action, required_by, result: &Result<(), Failure>| {
        permission_finding(action, required_by, result.as_ref().copied())
    };
    vec![
        of("sqs:GetQueueAttributes", RequiredBy::Services, &attributes),
        of("sqs:ListQueueTags", RequiredBy::Safeguard, &tags),
        of("sqs:DeleteMessage", RequiredBy::Services, &delete),
        of("sqs:ChangeMessageVisibility", RequiredBy::Services, &extend),
        untried,
    ]
}

/// Tries to delete a message. If the action is allowed, the call succeeds and its entry fails, because the receipt does
/// not exist.
async fn delete_nothing(client: &Client, url: &str) -> Result<(), Failure> {
    let entry = DeleteMessageBatchRequestEntry::builder()
        .id("0")
        .receipt_handle(NO_RECEIPT);
    let entry = entry.build().map_err(build_failure)?;
    let call = client.delete_message_batch().queue_url(url).entries(entry);
    outcome(call.send().await)
}

async fn extend_nothing(client: &Client, url: &str) -> Result<(), Failure> {
    let entry = ChangeMessageVisibilityBatchRequestEntry::builder();
    let entry = entry
        .id("0")
        .receipt_handle(NO_RECEIPT)
        .visibility_timeout(1);
    let entry = entry.build().map_err(build_failure)?;
    let call = client
        .change_message_visibility_batch()
        .queue_url(url)
        .entries(entry);
    outcome(call.send().await)
}

fn build_failure(error: aws_sdk_sqs::error::BuildError) -> Failure {
    Failure {
        class: Class::Invalid,
        message: error.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use dueline_queue_sqs::Drift;

    use super::{super::State, *};

    fn info(exists: bool, waiting: u32, drift: Vec<Drift>) -> QueueInfo {
        let waiting = (
            "ApproximateNumberOfMessages".to_owned(),
            waiting.to_string(),
        );
        QueueInfo {
            name: "d-mail".into(),
            exists,
            attributes: [waiting].into(),
            tags: Default::default(),
            drift,
        }
    }

    fn states(findings: &[Finding]) -> Vec<State> {
        findings.iter().map(|finding| finding.state).collect()
    }

    #[test]
    fn g_18_each_defect_of_a_queue_is_reported_with_its_fix() {
        let job = JobName::parse("mail").expect("a name");
        let wrong = || Drift {
            name: "VisibilityTimeout".into(),
            actual: Some("7".into()),
            expected: "30".into(),
        };
        let fine = of_job(&job, &info(true, 5, Vec::new()), "SETUP");
        assert_eq!(states(&fine), [State::Ok]);
        assert!(fine[0].detail.contains("5 messages wait"));
        let foreign = |prefix: &str| Drift {
            name: "dueline:prefix".into(),
            actual: Some(prefix.into()),
            expected: "d".into(),
        };
        for found in [
            of_job(&job, &info(true, 0, vec![foreign("d-x")]), "SETUP"),
            quarantine(&info(true, 0, vec![wrong(), foreign("d-x")]), "SETUP"),
        ] {
            assert_eq!(states(&found), [State::Defect]);
            assert!(found[0].detail.contains("prefix 'd-x'"), "{found:?}");
            let fix = found[0].fix.as_deref().unwrap_or_default();
            assert!(fix.contains("the prefix") && !fix.contains("SETUP"));
        }
        let missing = of_job(&job, &info(false, 0, Vec::new()), "SETUP");
        assert_eq!(states(&missing), [State::Defect]);
        let off = of_job(&job, &info(true, 0, vec![wrong()]), "SETUP");
        assert_eq!(states(&off), [State::Defect]);
        assert!(
            off[0]
                .detail
                .contains("VisibilityTimeout is 7 and should be 30")
        );
        assert_eq!(off[0].fix.as_deref(), Some("SETUP"));

        assert_eq!(
            states(&quarantine(&info(true, 0, Vec::new()), "SETUP")),
            [State::Ok]
        );
        assert_eq!(
            states(&quarantine(&info(true, 2, Vec::new()), "SETUP")),
            [State::Warning]
        );
        assert_eq!(
            states(&quarantine(&info(false, 0, Vec::new()), "SETUP")),
            [State::Warning]
        );
        let both = quarantine(&info(true, 2, vec![wrong()]), "SETUP");
        assert_eq!(states(&both), [State::Defect, State::Warning]);
    }
}
