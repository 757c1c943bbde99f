//! Measures Effectum in WAL mode with the scenarios of `dueline bench`, and serves a bare axum server as a reference for
//! REST.
//!
//! Usage: `peer-effectum FOLDER enqueue|drain|both TASKS CONCURRENCY`, or `peer-effectum ADDRESS http`.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use effectum::{Job, JobRunner, Queue, RunningJob, Worker};

const CALLERS: u64 = 64;

async fn do_nothing(_job: RunningJob, _context: ()) -> Result<(), String> {
    Ok(())
}

/// Creates a new file in WAL mode, before the library opens it.
fn new_database(folder: &str) -> PathBuf {
    let path = Path::new(folder).join("effectum.db");
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
    }
    let db = rusqlite::Connection::open(&path).expect("a file");
    let mode: String = db
        .query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))
        .expect("a mode");
    assert_eq!(mode, "wal");
    path
}

async fn enqueue(queue: &Arc<Queue>, tasks: u64, callers: u64) {
    let next = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let (queue, next) = (queue.clone(), next.clone());
            tokio::spawn(async move {
                while next.fetch_add(1, Ordering::Relaxed) < tasks {
                    let job = Job::builder("noop").payload(vec![b'x'; 100]).build();
                    queue.add_job(job).await.expect("a stored job");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("a caller");
    }
}

async fn worker(queue: &Queue, slots: u16) -> Worker {
    let min = if slots > 100 { slots / 2 } else { slots };
    Worker::builder(queue, ())
        .jobs(vec![JobRunner::builder("noop", do_nothing).build()])
        .max_concurrency(slots)
        .min_concurrency(min)
        .build()
        .await
        .expect("a worker")
}

async fn wait_until_finished(worker: &Worker, tasks: u64) {
    while worker.counts().finished < tasks {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn bare_http(address: &str) {
    let post = |body: axum::Json<serde_json::Value>| async move { axum::Json(body.0) };
    let router = axum::Router::new().route("/", axum::routing::post(post));
    let listener = tokio::net::TcpListener::bind(address).await.expect("a port");
    axum::serve(listener, router).await.expect("a server");
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(2).is_some_and(|command| command == "http") {
        return bare_http(&args[1]).await;
    }
    let (command, tasks, slots) = (&args[2], args[3].parse().unwrap(), args[4].parse().unwrap());
    let path = new_database(&args[1]);
    let queue = Arc::new(Queue::new(&path).await.expect("a queue"));
    let elapsed = match command.as_str() {
        "enqueue" => {
            let started = Instant::now();
            enqueue(&queue, tasks, CALLERS).await;
            started.elapsed()
        }
        "drain" => {
            let jobs: Vec<Job> = (0..tasks)
                .map(|_| Job::builder("noop").payload(vec![b'x'; 100]).build())
                .collect();
            for batch in jobs.chunks(1_000) {
                queue.add_jobs(batch.to_vec()).await.expect("stored jobs");
            }
            let started = Instant::now();
            let worker = worker(&queue, slots).await;
            wait_until_finished(&worker, tasks).await;
            started.elapsed()
        }
        "both" => {
            let worker = worker(&queue, slots).await;
            let started = Instant::now();
            enqueue(&queue, tasks, CALLERS).await;
            wait_until_finished(&worker, tasks).await;
            started.elapsed()
        }
        other => panic!("unknown command {other}"),
    };
    let rate = tasks as f64 / elapsed.as_secs_f64();
    println!(
        "{{\"peer\":\"effectum-wal\",\"scenario\":\"{command}\",\"concurrency\":{slots},\"tasks\":{tasks},\"rate_per_s\":{rate:.0}}}"
    );
    // The library's writer thread does not shut down cleanly, so the process exits here.
    std::process::exit(0);
}
