//! Why a task is not running, through each door.

use std::{collections::BTreeSet, time::Duration};

use dueline_api::{
    Call, Callable as _,
    operation::{Cause, ExplainTask, Explanation},
    v1::ExplanationView,
};
use dueline_domain::TaskId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{TASK, TestNode, mail};

/// A node, and the causes that it has given.
struct Asked {
    node: TestNode,
    causes: BTreeSet<&'static str>,
}

impl Asked {
    async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.node.send(Method::POST, path, Some(&body)).await;
        assert!(answer["kind"].is_null(), "{path}: {answer}");
        answer
    }

    async fn put_mail(&self, definition: Value) {
        let answer = self
            .node
            .send(Method::PUT, "jobs/mail", Some(&definition))
            .await;
        assert!(answer["kind"].is_null(), "{answer}");
    }

    async fn submit(&self, task: Value) -> TaskId {
        let answer = self.post("jobs/mail/tasks", task).await;
        answer["id"].as_str().unwrap().parse().unwrap()
    }

    /// Submits a task, and claims it. Returns its id and token.
    async fn claimed(&self) -> (TaskId, Value) {
        let id = self.submit(json!({})).await;
        let path = format!("jobs/mail/tasks/{id}/claim");
        let claimed = self.post(&path, json!({"owner": "ann"})).await;
        (id, json!({"owner": "ann", "token": claimed["token"]}))
    }

    async fn report(&self, id: TaskId, verb: &str, token: &Value, with: Value) {
        let mut body = token.clone();
        body.as_object_mut()
            .unwrap()
            .extend(with.as_object().unwrap().clone());
        self.post(&format!("work/mail/{id}/{verb}"), body).await;
    }

    /// What the three doors answer, which is the same.
    async fn explain(&self, id: TaskId) -> Explanation {
        let (call, ask) = (Call::default(), ExplainTask { job: mail(), id });
        let embedded = self.node.frontend().call(&call, ask.clone()).await.unwrap();
        let grpc = self.node.grpc().call(&call, ask).await.unwrap();
        let path = format!("jobs/mail/tasks/{id}/explain");
        let rest = self.node.send(Method::GET, &path, None).await;
        let rest: ExplanationView = serde_json::from_value(rest).unwrap();
        assert_eq!(ExplanationView::from(grpc), rest);
        assert_eq!(ExplanationView::from(embedded.clone()), rest);
        embedded
    }

    /// Asks until the cause is the expected one. The message and the release must contain these texts.
    async fn expect(
        &mut self,
        id: TaskId,
        cause: &Cause,
        message: &str,
        release: &str,
    ) -> Explanation {
        for _ in 0..400 {
            let found = self.explain_once(id).await;
            if found.cause != *cause {
                tokio::time::sleep(Duration::from_millis(25)).await;
                continue;
            }
            assert!(found.message.contains(message), "{found:?}");
            assert!(found.release.contains(release), "{found:?}");
            let known = Cause::ALL.iter().map(|(cause, _)| cause.name());
            self.causes
                .extend(known.filter(|name| *name == cause.name()));
            return self.explain(id).await;
        }
        panic!("not {cause:?}: {:?}", self.explain_once(id).await);
    }

    async fn explain_once(&self, id: TaskId) -> Explanation {
        let ask = ExplainTask { job: mail(), id };
        self.node
            .frontend()
            .call(&Call::default(), ask)
            .await
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_03_the_fact_that_holds_a_task_up_is_named_with_what_ends_it() {
    let node = TestNode::start().await;
    let mut asked = Asked {
        node,
        causes: BTreeSet::new(),
    };
    let delayed: TaskId = TASK.parse().unwrap();
    let found = asked
        .expect(delayed, &Cause::NotDue, "is due at", "--in 0s")
        .await;
    assert!(found.until.is_some() && found.ahead.is_none(), "{found:?}");
    let path = "jobs/mail/pause";
    asked.post(path, json!({})).await;
    asked
        .expect(delayed, &Cause::NotDue, "its job is paused, too", "")
        .await;
    let due = asked.submit(json!({})).await;
    asked
        .expect(
            due,
            &Cause::Paused,
            "job 'mail' is paused",
            "dueline job resume mail",
        )
        .await;
    asked.post("jobs/mail/resume", json!({})).await;

    // It is enqueued, and there is no worker, then a weak one, then a strong one.
    asked
        .expect(
            due,
            &Cause::NoWorker,
            "(handler worker)",
            "dueline worker list",
        )
        .await;
    let heavy = asked.submit(json!({"weight": 5})).await;
    let worker =
        |concurrency: u32| json!({"worker": "w@1", "jobs": ["mail"], "concurrency": concurrency});
    asked.post("workers", worker(4)).await;
    let text = "weighs 5, and the strongest worker of its job has a concurrency of 4";
    asked
        .expect(heavy, &Cause::TooHeavy, text, "--concurrency 5")
        .await;
    asked.post("workers", worker(6)).await;
    let found = asked
        .expect(heavy, &Cause::Backlog, "one enqueued task", "its turn")
        .await;
    assert_eq!(found.ahead, Some(1));
    let found = asked
        .expect(due, &Cause::Backlog, "no enqueued task", "")
        .await;
    assert_eq!(found.ahead, Some(0));

    // What a worker does with a task.
    let (id, token) = asked.claimed().await;
    let found = asked
        .expect(
            id,
            &Cause::Claimed,
            "worker ann claimed the task",
            "its start",
        )
        .await;
    assert!(found.until.is_some());
    asked.report(id, "start", &token, json!({})).await;
    asked
        .expect(
            id,
            &Cause::Running,
            "worker ann has run the task since",
            "it runs",
        )
        .await;
    let followers = json!({"after": [{"id": id.to_string()}]});
    let follower = asked.submit(followers).await;
    let text = format!("its predecessor mail/{id}, which is processing");
    asked
        .expect(
            follower,
            &Cause::Waiting,
            &text,
            &format!("dueline task explain mail/{id}"),
        )
        .await;
    let failed = json!({"error": "no route to host"});
    asked.report(id, "fail", &token, failed).await;
    let found = asked
        .expect(id, &Cause::Retrying, "no route to host", "--in 0s")
        .await;
    assert!(found.until.is_some());
    let (id, token) = asked.claimed().await;
    asked.report(id, "complete", &token, json!({})).await;
    asked
        .expect(id, &Cause::Ended, "is succeeded", "it is done")
        .await;
    let (id, token) = asked.claimed().await;
    asked
        .report(id, "trash", &token, json!({"reason": "unreadable"}))
        .await;
    let release = format!("dueline task redrive mail/{id}");
    asked
        .expect(id, &Cause::Ended, "is trashed: unreadable", &release)
        .await;

    let cancelled = asked.submit(json!({})).await;
    let path = format!("jobs/mail/tasks/{cancelled}/cancel");
    asked
        .post(&path, json!({"reason": "no longer needed"}))
        .await;
    asked
        .expect(cancelled, &Cause::Ended, "no longer needed", "a new task")
        .await;

    // Limits of the job. Two tasks are enqueued from above.
    asked.put_mail(json!({"quota": {"running_max": 2}})).await;
    let limited = asked.submit(json!({})).await;
    let text = "2 tasks of job 'mail' are enqueued or running, and no more than 2 may be";
    asked
        .expect(limited, &Cause::RunningLimit, text, "--running-max")
        .await;
    asked
        .put_mail(json!({"quota": {"rate_per_s": 0.001}}))
        .await;
    let slow = asked.submit(json!({"priority": "low"})).await;
    asked
        .expect(
            slow,
            &Cause::Rate,
            "lets 0.001 tasks a second pass",
            "--rate",
        )
        .await;

    // A sink that refuses.
    asked.put_mail(json!({"sink": "file:records.ndjson"})).await;
    let (id, token) = asked.claimed().await;
    asked.report(id, "complete", &token, json!({})).await;
    let found = asked
        .expect(
            id,
            &Cause::Undelivered,
            "of its record have failed",
            "a sink that accepts",
        )
        .await;
    assert!(found.until.is_some());

    // Fairness keys that take turns: one task of the key is enqueued, and no more may be.
    asked
        .put_mail(json!({"fair_share": {"running_max": 1}}))
        .await;
    asked.submit(json!({"fairness_key": "acme"})).await;
    let second = asked.submit(json!({"fairness_key": "acme"})).await;
    let text = "of the fairness key 'acme', of which no more than 1 are enqueued or running";
    asked
        .expect(second, &Cause::FairShare, text, "its turn")
        .await;

    // The consumer of the node enqueues every due task, so the tests of REST show the cause that is missing here.
    let page = include_str!("../../../../docs/explain.md");
    for (cause, _) in Cause::ALL {
        let row = format!("| `{}` |", cause.name());
        assert!(
            page.contains(&row),
            "docs/explain.md has no row for {cause:?}"
        );
    }
    let all = Cause::ALL.iter().map(|(cause, _)| cause.name());
    let missing: Vec<_> = all.filter(|name| !asked.causes.contains(name)).collect();
    assert_eq!(missing, ["not_enqueued"]);
}
