//! The queues of one deployment in SQS. What each should be is decided by the queue itself, which also makes them.

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
    Finding, Look, QueueReport, Reach,
    permissions::{self, Needed, judge, tried},
    queues_of_others,
    table::{no_client, unreachable},
    watch::Watch,
};

pub(super) const AREA: &str = "queues";
/// Queues looked at side by side.
pub(super) const AT_ONCE: usize = 16;
/// No queue hands out such a receipt.
const NO_RECEIPT: &str = "doctor";
/// Whatever would try one of these would move messages, make queues or change them.
const UNTRIED: &str = "sqs:SendMessage, sqs:ReceiveMessage, sqs:CreateQueue, sqs:DeleteQueue, sqs:TagQueue, \
                       sqs:SetQueueAttributes";

pub(super) async fn look_at(
    options: &SqsOptions,
    jobs: Option<&[JobName]>,
    look: &Look,
) -> QueueReport {
    let config = match connect(Service::Sqs, &options.aws).await {
        Ok(config) => config,
        Err(error) => {
            let finding = no_client(AREA, &options.prefix, &error);
            return QueueReport::new(Reach::NotTried, vec![finding]);
        }
    };
    let watch = Watch::new(look.clock.clone());
    let settings = Builder::from(&config).interceptor(watch.clone()).build();
    let client = Client::from_conf(settings);
    let queue = match SqsQueue::from_client(client.clone(), options.clone(), Meter::default()) {
        Ok(queue) => queue,
        Err(error) => {
            let mend = "write another prefix or visibility timeout in the queue URI";
            let finding = Finding::defect(AREA, &options.prefix, error.to_string(), mend);
            return QueueReport::new(Reach::NotTried, vec![finding]);
        }
    };
    let asked = client.get_queue_url().queue_name(queue.set_aside_name());
    let asked = tried(Box::pin(asked.send()).await);
    if let Err(failure) = &asked
        && !watch.is_answered()
    {
        let finding = unreachable(AREA, &options.prefix, &watch.address(), failure);
        return QueueReport::new(Reach::No, vec![finding]);
    }
    let mut report = QueueReport::new(Reach::Yes, Vec::new());
    report.visibility_timeout = Some(options.visibility_timeout);
    let mut allowed = vec![judge(
        "sqs:GetQueueUrl",
        Needed::ByServices,
        match &asked {
            // That there is none was answered to somebody who may ask.
            Err(failure) if failure.class != Class::Missing => Err(failure),
            _ => Ok(()),
        },
    )];
    report.findings = Box::pin(each(&queue, jobs, look)).await;
    let others = Box::pin(queues_of_others::look_at(&client, &queue, options, jobs)).await;
    report.findings.extend(others.findings);
    allowed.push(others.may_list);
    allowed.extend(Box::pin(permissions_of(&client, &queue, jobs)).await);
    report.findings.extend(allowed);
    report.clock = watch.reading("SQS");
    report
}

/// The set-aside queue, and the queues of all jobs.
async fn each(queue: &SqsQueue, jobs: Option<&[JobName]>, look: &Look) -> Vec<Finding> {
    let mut findings = match queue.describe_set_aside().await {
        Ok(info) => set_aside(&info, &look.setup),
        Err(error) => vec![untold(queue.set_aside_name(), &error)],
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
            Ok(infos) => {
                findings.extend(infos.iter().flat_map(|info| of_job(job, info, &look.setup)))
            }
            Err(error) => findings.push(untold(&queue.queue_names(job).join(", "), &error)),
        }
    }
    findings
}

fn untold(name: &str, error: &QueueError) -> Finding {
    Finding::unknown(AREA, name, format!("cannot be told: {error}"))
}

/// Messages that wait, and those that somebody has in hand.
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
        let is = drift.is.as_deref().unwrap_or("nothing");
        format!("{} is {is} and should be {}", drift.what, drift.wanted)
    });
    let all = each.collect::<Vec<_>>().join(", ");
    (!all.is_empty()).then_some(all)
}

/// A queue that carries the tag of another deployment: setup leaves it alone.
fn taken(info: &QueueInfo, whose: &str) -> Option<Finding> {
    let owner = info.other_owner()?;
    let detail = format!(
        "the name of {whose}, but the queue belongs to the deployment with the prefix '{owner}', so it is not used here"
    );
    let mend = "give one of the two deployments a prefix that does not begin with the other's; if the other one is gone, \
                delete the queue";
    Some(Finding::defect(AREA, &info.name, detail, mend))
}

fn set_aside(info: &QueueInfo, setup: &str) -> Vec<Finding> {
    let name = info.name.as_str();
    if !info.exists {
        let detail = "the set-aside queue does not exist; it is made with the first foreign message, if that is allowed";
        return vec![Finding::warning(AREA, name, detail, setup)];
    }
    if let Some(taken) = taken(info, "the set-aside queue") {
        return vec![taken];
    }
    let mut findings = Vec::new();
    if let Some(drift) = drift(info) {
        findings.push(Finding::defect(AREA, name, drift, setup));
    }
    let (waiting, taken) = depth(info);
    findings.push(match waiting + taken {
        0 => Finding::ok(AREA, name, "set-aside queue, empty"),
        count => Finding::warning(
            AREA,
            name,
            format!("{count} messages were set aside: something that is not this program sends to its queues"),
            "look at their attributes source_queue and reason, stop who sends them, then purge the queue",
        ),
    });
    findings
}

