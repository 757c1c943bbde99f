//! Tasks that wait for others, as commands of real processes.

use std::collections::BTreeMap;

use dueline_tests_end_to_end::{
    RunLog, ServerProcess, TestFolder, dueline, exec_job, pause, print_note, wait_until,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::s;

/// A job whose command is a shell script.
fn script(script: &str, input: &str) -> Value {
    json!({"handler": {
        "kind": "exec",
        "config": {"command": ["sh", "-c", script], "input": input},
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn f_095_what_commands_print_is_the_input_of_the_next_ones_without_another_store() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &[]).await;
    let api = &server.api;
    let extract = script(r"printf '3 pears\n4 plums\n'", "stdin");
    api.put_job("extract", extract, json!({})).await;
    let transform = script("sort -rn | sed 's/ /,/'", "results");
    api.put_job("transform", transform, json!({})).await;
    let load = script(
        r#"echo "$(cat) of $DUELINE_RESULT_0_TASK $DUELINE_RESULT_0_END $DUELINE_RESULT_0_BYTES: $DUELINE_RESULT_0""#,
        "stdin",
    );
    api.put_job("load", load, json!({})).await;
    let extract = api.submit("extract", json!({})).await;
    let after = |job: &str, id: &str| json!([{"job": job, "id": id}]);
    let task = json!({"after": after("extract", &extract)});
    let transform = api.submit("transform", task).await;
    let task = json!({"after": after("transform", &transform), "payload_text": "fruit"});
    let load = api.submit("load", task).await;
    let last = api.finished("load", &load, s(30)).await;
    let text = format!("fruit of transform/{transform} succeeded 16: 4,plums\n3,pears\n\n");
    assert_eq!(last["result_text"], text, "{last}");
    let repaired = repairs(&server).await;
    assert!(repaired.abs() < f64::EPSILON, "{repaired} repairs");
}

fn id(number: usize) -> String {
    format!("0197b0c4-0000-7000-8000-{number:012}")
}

/// How many repairs the server has counted since its start.
async fn repairs(server: &ServerProcess<'_>) -> f64 {
    let (_, metrics) = server.api.page("metrics").await.expect("metrics");
    assert!(
        metrics.contains("dueline_tasks_submitted_total"),
        "{metrics}"
    );
    let lines = metrics.lines();
    let values = lines.filter_map(|line| {
        line.strip_prefix("dueline_family_repairs_total ")?
            .parse::<f64>()
            .ok()
    });
    values.sum()
}

/// A family of three levels: each of `width` children has two children, and one task waits for all.
fn tree(width: usize) -> Vec<Value> {
    let of = |number: usize| json!({"id": id(number)});
    let mut tasks = vec![of(0), json!({"id": id(9_999), "after": [of(0)]})];
    for child in 1..=width {
        tasks.push(json!({"id": id(child), "parent": of(0)}));
        for grandchild in [child * 100, child * 100 + 1] {
            tasks.push(json!({"id": id(grandchild), "parent": of(child)}));
        }
    }
    tasks
}

#[tokio::test(flavor = "multi_thread")]
async fn f_093_f_094_f_095_g_01_a_family_on_a_server_that_is_killed_runs_in_its_order() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &[]).await;
    // Three levels take three seconds at least, so no kill meets the last task.
    let job = exec_job(&log, "sleep 1");
    server.api.put_job("job", job, json!({})).await;
    let tasks = tree(8);
    let count = tasks.len();
    let batch = server.api.post("jobs/job/tasks:batch", &json!(tasks)).await;
    batch.expect_success();
    for alive_ms in [700, 900, 1_100] {
        pause(std::time::Duration::from_millis(alive_ms)).await;
        server.kill().await;
        server.start_again().await;
    }
    // What a killed process had not stored is found by a check after a minute.
    let last = server.api.finished("job", &id(9_999), s(150)).await;
    assert_eq!(last["state"], "succeeded", "{last}");
    let done: BTreeMap<String, i64> = log
        .done()
        .into_iter()
        .map(|entry| (entry.task, entry.at_ms))
        .collect();
    assert_eq!(done.len(), count);
    let begun = |number: usize| log.begun_of(&id(number)).first().map(|entry| entry.at_ms);
    for child in 1..=8 {
        assert!(begun(child) >= Some(first_done(&log, 0)), "child {child}");
        for grandchild in [child * 100, child * 100 + 1] {
            assert!(
                begun(grandchild) >= Some(first_done(&log, child)),
                "{grandchild}"
            );
            assert!(
                begun(9_999) >= Some(first_done(&log, grandchild)),
                "{grandchild}"
            );
        }
    }
    let runs_of_last = log.begun_of(&id(9_999));
    assert_eq!(runs_of_last.len(), 1, "released once: {runs_of_last:?}");
    let parent = server.api.task("job", &id(0)).await;
    assert_eq!(
        (&parent["children"], &parent["open_children"]),
        (&json!("closed"), &json!(0))
    );
}

fn first_done(log: &RunLog, number: usize) -> i64 {
    let done = log
        .done()
        .into_iter()
        .find(|entry| entry.task == id(number));
    done.map(|entry| entry.at_ms).expect("a run that was done")
}

#[tokio::test(flavor = "multi_thread")]
async fn f_094_ten_thousand_children_of_one_parent_and_a_hundred_levels() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--concurrency", "64"]).await;
    let api = &server.api;
    let noop = json!({"handler": {"kind": "noop"}});
    api.put_job("job", noop, json!({})).await;
    let submit = async |tasks: Vec<Value>| {
        let answer = api
            .post("jobs/job/tasks:batch", &json!(tasks))
            .await
            .expect_success();
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        let failed: Vec<_> = results
            .iter()
            .filter(|result| !result["error"].is_null())
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
    };
    let parent = json!({"id": id(0), "delay_ms": 3_600_000});
    submit(vec![parent, json!({"id": id(1), "after": [{"id": id(0)}]})]).await;
    let begun = Instant::now();
    for _ in 0..10 {
        submit(vec![json!({"parent": {"id": id(0)}}); 1_000]).await;
    }
    let submitted = begun.elapsed();
    let one_more = api
        .post("jobs/job/tasks", &json!({"parent": {"id": id(0)}}))
        .await;
    assert_eq!(
        one_more.body["reason"], "too_many_children",
        "{}",
        one_more.body
    );
    let begun = Instant::now();
    let now = json!({"delay_ms": 0});
    api.call(
        reqwest::Method::PATCH,
        &format!("jobs/job/tasks/{}", id(0)),
        Some(&now),
    )
    .await
    .expect("an answer")
    .expect_success();
    let last = api.finished("job", &id(1), s(240)).await;
    assert_eq!(last["state"], "succeeded", "{last}");
    print_note(&format!(
        "10,000 children: submitted in {submitted:.1?}, run with parent and follower in {:.1?}",
        begun.elapsed()
    ));
    let stats = api.stats("job").await;
    assert_eq!(stats["by_state"]["succeeded"], 10_002, "{stats}");
    let parent = api.task("job", &id(0)).await;
    assert_eq!(
        (&parent["children"], &parent["children_failed"]),
        (&json!("closed"), &json!(0))
    );

    let level = |number: usize| match number {
        0 => json!({"id": id(1_000)}),
        _ => json!({"id": id(1_000 + number), "parent": {"id": id(999 + number)}}),
    };
    let mut chain: Vec<_> = (0..=100).map(level).collect();
    chain.push(json!({"id": id(2_000), "after": [{"id": id(1_000)}]}));
    submit(chain).await;
    let last = api.finished("job", &id(2_000), s(60)).await;
    assert_eq!(last["state"], "succeeded", "{last}");
    let lowest = api.task("job", &id(1_100)).await;
    assert!(
        lowest["finished_at"].as_str() <= last["started_at"].as_str(),
        "{lowest} {last}"
    );
    assert!(
        repairs(&server).await.abs() < f64::EPSILON,
        "nothing was lost"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_13_what_a_command_submits_lives_and_dies_with_its_run_also_when_its_server_is_killed() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &[]).await;
    server
        .api
        .put_job("step", exec_job(&log, "true"), json!({}))
        .await;
    // Each run submits one task with an id of its own choice and one without. The first run is killed, the second fails.
    let submit = format!(
        "{} --server {} task submit step --from-run",
        dueline().display(),
        server.url()
    );
    let lines = format!(
        r#"set -e
        {submit} --id {} --payload-text "of run $DUELINE_ATTEMPT"
        {submit} --name "run $DUELINE_ATTEMPT"
        if [ "$DUELINE_ATTEMPT" = 0 ]; then sleep 60; fi
        [ "$DUELINE_ATTEMPT" = 2 ]"#,
        id(7)
    );
    let backoff = json!({"initial_ms": 100, "max_ms": 100});
    let with = json!({"backoff": {"standard": backoff}, "heartbeat_timeout_ms": 2_000});
    server
        .api
        .put_job("plan", script(&lines, "stdin"), with)
        .await;
    let plan = server.api.submit("plan", json!({})).await;
    let staged = async |api: &dueline_tests_end_to_end::RestClient, count| {
        wait_until("staged tasks", s(30), async || {
            let tasks = api.tasks("step").await;
            match tasks.len() >= count {
                true => Ok(tasks),
                false => Err(format!("{tasks:?}")),
            }
        })
        .await
    };
    let first = staged(&server.api, 2).await;
    assert!(
        first.iter().all(|task| task["state"] == "waiting"),
        "{first:?}"
    );
    server.kill().await;
    server.start_again().await;
    let plan = server.api.finished("plan", &plan, s(60)).await;
    assert_eq!(
        (&plan["state"], &plan["attempt"]),
        (&"succeeded".into(), &2.into()),
        "{plan}"
    );
    let last = server.api.finished("step", &id(7), s(30)).await;
    assert_eq!(last["state"], "succeeded", "{last}");
    assert_eq!(log.begun_of(&id(7)).len(), 1);
    let tasks = server.api.tasks("step").await;
    assert_eq!(tasks.len(), 4, "{tasks:?}");
    for task in &tasks {
        let id = task["id"].as_str().unwrap_or_default();
        let task = server.api.finished("step", id, s(30)).await;
        let is_discarded = matches!(task["name"].as_str(), Some("run 0" | "run 1"));
        let expected = if is_discarded {
            "cancelled"
        } else {
            "succeeded"
        };
        assert_eq!(task["state"], expected, "{task}");
        assert_eq!(log.begun_of(id).len(), usize::from(!is_discarded), "{task}");
    }
}
