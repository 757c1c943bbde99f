//! Tasks of a job that are dropped, through each door.

use std::time::Duration;

use dueline_api::{
    Call, Callable,
    operation::{ClaimTask, DropTasks, DroppedTasks, GetTask, PauseJob, Submit},
};
use dueline_domain::{
    ClaimLifetime, Due, Family, NewTask, Predecessor, StateKind, Task, TaskAddress, TaskId,
    TaskOptions, WorkerId,
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

impl Door {
    async fn drop(self, node: &TestNode, tag: Option<&str>, cursor: Option<&str>) -> DroppedTasks {
        let operation = DropTasks {
            job: mail(),
            tag: tag.map(Into::into),
            reason: Some("no use".into()),
            cursor: cursor.map(Into::into),
        };
        let call = Call::by("ann");
        match self {
            Self::Rest => {
                let body = json!({"tag": tag, "reason": "no use", "cursor": cursor});
                let path = "jobs/mail/tasks:drop";
                let answer = node.send(Method::POST, path, Some(&body)).await;
                let number = |field: &str| answer[field].as_u64();
                DroppedTasks {
                    dropped: number("dropped").unwrap_or_else(|| panic!("{answer}")),
                    left: number("left").unwrap(),
                    next: answer["next"].as_str().map(Into::into),
                }
            }
            Self::Grpc => node.grpc().call(&call, operation).await.unwrap(),
            Self::Embedded => node.frontend().call(&call, operation).await.unwrap(),
        }
    }

    /// Drops page by page; returns how many tasks were dropped, in how many calls.
    async fn drop_all(self, node: &TestNode, tag: Option<&str>) -> (u64, usize) {
        let (mut dropped, mut calls, mut cursor) = (0, 0, None);
        loop {
            let done = self.drop(node, tag, cursor.as_deref()).await;
            assert_eq!(done.left, 0, "{self:?}");
            (dropped, calls, cursor) = (dropped + done.dropped, calls + 1, done.next);
            if cursor.is_none() {
                return (dropped, calls);
            }
        }
    }
}

async fn submit(node: &TestNode, tasks: Vec<NewTask>) -> Vec<TaskId> {
    let (frontend, call) = (node.frontend(), Call::default());
    let answers = frontend.call(&call, Submit { tasks }).await.unwrap();
    answers
        .into_iter()
        .map(|answer| answer.unwrap().id)
        .collect()
}

fn task(due_s: u64, tag: &str) -> NewTask {
    let options = TaskOptions {
        tags: vec![tag.into(), "every".into()],
        ..TaskOptions::default()
    };
    new_task(Due::After(Duration::from_secs(due_s)), options)
}

async fn get(node: &TestNode, id: TaskId) -> Task {
    let get = GetTask {
        job: mail(),
        id,
        wait: None,
    };
    let call = Call::default();
    node.frontend().call(&call, get).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn f_153_tasks_of_a_job_or_of_a_collection_are_dropped_visibly_through_each_door() {
    let node = TestNode::start().await;
    // What the node was started with.
    Door::Embedded.drop_all(&node, None).await;
    for door in DOORS {
        let now = || NewTask {
            due: Due::Now,
            ..task(0, "bulk")
        };
        let tasks = vec![task(600, "bulk"), now(), now(), task(600, "other")];
        let ids = submit(&node, tasks).await;
        let claim = ClaimTask {
            job: mail(),
            id: ids[2],
            owner: WorkerId::parse("ann").unwrap(),
            lifetime: ClaimLifetime::Never,
            request: None,
        };
        let (frontend, call) = (node.frontend(), Call::default());
        frontend.call(&call, claim).await.unwrap();
        let mut follower = task(600, "bulk");
        follower.options.as_mut().unwrap().family = Some(Box::new(Family {
            after: vec![Predecessor::open(TaskAddress {
                job: mail(),
                id: ids[2],
            })],
            ..Family::default()
        }));
        let follower = submit(&node, vec![follower]).await[0];

        // A collection: what a worker owns, what waits for it, and what has no such tag stays.
        assert_eq!(door.drop_all(&node, Some("bulk")).await.0, 2, "{door:?}");
        for id in &ids[..2] {
            let task = get(&node, *id).await;
            assert_eq!(task.kind(), StateKind::Dropped, "{door:?}");
            let why = task.error.as_deref().unwrap();
            assert!(why.starts_with("dropped"), "{why}");
            assert!(why.ends_with(": no use"), "{why}");
            assert!(task.finished_at.is_some());
        }
        assert_eq!(get(&node, ids[2]).await.kind(), StateKind::Claimed);
        assert_eq!(get(&node, ids[3]).await.kind(), StateKind::New);
        assert_eq!(get(&node, follower).await.kind(), StateKind::Waiting);

        // The whole job; a second time there is nothing left.
        assert_eq!(door.drop_all(&node, None).await.0, 1, "{door:?}");
        assert_eq!(get(&node, ids[3]).await.kind(), StateKind::Dropped);
        assert_eq!(door.drop_all(&node, None).await.0, 0, "{door:?}");
        let path = "jobs/mail/tasks?state=dropped&tag=other&limit=1";
        let listed = node.send(Method::GET, path, None).await;
        assert_eq!(listed["tasks"][0]["id"], ids[3].to_string(), "{listed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_153_a_call_drops_a_bounded_number_and_says_where_the_next_one_continues() {
    let node = TestNode::start().await;
    Door::Embedded.drop_all(&node, None).await;
    let call = Call::default();
    let pause = PauseJob {
        name: mail(),
        paused: true,
    };
    node.frontend().call(&call, pause).await.unwrap();
    let tasks = (0..2_300).map(|_| task(0, "many")).collect();
    let ids = submit(&node, tasks).await;
    let (dropped, calls) = Door::Rest.drop_all(&node, Some("many")).await;
    assert_eq!((dropped, calls), (2_300, 3), "a thousand at most for each");
    assert_eq!(get(&node, ids[0]).await.kind(), StateKind::Dropped);
    let who = Door::Grpc.drop(&node, None, None).await;
    assert_eq!(who, DroppedTasks::default());
}