fn of_job(job: &JobName, info: &QueueInfo, setup: &str) -> Vec<Finding> {
    let name = info.name.as_str();
    if !info.exists {
        let detail =
            format!("the queue of job '{job}' does not exist; its tasks are not handed on");
        return vec![Finding::defect(AREA, name, detail, setup)];
    }
    if let Some(taken) = taken(info, &format!("the queue of job '{job}'")) {
        return vec![taken];
    }
    if let Some(drift) = drift(info) {
        let detail = format!("queue of job '{job}': {drift}");
        return vec![Finding::defect(AREA, name, detail, setup)];
    }
    let (waiting, taken) = depth(info);
    let detail = format!("queue of job '{job}', {waiting} messages wait, {taken} are in hand");
    vec![Finding::ok(AREA, name, detail)]
}

/// What services do with a queue, tried on the first one that exists.
async fn permissions_of(
    client: &Client,
    queue: &SqsQueue,
    jobs: Option<&[JobName]>,
) -> Vec<Finding> {
    let unknown = |action, why: &str| Finding::unknown(permissions::AREA, action, why);
    let untried = unknown(UNTRIED, "cannot be tried without an effect");
    let names = std::iter::once(queue.set_aside_name().to_owned()).chain(
        jobs.unwrap_or_default()
            .iter()
            .flat_map(|job| queue.queue_names(job)),
    );
    let mut url = None;
    for name in names.take(AT_ONCE) {
        let asked = Box::pin(client.get_queue_url().queue_name(name).send()).await;
        if let Ok(answer) = asked {
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
    let attributes = tried(Box::pin(attributes.send()).await);
    let tags = tried(Box::pin(client.list_queue_tags().queue_url(&url).send()).await);
    let delete = Box::pin(delete_nothing(client, &url)).await;
    let extend = Box::pin(extend_nothing(client, &url)).await;
    let of = |action, needed, result: &Result<(), Failure>| {
        judge(action, needed, result.as_ref().copied())
    };
    vec![
        of("sqs:GetQueueAttributes", Needed::ByServices, &attributes),
        of("sqs:ListQueueTags", Needed::ForSafety, &tags),
        of("sqs:DeleteMessage", Needed::ByServices, &delete),
        of("sqs:ChangeMessageVisibility", Needed::ByServices, &extend),
        untried,
    ]
}

/// A batch that is let through fails entry by entry, because there is no such receipt.
async fn delete_nothing(client: &Client, url: &str) -> Result<(), Failure> {
    let entry = DeleteMessageBatchRequestEntry::builder()
        .id("0")
        .receipt_handle(NO_RECEIPT);
    let entry = entry.build().map_err(unbuilt)?;
    let call = client.delete_message_batch().queue_url(url).entries(entry);
    tried(call.send().await)
}

async fn extend_nothing(client: &Client, url: &str) -> Result<(), Failure> {
    let entry = ChangeMessageVisibilityBatchRequestEntry::builder();
    let entry = entry
        .id("0")
        .receipt_handle(NO_RECEIPT)
        .visibility_timeout(1);
    let entry = entry.build().map_err(unbuilt)?;
    let call = client
        .change_message_visibility_batch()
        .queue_url(url)
        .entries(entry);
    tried(call.send().await)
}

fn unbuilt(error: aws_sdk_sqs::error::BuildError) -> Failure {
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
    fn g_18_each_defect_of_a_queue_is_named_with_its_mend() {
        let job = JobName::parse("mail").expect("a name");
        let wrong = || Drift {
            what: "VisibilityTimeout".into(),
            is: Some("7".into()),
            wanted: "30".into(),
        };
        let fine = of_job(&job, &info(true, 5, Vec::new()), "SETUP");
        assert_eq!(states(&fine), [State::Ok]);
        assert!(fine[0].detail.contains("5 messages wait"));
        let others = |is: &str| Drift {
            what: "dueline:prefix".into(),
            is: Some(is.into()),
            wanted: "d".into(),
        };
        for found in [
            of_job(&job, &info(true, 0, vec![others("d-x")]), "SETUP"),
            set_aside(&info(true, 0, vec![wrong(), others("d-x")]), "SETUP"),
        ] {
            assert_eq!(states(&found), [State::Defect]);
            assert!(found[0].detail.contains("prefix 'd-x'"), "{found:?}");
            let mend = found[0].mend.as_deref().unwrap_or_default();
            assert!(mend.contains("a prefix") && !mend.contains("SETUP"));
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
        assert_eq!(off[0].mend.as_deref(), Some("SETUP"));

        assert_eq!(
            states(&set_aside(&info(true, 0, Vec::new()), "SETUP")),
            [State::Ok]
        );
        assert_eq!(
            states(&set_aside(&info(true, 2, Vec::new()), "SETUP")),
            [State::Warning]
        );
        assert_eq!(
            states(&set_aside(&info(false, 0, Vec::new()), "SETUP")),
            [State::Warning]
        );
        let both = set_aside(&info(true, 2, vec![wrong()]), "SETUP");
        assert_eq!(states(&both), [State::Defect, State::Warning]);
    }
}
