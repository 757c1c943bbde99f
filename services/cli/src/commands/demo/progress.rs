//! Waits until every task of a demo has ended, and shows the progress.

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

use dueline_api::{Call, ErrorKind, ErrorReason, Frontend, operation::GetJobStats};
use dueline_domain::{JobName, StateKind};
use dueline_executor::Executor;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{DeliveryReceiver, DemoKind};
use crate::exit::CliError;

const POLL_PERIOD: Duration = Duration::from_millis(50);
/// The stall timeout of a demo over small files.
const STALL_TIMEOUT_MIN: Duration = Duration::from_secs(60);
/// The lowest speed of compression on a slow disk and a busy machine.
const BYTES_PER_S_MIN: u64 = 2_000_000;

/// The longest run, and the longest time without any change of state, when the largest file has this size.
pub(super) fn stall_timeout(file_bytes_max: u64) -> Duration {
    STALL_TIMEOUT_MIN + Duration::from_secs(file_bytes_max / BYTES_PER_S_MIN)
}

/// The progress of a running demo.
pub(super) struct DemoProgress {
    pub(super) frontend: Arc<dyn Frontend>,
    pub(super) executors: Vec<Arc<Executor>>,
    pub(super) receiver: Arc<DeliveryReceiver>,
    /// The folder of the marker files of tasks that fail on purpose.
    pub(super) markers: PathBuf,
    /// The longest time without any change of state.
    pub(super) stall_timeout: Duration,
    pub(super) bar: ProgressBar,
    /// The number of planned tasks.
    pub(super) total: usize,
    /// The number of submitted tasks.
    pub(super) submitted: AtomicUsize,
}

impl DemoProgress {
    /// Counts further submitted tasks.
    pub(super) fn add_submitted(&self, count: usize) {
        self.submitted.fetch_add(count, Ordering::Relaxed);
    }

    /// Shows a message beside the progress bar.
    pub(super) fn set_message(&self, message: &'static str) {
        self.bar.set_message(message);
    }

    /// Waits until every task is in a final state.
    pub(super) async fn until_ended(&self) -> Result<(), CliError> {
        let mut ticks = interval(POLL_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_counts, mut changed_at) = (BTreeMap::new(), Instant::now());
        loop {
            ticks.tick().await;
            let counts = self.counts().await?;
            self.draw(&counts);
            if done(&counts) == self.total as u64 {
                return Ok(());
            }
            if counts != last_counts {
                (last_counts, changed_at) = (counts, Instant::now());
            } else if changed_at.elapsed() > self.stall_timeout {
                return Err(stalled(&counts, self.total, self.stall_timeout));
            }
        }
    }

    /// The number of tasks in each state.
    async fn counts(&self) -> Result<BTreeMap<StateKind, u64>, CliError> {
        let mut counts = BTreeMap::new();
        for kind in DemoKind::ALL {
            let stats = self
                .frontend
                .call(
                    &Call::default(),
                    GetJobStats {
                        name: job_name(kind)?,
                    },
                )
                .await?;
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
        let running = self
            .executors
            .iter()
            .map(|executor| executor.counts().running);
        let running: u64 = running.sum();
        // Each failed first run leaves a marker file or a refused delivery.
        let markers = fs::read_dir(&self.markers).map_or(0, Iterator::count);
        let retried = markers + self.receiver.refused();
        self.bar.set_position(done(counts));
        self.bar
            .set_message(format!("{submitting}{running} running, {retried} retried"));
    }
}

impl Drop for DemoProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The job of a kind.
pub(super) fn job_name(kind: DemoKind) -> Result<JobName, CliError> {
    JobName::parse(kind.job_name()).map_err(|error| CliError::invalid(error.to_string()))
}

fn done(counts: &BTreeMap<StateKind, u64>) -> u64 {
    let done = counts.iter().filter(|(state, _)| state.is_final());
    done.map(|(_, count)| count).sum()
}

fn stalled(counts: &BTreeMap<StateKind, u64>, total: usize, after: Duration) -> CliError {
    let unfinished = counts.iter().filter(|(state, _)| !state.is_final());
    let unfinished: Vec<_> = unfinished
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    let message = format!(
        "no task has changed its state for {} s: {} of {total} tasks are done, {}",
        after.as_secs(),
        done(counts),
        unfinished.join(", ")
    );
    CliError::new(ErrorKind::Internal, ErrorReason::Stalled, message)
}

/// The progress bar, hidden unless `is_visible`.
pub(super) fn bar(total: usize, is_visible: bool) -> ProgressBar {
    if !is_visible {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
    // The template is a constant. If it is invalid, the default style is good enough.
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
    fn a_stalled_demo_reports_the_tasks_that_are_not_in_a_final_state() {
        let counts = [
            (StateKind::Succeeded, 5),
            (StateKind::Failed, 1),
            (StateKind::Enqueued, 3),
            (StateKind::Processing, 2),
        ];
        let counts = counts.into_iter().collect();
        assert_eq!(done(&counts), 6);
        let error = stalled(&counts, 11, stall_timeout(0)).to_string();
        for part in ["60 s", "6 of 11", "3 enqueued", "2 processing"] {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }

    #[test]
    fn the_stall_timeout_grows_with_the_largest_file() {
        assert_eq!(stall_timeout(1_999_999), STALL_TIMEOUT_MIN);
        assert_eq!(stall_timeout(20_000_000_000), Duration::from_secs(10_060));
    }
}
