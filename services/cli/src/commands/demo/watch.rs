//! Waits until every task of a demo has ended, and shows how far it is.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dueline_api::{ErrorKind, Frontend};
use dueline_domain::{JobName, StateKind};
use dueline_executor::Executor;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Kind, Receiver};
use crate::exit::CliError;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Nothing at all happens for this long only if something is broken.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// A slow disk and a busy machine compress no slower than this.
const BYTES_PER_S_MIN: u64 = 2_000_000;

/// How long one run may take when the largest file has this size, and how long nothing may move.
pub(super) fn patience(file_bytes_max: u64) -> Duration {
    STALLED_AFTER + Duration::from_secs(file_bytes_max / BYTES_PER_S_MIN)
}

/// Whom to ask how far it is.
pub(super) struct Watch {
    pub(super) frontend: Arc<dyn Frontend>,
    pub(super) executors: Vec<Arc<Executor>>,
    pub(super) receiver: Arc<Receiver>,
    /// The folder of the markers that tasks leave when they fail on purpose.
    pub(super) marks: PathBuf,
    /// How long nothing may move.
    pub(super) patience: Duration,
    pub(super) bar: ProgressBar,
    /// How many tasks there will be.
    pub(super) total: usize,
    /// How many there are.
    pub(super) submitted: AtomicUsize,
}

impl Watch {
    /// So many more tasks are stored.
    pub(super) fn submitted(&self, count: usize) {
        self.submitted.fetch_add(count, Ordering::Relaxed);
    }

    /// Says what is done when no task runs any more.
    pub(super) fn say(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    /// Waits until every task is final.
    pub(super) async fn until_ended(&self) -> Result<(), CliError> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut seen, mut moved) = (BTreeMap::new(), Instant::now());
        loop {
            looks.tick().await;
            let now = self.look().await?;
            self.draw(&now);
            if done(&now) == self.total as u64 {
                return Ok(());
            }
            if now != seen {
                (seen, moved) = (now, Instant::now());
            } else if moved.elapsed() > self.patience {
                return Err(stalled(&seen, self.total, self.patience));
            }
        }
    }

    async fn look(&self) -> Result<BTreeMap<StateKind, u64>, CliError> {
        let mut counts = BTreeMap::new();
        for kind in Kind::ALL {
            let stats = self.frontend.job_stats(&job(kind)?).await?;
            for (state, count) in stats.by_state {
                *counts.entry(state).or_default() += count;
            }
        }
        Ok(counts)
    }

    fn draw(&self, counts: &BTreeMap<StateKind, u64>) {
        if self.bar.is_hidden() {
            return;
        }
        let submitted = self.submitted.load(Ordering::Relaxed);
        let submitting = match submitted < self.total {
            true => format!("{submitted} submitted, "),
            false => String::new(),
        };
        let running = self.executors.iter().map(|one| one.counts().running);
        let running: u64 = running.sum();
        // Each one leaves a trace of its first, failed run: a marker file or a refused call.
        let marks = fs::read_dir(&self.marks).map_or(0, Iterator::count);
        let retried = marks + self.receiver.refused();
        self.bar.set_position(done(counts));
        self.bar
            .set_message(format!("{submitting}{running} running, {retried} retried"));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The job of a kind of tasks.
pub(super) fn job(kind: Kind) -> Result<JobName, CliError> {
    JobName::parse(kind.job_name()).map_err(|error| CliError::invalid(error.to_string()))
}

fn done(counts: &BTreeMap<StateKind, u64>) -> u64 {
    let done = counts.iter().filter(|(state, _)| state.is_final());
    done.map(|(_, count)| count).sum()
}

fn stalled(counts: &BTreeMap<StateKind, u64>, total: usize, after: Duration) -> CliError {
    let left = counts.iter().filter(|(state, _)| !state.is_final());
    let left: Vec<_> = left
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let message = format!(
        "no task has moved for {} s: {} of {total} tasks are done, {}",
        after.as_secs(),
        done(counts),
        left.join(", ")
    );
    CliError::new(ErrorKind::Internal, "stalled", message)
}

/// The bar, if one may be drawn.
pub(super) fn bar(total: usize, draws: bool) -> ProgressBar {
    if !draws {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
    // The template is a constant; should it ever be wrong, the default style does as well.
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos} of {len} done  {msg}  {elapsed}")
    {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_final_tasks_are_done_and_the_others_are_named_when_nothing_moves() {
        let counts = [
            (StateKind::Succeeded, 5),
            (StateKind::Failed, 1),
            (StateKind::Enqueued, 3),
            (StateKind::Processing, 2),
        ];
        let counts = counts.into_iter().collect();
        assert_eq!(done(&counts), 6);
        let error = stalled(&counts, 11, patience(0)).to_string();
        for part in ["60 s", "6 of 11", "3 enqueued", "2 processing"] {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }

    #[test]
    fn a_large_file_may_take_its_time() {
        assert_eq!(patience(1_999_999), STALLED_AFTER);
        assert_eq!(patience(20_000_000_000), Duration::from_secs(10_060));
    }
}
