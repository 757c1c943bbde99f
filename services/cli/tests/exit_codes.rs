//! Exit codes, standard output and standard error, against a fake server.

mod fake;

use dueline_api::{
    ApiError, ErrorKind, ErrorReason,
    v1::{Problem, TaskView},
};
use dueline_domain::{
    JobName, NewTask, Policy, State, StateKind, Task, TaskId, Timestamp, Token, WriteId,
};
use fake::{FakeServer, run};

const ID: &str = "0197b0c4-0000-7000-8000-000000000001";

/// A problem document and its status.
fn problem(kind: ErrorKind, reason: ErrorReason) -> (u16, String) {
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
async fn f_148_exit_codes_distinguish_kinds_of_errors() {
    let fake = FakeServer::start(|request| {
        let name = request.uri.path().rsplit('/').next().unwrap();
        let kind = ErrorKind::from_name(name).unwrap();
        problem(kind, ErrorReason::InUse)
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
        let output = fake.run(&["job", "get", kind]).await;
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{kind}");
        let first = output.stderr.lines().next().unwrap();
        assert_eq!(first, format!("error: it is {kind}"));
        let output = fake.run(&["job", "get", kind, "--json"]).await;
        assert_eq!(output.code, code);
        let problem: Problem = serde_json::from_str(&output.stderr).unwrap();
        assert_eq!(
            (problem.kind.as_str(), problem.reason.as_str()),
            (kind, "in_use")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_148_every_command_sends_its_request() {
    let fake = FakeServer::start(|_| problem(ErrorKind::Conflict, ErrorReason::InUse)).await;
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
        // Words of other programs lead to the command.
        (
            &["task", "retry", &task],
            "POST /v1/jobs/mail/tasks/ID/redrive",
        ),
        (
            &["job", "put", "mail", "--handler", "noop"],
            "PUT /v1/jobs/mail",
        ),
        (
            &["task", "update", &task, "--weight", "2"],
            "PATCH /v1/jobs/mail/tasks/ID",
        ),
        (&["worker", "list"], "GET /v1/workers"),
    ] {
        let output = fake.run(args).await;
        assert_eq!(output.code, 4, "{args:?}: {}", output.stderr);
        let last = fake.requests().pop().unwrap();
        let path = last.uri.path().replace(ID, "ID");
        assert_eq!(format!("{} {path}", last.method), call);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_reported_with_a_hint() {
    // A free port at which no server listens.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = run(&server, &["job", "list"], "").await;
    assert_eq!(output.code, 5);
    assert!(
        output.stderr.contains("error: cannot reach"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("hint: is `dueline dev` running?"),
        "{}",
        output.stderr
    );
    let output = run(&server, &["health", "--json"], "").await;
    assert_eq!(output.code, 5);
    let problem: Problem = serde_json::from_str(&output.stderr).unwrap();
    assert_eq!(problem.reason, "unreachable");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_command_line_has_exit_code_two_and_sends_no_request() {
    let fake = FakeServer::start(|_| (200, "{}".into())).await;
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
        let output = fake.run(args).await;
        assert_eq!(output.code, 2, "{args:?}: {}", output.stderr);
        assert_eq!(output.stdout, "");
    }
    let output = fake.run(&["job", "get", "no such name", "--json"]).await;
    let problem: Problem = serde_json::from_str(&output.stderr).unwrap();
    assert_eq!((output.code, problem.kind.as_str()), (2, "invalid"));
    let output = fake.run(&["job", "get", "--json"]).await;
    let problem: Problem = serde_json::from_str(&output.stderr).unwrap();
    let expected = "the following required arguments were not provided: <JOB>";
    assert_eq!(problem.detail, expected);
    assert!(fake.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_18_the_exit_code_of_wait_distinguishes_success_from_other_final_states() {
    for (state, code) in [
        (State::Succeeded, 0),
        (State::Failed, 6),
        (State::Cancelled, 6),
        (State::Trashed, 6),
        (State::Dropped, 6),
    ] {
        let kind = state.kind();
        let answer = task(state);
        let fake = FakeServer::start(move |_| (200, answer.clone())).await;
        let output = fake.run(&["task", "wait", &format!("mail/{ID}")]).await;
        assert_eq!(output.code, code, "{kind}: {}", output.stderr);
        assert!(output.stdout.contains(kind.name()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_087_wait_ends_after_its_timeout() {
    let answer = task(State::New {
        due_at: Timestamp::MAX,
    });
    let fake = FakeServer::start(move |_| (200, answer.clone())).await;
    let output = fake
        .run(&["task", "wait", &format!("mail/{ID}"), "--timeout", "0.3"])
        .await;
    assert_eq!((output.code, output.stdout.as_str()), (5, ""));
    assert!(
        output.stderr.contains("is new after 300 ms"),
        "{}",
        output.stderr
    );
    // Each request is a long poll, and a server that responds early is not polled in a tight loop.
    let requests = fake.requests();
    let wait = requests[0]
        .uri
        .query()
        .unwrap()
        .strip_prefix("wait=")
        .unwrap();
    let wait_ms: u64 = wait.strip_suffix("ms").unwrap().parse().unwrap();
    assert!((200..=300).contains(&wait_ms), "{wait}");
    assert!(requests.len() <= 4, "{}", requests.len());
    let output = fake
        .run(&["task", "wait", &format!("mail/{ID}"), "--timeout", "0"])
        .await;
    assert_eq!(output.code, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn submit_can_wait_until_the_task_has_ended() {
    let answer = task(State::Failed);
    let fake = FakeServer::start(move |request| match request.method.as_str() {
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
    let output = fake.run(&["task", "submit", "mail"]).await;
    assert_eq!(output.code, 0);
    assert_eq!(
        output.stdout,
        format!("task mail/{ID} submitted (enqueued)\n")
    );
    let args = [
        "task", "submit", "mail", "--wait", "--json", "--caller", "ann",
    ];
    let output = fake.run(&args).await;
    assert_eq!(output.code, 6);
    // The only output is the task in its final state.
    let view: TaskView = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(view.id.to_string(), ID);
    assert_eq!(fake.requests()[1].headers["dueline-caller"], "ann");
    assert_eq!(fake.requests()[1].headers["dueline-timeout-ms"], "30000");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_the_servers_document_digit_for_digit_and_tables_are_safe_to_print() {
    let answer = task(State::Failed);
    let sent = answer.clone();
    let fake = FakeServer::start(move |request| match request.uri.query() {
        Some(_) => (200, format!("{{\"tasks\":[{sent}],\"next\":null}}")),
        None => (200, sent.clone()),
    })
    .await;
    let output = fake
        .run(&["--json", "task", "get", &format!("mail/{ID}")])
        .await;
    assert_eq!(
        (output.code, output.stdout.trim_end()),
        (0, answer.as_str())
    );
    let output = fake
        .run(&["task", "list", "mail", "--json", "--state", "failed"])
        .await;
    assert!(
        output.stdout.contains("12345678901234567890.50"),
        "{}",
        output.stdout
    );
    assert_eq!(
        fake.requests()[1].uri.query(),
        Some("limit=50&state=failed")
    );
    for args in [
        &["task", "get", &format!("mail/{ID}")][..],
        &["task", "list", "mail"],
    ] {
        let output = fake.run(args).await;
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(!output.stdout.contains('\u{1b}'), "{}", output.stdout);
        assert!(output.stdout.contains(ID) && output.stdout.contains("no route"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_cancel_has_a_hint_only_for_a_running_task() {
    for (state, hint) in [(StateKind::Processing, true), (StateKind::Succeeded, false)] {
        let fake = FakeServer::start(move |_| {
            let error = ApiError::new(ErrorKind::Conflict, ErrorReason::Refused, "cannot cancel");
            (
                409,
                serde_json::to_string(&Problem::from(&error.with_state(state))).unwrap(),
            )
        })
        .await;
        let output = fake.run(&["task", "cancel", &format!("mail/{ID}")]).await;
        assert_eq!(
            (output.code, output.stderr.contains("--running")),
            (4, hint),
            "{state}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_reports_the_readiness_of_the_server() {
    let ok = r#"{"status":"ok","durability":"full","version":"1.2.3"}"#;
    let fake = FakeServer::start(move |request| match request.uri.path() {
        "/healthz" => (200, ok.into()),
        _ => {
            let error = ApiError::unavailable("not ready: the store is full");
            (503, serde_json::to_string(&Problem::from(&error)).unwrap())
        }
    })
    .await;
    let output = fake.run(&["health"]).await;
    assert_eq!(output.code, 5);
    assert!(
        output.stdout.contains("not ready: the store is full"),
        "{}",
        output.stdout
    );
    let fake = FakeServer::start(move |_| (200, ok.into())).await;
    let output = fake.run(&["health"]).await;
    assert_eq!(output.code, 0);
    assert!(
        output
            .stdout
            .contains("is ready (version 1.2.3, durability full)"),
        "{}",
        output.stdout
    );
    let output = fake.run(&["health", "--json"]).await.stdout;
    let health: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        (&health["ready"], &health["version"]),
        (&true.into(), &"1.2.3".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn https_to_a_server_without_tls_has_a_hint() {
    let fake = FakeServer::start(|_| (200, "{}".into())).await;
    let server = fake.url().replace("http://", "https://");
    let output = run(&server, &["job", "list"], "").await;
    assert_eq!(output.code, 5);
    let hint = format!("try {}", fake.url());
    assert!(output.stderr.contains(&hint), "{}", output.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_price_list_is_named_and_is_not_an_internal_error() {
    let output = run(
        "http://127.0.0.1:9",
        &["cost", "--prices", "./no-such-prices.toml"],
        "",
    )
    .await;
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    let expected = "error: cannot read ./no-such-prices.toml: ";
    assert!(output.stderr.starts_with(expected), "{}", output.stderr);
    assert!(!output.stderr.contains("report it"), "{}", output.stderr);
}
