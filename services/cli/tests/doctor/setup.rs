//! The output of `dueline setup`.

use dueline_backends::BackendError;
use dueline_ports::QueueError;

use crate::deployment::{JOB, TestDeployment, dueline};

#[tokio::test]
async fn setup_keeps_a_queue_of_another_deployment_and_the_doctor_proposes_another_prefix() {
    let deployment = TestDeployment::healthy().await;
    let (client, name) = (
        deployment.sqs().await,
        format!("{}-{JOB}", deployment.prefix),
    );
    let found = client.get_queue_url().queue_name(&name).send().await;
    let url = found.expect("the queue").queue_url.expect("its address");
    // As if another deployment had created the queue.
    let owner = format!("{}-x", deployment.prefix);
    let tag = client.tag_queue().queue_url(&url);
    let tag = tag.tags("dueline:prefix", &owner).send().await;
    tag.expect("it is tagged");

    let output = deployment.doctor(&[]).await;
    let what = format!("queues {name}");
    output.has_defects(&[&what]);
    let owner_prefix = format!("prefix '{owner}'");
    let fix = "change the prefix of one of the two deployments";
    output.has("defect", &what, &owner_prefix, fix);

    assert_eq!(deployment.plan().await, Vec::<String>::new());
    let actions = deployment.actions().await;
    let [action] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(action.what, name);
    assert!(
        action.text.contains("not changed and not usable") && action.text.contains(&owner_prefix)
    );
    let refused = deployment.try_set_up().await.expect_err("it is refused");
    let BackendError::Queue(QueueError::Invalid(why)) = &refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains(&name) && why.contains(&owner_prefix), "{why}");

    let tags = client.list_queue_tags().queue_url(&url).send().await;
    let tags = tags.expect("its tags").tags.expect("its tags");
    assert_eq!(tags["dueline:prefix"], owner, "the tag is unchanged");
}

#[tokio::test]
async fn setup_reports_point_in_time_recovery_as_on_only_where_it_is() {
    let deployment = TestDeployment::bare().await;
    let actions = deployment.try_set_up().await.expect("it is set up");
    let mut recovery = actions
        .iter()
        .filter(|action| action.text.contains("point-in-time recovery"));
    let recovery = recovery.next().expect("an action");
    let client = deployment.dynamodb().await;
    let request = client
        .describe_continuous_backups()
        .table_name(&deployment.table);
    let is_on = request.send().await.is_ok_and(|response| {
        let backups = response.continuous_backups_description;
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description);
        let status = recovery.and_then(|recovery| recovery.point_in_time_recovery_status);
        status.is_some_and(|status| status.as_str() == "ENABLED")
    });
    assert_eq!(recovery.changes, is_on, "{recovery:?}");
    assert_eq!(recovery.text.starts_with("skipped"), !is_on, "{recovery:?}");
    // Every other action was done.
    let others = actions.iter().filter(|action| *action != recovery);
    assert!(others.into_iter().all(|action| action.changes));
}

#[tokio::test]
async fn setup_of_a_shared_store_with_a_local_queue_notes_that_several_processes_need_a_shared_queue()
 {
    let deployment = TestDeployment::bare().await;
    let home = tempfile::tempdir().expect("a folder");
    let store = deployment.store_uri();
    let setup = async |more: &[&str]| {
        let args = ["setup", "--store", &store, "--queue", "local:"];
        let output = dueline(home.path()).args(args).args(more).output().await;
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    // Before the table exists, when it is created, and when nothing is left to do.
    for more in [&["--dry-run"][..], &[], &[]] {
        let text = setup(more).await;
        let mut lines = text.lines();
        let note = lines.find(|line| line.contains("--queue sqs://PREFIX"));
        let note = note.unwrap_or_else(|| panic!("{text}"));
        assert!(note.starts_with("note "), "{text}");
        assert!(!text.contains("everything is set up"), "{text}");
    }
}

#[tokio::test]
async fn a_removal_lists_what_it_deletes_and_deletes_a_whole_deployment_or_nothing() {
    let deployment = TestDeployment::healthy().await;
    let home = tempfile::tempdir().expect("a folder");
    let (store, queue) = (deployment.store_uri(), deployment.queue_uri());
    let remove = async |more: &[&str]| {
        let args = ["setup", "--remove", "--store", &store];
        let output = dueline(home.path()).args(args).args(more).output().await;
        let output = output.expect("it runs");
        let text = if output.status.success() {
            output.stdout
        } else {
            output.stderr
        };
        (output.status.code(), String::from_utf8(text).expect("text"))
    };
    let job_queue = format!("{}-{JOB}", deployment.prefix);
    let (code, text) = remove(&["--yes"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--queue sqs://PREFIX"), "{text}");
    let both = ["--queue", &queue];
    let (code, text) = remove(&both).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("add --yes"), "{text}");
    let (code, text) = remove(&[&both[..], &["--dry-run"]].concat()).await;
    assert_eq!(code, Some(0), "{text}");
    for what in [&deployment.table, &job_queue] {
        assert!(text.contains(&format!("would  {what}: delete")), "{text}");
    }
    assert_eq!(
        deployment.plan().await,
        Vec::<String>::new(),
        "everything still exists"
    );

    let yes = [&both[..], &["--yes"]].concat();
    let (code, text) = remove(&yes).await;
    assert_eq!(code, Some(0), "{text}");
    for what in [&deployment.table, &job_queue] {
        assert!(text.contains(&format!("done   {what}: delete")), "{text}");
    }
    let (code, text) = remove(&yes).await;
    assert_eq!(code, Some(0), "{text}");
    let note = format!("note   {}: there is no such table", deployment.table);
    assert!(text.contains(&note) && !text.contains("done"), "{text}");
}
