//! The critical path of a family: the chain of members that determined when its last member ended, or will determine that.
//!
//! For members that have not ended the end is estimated: what a member waits for ends, its run time comes, and then it runs as
//! long as those of its job have run on average.

use std::{collections::HashMap, time::Duration};

use dueline_domain::{EdgeKind, JobName, Task, TaskAddress, Timestamp};

/// How long a run is taken to last when none of the family has ended.
const RUN_UNKNOWN: Duration = Duration::from_secs(1);

/// What is known of the times of a member.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// What it waits or waited for.
    pub(super) waits_for: Vec<(EdgeKind, TaskAddress)>,
    pub(super) run_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
}

impl Times {
    pub(super) fn of(task: &Task) -> Self {
        let family = task.family().into_iter();
        let waits_for = family.flat_map(|family| {
            let parent = family.parent.iter().map(|one| (EdgeKind::Child, one));
            let after = family.after.iter().map(|one| (EdgeKind::Follower, one));
            let run = family.from_run.iter();
            let run = run.map(|run| (EdgeKind::Staged, &run.task));
            let others = parent.chain(after);
            others.map(|(kind, one)| (kind, &one.task)).chain(run)
        });
        Self {
            waits_for: waits_for.map(|(kind, task)| (kind, task.clone())).collect(),
            run_at: task.run_at,
            started_at: task.started_at,
            finished_at: task.finished_at,
        }
    }
}

/// When a member, or a member with all its children, ended or will end; and what determined that.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Timestamp,
    cause: Option<usize>,
}

/// The path from its first member to the one that ends last, each with its expected or real end. Members are given with their
/// times.
pub(super) fn critical_path<'a>(
    members: &[(&'a TaskAddress, &'a Times)],
    now: Timestamp,
) -> Vec<(&'a TaskAddress, Timestamp)> {
    let numbers: HashMap<&TaskAddress, usize> =
        members.iter().map(|(task, _)| *task).zip(0..).collect();
    // Each member is two nodes: its own end, and after all of these its end with all its children.
    let len = members.len();
    let with_children = |number: usize| len + number;
    let mut later: Vec<Vec<usize>> = vec![Vec::new(); 2 * len];
    let mut open = vec![0_usize; 2 * len];
    let mut depends = |on: usize, node: usize| {
        later[on].push(node);
        open[node] += 1;
    };
    for (number, (_, times)) in members.iter().enumerate() {
        depends(number, with_children(number));
        for (kind, task) in &times.waits_for {
            // Members that wait for something outside of the family are shown all the same.
            let Some(before) = numbers.get(task).copied() else {
                continue;
            };
            match kind {
                EdgeKind::Child => {
                    depends(before, number);
                    depends(with_children(number), with_children(before));
                }
                EdgeKind::Follower => depends(with_children(before), number),
                EdgeKind::Staged => depends(before, number),
            }
        }
    }
    let expected = Durations::of(members);
    let mut ends: Vec<Option<End>> = vec![None; 2 * len];
    let mut latest: Vec<Option<usize>> = vec![None; 2 * len];
    let mut ready: Vec<usize> = (0..2 * len).filter(|node| open[*node] == 0).collect();
    let mut last: Option<usize> = None;
    while let Some(node) = ready.pop() {
        let before = latest[node].and_then(|before| Some((before, ends[before]?.at)));
        let end = match members.get(node) {
            None => End {
                at: before.map_or(now, |(_, at)| at),
                cause: before.map(|(before, _)| before),
            },
            Some((task, times)) => {
                let begin = before.map_or(times.run_at, |(_, at)| at.max(times.run_at));
                let run = expected.of_job(&task.job);
                let at = match (times.finished_at, times.started_at) {
                    (Some(at), _) => at,
                    (None, Some(started)) => started.after(run).max(now),
                    (None, None) => begin.max(now).after(run),
                };
                // A run time of its own that came later is no matter of the others.
                let cause = before.filter(|(_, at)| *at >= times.run_at);
                End {
                    at,
                    cause: cause.map(|(before, _)| before),
                }
            }
        };
        ends[node] = Some(end);
        let ends_later = |other: usize| ends[other].is_none_or(|other| end.at > other.at);
        if node < len && last.is_none_or(ends_later) {
            last = Some(node);
        }
        for next in std::mem::take(&mut later[node]) {
            if latest[next].is_none_or(ends_later) {
                latest[next] = Some(node);
            }
            open[next] -= 1;
            if open[next] == 0 {
                ready.push(next);
            }
        }
    }
    let mut path = Vec::new();
    let mut next = last;
    while let Some(node) = next {
        let end = ends[node];
        if let (Some((task, _)), Some(end)) = (members.get(node), end) {
            path.push((*task, end.at));
        }
        next = end.and_then(|end| end.cause);
    }
    path.reverse();
    path
}

