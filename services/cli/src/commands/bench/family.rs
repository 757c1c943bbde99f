//! The scenario of a family: one parent, many children, and a task that waits for all of them.

use std::time::Duration;

use dueline_api::{
    Call,
    operation::{GetTask, Modify, Submit},
};
use dueline_domain::{
    Due, Family, Handler, Modification, NewTask, Policy, Predecessor, StateKind, TaskAddress,
    limits,
};
use dueline_ports::Clock as _;
use dueline_runtime::SystemClock;
use tokio::time::Instant;

use super::{
    Bench, BenchReport, Latencies,
    drain::no_op,
    rss_peak_kib,
    target::{BenchTarget, JOB, put_job},
};
use crate::exit::CliError;

/// When the parent would be due by itself.
const LATER: Duration = Duration::from_secs(24 * 3_600);
/// How long one call waits for the end of the last task.
const WAIT: Duration = Duration::from_secs(60);

/// Submits a parent that is due later, its children and a follower of the parent, in batches. Then the parent is made due: measures
/// the rate of tasks from then until the follower has ended.
pub(super) async fn family(bench: &Bench, target: &BenchTarget) -> Result<BenchReport, CliError> {
    let most = limits().children_max as u64 + 2;
    let count = bench.tasks(most).clamp(3, most);
    let registry = no_op()?;
    let node = target
        .node("family", Some((bench.slots(), registry)))
        .await?;
    let job = put_job(&node, JOB, Handler::worker(), Policy::default()).await?;
    let frontend = node.frontend();
    let submit = async |tasks| {
        let answers = frontend.call(&Call::default(), Submit { tasks }).await?;
        answers.into_iter().collect::<Result<Vec<_>, _>>()
    };
    let begun_ms = u64::try_from(SystemClock.now().millis()).unwrap_or(0);
    let started = Instant::now();
    let parent = NewTask {
        due: Due::After(LATER),
        ..target.task(&job, begun_ms)
    };
    let address = parent.address();
    let in_family = |family: Family| in_family(target.task(&job, begun_ms), family);
    let waits_for = || Predecessor::open(address.clone());
    let child = || {
        in_family(Family {
            parent: Some(waits_for()),
            ..Family::default()
        })
    };
    let mut left = count - 2;
    let first = left.min(bench.batch.max(1) as u64);
    let mut batch = vec![parent];
    batch.extend((0..first).map(|_| child()));
    let last = in_family(Family {
        after: vec![waits_for()],
        ..Family::default()
    });
    let TaskAddress { job, id } = last.address();
    batch.push(last);
    submit(batch).await?;
    left -= first;
    while left > 0 {
        let some = left.min(bench.batch.max(1) as u64);
        submit((0..some).map(|_| child()).collect()).await?;
        left -= some;
    }
    let submitted_in = started.elapsed();
    let change = Modification {
        run_at: Some(SystemClock.now()),
        ..Modification::default()
    };
    let now = Modify {
        job: address.job.clone(),
        id: address.id,
        change,
    };
    let started = Instant::now();
    frontend.call(&Call::default(), now).await?;
    loop {
        let get = GetTask {
            job: job.clone(),
            id,
            wait: Some(WAIT),
        };
        let task = frontend.call(&Call::default(), get).await?;
        if task.kind() == StateKind::Succeeded {
            break;
        }
        if task.kind().is_final() {
            let text = format!("the last task is {}, not succeeded", task.kind());
            return Err(CliError::invalid(text));
        }
    }
    let elapsed = started.elapsed();
    target.stop(node).await?;
    let mut report = bench.report(count, bench.slots());
    report.db_bytes = target.db_bytes("family");
    report.rss_kib = rss_peak_kib();
    let submitted_ms = (submitted_in.as_secs_f64() * 1_000.0).round();
    report.more.extend([("submitted_in_ms", submitted_ms)]);
    Ok(report.measured(elapsed, &Latencies::default()))
}

fn in_family(mut task: NewTask, family: Family) -> NewTask {
    task.options.get_or_insert_default().family = Some(Box::new(family));
    task
}
