//! A board: tasks that are claimed by their ids, through each door.

use std::time::Duration;

use dueline_api::{
    Action, ApiError, Assignment, Call, Callable, Report,
    operation::{
        ClaimTask, GetLease, LeaseEnd, PauseJob, PutJob, ReportTask, ReportedTask, Submit,
    },
};
use dueline_domain::{
    ClaimLifetime, Due, Job, Outcome, Quota, StateKind, TaskId, TaskOptions, Token, WorkerId,
    WriteId,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{TestNode, mail, new_task};

async fn submit(node: &TestNode) -> TaskId {
    let task = new_task(Due::Now, TaskOptions::default());
    let tasks = vec![task];
    let (frontend, call) = (node.frontend(), Call::default());
    let mut answer = frontend.call(&call, Submit { tasks }).await.unwrap();
    answer.remove(0).unwrap().id
}

fn claim(id: TaskId, owner: &str) -> ClaimTask {
    ClaimTask {
        job: mail(),
        id,
        owner: WorkerId::parse(owner).unwrap(),
        lifetime: ClaimLifetime::For(Duration::from_secs(60)),
        request: None,
    }
}

fn report(id: TaskId, owner: &str, token: Token, action: Action) -> ReportTask {
    ReportTask {
        owner: Some(WorkerId::parse(owner).unwrap()),
        report: Report {
            job: mail(),
            id,
            token,
            write: WriteId::from_random(u64::from(id.as_bytes()[0]) + 77),
            action,
            trace: None,
        },
    }
}

/// The four doors but the command line, which is REST.
#[derive(Clone, Copy, Debug)]
enum Door {
    Rest,
    Grpc,
    Embedded,
}

const DOORS: [Door; 3] = [Door::Rest, Door::Grpc, Door::Embedded];

/// What a program learns of a refusal.
type Refusal = (String, String, Option<String>, Option<String>);

fn refusal(error: &ApiError) -> Refusal {
    (
        error.kind().name().to_owned(),
        error.reason().to_string(),
        error.owner().map(ToString::to_string),
        error.state().map(|state| state.name().to_owned()),
    )
}

fn refusal_of(answer: &Value) -> Option<Refusal> {
    let text = |field: &str| answer[field].as_str().map(str::to_owned);
    Some((text("kind")?, text("reason")?, text("owner"), text("state")))
}

impl Door {
    async fn claim(self, node: &TestNode, claim: ClaimTask) -> Result<Token, Refusal> {
        let token = |assignment: Assignment| assignment.token;
        let call = Call::default();
        match self {
            Self::Rest => {
                let path = format!("jobs/mail/tasks/{}/claim", claim.id);
                let body = json!({
                    "owner": claim.owner.as_str(),
                    "lifetime_ms": 60_000,
                    "write_id": claim.request.map(|write| write.to_string()),
                });
                let answer = node.send(Method::POST, &path, Some(&body)).await;
                match refusal_of(&answer) {
                    Some(refusal) => Err(refusal),
                    None => Ok(answer["token"].as_str().unwrap().parse().unwrap()),
                }
            }
            Self::Grpc => match node.grpc().call(&call, claim).await {
                Ok(claimed) => Ok(token(claimed.assignment)),
                Err(error) => Err(refusal(&error)),
            },
            Self::Embedded => match node.frontend().call(&call, claim).await {
                Ok(claimed) => Ok(token(claimed.assignment)),
                Err(error) => Err(refusal(&error)),
            },
        }
    }

    /// The state after a report, and whether it took effect.
    async fn report(
        self,
        node: &TestNode,
        report: ReportTask,
    ) -> Result<(StateKind, bool), Refusal> {
        let call = Call::default();
        let ack_of = |answer: Result<ReportedTask, ApiError>| match answer {
            Ok(reported) => Ok((reported.ack.state, reported.done)),
            Err(error) => Err(refusal(&error)),
        };
        match self {
            Self::Rest => {
                let ReportTask { owner, report } = report;
                let (verb, with) = match &report.action {
                    Action::Start => ("start", json!({})),
                    Action::Heartbeat => ("heartbeat", json!({})),
                    Action::Extend { by } => ("extend", json!({"by_ms": by.as_millis() as u64})),
                    Action::Checkpoint { .. } => ("checkpoint", json!({"payload": 1})),
                    Action::Finish {
                        outcome: Outcome::Success { .. },
                        ..
                    } => ("complete", json!({})),
                    Action::Finish { .. } => ("fail", json!({"error": "bad"})),
                    Action::Abandon => ("abandon", json!({})),
                    Action::Trash { reason } => ("trash", json!({"reason": &**reason})),
                };
                let mut body = json!({
                    "token": report.token.to_string(),
                    "owner": owner.map(|owner| owner.to_string()),
                });
                body.as_object_mut()
                    .unwrap()
                    .extend(with.as_object().unwrap().clone());
                let path = format!("work/mail/{}/{verb}", report.id);
                let answer = node.send(Method::POST, &path, Some(&body)).await;
                match refusal_of(&answer) {
                    Some(refusal) => Err(refusal),
                    None => Ok((
                        answer["state"].as_str().unwrap().parse().unwrap(),
                        answer["done"].as_bool().unwrap(),
                    )),
                }
            }
            Self::Grpc => ack_of(node.grpc().call(&call, report).await),
            Self::Embedded => ack_of(node.frontend().call(&call, report).await),
        }
    }
}

fn success() -> Action {
    Action::Finish {
        started_at: None,
        outcome: Outcome::Success { result: None },
    }
}

fn trash() -> Action {
    let reason = "unreadable".into();
    Action::Trash { reason }
}

fn conflict(reason: &str, owner: Option<&str>, state: &str) -> Refusal {
    (
        "conflict".into(),
        reason.into(),
        owner.map(str::to_owned),
        Some(state.into()),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn f_092_f_074_f_076_the_refusals_of_a_board_differ_and_name_the_real_owner() {
    let node = TestNode::start().await;
    for door in DOORS {
        let id = submit(&node).await;
        let unknown = TaskId::from_bytes([9; 16]);
        let unknown = door.claim(&node, claim(unknown, "ann")).await.unwrap_err();
        assert_eq!((&*unknown.0, &*unknown.1), ("not-found", "unknown_task"));

        // It has no owner.
        let token = Token::from_random(5);
        for action in [success(), Action::Abandon, trash(), Action::Heartbeat] {
            let refused = door.report(&node, report(id, "ann", token, action)).await;
            let unowned = conflict("not_claimed", None, "enqueued");
            assert_eq!(refused, Err(unowned), "{door:?}");
        }

        // Ann owns it.
        let token = door.claim(&node, claim(id, "ann")).await.unwrap();
        for owner in ["bob", "ann"] {
            let refused = door.claim(&node, claim(id, owner)).await;
            let anns = conflict("already_claimed", Some("ann"), "claimed");
            assert_eq!(refused, Err(anns), "{door:?}");
        }
        // Bob shows a token of his own, and then even hers.
        for shown in [Token::from_random(5), token] {
            for action in [success(), Action::Abandon, trash(), Action::Heartbeat] {
                let refused = door.report(&node, report(id, "bob", shown, action)).await;
                let anns = conflict("not_owner", Some("ann"), "claimed");
                assert_eq!(refused, Err(anns), "{door:?}");
            }
        }
        // A token of an earlier claim of hers.
        let stale = report(id, "ann", Token::from_random(5), success());
        let refused = door.report(&node, stale).await;
        assert_eq!(refused, Err(conflict("lost", Some("ann"), "claimed")));

        // None of these has changed anything.
        let done = door
            .report(&node, report(id, "ann", token, success()))
            .await;
        assert_eq!(done, Ok((StateKind::Succeeded, true)), "{door:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_073_f_075_f_077_an_owner_consumes_abandons_and_trashes_and_what_has_ended_is_gone() {
    let node = TestNode::start().await;
    for door in DOORS {
        let id = submit(&node).await;
        let token = door.claim(&node, claim(id, "ann")).await.unwrap();
        let abandoned = report(id, "ann", token, Action::Abandon);
        let abandoned = door.report(&node, abandoned).await;
        assert_eq!(abandoned, Ok((StateKind::Enqueued, true)), "{door:?}");
        let token = door.claim(&node, claim(id, "bob")).await.unwrap();
        let consumed = door
            .report(&node, report(id, "bob", token, success()))
            .await;
        assert_eq!(consumed, Ok((StateKind::Succeeded, true)), "{door:?}");
        let gone = |state: &str| {
            let (kind, reason) = ("not-found".to_owned(), "finished".to_owned());
            Err::<(), Refusal>((kind, reason, None, Some(state.to_owned())))
        };
        let again = door.claim(&node, claim(id, "ann")).await.map(drop);
        assert_eq!(again, gone("succeeded"), "{door:?}");
        let mut second = report(id, "bob", token, success());
        second.report.write = WriteId::from_random(1);
        let second = door.report(&node, second).await.map(drop);
        assert_eq!(second, gone("succeeded"), "{door:?}");

        let id = submit(&node).await;
        let token = door.claim(&node, claim(id, "ann")).await.unwrap();
        let trashed = door.report(&node, report(id, "ann", token, trash())).await;
        assert_eq!(trashed, Ok((StateKind::Trashed, true)), "{door:?}");
        let path = "jobs/mail/tasks?state=trashed&limit=1";
        let listed = node.send(Method::GET, path, None).await;
        let task = &listed["tasks"][0];
        assert_eq!(task["id"], id.to_string(), "{door:?}: {listed}");
        assert_eq!(
            (&task["last_owner"], &task["error"]),
            (&json!("ann"), &json!("unreadable"))
        );
        assert!(task["finished_at"].is_string(), "{task}");
        let claimed = door.claim(&node, claim(id, "bob")).await.map(drop);
        assert_eq!(claimed, gone("trashed"), "{door:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_07_a_claim_of_a_chosen_task_needs_a_place_where_its_job_limits_how_many_run() {
    let node = TestNode::start().await;
    let limited = Job {
        quota: Quota {
            running_max: Some(1),
            ..Quota::default()
        },
        ..Job::new(mail())
    };
    let (frontend, call) = (node.frontend(), Call::default());
    frontend.call(&call, PutJob::from(limited)).await.unwrap();
    for door in DOORS {
        // The consumer enqueues the first one, which takes the only place.
        let first = submit(&node).await;
        let token = until_claimed(&node, door, first).await;
        let second = submit(&node).await;
        let refused = door.claim(&node, claim(second, "bob")).await;
        let full = conflict("running_limit", None, "new");
        assert_eq!(refused, Err(full), "{door:?}");
        let done = report(first, "ann", token, success());
        door.report(&node, done).await.unwrap();
        let token = until_claimed(&node, door, second).await;
        let done = report(second, "ann", token, success());
        door.report(&node, done).await.unwrap();
    }
}

/// Claims a task once the consumer has enqueued it, or its place is free.
async fn until_claimed(node: &TestNode, door: Door, id: TaskId) -> Token {
    for _ in 0..500 {
        match door.claim(node, claim(id, "ann")).await {
            Ok(token) => return token,
            Err(refused) => assert_eq!(refused.1, "running_limit"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{id} gets no place");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_17_a_repeated_claim_gets_the_same_token_and_a_new_one_is_refused() {
    let node = TestNode::start().await;
    for door in DOORS {
        let id = submit(&node).await;
        let named = |owner| ClaimTask {
            request: Some(WriteId::from_random(42)),
            ..claim(id, owner)
        };
        let first = door.claim(&node, named("ann")).await.unwrap();
        let again = door.claim(&node, named("ann")).await.unwrap();
        assert_eq!(first, again, "{door:?}");
        // Another owner that happens to choose the same name gets nothing of hers.
        let other = door.claim(&node, named("bob")).await.unwrap_err();
        assert_eq!(other.1, "already_claimed", "{door:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_054_a_16_a_claim_expires_in_a_time_never_or_is_none_and_is_only_extended_while_it_is() {
    let node = TestNode::start().await;
    let call = Call::default();
    for door in DOORS {
        let id = submit(&node).await;
        let lease = GetLease { job: mail(), id };
        let (frontend, grpc) = (node.frontend(), node.grpc());
        let path = format!("jobs/mail/tasks/{id}/lease");
        let ends = async || {
            let by_grpc = grpc.call(&call, lease.clone()).await.unwrap();
            let embedded = frontend.call(&call, lease.clone()).await.unwrap();
            let rest = node.send(Method::GET, &path, None).await;
            assert_eq!(by_grpc.ends.name(), embedded.ends.name());
            assert_eq!(rest["expires"], embedded.ends.name(), "{rest}");
            assert_eq!(rest["expires_in_ms"].is_u64(), rest["expires"] == "in");
            assert_eq!(
                rest["owner"].as_str(),
                embedded.owner.as_ref().map(|owner| owner.as_str())
            );
            embedded.ends
        };
        assert_eq!(ends().await, LeaseEnd::None);
        let token = door.claim(&node, claim(id, "ann")).await.unwrap();
        let LeaseEnd::In(left) = ends().await else {
            panic!("{door:?}");
        };
        assert!(
            left > Duration::from_secs(40) && left <= Duration::from_secs(60),
            "{left:?}"
        );
        let extend = |seconds| Action::Extend {
            by: Duration::from_secs(seconds),
        };
        let extended = door
            .report(&node, report(id, "ann", token, extend(500)))
            .await;
        assert_eq!(extended, Ok((StateKind::Claimed, true)), "{door:?}");
        assert!(matches!(ends().await, LeaseEnd::In(left) if left > Duration::from_secs(400)));
        let none = door
            .report(&node, report(id, "ann", token, extend(0)))
            .await;
        assert_eq!(none.unwrap_err().1, "invalid_duration", "{door:?}");
        let mut abandon = report(id, "ann", token, Action::Abandon);
        abandon.report.write = WriteId::from_random(3);
        door.report(&node, abandon).await.unwrap();
        let mut late = report(id, "ann", token, extend(5));
        late.report.write = WriteId::from_random(4);
        let extended = door.report(&node, late).await;
        assert_eq!(extended, Ok((StateKind::Enqueued, false)), "{door:?}");

        let forever = ClaimTask {
            lifetime: ClaimLifetime::Never,
            ..claim(id, "ann")
        };
        node.grpc().call(&call, forever).await.unwrap();
        assert_eq!(ends().await, LeaseEnd::Never);
        let shown = node
            .send(Method::GET, &format!("jobs/mail/tasks/{id}"), None)
            .await;
        assert_eq!(shown["never_expires"], true, "{shown}");
        assert_eq!(
            (&shown["expires_at"], &shown["trigger_at"]),
            (&Value::Null, &Value::Null)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_a_paused_job_is_not_claimed_until_its_job_is_resumed() {
    let node = TestNode::start().await;
    let id = submit(&node).await;
    let pause = |paused| PauseJob {
        name: mail(),
        paused,
    };
    let frontend = node.frontend();
    frontend.call(&Call::default(), pause(true)).await.unwrap();
    for door in DOORS {
        let refused = door.claim(&node, claim(id, "ann")).await.unwrap_err();
        assert_eq!(
            (&*refused.0, &*refused.1),
            ("conflict", "paused"),
            "{door:?}"
        );
    }
    frontend.call(&Call::default(), pause(false)).await.unwrap();
    Door::Rest.claim(&node, claim(id, "ann")).await.unwrap();
}
