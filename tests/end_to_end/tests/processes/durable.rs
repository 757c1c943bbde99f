//! Acknowledged tasks are stored.

use std::collections::BTreeSet;

use dueline_tests_end_to_end::{
    RestClient, RunLog, ServerProcess, TestFolder, exec_job, new_id, print_note, wait_until,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::s;

#[tokio::test(flavor = "multi_thread")]
async fn f_001_f_137_a_task_whose_submit_was_answered_survives_an_immediate_kill() {
    const KILLS: usize = 20;
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    server.api.put_job("job", json!({}), json!({})).await;
    let mut answered = BTreeSet::new();
    let mut unanswered = 0;
    for kill in 0..KILLS {
        // Concurrent submits, so that one commit stores several. The kill follows the first answer.
        let mut calls = JoinSet::new();
        for n in 0..8 {
            let api = server.api.clone();
            calls.spawn(async move {
                let task = json!({"payload": kill * 100 + n});
                let answer = api
                    .call(reqwest::Method::POST, "jobs/job/tasks", Some(&task))
                    .await;
                answer.ok().filter(|answer| answer.status == 201)
            });
        }
        let first = calls.join_next().await.expect("a call").expect("no panic");
        server.kill().await;
        let mut answers = vec![first];
        while let Some(answer) = calls.join_next().await {
            answers.push(answer.expect("no panic"));
        }
        assert!(answers[0].is_some(), "no answer before the kill");
        for answer in answers {
            match answer {
                Some(answer) => {
                    answered.insert(answer.body["id"].as_str().unwrap().to_owned());
                }
                None => unanswered += 1,
            }
        }
        server.start_again().await;
    }
    let stored = server.api.tasks("job").await;
    let stored: BTreeSet<_> = stored
        .iter()
        .map(|task| task["id"].as_str().unwrap().to_owned())
        .collect();
    print_note(&format!(
        "{KILLS} kills right after an answer: {} answered, {} stored, {unanswered} calls without an answer",
        answered.len(),
        stored.len()
    ));
    let lost: Vec<_> = answered.difference(&stored).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(
        stored.len() <= answered.len() + unanswered,
        "tasks that were never submitted"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn f_002_the_same_submit_from_many_clients_at_once_is_one_task() {
    const CLIENTS: usize = 50;
    const TASKS: usize = 40;
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &[]).await;
    server
        .api
        .put_job("job", exec_job(&log, "true"), json!({}))
        .await;
    let mut rng = fastrand::Rng::with_seed(2);
    let ids: Vec<_> = (0..TASKS).map(|_| new_id(&mut rng)).collect();
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        let mut ids = ids.clone();
        fastrand::Rng::with_seed(n as u64).shuffle(&mut ids);
        let api = RestClient::new(server.url());
        clients.spawn(async move {
            let mut created = Vec::new();
            for id in ids {
                let task = json!({"id": id, "payload": id});
                let answer = api.post("jobs/job/tasks", &task).await;
                assert!(matches!(answer.status, 200 | 201), "{answer:?}");
                assert_eq!(answer.body["id"], id.as_str());
                assert_eq!(answer.body["existed"], answer.status == 200);
                if answer.status == 201 {
                    created.push(id);
                }
            }
            created
        });
    }
    let mut created = Vec::new();
    while let Some(part) = clients.join_next().await {
        created.extend(part.expect("a client that got its answers"));
    }
    created.sort_unstable();
    let mut expected = ids;
    expected.sort_unstable();
    assert_eq!(created, expected, "each task was created exactly once");

    wait_until("all of them to succeed", s(30), async || {
        let stats = server.api.stats("job").await;
        if stats["by_state"]["succeeded"] == TASKS {
            Ok(())
        } else {
            Err(stats.to_string())
        }
    })
    .await;
    assert_eq!(server.api.stats("job").await["total"], TASKS);
    let runs = log.begun_by_task();
    assert_eq!(runs.len(), TASKS);
    assert!(runs.values().all(|runs| *runs == 1), "{runs:?}");
}
