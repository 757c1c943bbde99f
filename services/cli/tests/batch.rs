//! `dueline task submit --batch`, from files and from standard input.

mod fake;

use dueline_api::{
    ApiError, ErrorKind, ErrorReason,
    operation::Submitted,
    v1::{BatchItem, BatchResult},
};
use dueline_domain::{JobName, StateKind, TaskId, Timestamp};
use fake::FakeServer;

/// A server that refuses lines with "bad", reports lines with "again" as existing, and stores all other lines.
async fn server() -> FakeServer {
    FakeServer::start(|request| {
        let items = request.body.lines().enumerate().map(|(index, line)| {
            let result = if line.contains("bad") {
                Err(ApiError::invalid(
                    "weight",
                    ErrorReason::InvalidWeight,
                    "is not a weight",
                ))
            } else {
                Ok(Submitted {
                    job: JobName::parse("mail").unwrap(),
                    id: TaskId::from_bytes([7; 16]),
                    state: StateKind::Enqueued,
                    run_at: Timestamp::EPOCH,
                    existed: line.contains("again"),
                    replaced: false,
                })
            };
            BatchItem::new(index, result)
        });
        let answer = BatchResult {
            results: items.collect(),
        };
        (200, serde_json::to_string(&answer).unwrap())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_sent_in_requests_of_a_thousand_without_a_progress_bar() {
    let fake = server().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tasks.ndjson");
    let lines: Vec<String> = (0..2_500).map(|n| format!("{{\"payload\":{n}}}")).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let output = fake
        .run(&["task", "submit", "mail", "--batch", file.to_str().unwrap()])
        .await;
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(output.stdout, "2500 tasks of mail submitted\n");
    // The progress bar is for terminals only.
    assert_eq!(output.stderr, "");
    let requests = fake.requests();
    let lens: Vec<_> = requests
        .iter()
        .map(|request| request.body.lines().count())
        .collect();
    assert_eq!(lens, [1_000, 1_000, 500]);
    let sent: Vec<&str> = requests
        .iter()
        .flat_map(|request| request.body.lines())
        .collect();
    assert_eq!(sent, lines);
    assert!(
        requests
            .iter()
            .all(|request| request.uri.path() == "/v1/jobs/mail/tasks:batch")
    );
    assert!(
        requests
            .iter()
            .all(|request| request.headers["content-type"] == "application/x-ndjson")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_lines_are_reported_by_their_number_in_the_file() {
    let fake = server().await;
    // Blank lines are counted but not sent.
    let input = "{\"name\":\"a\"}\n\n{\"name\":\"bad\"}\n{\"name\":\"again\"}\n";
    let args = ["task", "submit", "mail", "--batch", "-"];
    let output = fake.run_with(&args, input).await;
    assert_eq!(output.code, 9, "{}", output.stderr);
    let expected = "1 tasks of mail submitted, 1 existed already, 1 refused:\n  line 3: weight: is not a weight\n";
    assert_eq!(output.stdout, expected);
    let output = fake
        .run_with(&[&args[..], &["--json"]].concat(), input)
        .await;
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&report["submitted"], &report["existed"], &report["refused"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(
        (
            &report["errors"][0]["line"],
            &report["errors"][0]["error"]["reason"]
        ),
        (&3.into(), &"invalid_weight".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_batch_and_one_with_flags_of_a_single_task_are_refused() {
    let fake = server().await;
    let args = ["task", "submit", "mail", "--batch", "-"];
    assert_eq!(fake.run_with(&args, "\n \n").await.code, 2);
    let args = ["task", "submit", "mail", "--batch", "-", "--payload", "1"];
    assert_eq!(fake.run_with(&args, "{}").await.code, 2);
    assert!(fake.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_batch_reports_its_progress_in_a_hint() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let fake = FakeServer::start(move |request| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 {
            return (503, String::new());
        }
        let submitted = Submitted {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([7; 16]),
            state: StateKind::New,
            run_at: Timestamp::EPOCH,
            existed: false,
            replaced: false,
        };
        let results = (0..request.body.lines().count())
            .map(|index| BatchItem::new(index, Ok(submitted.clone())))
            .collect();
        (
            200,
            serde_json::to_string(&BatchResult { results }).unwrap(),
        )
    })
    .await;
    let args = ["task", "submit", "mail", "--batch", "-"];
    let output = fake.run_with(&args, &"{}\n".repeat(1_500)).await;
    assert_eq!(output.code, 5);
    assert!(
        output
            .stderr
            .contains("hint: 1000 tasks are stored already"),
        "{}",
        output.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_batch_reports_its_progress_in_json() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let fake = FakeServer::start(move |request| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 {
            return (503, String::new());
        }
        let results = request.body.lines().enumerate().map(|(index, line)| {
            let submitted = Submitted {
                job: JobName::parse("mail").unwrap(),
                id: TaskId::from_bytes([7; 16]),
                state: StateKind::New,
                run_at: Timestamp::EPOCH,
                existed: line.contains("again"),
                replaced: false,
            };
            let refused =
                || ApiError::invalid("weight", ErrorReason::InvalidWeight, "is not a weight");
            let result = if line.contains("bad") {
                Err(refused())
            } else {
                Ok(submitted)
            };
            BatchItem::new(index, result)
        });
        let results = results.collect();
        (
            200,
            serde_json::to_string(&BatchResult { results }).unwrap(),
        )
    })
    .await;
    let input = format!("bad\nagain\n{}", "{}\n".repeat(1_500));
    let args = ["task", "submit", "mail", "--batch", "-", "--json"];
    let output = fake.run_with(&args, &input).await;
    assert_eq!((output.code, output.stdout.as_str()), (5, ""));
    let report: serde_json::Value = serde_json::from_str(&output.stderr).unwrap();
    assert_eq!(report["kind"], "unavailable", "{report}");
    assert_eq!(
        (
            &report["job"],
            &report["submitted"],
            &report["existed"],
            &report["refused"]
        ),
        (&"mail".into(), &998.into(), &1.into(), &1.into()),
        "{report}"
    );
    assert_eq!(report["errors"][0]["line"], 1, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_may_begin_with_a_byte_order_mark() {
    let fake = server().await;
    let args = ["task", "submit", "mail", "--batch", "-"];
    let input = "\u{feff}{\"name\":\"a\"}\n\u{feff}{\"name\":\"b\"}\n";
    let output = fake.run_with(&args, input).await;
    assert_eq!(output.code, 0, "{}", output.stderr);
    // Only a mark at the beginning of the file is removed. The server refuses any other.
    let expected = "{\"name\":\"a\"}\n\u{feff}{\"name\":\"b\"}\n";
    assert_eq!(fake.requests()[0].body, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_for_an_unknown_job_ends_at_once() {
    let fake = FakeServer::start(|request| {
        let unknown = || {
            ApiError::new(
                ErrorKind::NotFound,
                ErrorReason::UnknownJob,
                "no job 'mail'",
            )
        };
        let items = request.body.lines().enumerate();
        let results = items.map(|(index, _)| BatchItem::new(index, Err(unknown())));
        let answer = BatchResult {
            results: results.collect(),
        };
        (200, serde_json::to_string(&answer).unwrap())
    })
    .await;
    let input = "{}\n".repeat(2_500);
    let args = ["task", "submit", "mail", "--batch", "-"];
    let output = fake.run_with(&args, &input).await;
    assert_eq!((output.code, output.stdout.as_str()), (3, ""));
    assert!(output.stderr.starts_with("error: no job 'mail'"));
    assert_eq!(fake.requests().len(), 1);
}
