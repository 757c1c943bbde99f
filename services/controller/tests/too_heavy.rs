//! Log lines about tasks that no worker of this host can run.

mod kit;

use std::{
    io,
    sync::{Arc, Mutex},
};

use dueline_api::PollRequest;
use dueline_ports::conformance::queue::message;
use kit::{Kit, name, request, secs, weighing};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogBuffer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn d_06_a_task_too_heavy_for_all_workers_here_is_logged_each_time_it_is_returned() {
    let log = LogBuffer::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let kit = Kit::new().await;
    let weak = PollRequest {
        weight_max: 5,
        task_weight_max: 5,
        ..request()
    };
    let heavy = [weighing("a", 1, 8), weighing("a", 2, 8)];
    kit.send(heavy.to_vec()).await;
    kit.send(vec![message(&name("a"), 3)]).await;
    let count = |n: u64| {
        let log = log.0.lock().unwrap().clone();
        let log = String::from_utf8(log).unwrap();
        log.matches(&message(&name("a"), n).id.to_string()).count()
    };
    assert_eq!(kit.poll(weak.clone()).await.unwrap().len(), 1);
    assert_eq!([count(1), count(2), count(3)], [1, 1, 0]);
    // Their delay ends, and they are received and returned a second time.
    let wait = secs(45);
    assert_eq!(kit.poll(PollRequest { wait, ..weak }).await, Ok(vec![]));
    assert_eq!([count(1), count(2), count(3)], [2, 2, 0]);
    kit.stop().await;
}
