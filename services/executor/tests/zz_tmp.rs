use std::{sync::{Arc, atomic::{AtomicUsize, Ordering}}, time::Duration};
use async_trait::async_trait;
use bytes::Bytes;
use dueline_api::*;
use dueline_domain::{Handler as H, *};
use dueline_executor::*;
use dueline_runtime::*;
struct W { left: AtomicUsize, done: AtomicUsize, asks: AtomicUsize, max: AtomicUsize, batches: AtomicUsize, job: JobName, h: H, lat: u64 }
#[async_trait]
impl Work for W {
    async fn next(&self, ask: NextWork) -> Result<Vec<Assignment>, ApiError> {
        self.asks.fetch_add(1, Ordering::Relaxed); self.max.fetch_max(ask.tasks_max, Ordering::Relaxed);
        if self.lat > 0 { tokio::time::sleep(Duration::from_millis(self.lat)).await; }
        let n = self.left.load(Ordering::Relaxed).min(ask.tasks_max);
        if n == 0 { tokio::time::sleep(ask.wait).await; return Ok(vec![]); }
        let base = self.left.fetch_sub(n, Ordering::Relaxed);
        Ok((0..n).map(|i| Assignment { job: self.job.clone(), id: TaskId::from_bytes((((base - i) as u128)).to_be_bytes()), token: Token::from_random(5), attempt: 0, input: Bytes::new(), content_type: None, name: None, weight: Weight::ONE, run_at: Timestamp::EPOCH, claimed_at: Timestamp::EPOCH, handler: self.h.clone(), claim_timeout: Duration::from_secs(10), heartbeat_timeout: Duration::from_secs(8), heartbeat_increment: Duration::from_secs(8), run_timeout: None, start_first: false, started_before: false, trace: None }).collect())
    }
    async fn report(&self, r: Vec<Report>) -> Vec<Result<Reported, ApiError>> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        if self.lat > 0 { tokio::time::sleep(Duration::from_millis(self.lat)).await; }
        self.done.fetch_add(r.len(), Ordering::Relaxed);
        r.iter().map(|_| Ok(Reported { state: StateKind::Succeeded, cancel_requested: false, lease: None })).collect()
    }
    async fn alive(&self, _: Registration) -> Result<Alive, ApiError> { Ok(Alive { interval: Duration::from_secs(2) }) }
    async fn leave(&self, _: &WorkerId) -> Result<(), ApiError> { Ok(()) }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bench() {
  for lat in [0, 1, 3] {
    let n = 200_000;
    let w = Arc::new(W { left: n.into(), done: 0.into(), asks: 0.into(), max: 0.into(), batches: 0.into(), job: JobName::parse("j").unwrap(), h: H { kind: "noop".into(), config: "{}".into() }, lat });
    let mut c = Config::new("w", 1); c.concurrency = 10;
    let ex = Executor::new(c, Deps { work: w.clone(), clock: Arc::new(SystemClock), rng: Arc::new(SystemRng), registry: Registry::built_in(BuiltIn { noop: true, ..Default::default() }) }).unwrap();
    let s = Shutdown::new(); let g = TaskGroup::new();
    let t = tokio::time::Instant::now();
    let cpu0 = cpu();
    g.spawn("x", run(ex.clone(), s.clone()));
    while ex.counts().finished < n as u64 { tokio::time::sleep(Duration::from_millis(5)).await; }
    let e = t.elapsed();
    println!("lat {lat}: {:.0}/s, cpu {:.2} us/task, asks {}, max {}, batches {}", n as f64 / e.as_secs_f64(), (cpu() - cpu0) * 1e6 / n as f64, w.asks.load(Ordering::Relaxed), w.max.load(Ordering::Relaxed), w.batches.load(Ordering::Relaxed));
    s.stop_work(); g.wait().await.unwrap();
  }
}
fn cpu() -> f64 { let s = std::fs::read_to_string("/proc/self/stat").unwrap(); let f: Vec<_> = s.split_whitespace().collect(); (f[13].parse::<f64>().unwrap() + f[14].parse::<f64>().unwrap()) / 100.0 }
