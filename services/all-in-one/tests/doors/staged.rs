//! Submits from inside a run, through each door.

use dueline_api::{
    Assignment, Call, Callable as _,
    operation::{Submit, Submitted},
};
use dueline_domain::{
    Due, Family, FromRun, NewTask, StateKind, TaskAddress, TaskId, TaskOptions, Token,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    families::{claim, ended, id, path, run_next, show},
    node::{TestNode, mail, new_task},
};

/// A node, and the claim of its task 1.
async fn running() -> (TestNode, Assignment) {
    let node = TestNode::start().await;
    submit(&node, json!({"id": id(1).to_string()})).await;
    let work = claim(&*node.controller()).await;
    assert_eq!(work.id, id(1));
    (node, work)
}

async fn submit(node: &TestNode, task: Value) -> Value {
    node.send(Method::POST, "jobs/mail/tasks", Some(&task))
        .await
}

fn from_run(token: Token) -> Value {
    json!({"job": "mail", "id": id(1).to_string(), "token": token.to_string()})
}

/// A submit from inside the run of task 1.
fn staged(number: u8, token: Token) -> NewTask {
    let task = TaskAddress {
        job: mail(),
        id: id(1),
    };
    let family = Family {
        from_run: Some(FromRun {
            task,
            token,
            end: None,
        }),
        ..Family::default()
    };
    let options = TaskOptions {
        family: Some(Box::new(family)),
        ..TaskOptions::default()
    };
    NewTask {
        id: id(number),
        id_is_given: true,
        ..new_task(Due::Now, options)
    }
}

fn only(answer: Vec<Result<Submitted, dueline_api::ApiError>>) -> (StateKind, bool) {
    let submitted = answer.into_iter().next().unwrap().unwrap();
    (submitted.state, submitted.existed)
}

/// Stages the tasks 2, 3 and 4, each through another door.
async fn stage_three(node: &TestNode, token: Token) -> [(String, bool); 3] {
    let (call, text) = (Call::default(), |(state, existed): (StateKind, bool)| {
        (state.name().to_owned(), existed)
    });
    let body = json!({"id": id(2).to_string(), "from_run": from_run(token), "payload_text": token.to_string()});
    let rest = submit(node, body).await;
    let rest = (
        rest["state"]
            .as_str()
            .unwrap_or_else(|| panic!("{rest}"))
            .to_owned(),
        rest["existed"].as_bool().unwrap(),
    );
    let tasks = vec![staged(3, token)];
    let grpc = node.grpc().call(&call, Submit { tasks }).await.unwrap();
    let tasks = vec![staged(4, token)];
    let embedded = node.frontend().call(&call, Submit { tasks }).await.unwrap();
    [rest, text(only(grpc)), text(only(embedded))]
}

async fn finish(node: &TestNode, work: &Assignment, verb: &str) {
    let path = format!("work/mail/{}/{verb}", work.id);
    let mut body = json!({"token": work.token.to_string()});
    if verb == "fail" {
        body["error"] = "no luck".into();
        body["delay_ms"] = 1.into();
    }
    let answer = node.send(Method::POST, &path, Some(&body)).await;
    assert!(answer.get("reason").is_none(), "{answer}");
}

