//! Unique tasks through each door.

use std::time::Duration;

use bytes::Bytes;
use dueline_api::{
    ApiError, Call, Callable,
    operation::{GetTask, Submit, Submitted},
};
use dueline_domain::{
    Due, HeldUntil, NewTask, OnConflict, StateKind, Task, TaskId, TaskOptions, Unique,
};
use reqwest::Method;
use serde_json::json;

use crate::node::{TestNode, mail, new_task};

/// The doors but the command line, which is REST.
#[derive(Clone, Copy, Debug)]
enum Door {
    Rest,
    Grpc,
    Embedded,
}

const DOORS: [Door; 3] = [Door::Rest, Door::Grpc, Door::Embedded];

/// What a caller learns of a submit: the task, whether it existed and was replaced; or reason, field and state.
type Answer = Result<(TaskId, bool, bool), (String, Option<String>, Option<String>, String)>;

fn learnt(answer: Result<Submitted, ApiError>) -> Answer {
    match answer {
        Ok(submitted) => Ok((submitted.id, submitted.existed, submitted.replaced)),
        Err(error) => Err((
            error.reason().to_string(),
            error.field().map(ToString::to_string),
            error.state().map(|state| state.name().to_owned()),
            error.message().to_owned(),
        )),
    }
}

impl Door {
    /// Submits a task that is due in `due_s` seconds.
    async fn submit(
        self,
        node: &TestNode,
        key: &str,
        payload: &str,
        due_s: u64,
        on_conflict: OnConflict,
    ) -> Answer {
        let unique = Unique {
            until: on_conflict.default_scope(),
            on_conflict,
            ..Unique::default()
        };
        let options = TaskOptions {
            key: Some(key.into()),
            unique: Some(Box::new(unique)),
            ..TaskOptions::default()
        };
        let task = NewTask {
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            ..new_task(Due::After(Duration::from_secs(due_s)), options)
        };
        let (call, submit) = (Call::default(), Submit { tasks: vec![task] });
        match self {
            Self::Rest => {
                let body = json!({
                    "key": key, "payload_text": payload, "delay_ms": due_s * 1_000,
                    // The scope is the one that belongs to what happens to conflicts.
                    "unique": {"on_conflict": on_conflict.name()},
                });
                let answer = node
                    .send(Method::POST, "jobs/mail/tasks", Some(&body))
                    .await;
                let text = |field: &str| answer[field].as_str().map(str::to_owned);
                match text("reason") {
                    Some(reason) => {
                        let message = text("message").or_else(|| text("detail"));
                        Err((reason, text("field"), text("state"), message.unwrap()))
                    }
                    None => Ok((
                        TaskId::parse(answer["id"].as_str().unwrap()).unwrap(),
                        answer["existed"].as_bool().unwrap(),
                        answer["replaced"].as_bool().unwrap(),
                    )),
                }
            }
            Self::Grpc => learnt(node.grpc().call(&call, submit).await.unwrap().remove(0)),
            Self::Embedded => {
                let frontend = node.frontend();
                learnt(frontend.call(&call, submit).await.unwrap().remove(0))
            }
        }
    }

    async fn get(self, node: &TestNode, id: TaskId) -> Task {
        let get = GetTask {
            job: mail(),
            id,
            wait: None,
        };
        let call = Call::default();
        match self {
            Self::Grpc => node.grpc().call(&call, get).await.unwrap(),
            Self::Rest | Self::Embedded => node.frontend().call(&call, get).await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_06_a_submit_returns_replaces_or_names_the_holder_of_its_key_through_each_door() {
    let node = TestNode::start().await;
    for door in DOORS {
        let key = format!("{door:?}");
        let submit =
            async |payload, due_s, policy| door.submit(&node, &key, payload, due_s, policy).await;
        let (id, existed, _) = submit("a", 600, OnConflict::Replace).await.unwrap();
        assert!(!existed, "{door:?}");
        let answer = submit("b", 900, OnConflict::Return).await;
        assert_eq!(answer, Ok((id, true, false)), "{door:?}");
        assert_eq!(door.get(&node, id).await.payload, "a");
        let (reason, field, state, message) = submit("c", 900, OnConflict::Reject)
            .await
            .expect_err("the key is held");
        assert_eq!(
            (&*reason, field.as_deref(), state.as_deref()),
            ("key_held", Some("key"), Some("new")),
            "{door:?}"
        );
        assert!(message.contains(&id.to_string()), "{message}");

        let before = door.get(&node, id).await;
        let answer = submit("d", 1_200, OnConflict::Replace).await;
        assert_eq!(answer, Ok((id, true, true)), "{door:?}");
        let task = door.get(&node, id).await;
        assert_eq!(task.payload, "d");
        assert!(task.run_at > before.run_at, "its time has moved");
        let unique = task.unique().unwrap();
        assert_eq!((unique.until, unique.replaced), (HeldUntil::Started, 1));
        let path = format!("jobs/mail/tasks/{id}");
        let shown = node.send(Method::GET, &path, None).await;
        let expected = json!({"until": "started", "on_conflict": "replace", "replaced": 1});
        assert_eq!(shown["unique"], expected);

        // Due at once: it is enqueued, claimed by its id, and no longer in the way.
        let answer = submit("e", 0, OnConflict::Replace).await;
        assert_eq!(answer, Ok((id, true, true)), "{door:?}");
        assert_eq!(door.get(&node, id).await.kind(), StateKind::Enqueued);
        let body = json!({"owner": "ann"});
        let path = format!("{path}/claim");
        let claimed = node.send(Method::POST, &path, Some(&body)).await;
        assert_eq!(claimed["payload_base64"], "ZQ==", "{claimed}");
        let (next, existed, replaced) = submit("f", 600, OnConflict::Replace).await.unwrap();
        assert_eq!((existed, replaced), (false, false), "{door:?}");
        assert_ne!(next, id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_06_names_that_do_not_exist_are_refused_with_their_field() {
    let node = TestNode::start().await;
    for (unique, field) in [
        (json!({"until": "later"}), "unique.until"),
        (json!({"on_conflict": "merge"}), "unique.on_conflict"),
    ] {
        let body = json!({"key": "k", "unique": unique});
        let answer = node
            .send(Method::POST, "jobs/mail/tasks", Some(&body))
            .await;
        assert_eq!(answer["reason"], "invalid_value", "{answer}");
        assert_eq!(answer["field"], field, "{answer}");
    }
    let raw = |until, on_conflict| dueline_api::grpc::proto::NewTask {
        job: "mail".into(),
        options: Some(dueline_api::grpc::proto::TaskOptions {
            key: Some("k".into()),
            unique: Some(dueline_api::grpc::proto::Unique {
                until,
                on_conflict,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    for (task, field) in [
        (raw(9, 0), "unique.until"),
        (raw(0, 9), "unique.on_conflict"),
    ] {
        let request = dueline_api::grpc::proto::SubmitRequest { tasks: vec![task] };
        let answer = node.grpc().raw().submit(request).await.unwrap();
        let text = format!("{answer:?}");
        assert!(text.contains(field), "{text}");
    }
}
