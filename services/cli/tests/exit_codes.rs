//! Exit codes and what goes to which stream, against a server that answers as told.

mod fake;

use dueline_api::{
    ApiError, ErrorKind,
    v1::{Problem, TaskView},
};
use dueline_domain::{
    JobName, NewTask, Policy, State, StateKind, Task, TaskId, Timestamp, Token, WriteId,
};
use fake::{Fake, run};

const ID: &str = "0197b0c4-0000-7000-8000-000000000001";

/// A problem document with its status.
fn problem(kind: ErrorKind, reason: &'static str) -> (u16, String) {
    let error = ApiError::new(kind, reason, format!("it is {}", kind.name()));
    let problem = Problem::from(&error);
    (problem.status, serde_json::to_string(&problem).unwrap())
}

fn task(state: State) -> String {
    let (job, id) = (JobName::parse("mail").unwrap(), TaskId::parse(ID).unwrap());
    let new = NewTask::now(id, job, "{\"n\":12345678901234567890.50}".into());
    let (token, write) = (Token::from_random(1), WriteId::from_random(1));
    let mut task: Task = new.into_task(
        &Policy::default(),
        Timestamp::clamped(1_000),
        token,
        write,
        true,
    );
    task.state = state;
    task.error = Some("\u{1b}[31mno route".into());
    serde_json::to_string(&TaskView::new(&task, &Policy::default()).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn f_148_exit_codes_tell_kinds_of_errors_apart() {
    let fake = Fake::start(|asked| {
        let name = asked.uri.path().rsplit('/').next().unwrap();
        let kind = ErrorKind::from_name(name).unwrap();
        problem(kind, "some_reason")
    })
    .await;
    for (kind, code) in [
        ("internal", 1),
        ("invalid", 2),
        ("too-large", 2),
        ("not-found", 3),
        ("conflict", 4),
        ("unavailable", 5),
        ("deadline", 5),
        ("rate-limited", 5),
        ("denied", 7),
    ] {
        let ended = fake.run(&["job", "get", kind]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{kind}");
        let first = ended.stderr.lines().next().unwrap();
        assert_eq!(first, format!("error: it is {kind}"));
        let ended = fake.run(&["job", "get", kind, "--json"]).await;
        assert_eq!(ended.code, code);
        let problem: Problem = serde_json::from_str(&ended.stderr).unwrap();
        assert_eq!(
            (problem.kind.as_str(), problem.reason.as_str()),
            (kind, "some_reason")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_148_every_verb_has_its_call() {
    let fake = Fake::start(|_| problem(ErrorKind::Conflict, "told_apart")).await;
    let task = format!("mail/{ID}");
    for (args, call) in [
        (
            &["job", "apply", "mail", "--command", "true"][..],
            "PUT /v1/jobs/mail",
        ),
        (&["job", "get", "mail"], "GET /v1/jobs/mail"),
        (&["job", "list"], "GET /v1/jobs"),
        (&["job", "delete", "mail"], "DELETE /v1/jobs/mail"),
        (&["job", "pause", "mail"], "POST /v1/jobs/mail/pause"),
        (&["job", "resume", "mail"], "POST /v1/jobs/mail/resume"),
        (&["job", "stats", "mail"], "GET /v1/jobs/mail/stats"),
        (&["task", "submit", "mail"], "POST /v1/jobs/mail/tasks"),
        (&["task", "get", &task], "GET /v1/jobs/mail/tasks/ID"),
        (&["task", "list", "mail"], "GET /v1/jobs/mail/tasks"),
        (&["task", "wait", &task], "GET /v1/jobs/mail/tasks/ID"),
        (
            &["task", "cancel", &task],
            "POST /v1/jobs/mail/tasks/ID/cancel",
        ),
        (
            &["task", "redrive", &task],
            "POST /v1/jobs/mail/tasks/ID/redrive",
        ),
        (
            &["task", "update", &task, "--weight", "2"],
            "PATCH /v1/jobs/mail/tasks/ID",
        ),
        (&["worker", "list"], "GET /v1/workers"),
    ] {
        let ended = fake.run(args).await;
        assert_eq!(ended.code, 4, "{args:?}: {}", ended.stderr);
        let last = fake.asked().pop().unwrap();
        let path = last.uri.path().replace(ID, "ID");
        assert_eq!(format!("{} {path}", last.method), call);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_told_with_a_hint() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ended = run(&server, &["job", "list"], "").await;
    assert_eq!(ended.code, 5);
    assert!(
        ended.stderr.contains("error: cannot reach"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("hint: is `dueline dev` running?"),
        "{}",
        ended.stderr
    );
    let ended = run(&server, &["health", "--json"], "").await;
    assert_eq!(ended.code, 5);
    let problem: Problem = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(problem.reason, "unreachable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_command_line_ends_with_two_before_anything_is_sent() {
    let fake = Fake::start(|_| (200, "{}".into())).await;
    for args in [
        &["job"][..],
        &["job", "get", "no such name"],
        &["task", "get", ID],
        &["task", "submit", "mail", "--payload", "not json"],
        &["task", "submit", "mail", "--payload", "@/no/such/file"],
        &["task", "update", &format!("mail/{ID}")],
        &["job", "apply", "/no/such/file.json"],
        &["job", "apply", "mail", "--info", "x"],
        &["task", "submit", "mail", "--in", "-5s"],
        &["task", "submit", "mail", "--retries", "-1"],
        &["--request-timeout", "0s", "job", "list"],
        &["--server", "nonsense", "job", "list"],
    ] {
        let ended = fake.run(args).await;
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
    let ended = fake.run(&["job", "get", "no such name", "--json"]).await;
    let problem: Problem = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!((ended.code, problem.kind.as_str()), (2, "invalid"));
    let ended = fake.run(&["job", "get", "--json"]).await;
    let problem: Problem = serde_json::from_str(&ended.stderr).unwrap();
    let wanted = "the following required arguments were not provided: <JOB>";
    assert_eq!(problem.detail, wanted);
    assert!(fake.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_18_wait_tells_success_from_other_ends_by_its_exit_code() {
    for (state, code) in [
        (State::Succeeded, 0),
        (State::Failed, 6),
        (State::Cancelled, 6),
        (State::Trashed, 6),
        (State::Dropped, 6),
    ] {
        let kind = state.kind();
        let answer = task(state);
        let fake = Fake::start(move |_| (200, answer.clone())).await;
        let ended = fake.run(&["task", "wait", &format!("mail/{ID}")]).await;
        assert_eq!(ended.code, code, "{kind}: {}", ended.stderr);
        assert!(ended.stdout.contains(kind.name()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_087_wait_gives_up_after_its_timeout() {
    let answer = task(State::New {
        due_at: Timestamp::MAX,
    });
    let fake = Fake::start(move |_| (200, answer.clone())).await;
    let ended = fake
        .run(&["task", "wait", &format!("mail/{ID}"), "--timeout", "0.3"])
        .await;
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""));
    assert!(
        ended.stderr.contains("is new after 300 ms"),
        "{}",
        ended.stderr
    );
    // The server is asked to hold the answer, and not in a tight loop when it does not.
    let asked = fake.asked();
    let wait = asked[0].uri.query().unwrap().strip_prefix("wait=").unwrap();
    let wait_ms: u64 = wait.strip_suffix("ms").unwrap().parse().unwrap();
    assert!((200..=300).contains(&wait_ms), "{wait}");
    assert!(asked.len() <= 4, "{}", asked.len());
    let ended = fake
        .run(&["task", "wait", &format!("mail/{ID}"), "--timeout", "0"])
        .await;
    assert_eq!(ended.code, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn submit_can_wait_for_the_end() {
    let answer = task(State::Failed);
    let fake = Fake::start(move |asked| match asked.method.as_str() {
        "POST" => {
            let state = "\"state\":\"enqueued\",\"existed\":false";
            let at = "\"run_at\":\"1970-01-01T00:00:00.000Z\"";
            (
                201,
                format!("{{\"job\":\"mail\",\"id\":\"{ID}\",{state},{at}}}"),
            )
        }
        _ => (200, answer.clone()),
    })
    .await;
    let ended = fake.run(&["task", "submit", "mail"]).await;
    assert_eq!(ended.code, 0);
    assert_eq!(
        ended.stdout,
        format!("task mail/{ID} submitted (enqueued)\n")
    );
    let args = [
        "task", "submit", "mail", "--wait", "--json", "--caller", "ann",
    ];
    let ended = fake.run(&args).await;
    assert_eq!(ended.code, 6);
    // One answer: the task as it ended.
    let view: TaskView = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(view.id.to_string(), ID);
    assert_eq!(fake.asked()[1].headers["dueline-caller"], "ann");
    assert_eq!(fake.asked()[1].headers["dueline-timeout-ms"], "30000");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_the_servers_document_digit_for_digit_and_tables_are_safe_to_look_at() {
    let answer = task(State::Failed);
    let sent = answer.clone();
    let fake = Fake::start(move |asked| match asked.uri.query() {
        Some(_) => (200, format!("{{\"tasks\":[{sent}],\"next\":null}}")),
        None => (200, sent.clone()),
    })
    .await;
    let ended = fake
        .run(&["--json", "task", "get", &format!("mail/{ID}")])
        .await;
    assert_eq!((ended.code, ended.stdout.trim_end()), (0, answer.as_str()));
    let ended = fake
        .run(&["task", "list", "mail", "--json", "--state", "failed"])
        .await;
    assert!(
        ended.stdout.contains("12345678901234567890.50"),
        "{}",
        ended.stdout
    );
    assert_eq!(fake.asked()[1].uri.query(), Some("limit=50&state=failed"));
    for args in [
        &["task", "get", &format!("mail/{ID}")][..],
        &["task", "list", "mail"],
    ] {
        let ended = fake.run(args).await;
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(!ended.stdout.contains('\u{1b}'), "{}", ended.stdout);
        assert!(ended.stdout.contains(ID) && ended.stdout.contains("no route"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_cancel_has_a_hint_only_where_one_helps() {
    for (state, hint) in [(StateKind::Processing, true), (StateKind::Succeeded, false)] {
        let fake = Fake::start(move |_| {
            let error = ApiError::new(ErrorKind::Conflict, "refused", "cannot cancel");
            (
                409,
                serde_json::to_string(&Problem::from(&error.with_state(state))).unwrap(),
            )
        })
        .await;
        let ended = fake.run(&["task", "cancel", &format!("mail/{ID}")]).await;
        assert_eq!(
            (ended.code, ended.stderr.contains("--running")),
            (4, hint),
            "{state}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_follows_what_the_server_says() {
    let well = r#"{"status":"ok","durability":"full","version":"1.2.3"}"#;
    let fake = Fake::start(move |asked| match asked.uri.path() {
        "/healthz" => (200, well.into()),
        _ => {
            let error = ApiError::unavailable("not ready: the store is full");
            (503, serde_json::to_string(&Problem::from(&error)).unwrap())
        }
    })
    .await;
    let ended = fake.run(&["health"]).await;
    assert_eq!(ended.code, 5);
    assert!(
        ended.stdout.contains("not ready: the store is full"),
        "{}",
        ended.stdout
    );
    let fake = Fake::start(move |_| (200, well.into())).await;
    let ended = fake.run(&["health"]).await;
    assert_eq!(ended.code, 0);
    assert!(
        ended
            .stdout
            .contains("is ready (version 1.2.3, durability full)"),
        "{}",
        ended.stdout
    );
    let told = fake.run(&["health", "--json"]).await.stdout;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["ready"], &told["version"]),
        (&true.into(), &"1.2.3".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn https_to_a_server_without_tls_has_a_hint_of_its_own() {
    let fake = Fake::start(|_| (200, "{}".into())).await;
    let server = fake.url().replace("http://", "https://");
    let ended = run(&server, &["job", "list"], "").await;
    assert_eq!(ended.code, 5);
    let hint = format!("try {}", fake.url());
    assert!(ended.stderr.contains(&hint), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_list_that_cannot_be_read_is_named_and_not_taken_for_a_fault_of_the_program() {
    let ended = run(
        "http://127.0.0.1:9",
        &["cost", "--prices", "./no-such-prices.toml"],
        "",
    )
    .await;
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
    let wanted = "error: cannot read ./no-such-prices.toml: ";
    assert!(ended.stderr.starts_with(wanted), "{}", ended.stderr);
    assert!(!ended.stderr.contains("report it"), "{}", ended.stderr);
}