async fn state(node: &TestNode, id: TaskId) -> String {
    show(node, id).await["state"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_13_what_is_submitted_from_inside_a_run_lives_and_dies_with_that_run() {
    let (node, work) = running().await;
    let waiting = |existed| ["waiting"; 3].map(|state| (state.to_owned(), existed));
    assert_eq!(stage_three(&node, work.token).await, waiting(false));
    assert_eq!(stage_three(&node, work.token).await, waiting(true));
    // Those that are submitted from outside do not depend on the run.
    let outside = json!({"id": id(9).to_string(), "delay_ms": 600_000});
    assert_eq!(submit(&node, outside).await["state"], "new");
    let view = show(&node, id(3)).await;
    let expected = json!({"job": "mail", "id": id(1).to_string(), "end": null});
    assert_eq!(view["from_run"], expected);
    assert!(
        !view.to_string().contains(&work.token.to_string()),
        "{view}"
    );
    let explained = format!("{}/explain", path(id(3)));
    let explained = node.send(Method::GET, &explained, None).await;
    let why = format!("the task waits for the run of mail/{}", id(1));
    assert!(explained.to_string().contains(&why), "{explained}");
    let family = format!("{}/family", path(id(1)));
    let page = node.send(Method::GET, &family, None).await;
    let members = page["members"].as_array().unwrap();
    let relations: Vec<_> = members.iter().map(|one| &one["relation"]).collect();
    assert_eq!(relations[1..], [&json!("staged"); 3]);
    // Another submit of the same id from outside would be something else.
    let refused = submit(&node, json!({"id": id(2).to_string()})).await;
    assert_eq!(refused["reason"], "exists", "{refused}");

    finish(&node, &work, "fail").await;
    for number in [2, 3, 4] {
        let view = show(&node, id(number)).await;
        assert_eq!(view["state"], "cancelled", "at once: {view}");
        assert_eq!(view["from_run"]["end"], "discarded");
        let why = format!(
            "discarded: the run of mail/{} that submitted it did not succeed",
            id(1)
        );
        assert_eq!(view["error"], why);
    }
    assert_eq!(state(&node, id(9)).await, "new");
    // The old run may submit nothing any more.
    let body = json!({"from_run": from_run(work.token)});
    let refused = submit(&node, body).await;
    assert_eq!(
        (&refused["kind"], &refused["field"]),
        (&"conflict".into(), &"from_run".into())
    );

    // The next run submits two of them again, one with another payload.
    let work = claim(&*node.controller()).await;
    assert_eq!((work.id, work.attempt), (id(1), 1));
    let body = json!({"id": id(2).to_string(), "from_run": from_run(work.token), "payload_text": "second"});
    let again = submit(&node, body).await;
    assert_eq!(
        (&again["state"], &again["existed"]),
        (&"waiting".into(), &true.into()),
        "{again}"
    );
    let call = Call::default();
    let tasks = vec![staged(3, work.token)];
    let grpc = node.grpc().call(&call, Submit { tasks }).await.unwrap();
    assert_eq!(only(grpc), (StateKind::Waiting, true));
    finish(&node, &work, "complete").await;
    let mut ran = [run_next(&node, true).await, run_next(&node, true).await];
    ran.sort_unstable();
    assert_eq!(ran, [id(2), id(3)]);
    let view = ended(&node, id(2)).await;
    assert_eq!(view["payload_base64"], "c2Vjb25k", "{view}");
    assert_eq!(view["from_run"]["end"], "succeeded");
    assert_eq!(state(&node, id(4)).await, "cancelled");
    let first = show(&node, id(1)).await;
    assert!(first["owed"].is_null(), "{first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_13_a_14_a_discarded_child_does_not_count_and_a_batch_is_staged_whole() {
    let (node, work) = running().await;
    let parent = json!({"id": id(1).to_string()});
    let batch = |token: Token| {
        json!([
            {"id": id(2).to_string(), "parent": parent, "from_run": from_run(token)},
            {
                "id": id(4).to_string(),
                "after": [{"id": id(2).to_string()}],
                "trigger_on": "always",
                "from_run": from_run(token),
            },
        ])
    };
    let send = async |token| {
        let path = "jobs/mail/tasks:batch";
        let answer = node.send(Method::POST, path, Some(&batch(token))).await;
        let results = answer["results"].as_array().unwrap();
        let all = results.iter().all(|result| result["state"] == "waiting");
        all.then_some(()).ok_or(answer)
    };
    // One that has no id is another task with each run.
    let unnamed = async |token| {
        let answer = submit(
            &node,
            json!({"parent": parent, "from_run": from_run(token)}),
        )
        .await;
        assert_eq!(answer["state"], "waiting", "{answer}");
    };
    unnamed(work.token).await;
    send(work.token).await.unwrap();
    finish(&node, &work, "fail").await;
    assert_eq!(state(&node, id(2)).await, "cancelled");
    // Whether it waits for a discarded task or for its own run: it is discarded, too.
    assert_eq!(ended(&node, id(4)).await["state"], "cancelled");
    let work = claim(&*node.controller()).await;
    // It is refused for a moment, until all know of the first end.
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while let Err(answer) = send(work.token).await {
        assert!(tokio::time::Instant::now() < until, "{answer}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    unnamed(work.token).await;
    finish(&node, &work, "complete").await;
    let mut ran = Vec::new();
    for _ in 0..3 {
        ran.push(run_next(&node, true).await);
    }
    assert!(
        ran[..2].contains(&id(2)) && ran[1..].contains(&id(4)),
        "{ran:?}"
    );
    let first = loop {
        let first = show(&node, id(1)).await;
        if first["children"] == "closed" {
            break first;
        }
        assert!(tokio::time::Instant::now() < until, "{first}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(first["children_failed"], 0, "{first}");
}
