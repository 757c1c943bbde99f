//! The commands of a board, against a fake server.

mod fake;

use std::time::Duration;

use fake::FakeServer;
use tokio::time::Instant;

const TASK: &str = "mail/0197b0c4-0000-7000-8000-000000000001";

#[tokio::test(flavor = "multi_thread")]
async fn f_044_a_wait_for_any_task_prints_it_or_gives_up_after_its_timeout() {
    let none = FakeServer::start(|_| (200, r#"{"tasks": []}"#.into())).await;
    let since = Instant::now();
    let output = none
        .run(&["task", "wait-any", "mail", "post", "--timeout", "0.3"])
        .await;
    assert_eq!((output.code, output.stdout.as_str()), (5, ""), "{output:?}");
    assert!(
        output
            .stderr
            .contains("no task could be claimed within 300 ms"),
        "{output:?}"
    );
    assert!(since.elapsed() >= Duration::from_millis(300));
    let requests = none.requests();
    let query = requests[0].uri.query().unwrap();
    for part in ["job=mail", "job=post", "wait=", "limit=50"] {
        assert!(query.contains(part), "{query}");
    }
    let json = none
        .run(&["--json", "task", "wait-any", "mail", "--timeout", "0"])
        .await;
    assert!(
        json.stderr.contains(r#""reason":"nothing_claimable""#),
        "{json:?}"
    );

    let one = FakeServer::start(|_| {
        let (job, id) = TASK.split_once('/').unwrap();
        (
            200,
            format!(r#"{{"tasks": [{{"job": "{job}", "id": "{id}"}}]}}"#),
        )
    })
    .await;
    let output = one.run(&["task", "wait-any", "mail"]).await;
    assert_eq!((output.code, output.stdout), (0, format!("{TASK}\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_054_the_three_answers_of_expires_in_differ() {
    for (answer, printed) in [
        (
            r#"{"owner": "ann", "expires": "in", "expires_in_ms": 61005}"#,
            "1m 1s 5ms\n",
        ),
        (
            r#"{"owner": "ann", "expires": "never", "expires_in_ms": null}"#,
            "never\n",
        ),
        (
            r#"{"owner": null, "expires": "none", "expires_in_ms": null}"#,
            "none\n",
        ),
    ] {
        let server = FakeServer::start(move |_| (200, answer.into())).await;
        let output = server.run(&["task", "expires-in", TASK]).await;
        assert_eq!((output.code, output.stdout.as_str()), (0, printed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_16_an_extension_of_a_task_that_nobody_owns_prints_false() {
    let server = FakeServer::start(|_| {
        let body =
            r#"{"state": "enqueued", "cancel_requested": false, "lease_ms": null, "done": false}"#;
        (200, body.into())
    })
    .await;
    let token = ["--token", "00c0ffee00c0ffee", "--owner", "ann"];
    let extend = [&["task", "extend", TASK, "--by", "5s"][..], &token].concat();
    let output = server.run(&extend).await;
    assert_eq!(output.code, 4, "{output:?}");
    assert_eq!(output.stdout, format!("false: task {TASK} has no owner\n"));
    let sent: serde_json::Value = serde_json::from_str(&server.requests()[0].body).unwrap();
    let wanted = serde_json::json!({"token": "00c0ffee00c0ffee", "owner": "ann", "by_ms": 5000});
    assert_eq!(sent, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_079_a_claim_sends_its_lifetime_or_never() {
    let server = FakeServer::start(|_| (500, "{}".into())).await;
    for (lifetime, sent) in [
        (
            &["--lifetime", "0.5"][..],
            r#"{"owner":"ann","lifetime_ms":500}"#,
        ),
        (
            &["--lifetime", "never"],
            r#"{"owner":"ann","lifetime_ms":"never"}"#,
        ),
        (&[], r#"{"owner":"ann"}"#),
    ] {
        server
            .run(&[&["task", "claim", TASK, "--owner", "ann"][..], lifetime].concat())
            .await;
        assert_eq!(server.requests().pop().unwrap().body, sent);
    }
    for bad in ["0", "-1s", "for ever"] {
        let output = server
            .run(&["task", "claim", TASK, "--owner", "ann", "--lifetime", bad])
            .await;
        assert_eq!(output.code, 2, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_153_a_drop_goes_on_until_there_is_no_next_page() {
    let server = FakeServer::start(|request| {
        let is_first = !request.body.contains("cursor");
        let answer = match is_first {
            true => r#"{"dropped": 1000, "left": 2, "next": "p-7"}"#,
            false => r#"{"dropped": 5, "left": 0}"#,
        };
        (200, answer.into())
    })
    .await;
    let args = ["job", "drop", "mail", "--tag", "x", "--reason", "no use"];
    let output = server.run(&args).await;
    let printed = "1005 tasks of job mail dropped; 2 were claimed or ended meanwhile\n";
    assert_eq!((output.code, output.stdout.as_str()), (0, printed));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert_eq!(request.uri.path(), "/v1/jobs/mail/tasks:drop");
        assert!(request.body.contains(r#""tag":"x""#), "{}", request.body);
    }
    assert!(requests[1].body.contains(r#""cursor":"p-7""#));
}
