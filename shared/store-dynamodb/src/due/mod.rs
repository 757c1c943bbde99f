//! Due tasks, read from the index and checked against the tasks themselves.
//!
//! The index tells a time that is never later than the trigger time. So a look reads it from the beginning up to now,
//! and fetches those tasks that it does not remember to be not due yet.

mod memory;
mod partition;

use std::collections::BTreeMap;

use dueline_domain::{JobName, StateKind, TaskId, Timestamp};
use dueline_ports::{DuePage, DueQuery, DueTask, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use self::partition::Piece;
use crate::{jobs::Entry, store::Inner};

pub(crate) use memory::Watch;

/// Partitions read at once.
const SIDE_BY_SIDE: usize = 16;

/// A task that a look has examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Examined {
    trigger_at: Timestamp,
    id: TaskId,
    kind: StateKind,
}

/// What a look at one partition found.
#[derive(Debug, Default)]
struct Looked {
    due: Vec<Examined>,
    /// The earliest trigger time to come, or an earlier time.
    next_at: Option<Timestamp>,
    /// Pieces of backlogs: entries of the past were left for the next look.
    pieces: Vec<Piece>,
}

impl Looked {
    fn later(&mut self, at: Timestamp) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }

    fn join(&mut self, other: Self) {
        self.due.extend(other.due);
        self.pieces.extend(other.pieces);
        if let Some(at) = other.next_at {
            self.later(at);
        }
    }
}

impl Inner {
    pub(crate) async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        self.watch.begin();
        let jobs = self.jobs_as_known().await?;
        let partitions = jobs.iter().flat_map(|entry| {
            let shards = 0..entry.shards;
            shards.map(move |shard| (entry.clone(), shard))
        });
        let mine: Vec<_> = partitions
            .filter(|(entry, shard)| covers(&query, &entry.home.job, *shard))
            .collect();
        let now = query.now;
        let mut looks = stream::iter(mine)
            .map(|(entry, shard)| {
                let wanted = query.pending_limits.get(&entry.home.job) != Some(&0);
                Box::pin(async move {
                    match self.look(&entry, shard, now, wanted).await {
                        Ok(looked) => Ok((entry, Some(looked))),
                        // A hot partition must not hide those of other jobs.
                        Err(StoreError::Throttled) => Ok((entry, None)),
                        Err(error) => Err(error),
                    }
                })
            })
            .buffer_unordered(SIDE_BY_SIDE);
        let (mut seen, mut throttled) = (0, 0);
        let mut by_job: BTreeMap<JobName, (std::sync::Arc<Entry>, Looked)> = BTreeMap::new();
        while let Some((entry, looked)) = looks.try_next().await? {
            let Some(looked) = looked else {
                throttled += 1;
                continue;
            };
            seen += 1;
            let name = entry.home.job.clone();
            let (_, all) = by_job
                .entry(name)
                .or_insert_with(|| (entry, Looked::default()));
            all.join(looked);
        }
        drop(looks);
        if seen == 0 && throttled > 0 {
            return Err(StoreError::Throttled);
        }
        let mut page = DuePage {
            more: throttled > 0,
            ..DuePage::default()
        };
        for (job, (entry, looked)) in by_job {
            self.choose(&query, &job, &entry, looked, &mut page);
        }
        Ok(page)
    }

    /// Adds what the limits let through. The rest is remembered for a while, so that a paused job with a long backlog
    /// is not fetched again at each look.
    fn choose(
        &self,
        query: &DueQuery,
        job: &JobName,
        entry: &Entry,
        mut looked: Looked,
        page: &mut DuePage,
    ) {
        let max = query.limit_per_job;
        let wanted = query.pending_limits.get(job).copied();
        let pending_max = wanted.map_or(max, |wanted| wanted.min(max));
        looked.due.sort_unstable();
        let (mut shown, mut hidden) = (Vec::new(), Vec::new());
        let (mut pending, mut owned) = (0, 0);
        for task in looked.due {
            let (count, most) = if task.kind.is_owned() {
                (&mut owned, max)
            } else {
                (&mut pending, pending_max)
            };
            *count += 1;
            if *count <= most && shown.len() < max {
                shown.push(task);
            } else {
                hidden.push(task);
            }
        }
        let held_back = hidden
            .iter()
            .any(|task| task.kind.is_owned() || pending_max > 0);
        page.more |= held_back || (!looked.pieces.is_empty() && !shown.is_empty());
        self.watch.hide(&entry.home, &hidden, query.now);
        if held_back {
            let hidden = hidden.iter().map(|task| task.id).collect();
            for piece in &looked.pieces {
                if let Some(head) = piece.back_to(&hidden) {
                    self.watch.go_back(&piece.partition, head);
                }
            }
        }
        let tasks = shown.into_iter().map(|task| DueTask {
            job: job.clone(),
            id: task.id,
            kind: task.kind,
            trigger_at: task.trigger_at,
        });
        page.tasks.extend(tasks);
        page.next_at = page.next_at.into_iter().chain(looked.next_at).min();
    }
}

/// Whether the caller reads this partition.
fn covers(query: &DueQuery, job: &JobName, shard: u32) -> bool {
    let share = query.share.as_ref();
    share.is_none_or(|share| share.covers(job, shard))
}