/// How long runs last.
struct Durations<'a> {
    by_job: HashMap<&'a JobName, (Duration, u32)>,
    all: (Duration, u32),
}

impl<'a> Durations<'a> {
    fn of(members: &[(&'a TaskAddress, &'a Times)]) -> Self {
        let (mut by_job, mut all) = (HashMap::new(), (Duration::ZERO, 0));
        for (task, times) in members {
            let (Some(started), Some(finished)) = (times.started_at, times.finished_at) else {
                continue;
            };
            let run = finished.since(started);
            for (sum, count) in [by_job.entry(&task.job).or_default(), &mut all] {
                *sum += run;
                *count += 1;
            }
        }
        Self { by_job, all }
    }

    fn of_job(&self, job: &JobName) -> Duration {
        let mean = |(sum, count): (Duration, u32)| sum.checked_div(count);
        let of_job = self.by_job.get(job).copied().and_then(mean);
        of_job.or_else(|| mean(self.all)).unwrap_or(RUN_UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use dueline_domain::TaskId;

    use super::*;

    fn task(number: u8) -> TaskAddress {
        TaskAddress {
            job: JobName::parse("mail").unwrap(),
            id: TaskId::from_bytes([number; 16]),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::clamped(seconds * 1_000)
    }

    /// The numbers of the members on the path, and when they end, in seconds.
    fn path(members: &[(u8, Times)], now: i64) -> Vec<(u8, i64)> {
        let members: Vec<_> = members
            .iter()
            .map(|(number, times)| (task(*number), times))
            .collect();
        let members: Vec<_> = members.iter().map(|(task, times)| (task, *times)).collect();
        let path = critical_path(&members, at(now));
        let step =
            |(task, end): &(&TaskAddress, Timestamp)| (task.id.as_bytes()[0], end.millis() / 1_000);
        path.iter().map(step).collect()
    }

    /// A member that waits for these.
    fn times(waits_for: &[(EdgeKind, u8)], run: (Option<i64>, Option<i64>)) -> Times {
        let waits_for = waits_for
            .iter()
            .map(|(kind, number)| (*kind, task(*number)));
        Times {
            waits_for: waits_for.collect(),
            run_at: at(0),
            started_at: run.0.map(at),
            finished_at: run.1.map(at),
        }
    }

    #[test]
    fn f_156_the_path_goes_by_way_of_those_that_ended_last() {
        use EdgeKind::{Child, Follower};
        let ran = |from, to| (Some(from), Some(to));
        let mut members = vec![
            (1, times(&[], ran(0, 2))),
            (2, times(&[(Child, 1)], ran(2, 5))),
            (3, times(&[(Child, 1)], ran(2, 9))),
            (4, times(&[(Child, 2)], ran(5, 20))),
            // It waits for the parent with all children, also those of the first child.
            (5, times(&[(Follower, 1)], ran(20, 22))),
            (6, times(&[(Follower, 1)], ran(20, 21))),
        ];
        let expected = [(1, 2), (2, 5), (4, 20), (5, 22)];
        assert_eq!(path(&members, 99), expected);
        // Still running or waiting: runs last as long as others on average, here 4 s.
        members[3].1.finished_at = None;
        members[4].1 = times(&[(Follower, 1)], (None, None));
        members[5].1 = times(&[(Follower, 1)], (None, None));
        members[5].1.run_at = at(40);
        assert_eq!(path(&members, 7), [(6, 44)], "its own time comes last");
        members[5].1.run_at = at(0);
        assert_eq!(path(&members, 10), [(1, 2), (2, 5), (4, 10), (6, 14)]);
        assert_eq!(path(&members, 30).last(), Some(&(6, 34)));
        assert_eq!(path(&[], 30), []);
    }

    #[test]
    fn f_156_long_chains_have_a_path() {
        let chain = |number: u8| match number {
            0 => times(&[], (Some(0), Some(1))),
            n => times(&[(EdgeKind::Follower, n - 1)], (None, None)),
        };
        let members: Vec<_> = (0..=255_u8).map(|number| (number, chain(number))).collect();
        assert_eq!(path(&members, 1).len(), 256);
    }
}
