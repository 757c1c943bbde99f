//! Defects of the queues.

use aws_sdk_sqs::{Client, types::QueueAttributeName};

use crate::site::{JOB, Site};

async fn url(client: &Client, name: &str) -> String {
    let found = client.get_queue_url().queue_name(name).send().await;
    found.expect("the queue").queue_url.expect("its address")
}

#[tokio::test]
async fn g_18_a_deleted_queue_strays_and_a_queue_without_its_job_are_each_named() {
    let site = Site::healthy().await;
    let (client, prefix) = (site.sqs().await, &site.prefix);
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
    let set_aside = format!("{prefix}--set-aside");
    let stray = client
        .send_message()
        .queue_url(url(&client, &set_aside).await);
    stray.message_body("hello?").send().await.expect("a stray");

    let said = site.doctor(&[]).await;
    said.has_defects(&[&format!("queues {job}")]);
    said.has(
        "defect",
        &format!("queues {job}"),
        "does not exist",
        "dueline setup",
    );
    said.has(
        "warning",
        &format!("queues {set_aside}"),
        "1 messages were set aside",
        "purge",
    );
    said.has(
        "warning",
        &format!("queues {orphan}"),
        "'old', which does not exist",
        "delete-queue",
    );
    said.has(
        "warning",
        &format!("queues prefix {prefix}-test"),
        "1 queues begin with",
        "prefix",
    );
}

#[tokio::test]
async fn g_18_a_queue_with_another_visibility_timeout_is_a_defect_that_setup_mends() {
    let site = Site::healthy().await;
    let (client, job) = (site.sqs().await, format!("{}-{JOB}", site.prefix));
    let change = client
        .set_queue_attributes()
        .queue_url(url(&client, &job).await);
    let change = change.attributes(QueueAttributeName::VisibilityTimeout, "7");
    change.send().await.expect("another timeout");
    let said = site.doctor(&[]).await;
    let what = format!("queues {job}");
    said.has_defects(&[&what]);
    said.has(
        "defect",
        &what,
        "VisibilityTimeout is 7 and should be 30",
        "dueline setup",
    );
    // Setup would change the very queue that the doctor names, and mends it.
    let plan = site.plan().await;
    assert!(plan.iter().any(|text| text.starts_with(&job)), "{plan:?}");
    site.set_up().await;
    site.doctor(&[]).await.has_defects(&[]);
}
