//! Waiting for a task's end.

use std::time::Duration;

use dueline_domain::{Event, RunningCancel, TaskId};
use dueline_ports::{Clock as _, Command, Rng as _, TaskStore as _, fakes::SeededRng};
use tokio::time::Instant;

use crate::kit::Kit;

#[tokio::test(start_paused = true)]
async fn f_087_a_wait_that_is_over_answers_the_task_as_it_is() {
    let kit = Kit::with_job().await;
    let path = kit.submit(r#"{"delay_ms": 600000}"#).await;
    for (wait, ms) in [
        ("0.1s", 100),
        ("2500ms", 2_500),
        ("0", 0),
        ("1h", 3_600_000),
    ] {
        let before = Instant::now();
        let task = kit.get(&format!("{path}?wait={wait}")).await.expect(200);
        assert_eq!(task.text("state"), "new");
        let waited = before.elapsed().as_millis();
        assert!((ms..ms + 50).contains(&waited), "{wait} took {waited} ms");
    }
    let reply = kit.get(&format!("{path}?wait=61m")).await;
    reply.problem(400, "invalid", "out_of_range");
    for bad in ["soon", "-1s", ""] {
        let reply = kit.get(&format!("{path}?wait={bad}")).await;
        reply.problem(400, "invalid", "invalid_value");
    }
}

#[tokio::test(start_paused = true)]
async fn f_087_a_finished_task_answers_at_once_and_an_unknown_one_too() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    kit.post(&format!("{path}/cancel"), "").await.expect(200);
    let before = Instant::now();
    let task = kit.get(&format!("{path}?wait=30s")).await.expect(200);
    assert_eq!(task.text("state"), "cancelled");
    let id = TaskId::from_bytes([9; 16]);
    let reply = kit.get(&format!("/v1/jobs/mail/tasks/{id}?wait=30s")).await;
    reply.problem(404, "not-found", "unknown_task");
    let reply = kit.get(&format!("/v1/jobs/no/tasks/{id}?wait=30s")).await;
    reply.problem(404, "not-found", "unknown_job");
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn f_087_the_end_of_a_task_wakes_its_waiters_at_once() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let (work, token) = kit.claim("w@1").await;
    kit.report(&format!("{work}/start"), &token, "")
        .await
        .expect(200);
    let before = Instant::now();
    let wait = format!("{path}?wait=30s");
    let (one, two, ()) = tokio::join!(kit.get(&wait), kit.get(&wait), async {
        tokio::time::sleep(Duration::from_millis(2_345)).await;
        let path = format!("{work}/complete");
        kit.report(&path, &token, r#""result": {"sent": 3}"#)
            .await
            .expect(200);
    });
    for task in [one, two] {
        assert_eq!(task.text("state"), "succeeded");
        assert_eq!(task.json["result"]["sent"], 3);
    }
    assert_eq!(before.elapsed(), Duration::from_millis(2_345));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_nobody_signals_is_seen_within_a_second() {
    let kit = Kit::with_job().await;
    let path = kit.submit("{}").await;
    let id: TaskId = path.rsplit('/').next().unwrap().parse().unwrap();
    let before = Instant::now();
    let wait = format!("{path}?wait=30s");
    let (task, ()) = tokio::join!(kit.get(&wait), async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        // Another process did it.
        let command = Command {
            job: "mail".parse().unwrap(),
            id,
            event: Event::Cancel {
                running: RunningCancel::Refuse,
                reason: None,
            },
            write: SeededRng::new(3).write_id(),
        };
        let applied = kit.store.apply(kit.clock.now(), vec![command]).await;
        assert!(applied[0].is_ok());
    });
    assert_eq!(task.text("state"), "cancelled");
    // Read after 125, 375 and 875 ms, and then every second.
    assert_eq!(before.elapsed(), Duration::from_millis(1_875));
    kit.ended.ended(&id);
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_waits_answers_the_whole_task() {
    let kit = Kit::with_job().await;
    let (task, ()) = tokio::join!(kit.post("/v1/jobs/mail/tasks?wait=30s", "{}"), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let (work, token) = kit.claim("w@1").await;
        kit.report(&format!("{work}/start"), &token, "")
            .await
            .expect(200);
        let path = format!("{work}/complete");
        kit.report(&path, &token, r#""result_text": "done""#)
            .await
            .expect(200);
    });
    let task = task.expect(201);
    assert_eq!(task.text("state"), "succeeded");
    assert_eq!(task.text("result_text"), "done");
    assert_eq!(task.json["runs"][0]["info"], "done");
}
