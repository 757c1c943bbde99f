//! What explain says where no consumer runs.

use std::time::Duration;

use crate::kit::Kit;

#[tokio::test(start_paused = true)]
async fn g_03_a_due_task_that_no_consumer_enqueues_is_explained_as_that() {
    let kit = Kit::with_job().await;
    let body = r#"{"delay_ms": 1000}"#;
    let task = kit.post("/v1/jobs/mail/tasks", body).await.expect(201);
    let id = task.json["id"].as_str().unwrap();
    let path = format!("/v1/jobs/mail/tasks/{id}/explain");
    for (advance_ms, cause, message) in [
        (0, "not_due", "the task is due at"),
        (1_500, "not_enqueued", "is about to be enqueued"),
        (
            60_000,
            "not_enqueued",
            "has been due for 60 s, and no consumer has enqueued it",
        ),
    ] {
        tokio::time::advance(Duration::from_millis(advance_ms)).await;
        let found = kit.get(&path).await.expect(200);
        assert_eq!(found.json["cause"], cause, "{}", found.body);
        let text = found.json["message"].as_str().unwrap();
        assert!(text.contains(message), "{text}");
    }
}
