//! Setting up, looking after and removing the queues of a deployment.

use aws_sdk_sqs::types::QueueAttributeName;
use dueline_ports::TaskQueue;
use dueline_queue_sqs::Drift;
use dueline_tests_engines::EngineName;

use crate::support::{client, job, open, options, url};

/// What drifts, as far as the engine can hold it: ElasticMQ keeps no retention.
async fn told(drift: &[Drift]) -> Vec<&str> {
    let keeps_retention = dueline_tests_engines::sqs().await.engine != EngineName::ElasticMq;
    let told = drift.iter().map(|drift| drift.what.as_str());
    let told = told.filter(|what| keeps_retention || *what != "MessageRetentionPeriod");
    told.collect()
}

#[tokio::test]
async fn queues_carry_tags_and_attributes_and_a_drift_is_told_and_mended() {
    let options = options().await;
    let (queue, _) = open(options.clone()).await;
    let mail = job("mail");
    let missing = queue.describe(&mail).await.expect("it answers");
    assert!(!missing[0].exists);
    queue.ensure(&mail).await.expect("the queue is made");
    let info = queue.describe(&mail).await.expect("it answers").remove(0);
    assert!(
        info.exists && told(&info.drift).await.is_empty(),
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
    let mended = queue.mend(&mail).await.expect("it is mended");
    assert_eq!(told(&mended).await, ["VisibilityTimeout", "dueline:job"]);
    let timeout = mended.iter().find(|d| d.what == "VisibilityTimeout");
    assert_eq!(timeout.and_then(|d| d.is.as_deref()), Some("60"));
    let mended = queue.mend(&mail).await.expect("it answers");
    assert!(told(&mended).await.is_empty());
    // Another visibility timeout is no reason not to use the queue: each receive says its own.
    let mut other = options;
    other.visibility_timeout *= 2;
    let (other, _) = open(other).await;
    other.ensure(&mail).await.expect("it is used as it is");
    let info = other.describe(&mail).await.expect("it answers").remove(0);
    assert_eq!(told(&info.drift).await, ["VisibilityTimeout"]);
}

#[tokio::test]
async fn removing_all_spares_what_is_not_ours() {
    let options = options().await;
    let (queue, _) = open(options.clone()).await;
    for name in ["mail", "post"] {
        queue.ensure(&job(name)).await.expect("the queue is made");
    }
    queue.ensure_set_aside().await.expect("it is made");
    let mut longer = options.clone();
    longer.prefix.push_str("-2");
    let (neighbour, _) = open(longer).await;
    neighbour
        .ensure(&job("mail"))
        .await
        .expect("the queue is made");
    let client = client().await;
    let foreign = format!("{}-foreign", options.prefix);
    client
        .create_queue()
        .queue_name(&foreign)
        .send()
        .await
        .expect("it is made");

    let p = &options.prefix;
    let listed = queue.list().await.expect("it answers");
    let all = ["--set-aside", "-2-mail", "-foreign", "-mail", "-post"];
    assert_eq!(listed, all.map(|end| format!("{p}{end}")));
    let removed = queue.remove_all().await.expect("removing works");
    assert_eq!(
        removed,
        ["--set-aside", "-mail", "-post"].map(|end| format!("{p}{end}"))
    );
    let listed = queue.list().await.expect("it answers");
    assert_eq!(
        listed,
        ["-2-mail", "-foreign"].map(|end| format!("{p}{end}"))
    );
    assert!(
        queue.depth(&job("mail")).await.is_err(),
        "what was known of them is forgotten"
    );
}
