//! Batches from files and from standard input.

mod fake;

use dueline_api::{
    ApiError, ErrorKind, Submitted,
    v1::{BatchItem, BatchResult},
};
use dueline_domain::{JobName, StateKind, TaskId, Timestamp};
use fake::Fake;

/// Refuses lines that hold "bad", knows those that hold "again" already, and takes the rest.
async fn server() -> Fake {
    Fake::start(|asked| {
        let items = asked.body.lines().enumerate().map(|(index, line)| {
            let result = if line.contains("bad") {
                Err(ApiError::invalid(
                    "weight",
                    "invalid_weight",
                    "is no weight",
                ))
            } else {
                Ok(Submitted {
                    job: JobName::parse("mail").unwrap(),
                    id: TaskId::from_bytes([7; 16]),
                    state: StateKind::Enqueued,
                    run_at: Timestamp::EPOCH,
                    existed: line.contains("again"),
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
async fn a_batch_goes_out_in_requests_of_a_thousand_without_noise() {
    let fake = server().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tasks.ndjson");
    let lines: Vec<String> = (0..2_500).map(|n| format!("{{\"payload\":{n}}}")).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let ended = fake
        .run(&["task", "submit", "mail", "--batch", file.to_str().unwrap()])
        .await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout, "2500 tasks of mail submitted\n");
    // The bar is for terminals only.
    assert_eq!(ended.stderr, "");
    let asked = fake.asked();
    let lens: Vec<_> = asked
        .iter()
        .map(|asked| asked.body.lines().count())
        .collect();
    assert_eq!(lens, [1_000, 1_000, 500]);
    let sent: Vec<&str> = asked.iter().flat_map(|asked| asked.body.lines()).collect();
    assert_eq!(sent, lines);
    assert!(
        asked
            .iter()
            .all(|asked| asked.uri.path() == "/v1/jobs/mail/tasks:batch")
    );
    assert!(
        asked
            .iter()
            .all(|asked| asked.headers["content-type"] == "application/x-ndjson")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_lines_are_told_by_their_number_in_the_file() {
    let fake = server().await;
    // Blank lines count but are not sent.
    let input = "{\"name\":\"a\"}\n\n{\"name\":\"bad\"}\n{\"name\":\"again\"}\n";
    let args = ["task", "submit", "mail", "--batch", "-"];
    let ended = fake.run_with(&args, input).await;
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    let wanted = "1 tasks of mail submitted, 1 existed already, 1 refused:\n  line 3: weight: is no weight\n";
    assert_eq!(ended.stdout, wanted);
    let ended = fake
        .run_with(&[&args[..], &["--json"]].concat(), input)
        .await;
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&told["submitted"], &told["existed"], &told["refused"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(
        (
            &told["errors"][0]["line"],
            &told["errors"][0]["error"]["reason"]
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
    assert!(fake.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_breaks_off_says_how_far_it_came() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let fake = Fake::start(move |asked| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 {
            return (503, String::new());
        }
        let submitted = Submitted {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([7; 16]),
            state: StateKind::New,
            run_at: Timestamp::EPOCH,
            existed: false,
        };
        let results = (0..asked.body.lines().count())
            .map(|index| BatchItem::new(index, Ok(submitted.clone())))
            .collect();
        (
            200,
            serde_json::to_string(&BatchResult { results }).unwrap(),
        )
    })
    .await;
    let args = ["task", "submit", "mail", "--batch", "-"];
    let ended = fake.run_with(&args, &"{}\n".repeat(1_500)).await;
    assert_eq!(ended.code, 5);
    assert!(
        ended.stderr.contains("hint: 1000 tasks are stored already"),
        "{}",
        ended.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_breaks_off_tells_programs_how_far_it_came() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let fake = Fake::start(move |asked| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 {
            return (503, String::new());
        }
        let results = asked.body.lines().enumerate().map(|(index, line)| {
            let submitted = Submitted {
                job: JobName::parse("mail").unwrap(),
                id: TaskId::from_bytes([7; 16]),
                state: StateKind::New,
                run_at: Timestamp::EPOCH,
                existed: line.contains("again"),
            };
            let refused = || ApiError::invalid("weight", "invalid_weight", "is no weight");
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
    let ended = fake.run_with(&args, &input).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""));
    let told: serde_json::Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(told["kind"], "unavailable", "{told}");
    assert_eq!(
        (
            &told["job"],
            &told["submitted"],
            &told["existed"],
            &told["refused"]
        ),
        (&"mail".into(), &998.into(), &1.into(), &1.into()),
        "{told}"
    );
    assert_eq!(told["errors"][0]["line"], 1, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_may_begin_with_a_byte_order_mark() {
    let fake = server().await;
    let args = ["task", "submit", "mail", "--batch", "-"];
    let input = "\u{feff}{\"name\":\"a\"}\n\u{feff}{\"name\":\"b\"}\n";
    let ended = fake.run_with(&args, input).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    // Only the first one is a mark; within the file it is a fault for the server to tell.
    let wanted = "{\"name\":\"a\"}\n\u{feff}{\"name\":\"b\"}\n";
    assert_eq!(fake.asked()[0].body, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_for_a_job_that_is_not_there_ends_at_once() {
    let fake = Fake::start(|asked| {
        let unknown = || ApiError::new(ErrorKind::NotFound, "unknown_job", "no job 'mail'");
        let items = asked.body.lines().enumerate();
        let results = items.map(|(index, _)| BatchItem::new(index, Err(unknown())));
        let answer = BatchResult {
            results: results.collect(),
        };
        (200, serde_json::to_string(&answer).unwrap())
    })
    .await;
    let input = "{}\n".repeat(2_500);
    let args = ["task", "submit", "mail", "--batch", "-"];
    let ended = fake.run_with(&args, &input).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (3, ""));
    assert!(ended.stderr.starts_with("error: no job 'mail'"));
    assert_eq!(fake.asked().len(), 1);
}
