//! Creating, describing, fixing and deleting the queues of a deployment.

use aws_sdk_sqs::types::QueueAttributeName;
use dueline_ports::TaskQueue;
use dueline_queue_sqs::Drift;
use dueline_tests_engines::EngineName;

use crate::support::{client, job, open, options, url};

/// Names of the drifted attributes and tags, without those that the engine ignores: ElasticMQ has no retention.
async fn drifted(drift: &[Drift]) -> Vec<&str> {
    let keeps_retention = dueline_tests_engines::sqs().await.engine != EngineName::ElasticMq;
    let names = drift.iter().map(|drift| drift.name.as_str());
    let names = names.filter(|name| keeps_retention || *name != "MessageRetentionPeriod");
    names.collect()
}

#[tokio::test]
async fn queues_carry_tags_and_attributes_and_drift_is_reported_and_fixed() {
    let options = options().await;
    let (queue, _) = open(options.clone()).await;
    let mail = job("mail");
    let missing = queue.describe(&mail).await.expect("it answers");
    assert!(!missing[0].exists);
    queue.ensure(&mail).await.expect("the queue is created");
    let info = queue.describe(&mail).await.expect("it answers").remove(0);
    assert!(
        info.exists && drifted(&info.drift).await.is_empty(),
        "{info:?}"
    );
    assert_eq!(info.name, format!("{}-mail", options.prefix));
    assert_eq!(info.attributes["VisibilityTimeout"], "6");
    assert_eq!(info.attributes["ReceiveMessageWaitTimeSeconds"], "20");
    assert_eq!(info.tags["dueline:job"], "mail");
    assert_eq!(info.tags["dueline:prefix"], options.prefix);

    let client = client().await;
    let address = url(&client, &info.name).await;
    let changed = client.set_queue_attributes().queue_url(&address);
    let changed = changed.attributes(QueueAttributeName::VisibilityTimeout, "60");
    changed.send().await.expect("it is changed");
    let untagged = client.untag_queue().queue_url(&address);
    let untagged = untagged.tag_keys("dueline:job");
    untagged.send().await.expect("it is changed");
    let fixed = queue.fix(&mail).await.expect("it is fixed");
    assert_eq!(drifted(&fixed).await, ["VisibilityTimeout", "dueline:job"]);
    let timeout = fixed.iter().find(|d| d.name == "VisibilityTimeout");
    assert_eq!(timeout.and_then(|d| d.actual.as_deref()), Some("60"));
    let fixed = queue.fix(&mail).await.expect("it answers");
    assert!(drifted(&fixed).await.is_empty());
    // A queue with another visibility timeout is used all the same: each receive sets its own.
    let mut other = options;
    other.visibility_timeout *= 2;
    let (other, _) = open(other).await;
    other.ensure(&mail).await.expect("it is used as it is");
    let info = other.describe(&mail).await.expect("it answers").remove(0);
    assert_eq!(drifted(&info.drift).await, ["VisibilityTimeout"]);
}

#[tokio::test]
async fn removing_all_spares_foreign_queues() {
    let options = options().await;
    let (queue, _) = open(options.clone()).await;
    for name in ["mail", "post"] {
        queue
            .ensure(&job(name))
            .await
            .expect("the queue is created");
    }
    queue
        .ensure_quarantine()
        .await
        .expect("the queue is created");
    let mut longer_prefix = options.clone();
    longer_prefix.prefix.push_str("-2");
    let (neighbour, _) = open(longer_prefix).await;
    neighbour
        .ensure(&job("mail"))
        .await
        .expect("the queue is created");
    let client = client().await;
    let foreign = format!("{}-foreign", options.prefix);
    client
        .create_queue()
        .queue_name(&foreign)
        .send()
        .await
        .expect("the queue is created");

    let p = &options.prefix;
    let listed = queue.list().await.expect("it answers");
    let all = ["--quarantine", "-2-mail", "-foreign", "-mail", "-post"];
    assert_eq!(listed, all.map(|end| format!("{p}{end}")));
    let removed = queue.remove_all().await.expect("removing works");
    assert_eq!(
        removed,
        ["--quarantine", "-mail", "-post"].map(|end| format!("{p}{end}"))
    );
    let listed = queue.list().await.expect("it answers");
    assert_eq!(
        listed,
        ["-2-mail", "-foreign"].map(|end| format!("{p}{end}"))
    );
    assert!(
        queue.depth(&job("mail")).await.is_err(),
        "their cached URLs are forgotten"
    );
}
