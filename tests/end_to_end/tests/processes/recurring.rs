//! Schedules, on a server that is killed again and again, and three commands in a row.

use std::collections::BTreeSet;

use dueline_tests_end_to_end::{
    RunLog, ServerProcess, TestFolder, dueline, exec_job, pause, wait_until,
};
use serde_json::{Value, json};

use crate::s;

/// The nominal times in seconds of the tasks that a schedule has created, ascending.
async fn fired(server: &ServerProcess<'_>, job: &str) -> Vec<i64> {
    let tasks = server.api.tasks(job).await;
    let mut times: Vec<i64> = tasks.iter().map(seconds).collect();
    times.sort_unstable();
    times
}

fn seconds(task: &Value) -> i64 {
    let text = task["nominal_at"].as_str().expect("the time of a firing");
    let (_, of_day) = text.split_once('T').expect("RFC 3339");
    let mut parts = of_day.split([':', '.']).map(|part| part.parse::<i64>());
    let mut next = || parts.next().expect("a part").expect("a number");
    next() * 3_600 + next() * 60 + next()
}

#[tokio::test(flavor = "multi_thread")]
async fn f_100_g_05_a_killed_server_loses_no_firing_and_doubles_none() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let mut server = ServerProcess::start(&folder, &[]).await;
    let job = exec_job(&log, "true");
    server.api.put_job("job", job, json!({})).await;
    let schedule = json!({
        "timing": "* * * * * *", "overlap": "allow", "catch_up": "all", "catch_up_max": 1000,
        "task": { "payload": "x" },
    });
    let path = "jobs/job/schedules/often";
    server.api.put(path, &schedule).await.expect_success();
    for alive_ms in [2_700, 1_900, 3_300] {
        pause(std::time::Duration::from_millis(alive_ms)).await;
        server.kill().await;
        pause(s(1)).await;
        server.start_again().await;
    }
    pause(s(2)).await;
    server
        .api
        .post(&format!("{path}/pause"), &json!({}))
        .await
        .expect_success();
    wait_until("all tasks to succeed", s(60), async || {
        let stats = server.api.stats("job").await;
        if stats["by_state"]["succeeded"] == stats["total"] {
            Ok(())
        } else {
            Err(stats.to_string())
        }
    })
    .await;
    let times = fired(&server, "job").await;
    assert!(times.len() >= 12, "{times:?}");
    // The test may run over midnight.
    let steps: BTreeSet<i64> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).rem_euclid(86_400))
        .collect();
    assert!(
        steps.iter().all(|step| [1, 86_399].contains(step)),
        "{times:?}"
    );
    let schedule = server.api.get(path).await.expect_success();
    assert_eq!(schedule["counts"]["missed"], 0, "{schedule}");
    assert_eq!(schedule["counts"]["repaired"], 0, "{schedule}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_104_a_run_of_more_than_one_period_delays_no_later_firing() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &[]).await;
    let job = exec_job(&log, "sleep 2.2");
    server.api.put_job("slow", job, json!({})).await;
    let schedule = json!({ "timing": "@every 3s" });
    let path = "jobs/slow/schedules/often";
    server.api.put(path, &schedule).await.expect_success();
    pause(s(13)).await;
    let begun = log.begun();
    assert!(begun.len() >= 3, "{begun:?}");
    for pair in begun.windows(2) {
        let between = pair[1].at_ms - pair[0].at_ms;
        assert!((2_000..4_500).contains(&between), "{begun:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_05_the_commands_for_schedules_do_what_they_say() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let run = async |words: &str| {
        let mut args: Vec<&str> = words.split(' ').collect();
        args.extend(["--server", server.url()]);
        let output = tokio::process::Command::new(dueline()).args(&args).output();
        let output = output.await.expect("the program can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let ok = async |words: &str| {
        let (code, stdout, stderr) = run(words).await;
        assert_eq!(code, Some(0), "{words}: {stderr}");
        stdout
    };
    ok("job apply mail --handler noop").await;
    let said = ok("schedule apply mail yearly @yearly --zone Asia/Kolkata --overlap allow").await;
    assert!(said.contains("fires next at"), "{said}");
    let shown: Value = serde_json::from_str(&ok("schedule get mail yearly --json").await).unwrap();
    assert_eq!(
        (&shown["overlap"], &shown["zone"]),
        (&json!("allow"), &json!("Asia/Kolkata"))
    );
    let text = ok("schedule get mail yearly").await;
    assert!(text.contains("+05:30"), "{text}");
    ok("schedule pause mail yearly --reason vacation").await;
    let text = ok("schedule get mail yearly").await;
    assert!(
        text.contains("paused") && text.contains("vacation"),
        "{text}"
    );
    ok("schedule trigger mail yearly").await;
    ok("schedule backfill mail yearly --from 2020-06-01T00:00:00Z --to 2022-06-01T00:00:00Z").await;
    wait_until("three tasks", s(20), async || {
        let list = ok("task list mail --schedule yearly --json").await;
        let page: Value = serde_json::from_str(&list).unwrap();
        match page["tasks"].as_array().map(Vec::len) {
            Some(3) => Ok(()),
            _ => Err(list),
        }
    })
    .await;
    let history = ok("schedule history mail yearly").await;
    assert!(history.contains("backfill"), "{history}");
    ok("schedule resume mail yearly").await;
    let list = ok("schedule list mail").await;
    assert!(list.contains("yearly") && list.contains("active"), "{list}");
    let (code, _, stderr) = run("schedule apply mail yearly @sometimes").await;
    assert_eq!(code, Some(2), "{stderr}");
    let (code, _, stderr) = run("job delete mail").await;
    assert_eq!(code, Some(4), "{stderr}");
    assert!(stderr.contains("delete them first"), "{stderr}");
    ok("schedule delete mail yearly").await;
    let (code, ..) = run("schedule get mail yearly").await;
    assert_eq!(code, Some(3));
    assert_eq!(server.api.tasks("mail").await.len(), 3, "tasks stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn f_095_three_commands_run_one_after_another() {
    let folder = TestFolder::new();
    let log = RunLog::new(&folder);
    let server = ServerProcess::start(&folder, &[]).await;
    for job in ["extract", "transform", "load"] {
        server
            .api
            .put_job(job, exec_job(&log, "sleep 0.3"), json!({}))
            .await;
    }
    let extract = server.api.submit("extract", json!({})).await;
    let after = |job: &str, id: &str| json!({ "after": [{ "job": job, "id": id }] });
    let transform = server
        .api
        .submit("transform", after("extract", &extract))
        .await;
    let load = server
        .api
        .submit("load", after("transform", &transform))
        .await;
    assert_eq!(server.api.task("load", &load).await["state"], "waiting");
    let last = server.api.finished("load", &load, s(30)).await;
    assert_eq!(last["state"], "succeeded", "{last}");
    let order: Vec<_> = log.begun().into_iter().map(|entry| entry.task).collect();
    assert_eq!(order, [extract, transform, load]);
}
