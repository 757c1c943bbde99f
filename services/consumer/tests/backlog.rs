//! The backlog metric, by which fleets scale.

mod kit;

use dueline_consumer::Config;
use kit::{Kit, secs};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_consumer_that_cannot_read_the_store_keeps_its_last_backlog() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let shows = |line: &str| metrics.render().lines().any(|shown| shown == line);
    let kit = Kit::new().await;
    kit.submit_many("a", secs(0), 3).await;
    let backlog_period = secs(5);
    kit.start_with(Config {
        backlog_period,
        ..Config::default()
    });
    sleep(secs(6)).await;
    assert!(shows(r#"dueline_backlog_tasks{job="a"} 3"#));
    assert!(shows(r#"dueline_backlog_tasks{job="b"} 0"#));
    kit.store.fail_jobs(true);
    sleep(secs(60)).await;
    assert!(shows(r#"dueline_backlog_tasks{job="a"} 3"#));
    kit.store.fail_jobs(false);
    let message = kit.receive_and_ack("a", secs(1)).await.expect("a message");
    kit.claim(&message, true).await;
    sleep(secs(10)).await;
    assert!(shows(r#"dueline_backlog_tasks{job="a"} 2"#));
    kit.stop().await;
}
