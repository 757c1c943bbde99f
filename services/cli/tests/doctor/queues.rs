//! Defects of the queues.

use aws_sdk_sqs::{Client, types::QueueAttributeName};

use crate::deployment::{JOB, TestDeployment};

async fn url(client: &Client, name: &str) -> String {
    let found = client.get_queue_url().queue_name(name).send().await;
    found.expect("the queue").queue_url.expect("its address")
}

#[tokio::test]
async fn g_18_a_deleted_queue_unreadable_messages_and_a_queue_without_a_job_are_each_named() {
    let deployment = TestDeployment::healthy().await;
    let (client, prefix) = (deployment.sqs().await, &deployment.prefix);
    let orphan = format!("{prefix}-old");
    let tags = [("dueline:prefix", prefix.as_str()), ("dueline:job", "old")];
    let mut create = client.create_queue().queue_name(&orphan);
    for (name, value) in tags {
        create = create.tags(name, value);
    }
    create.send().await.expect("a queue");
    let nested = client
        .create_queue()
        .queue_name(format!("{prefix}-test-mail"));
    let nested = nested.tags("dueline:prefix", format!("{prefix}-test"));
    nested.send().await.expect("a queue");
    let job = format!("{prefix}-{JOB}");
    client
        .delete_queue()
        .queue_url(url(&client, &job).await)
        .send()
        .await
        .expect("it is gone");
    let quarantine = format!("{prefix}--quarantine");
    let unreadable = client
        .send_message()
        .queue_url(url(&client, &quarantine).await);
    let unreadable = unreadable.message_body("hello?");
    unreadable.send().await.expect("an unreadable message");

    let output = deployment.doctor(&[]).await;
    output.has_defects(&[&format!("queues {job}")]);
    output.has(
        "defect",
        &format!("queues {job}"),
        "does not exist",
        "dueline setup",
    );
    output.has(
        "warning",
        &format!("queues {quarantine}"),
        "1 messages were quarantined",
        "purge",
    );
    output.has(
        "warning",
        &format!("queues {orphan}"),
        "'old', which does not exist",
        "delete-queue",
    );
    output.has(
        "warning",
        &format!("queues prefix {prefix}-test"),
        "1 queues begin with",
        "prefix",
    );
}

#[tokio::test]
async fn g_18_a_queue_with_another_visibility_timeout_is_a_defect_that_setup_fixes() {
    let deployment = TestDeployment::healthy().await;
    let (client, job) = (
        deployment.sqs().await,
        format!("{}-{JOB}", deployment.prefix),
    );
    let change = client
        .set_queue_attributes()
        .queue_url(url(&client, &job).await);
    let change = change.attributes(QueueAttributeName::VisibilityTimeout, "7");
    change.send().await.expect("another timeout");
    let output = deployment.doctor(&[]).await;
    let what = format!("queues {job}");
    output.has_defects(&[&what]);
    output.has(
        "defect",
        &what,
        "VisibilityTimeout is 7 and should be 30",
        "dueline setup",
    );
    // The plan of setup names the same queue, and setup fixes it.
    let plan = deployment.plan().await;
    assert!(plan.iter().any(|text| text.starts_with(&job)), "{plan:?}");
    deployment.set_up().await;
    deployment.doctor(&[]).await.has_defects(&[]);
}
