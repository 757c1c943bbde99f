//! What setup says of what it does not do.

use dueline_backends::BackendError;
use dueline_ports::QueueError;

use crate::site::{JOB, Site, dueline};

#[tokio::test]
async fn setup_leaves_a_queue_of_another_deployment_and_the_doctor_asks_for_another_prefix() {
    let site = Site::healthy().await;
    let (client, name) = (site.sqs().await, format!("{}-{JOB}", site.prefix));
    let found = client.get_queue_url().queue_name(&name).send().await;
    let url = found.expect("the queue").queue_url.expect("its address");
    // As if another deployment had made it.
    let owner = format!("{}-x", site.prefix);
    let tag = client.tag_queue().queue_url(&url);
    let tag = tag.tags("dueline:prefix", &owner).send().await;
    tag.expect("it is tagged");

    let said = site.doctor(&[]).await;
    let what = format!("queues {name}");
    said.has_defects(&[&what]);
    let whose = format!("prefix '{owner}'");
    let mend = "give one of the two deployments a prefix";
    said.has("defect", &what, &whose, mend);

    assert_eq!(site.plan().await, Vec::<String>::new());
    let actions = site.actions().await;
    let [action] = &actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(action.what, name);
    assert!(action.text.contains("left as it is") && action.text.contains(&whose));
    let refused = site.try_set_up().await.expect_err("it is refused");
    let BackendError::Queue(QueueError::Invalid(why)) = &refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains(&name) && why.contains(&whose), "{why}");

    let tags = client.list_queue_tags().queue_url(&url).send().await;
    let tags = tags.expect("its tags").tags.expect("its tags");
    assert_eq!(tags["dueline:prefix"], owner, "it is as it was");
}

#[tokio::test]
async fn setup_says_that_point_in_time_recovery_is_on_only_where_it_is() {
    let site = Site::bare().await;
    let actions = site.try_set_up().await.expect("it is set up");
    let mut recovery = actions
        .iter()
        .filter(|action| action.text.contains("point-in-time recovery"));
    let recovery = recovery.next().expect("it is told of");
    let asked = site.dynamodb().await;
    let asked = asked.describe_continuous_backups().table_name(&site.table);
    let is_on = asked.send().await.is_ok_and(|answer| {
        let backups = answer.continuous_backups_description;
        let recovery = backups.and_then(|backups| backups.point_in_time_recovery_description);
        let status = recovery.and_then(|recovery| recovery.point_in_time_recovery_status);
        status.is_some_and(|status| status.as_str() == "ENABLED")
    });
    assert_eq!(recovery.changes, is_on, "{recovery:?}");
    assert_eq!(
        recovery.text.starts_with("not done"),
        !is_on,
        "{recovery:?}"
    );
    // Everything else was done.
    let others = actions.iter().filter(|action| *action != recovery);
    assert!(others.into_iter().all(|action| action.changes));
}

#[tokio::test]
async fn setup_of_a_shared_store_with_a_local_queue_says_what_several_processes_need() {
    let site = Site::bare().await;
    let home = tempfile::tempdir().expect("a folder");
    let store = site.store_uri();
    let setup = async |more: &[&str]| {
        let words = ["setup", "--store", &store, "--queue", "local:"];
        let output = dueline(home.path()).args(words).args(more).output().await;
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    // Before there is a table, when it is made, and when nothing is left to do.
    for more in [&["--dry-run"][..], &[], &[]] {
        let told = setup(more).await;
        let mut lines = told.lines();
        let note = lines.find(|line| line.contains("--queue sqs://PREFIX"));
        let note = note.unwrap_or_else(|| panic!("{told}"));
        assert!(note.starts_with("note "), "{told}");
        assert!(!told.contains("everything is as it should be"), "{told}");
    }
}

#[tokio::test]
async fn a_removal_says_what_it_takes_and_takes_a_whole_deployment_or_nothing() {
    let site = Site::healthy().await;
    let home = tempfile::tempdir().expect("a folder");
    let (store, queue) = (site.store_uri(), site.queue_uri());
    let remove = async |more: &[&str]| {
        let words = ["setup", "--remove", "--store", &store];
        let output = dueline(home.path()).args(words).args(more).output().await;
        let output = output.expect("it runs");
        let text = if output.status.success() {
            output.stdout
        } else {
            output.stderr
        };
        (output.status.code(), String::from_utf8(text).expect("text"))
    };
    let job_queue = format!("{}-{JOB}", site.prefix);
    let (code, told) = remove(&["--yes"]).await;
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("--queue sqs://PREFIX"), "{told}");
    let whole = ["--queue", &queue];
    let (code, told) = remove(&whole).await;
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("add --yes"), "{told}");
    let (code, told) = remove(&[&whole[..], &["--dry-run"]].concat()).await;
    assert_eq!(code, Some(0), "{told}");
    for what in [&site.table, &job_queue] {
        assert!(told.contains(&format!("would  {what}: delete")), "{told}");
    }
    assert_eq!(site.plan().await, Vec::<String>::new(), "all is there");

    let yes = [&whole[..], &["--yes"]].concat();
    let (code, told) = remove(&yes).await;
    assert_eq!(code, Some(0), "{told}");
    for what in [&site.table, &job_queue] {
        assert!(told.contains(&format!("done   {what}: delete")), "{told}");
    }
    let (code, told) = remove(&yes).await;
    assert_eq!(code, Some(0), "{told}");
    let note = format!("note   {}: there is no such table", site.table);
    assert!(told.contains(&note) && !told.contains("done"), "{told}");
}
