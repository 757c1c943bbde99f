//! Tasks that wait for others, through each door.

use std::time::Duration;

use dueline_api::{
    ApiError, Assignment, Call, Callable as _, Controller, PollRequest,
    operation::{FamilyPage, Submit, Submitted},
};
use dueline_domain::{
    Due, Family, NewTask, Predecessor, StateKind, TaskAddress, TaskEnd, TaskId, TaskOptions,
    TriggerOn,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{TASK, TestNode, mail, new_task};

pub(crate) fn id(number: u8) -> TaskId {
    TaskId::from_bytes([number; 16])
}

fn address(id: TaskId) -> TaskAddress {
    TaskAddress { job: mail(), id }
}

/// A task with this id that waits for these.
fn task_after(number: u8, after: &[TaskId], trigger_on: TriggerOn) -> NewTask {
    let after = after.iter().map(|id| Predecessor::open(address(*id)));
    let options = TaskOptions {
        family: Some(Box::new(Family {
            after: after.collect(),
            trigger_on,
            ..Family::default()
        })),
        ..TaskOptions::default()
    };
    NewTask {
        id: id(number),
        id_is_given: true,
        ..new_task(Due::Now, options)
    }
}

async fn submit(node: &TestNode, tasks: Vec<NewTask>) -> Vec<Result<Submitted, ApiError>> {
    let call = Call::default();
    node.frontend().call(&call, Submit { tasks }).await.unwrap()
}

pub(crate) fn path(id: TaskId) -> String {
    format!("jobs/mail/tasks/{id}")
}

pub(crate) async fn show(node: &TestNode, id: TaskId) -> Value {
    node.send(Method::GET, &path(id), None).await
}

/// Waits for the end of a task.
pub(crate) async fn ended(node: &TestNode, id: TaskId) -> Value {
    let path = format!("{}?wait=20s", path(id));
    node.send(Method::GET, &path, None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn f_095_a_12_followers_of_each_door_wait_and_end_with_a_reason_when_their_predecessor_does()
{
    let node = TestNode::start().await;
    let first = TaskId::parse(TASK).unwrap();
    let body = json!({"id": id(1).to_string(), "after": [{"id": TASK}]});
    let rest = node
        .send(Method::POST, "jobs/mail/tasks", Some(&body))
        .await;
    assert_eq!(rest["state"], "waiting", "{rest}");
    let grpc = task_after(2, &[first], TriggerOn::Success);
    let call = Call::default();
    let grpc = node.grpc().call(&call, Submit { tasks: vec![grpc] }).await;
    assert_eq!(grpc.unwrap().remove(0).unwrap().state, StateKind::Waiting);
    let embedded = submit(
        &node,
        vec![task_after(3, &[first, id(1)], TriggerOn::Success)],
    )
    .await;
    assert_eq!(embedded[0].as_ref().unwrap().state, StateKind::Waiting);
    let view = show(&node, id(3)).await;
    assert_eq!(
        view["after"][1],
        json!({"job": "mail", "id": id(1).to_string(), "end": null})
    );
    assert_eq!(view["trigger_on"], "success");
    assert_eq!(node.stored().await.1, 4);

    let cancel = format!("{}/cancel", path(first));
    node.send(Method::POST, &cancel, Some(&json!({}))).await;
    for number in [1, 2, 3] {
        let view = ended(&node, id(number)).await;
        assert_eq!(view["state"], "cancelled", "{number}: {view}");
        let why = format!("predecessor mail/{first} was cancelled");
        let because = format!("predecessor mail/{} was cancelled", id(1));
        let error = view["error"].as_str().unwrap();
        assert!(error == why || (number == 3 && error == because), "{error}");
    }
    // From now on such a follower is refused, with the state that stands against it.
    let body = json!({"after": [{"id": TASK}]});
    let refused = node
        .send(Method::POST, "jobs/mail/tasks", Some(&body))
        .await;
    assert_eq!(
        (&refused["kind"], &refused["reason"], &refused["state"]),
        (
            &"conflict".into(),
            &"predecessor_ended".into(),
            &"cancelled".into()
        )
    );
    assert!(
        refused["detail"].as_str().unwrap().contains(TASK),
        "{refused}"
    );
    // One that is content with such an end goes straight on.
    let body = json!({"after": [{"id": TASK}], "trigger_on": "failure", "delay_ms": 600_000});
    let on = node
        .send(Method::POST, "jobs/mail/tasks", Some(&body))
        .await;
    assert_eq!(on["state"], "new", "{on}");
    // A repetition of an earlier submit is not refused.
    let again = submit(&node, vec![task_after(2, &[first], TriggerOn::Success)]).await;
    let again = again[0].as_ref().unwrap();
    assert_eq!((again.state, again.existed), (StateKind::Cancelled, true));
    assert_eq!(node.stored().await.1, 5);
}

/// Claims the next task of `mail`.
pub(crate) async fn claim(controller: &dyn Controller) -> Assignment {
    let poll = PollRequest {
        worker: "w@1".parse().unwrap(),
        jobs: vec![mail()],
        handlers: Vec::new(),
        tasks_max: 1,
        weight_max: 1,
        task_weight_max: 1,
        wait: Duration::from_secs(20),
        start: true,
    };
    controller.poll(poll).await.unwrap().remove(0)
}

/// Claims the next task of `mail`, and reports that it has succeeded or failed.
pub(crate) async fn run_next(node: &TestNode, succeeds: bool) -> TaskId {
    let work = claim(&*node.controller()).await;
    let verb = if succeeds { "complete" } else { "fail" };
    let path = format!("work/mail/{}/{verb}", work.id);
    let mut body = json!({"token": work.token.to_string()});
    if !succeeds {
        body["error"] = "no".into();
        body["fatal"] = true.into();
    }
    let answer = node.send(Method::POST, &path, Some(&body)).await;
    assert!(answer.get("reason").is_none(), "{answer}");
    work.id
}

#[tokio::test(flavor = "multi_thread")]
async fn f_095_f_098_a_batch_may_refer_to_its_own_tasks_in_any_order() {
    let node = TestNode::start().await;
    let line = |number: u8, after: &[u8]| {
        let after: Vec<_> = after
            .iter()
            .map(|n| json!({"id": id(*n).to_string()}))
            .collect();
        json!({"id": id(number).to_string(), "after": after})
    };
    let unknown = id(99).to_string();
    let batch = json!([
        line(3, &[1, 2]),
        line(2, &[1]),
        {"id": id(1).to_string()},
        line(4, &[5]),
        line(5, &[4]),
        {"id": id(6).to_string(), "after": [{"id": unknown}]},
        line(7, &[6, 1]),
        {"id": id(8).to_string(), "weight": 0},
    ]);
    let answer = node
        .send(Method::POST, "jobs/mail/tasks:batch", Some(&batch))
        .await;
    let results = answer["results"].as_array().unwrap();
    let text = |result: &Value| {
        let state = result["state"].as_str();
        let reason = result["error"]["reason"].as_str();
        state.or(reason).unwrap_or_default().to_owned()
    };
    let texts: Vec<_> = results.iter().map(text).collect();
    let expected = [
        "waiting",
        "waiting",
        "enqueued",
        "cycle",
        "cycle",
        "unknown_predecessor",
        "predecessor_refused",
        "invalid_weight",
    ];
    assert_eq!(texts, expected, "{answer}");
    assert_eq!(node.stored().await.1, 4, "nothing is half-added");
    for number in [1, 2, 3] {
        assert_eq!(run_next(&node, true).await, id(number));
    }
    let view = ended(&node, id(3)).await;
    assert_eq!(view["state"], "succeeded");
    assert_eq!(view["after"][0]["end"], TaskEnd::Succeeded.name());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_12_rules_decide_what_the_end_of_a_run_means() {
    let node = TestNode::start().await;
    let (first, ok) = (task_after(1, &[], TriggerOn::Success), &[id(1)]);
    let tasks = vec![
        task_after(2, ok, TriggerOn::Success),
        task_after(3, ok, TriggerOn::Failure),
        task_after(4, ok, TriggerOn::Always),
        first,
    ];
    let answers = submit(&node, tasks).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(run_next(&node, false).await, id(1));
    assert_eq!(ended(&node, id(2)).await["state"], "cancelled");
    let mut ran = vec![run_next(&node, true).await, run_next(&node, true).await];
    ran.sort_unstable();
    assert_eq!(ran, [id(3), id(4)]);
    assert_eq!(ended(&node, id(1)).await["state"], "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_093_f_094_a_family_is_shown_through_each_door_until_it_is_closed() {
    let node = TestNode::start().await;
    let child = |number: u8, parent: u8| {
        let parent = json!({"id": id(parent).to_string()});
        json!({"id": id(number).to_string(), "parent": parent})
    };
    // The children may come before their parent.
    let batch = json!([
        child(2, 1),
        child(3, 2),
        {"id": id(1).to_string()},
        {"id": id(4).to_string(), "after": [{"id": id(1).to_string()}]},
    ]);
    let answer = node
        .send(Method::POST, "jobs/mail/tasks:batch", Some(&batch))
        .await;
    let states = answer["results"].as_array().unwrap().iter();
    let states: Vec<_> = states
        .map(|result| result["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        ["waiting", "waiting", "enqueued", "waiting"],
        "{answer}"
    );
    assert_eq!(run_next(&node, true).await, id(1));
    assert_eq!(run_next(&node, true).await, id(2));
    let parent = show(&node, id(1)).await;
    assert_eq!(
        (&parent["state"], &parent["children"]),
        (&"succeeded".into(), &"open".into())
    );
    assert_eq!(parent["open_children"], 1);
    let get = dueline_api::operation::GetTask {
        job: mail(),
        id: id(1),
        wait: None,
    };
    let call = Call::default();
    let by_grpc = node.grpc().call(&call, get.clone()).await.unwrap();
    let embedded = node.frontend().call(&call, get).await.unwrap();
    assert_eq!(by_grpc.family().unwrap().open_children, Some(1));
    assert_eq!(by_grpc, embedded);
    assert_eq!(show(&node, id(4)).await["state"], "waiting");
    assert_eq!(run_next(&node, false).await, id(3));
    // The follower of the family is the next task.
    assert_eq!(run_next(&node, true).await, id(4));
    let parent = show(&node, id(1)).await;
    assert_eq!(
        (&parent["children"], &parent["open_children"]),
        (&"closed".into(), &0.into())
    );
    assert_eq!(parent["children_failed"], 0, "only children count");
    assert_eq!(show(&node, id(2)).await["children_failed"], 1);
    assert_eq!(show(&node, id(3)).await["parent"]["end"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_11_a_child_of_an_unknown_ended_or_too_deep_parent_is_refused() {
    let node = TestNode::start().await;
    let submit = async |body: Value| {
        node.send(Method::POST, "jobs/mail/tasks", Some(&body))
            .await
    };
    let refused = async |body: Value| {
        let answer = submit(body).await;
        let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
        (text("kind"), text("reason"), text("field"))
    };
    let expected = |kind: &str, reason: &str, field: &str| {
        (kind.to_owned(), reason.to_owned(), field.to_owned())
    };
    let parent = |id: &str| json!({"parent": {"id": id}});
    let unknown = refused(parent(&id(9).to_string())).await;
    assert_eq!(unknown, expected("not-found", "unknown_parent", "parent"));
    let own = json!({"id": id(9).to_string(), "parent": {"id": id(9).to_string()}});
    assert_eq!(refused(own).await, expected("invalid", "cycle", "parent"));
    let both = json!({"parent": {"id": TASK}, "after": [{"id": TASK}]});
    assert_eq!(refused(both).await, expected("invalid", "cycle", "parent"));
    // A follower of the parent waits for all of its children.
    let follower = json!({"id": id(8).to_string(), "after": [{"id": TASK}]});
    assert_eq!(submit(follower).await["state"], "waiting");
    let looped = json!({"parent": {"id": TASK}, "after": [{"id": id(8).to_string()}]});
    assert_eq!(
        refused(looped).await,
        expected("invalid", "cycle", "parent")
    );
    // The family of another task may wait for the parent, too: one of its children follows the parent's.
    let other = json!({"id": id(50).to_string(), "delay_ms": 600_000});
    assert_eq!(submit(other).await["state"], "new");
    let child_of_other = json!({
        "id": id(51).to_string(), "parent": {"id": id(50).to_string()}, "after": [{"id": TASK}],
    });
    assert_eq!(submit(child_of_other).await["state"], "waiting");
    let looped = json!({"parent": {"id": TASK}, "after": [{"id": id(50).to_string()}]});
    assert_eq!(
        refused(looped).await,
        expected("invalid", "cycle", "parent")
    );
    // A hundred parents are above the last of these, and no more are allowed.
    let mut chain = vec![json!({"id": id(100).to_string(), "delay_ms": 600_000})];
    for number in 101..=200_u8 {
        let parent = json!({"id": id(number - 1).to_string()});
        chain.push(json!({"id": id(number).to_string(), "parent": parent}));
    }
    let answer = node
        .send(Method::POST, "jobs/mail/tasks:batch", Some(&json!(chain)))
        .await;
    for result in answer["results"].as_array().unwrap() {
        assert!(result["error"].is_null(), "{result}");
    }
    let deep = refused(parent(&id(200).to_string())).await;
    assert_eq!(deep, expected("invalid", "too_deep", "parent"));

    let cancel = format!("{}/cancel", path(id(100)));
    node.send(Method::POST, &cancel, Some(&json!({}))).await;
    let conflict = refused(parent(&id(100).to_string())).await;
    assert_eq!(conflict, expected("conflict", "parent_ended", "parent"));
    // The whole chain ends with its first task, each with a reason.
    let last = ended(&node, id(200)).await;
    assert_eq!(last["state"], "cancelled");
    let why = format!("parent mail/{} was cancelled", id(199));
    assert_eq!(last["error"], why);
}

#[tokio::test(flavor = "multi_thread")]
async fn f_156_a_family_is_shown_and_cancelled_as_one_thing_through_each_door() {
    let node = TestNode::start().await;
    let id_of = |number: u8| json!({"id": id(number).to_string()});
    let batch = json!([
        id_of(1),
        {"id": id(2).to_string(), "parent": id_of(1)},
        {"id": id(3).to_string(), "parent": id_of(2)},
        {"id": id(4).to_string(), "after": [id_of(1)], "name": "last"},
        {"id": id(5).to_string(), "after": [id_of(4), id_of(3)]},
    ]);
    node.send(Method::POST, "jobs/mail/tasks:batch", Some(&batch))
        .await;
    assert_eq!(run_next(&node, true).await, id(1));
    // The worker that owns the second is asked to stop.
    let work = claim(&*node.controller()).await;
    assert_eq!(work.id, id(2));
    let family = format!("{}/family", path(id(1)));
    let page = node.send(Method::GET, &family, None).await;
    let lines = |page: &Value| {
        let members = page["members"]
            .as_array()
            .unwrap_or_else(|| panic!("{page}"));
        let line = |member: &Value| {
            let text = |field: &str| member[field].as_str().unwrap_or("-").to_owned();
            let number = (1..=5).find(|number| text("id") == id(*number).to_string());
            (
                number,
                member["level"].as_u64(),
                text("relation"),
                text("state"),
            )
        };
        members.iter().map(line).collect::<Vec<_>>()
    };
    let line = |number, level, relation: &str, state: &str| {
        (
            Some(number),
            Some(level),
            relation.to_owned(),
            state.to_owned(),
        )
    };
    let expected = [
        line(1, 0, "-", "succeeded"),
        line(2, 1, "child", "processing"),
        line(3, 2, "child", "waiting"),
        line(5, 3, "follower", "waiting"),
        line(4, 1, "follower", "waiting"),
    ];
    assert_eq!(
        lines(&page),
        expected,
        "one that waits for several is shown once"
    );
    assert_eq!(
        page["by_state"],
        json!({"processing": 1, "succeeded": 1, "waiting": 3})
    );
    let with_path = format!("{family}?limit=1&critical_path=true");
    let shown = node.send(Method::GET, &with_path, None).await;
    let steps = shown["critical_path"].as_array().unwrap();
    let steps: Vec<_> = steps
        .iter()
        .map(|step| step["id"].as_str().unwrap())
        .collect();
    let expected_path = [1, 2, 3, 4, 5].map(|number| id(number).to_string());
    assert_eq!(steps, expected_path, "{shown}");
    let first = &shown["critical_path"][0];
    assert_eq!(first["state"], "succeeded");
    assert!(
        first["finished_at"].is_string() && first["expected_at"].is_null(),
        "{first}"
    );
    assert_eq!(shown["members"].as_array().unwrap().len(), 1);
    assert_eq!(page["critical_path"], Value::Null, "not asked for");
    let mut paged = Vec::new();
    let mut query = format!("{family}?limit=2");
    loop {
        let page = node.send(Method::GET, &query, None).await;
        paged.extend(lines(&page));
        match page["next"].as_str() {
            Some(next) => query = format!("{family}?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, expected);
    let get = dueline_api::operation::GetFamily {
        job: mail(),
        id: id(1),
        cursor: None,
        limit: 100,
        critical_path: true,
    };
    let call = Call::default();
    let by_grpc = node.grpc().call(&call, get.clone()).await.unwrap();
    let embedded = node.frontend().call(&call, get.clone()).await.unwrap();
    // The path of a family that goes on is expected to end later and later.
    let tasks = |page: &FamilyPage| {
        let path = page.critical_path.iter();
        path.map(|step| step.task.clone()).collect::<Vec<_>>()
    };
    assert_eq!(by_grpc.members, embedded.members);
    assert_eq!(tasks(&by_grpc), tasks(&embedded));
    assert_eq!(by_grpc.critical_path.len(), 5);
    assert_eq!(embedded.members[4].name.as_deref(), Some("last"));
    let unknown = dueline_api::operation::GetFamily { id: id(9), ..get };
    let unknown = node.grpc().call(&call, unknown).await.unwrap_err();
    assert_eq!(unknown.reason().name(), "unknown_task");

    let cancel = format!("{}/cancel", path(id(1)));
    let body = json!({"family": true, "reason": "not needed"});
    let root = node.send(Method::POST, &cancel, Some(&body)).await;
    assert_eq!(
        root["state"], "succeeded",
        "what has ended stays as it is: {root}"
    );
    for number in [3, 4, 5] {
        let view = show(&node, id(number)).await;
        let shown = (&view["state"], &view["error"]);
        assert_eq!(shown, (&"cancelled".into(), &"not needed".into()));
    }
    let running = show(&node, id(2)).await;
    assert_eq!(running["cancel_requested"], true);
    let stopped = json!({"token": work.token.to_string(), "cancelled": true});
    let fail = format!("work/mail/{}/fail", id(2));
    node.send(Method::POST, &fail, Some(&stopped)).await;
    let closed = async || {
        for _ in 0..100 {
            let root = show(&node, id(1)).await;
            if root["children"] == "closed" {
                return root["children_failed"].clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Value::Null
    };
    assert_eq!(closed().await, 1);
}
