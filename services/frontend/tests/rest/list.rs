//! Lists of tasks.

use std::{collections::BTreeSet, time::Duration};

use crate::kit::Kit;

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_by_state_status_tag_key_and_time() {
    let kit = Kit::with_job().await;
    kit.submit(r#"{"name": "claimed"}"#).await;
    kit.claim("w@1").await;
    kit.submit(r#"{"name": "ready", "tags": ["a", "b"]}"#).await;
    kit.submit(r#"{"name": "later", "delay_ms": 60000, "key": "k", "tags": ["b"]}"#)
        .await;
    let dropped = kit
        .submit(r#"{"name": "dropped", "delay_ms": 60000}"#)
        .await;
    kit.post(&format!("{dropped}/cancel"), "").await.expect(200);
    for (query, mut names) in [
        ("", vec!["claimed", "ready", "later", "dropped"]),
        ("?state=new", vec!["later"]),
        ("?state=new,enqueued", vec!["ready", "later"]),
        ("?state=new&state=claimed", vec!["claimed", "later"]),
        ("?status=running", vec!["claimed"]),
        ("?status=pending&state=new,claimed", vec!["later"]),
        ("?status=failed&state=new", vec![]),
        ("?tag=b", vec!["ready", "later"]),
        ("?key=k", vec!["later"]),
        ("?due_from=2023-11-14T22:13:21Z", vec!["later", "dropped"]),
        ("?due_before=1700000000001", vec!["claimed", "ready"]),
        ("?name=none", vec![]),
    ] {
        let page = kit
            .get(&format!("/v1/jobs/mail/tasks{query}"))
            .await
            .expect(200);
        let tasks = page.json["tasks"].as_array().unwrap();
        let mut got: Vec<&str> = tasks.iter().map(|t| t["name"].as_str().unwrap()).collect();
        got.sort_unstable();
        names.sort_unstable();
        assert_eq!(got, names, "{query}");
    }
    for bad in [
        "?state=done",
        "?status=new",
        "?limit=0",
        "?limit=1001",
        "?due_from=x",
        "?x=1",
    ] {
        let reply = kit.get(&format!("/v1/jobs/mail/tasks{bad}")).await;
        assert_eq!(reply.text("kind"), "invalid", "{bad}");
    }
    kit.get("/v1/jobs/no/tasks")
        .await
        .problem(404, "not-found", "unknown_job");
}

#[tokio::test(start_paused = true)]
async fn pages_follow_each_other_newest_first_without_gaps() {
    let kit = Kit::with_job().await;
    let mut expected = Vec::new();
    for _ in 0..7 {
        expected.push(kit.submit("{}").await);
        tokio::time::advance(Duration::from_millis(2)).await;
    }
    expected.reverse();
    let (mut got, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/jobs/mail/tasks?limit=3{cursor}");
        let page = kit.get(&path).await.expect(200);
        let tasks = page.json["tasks"].as_array().unwrap();
        assert!(tasks.len() <= 3);
        let ids = tasks.iter().map(|task| task["id"].as_str().unwrap());
        got.extend(ids.map(|id| format!("/v1/jobs/mail/tasks/{id}")));
        match page.json["next"].as_str() {
            Some(next) => {
                let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
                cursor = format!("&cursor={next}");
            }
            None => break,
        }
    }
    assert_eq!(got, expected);
}

/// 1,000 tasks of 256 KiB would be a page of 256 MiB.
#[tokio::test(start_paused = true)]
async fn a_page_of_large_tasks_is_bounded_in_bytes_and_goes_on() {
    let kit = Kit::with_job().await;
    let mut expected = BTreeSet::new();
    for number in 0..70 {
        // Small ones among them, so that the size of the next task is not the one of the last.
        let len = if number % 3 == 0 { 10 } else { 256 * 1024 };
        let payload = "x".repeat(len);
        let path = kit
            .submit(&format!(r#"{{"payload_text": "{payload}"}}"#))
            .await;
        assert!(expected.insert(path));
        tokio::time::advance(Duration::from_millis(2)).await;
    }
    let (mut got, mut cursor, mut pages) = (BTreeSet::new(), String::new(), 0);
    loop {
        let path = format!("/v1/jobs/mail/tasks?limit=1000{cursor}");
        let page = kit.get(&path).await.expect(200);
        pages += 1;
        let bytes = page.json.to_string().len();
        // The JSON of a payload is base64.
        assert!(bytes < 12 * 1024 * 1024, "a page of {bytes} bytes");
        for task in page.json["tasks"].as_array().unwrap() {
            let id = task["id"].as_str().unwrap();
            assert!(
                got.insert(format!("/v1/jobs/mail/tasks/{id}")),
                "{id} twice"
            );
        }
        match page.json["next"].as_str() {
            Some(next) => {
                let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
                cursor = format!("&cursor={next}");
            }
            None => break,
        }
    }
    assert_eq!(got, expected);
    assert!(pages <= 4, "{pages} pages for 12 MiB");
}
