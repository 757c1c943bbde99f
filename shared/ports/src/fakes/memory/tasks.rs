//! Tasks. Each call locks the contents.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use async_trait::async_trait;
use dueline_domain::{
    JobName, Priority, StateKind, Task, TaskId, TaskNews, TaskRef, Timestamp, WorkerId,
};

use super::{
    MemoryStore,
    state::{MemoryContents, StoredTask},
};
use crate::{
    Applied, ChangePage, ChangeQuery, Command, Create, Created, DuePage, DueQuery, DueTask,
    JobStats, Lane, LanePage, LaneQuery, ListOrder, ListQuery, OwnedTask, Page, Pruned, StoreError,
    TaskStore,
};

#[async_trait]
impl TaskStore for MemoryStore {
    async fn create(&self, now: Timestamp, new: Vec<Create>) -> Vec<Result<Created, StoreError>> {
        let mut contents = self.lock();
        let create = |create| contents.create(now, create);
        new.into_iter().map(create).collect()
    }

    async fn get(&self, job: &JobName, id: &TaskId) -> Result<Option<Task>, StoreError> {
        Ok(self.lock().task(job, id).cloned())
    }

    async fn apply(
        &self,
        now: Timestamp,
        commands: Vec<Command>,
    ) -> Vec<Result<Applied, StoreError>> {
        let mut contents = self.lock();
        let apply = |command| contents.apply(now, command);
        commands.iter().map(apply).collect()
    }

    async fn due(&self, query: DueQuery) -> Result<DuePage, StoreError> {
        Ok(due(&self.lock(), &query))
    }

    async fn lanes(&self, query: LaneQuery) -> Result<LanePage, StoreError> {
        Ok(lanes(&self.lock(), &query))
    }

    async fn ready(&self, job: &JobName, limit: usize) -> Result<Vec<TaskRef>, StoreError> {
        let contents = self.lock();
        let Some(index) = contents.indexes.get(job) else {
            return Ok(Vec::new());
        };
        let ids = index.ready.iter().take(limit).map(|(.., id)| id);
        let messages = ids.filter_map(|id| contents.task(job, id)?.message());
        Ok(messages.collect())
    }

    async fn owned(
        &self,
        _now: Timestamp,
        worker: Option<&WorkerId>,
    ) -> Result<Vec<OwnedTask>, StoreError> {
        let contents = self.lock();
        let ids = contents.indexes.values().flat_map(|index| &index.owned);
        let tasks = ids.filter_map(|(.., id)| contents.tasks.get(id));
        Ok(tasks
            .filter_map(|stored| owned(&stored.task))
            .filter(|owned| worker.is_none_or(|worker| owned.worker == *worker))
            .collect())
    }

    async fn list(&self, query: ListQuery) -> Result<Page, StoreError> {
        list(&self.lock(), &query)
    }

    async fn changes(&self, query: ChangeQuery) -> Result<ChangePage, StoreError> {
        let feed = {
            let contents = self.lock();
            contents.job(&query.job)?;
            contents.feed.clone()
        };
        feed.read(query).await
    }

    async fn stats(&self, job: &JobName) -> Result<JobStats, StoreError> {
        let contents = self.lock();
        let Some(index) = contents.indexes.get(job) else {
            return Ok(JobStats::default());
        };
        Ok(JobStats {
            by_state: index.counts.clone(),
            oldest_due_at: index.oldest_due_at(),
            partial: false,
            age: Duration::ZERO,
        })
    }

    async fn prune(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let mut contents = self.lock();
        let mut expired = Vec::new();
        for (name, index) in &contents.indexes {
            let Some(retention) = contents.job(name)?.policy.retention else {
                continue;
            };
            let is_expired = |at: Timestamp| at.after(retention) <= now;
            let ids = index.finished.iter();
            let ids = ids.take_while(|(at, ..)| is_expired(*at));
            let owes = |id| {
                contents
                    .tasks
                    .get(id)
                    .is_some_and(|s| s.task.owed.is_some())
            };
            let ids = ids.filter(|(.., id)| !owes(id));
            expired.extend(ids.map(|(.., id)| *id).take(limit - expired.len()));
        }
        for id in &expired {
            if let Some(stored) = contents.tasks.get(id)
                && contents.feed.is_watched()
            {
                let news = TaskNews::removed(stored.task.job.clone(), *id, now);
                contents.feed.publish([news]);
            }
            contents.remove(id);
        }
        Ok(Pruned {
            deleted: expired.len(),
            more: expired.len() == limit,
        })
    }
}

fn due(contents: &MemoryContents, query: &DueQuery) -> DuePage {
    let mut page = DuePage::default();
    let is_in_share = |job: &JobName| {
        query
            .share
            .as_ref()
            .is_none_or(|share| share.covers(job, 0))
    };
    for (job, index) in contents.indexes.iter().filter(|(job, _)| is_in_share(job)) {
        let max = query.limit_per_job;
        let pending_limit = query.pending_limits.get(job).copied();
        let pending_max = pending_limit.map_or(max, |limit| limit.min(max));
        let rank = |id: &TaskId| {
            let task = contents.tasks.get(id).map(|stored| &stored.task);
            let is_late = |kind| matches!(kind, StateKind::Enqueued | StateKind::Waiting);
            let comes_last = task.is_some_and(|task| is_late(task.kind()));
            let priority = task.map_or_else(Priority::default, |task| task.priority);
            (comes_last, Reverse(priority))
        };
        let (due, more) = index.due(query.now, max, pending_max, rank);
        page.more |= more;
        let due_task = |(trigger_at, _, id)| {
            let kind = contents.tasks.get(&id)?.task.kind();
            let job = job.clone();
            Some(DueTask {
                job,
                id,
                kind,
                trigger_at,
            })
        };
        page.tasks.extend(due.into_iter().filter_map(due_task));
        let owed = index.owed(query.now, query.owed_limit_of(job));
        page.owed.extend(owed.filter_map(due_task));
        let next = index.next_after(query.now);
        page.next_at = page.next_at.into_iter().chain(next).min();
    }
    page
}

fn lanes(contents: &MemoryContents, query: &LaneQuery) -> LanePage {
    let mut page = LanePage::default();
    let index = contents.indexes.get(&query.job);
    let Some(index) = index.filter(|_| query.is_covered()) else {
        return page;
    };
    let after = query.after.as_ref();
    let mut lanes = index
        .lanes
        .iter()
        .filter(|(name, _)| after.is_none_or(|after| *name > after))
        .peekable();
    let mut examined = 0;
    while page.lanes.len() < query.tasks_max
        && examined < query.lanes_max()
        && let Some((name, keys)) = lanes.next()
    {
        examined += 1;
        let due = keys.iter().filter(|(_, at, ..)| *at <= query.now);
        let task = |(_, trigger_at, _, id): &(_, Timestamp, _, TaskId)| {
            Some(DueTask {
                job: query.job.clone(),
                id: *id,
                kind: contents.tasks.get(id)?.task.kind(),
                trigger_at: *trigger_at,
            })
        };
        let tasks: Vec<_> = due.filter_map(task).collect();
        if !tasks.is_empty() {
            let name = name.clone();
            page.lanes.push(Lane { name, tasks });
        }
        page.end = lanes.peek().map(|_| name.clone());
    }
    let per_lane = query.tasks_per_lane(page.lanes.len());
    for lane in &mut page.lanes {
        page.has_more |= lane.tasks.len() > per_lane;
        lane.tasks.truncate(per_lane);
    }
    let times = index.lanes.values().flatten().map(|(_, at, ..)| *at);
    page.next_at = times.filter(|at| *at > query.now).min();
    page
}

fn owned(task: &Task) -> Option<OwnedTask> {
    Some(OwnedTask {
        job: task.job.clone(),
        id: task.id,
        kind: task.kind(),
        token: task.state.token()?,
        worker: task.lease()?.worker.clone(),
    })
}

/// Where a task stands in a list: its due time in an order by due time, and its number in submit order.
type Position = (i64, u64);

fn list(contents: &MemoryContents, query: &ListQuery) -> Result<Page, StoreError> {
    let after = query.cursor.as_deref();
    let after = after.map(|text| parse_cursor(text, query)).transpose()?;
    let mut page = Page::default();
    let Some(index) = contents.indexes.get(&query.job) else {
        return Ok(page);
    };
    let has_key = |task: &Task| {
        let key = query.key.as_ref();
        key.is_none_or(|key| index.by_key.get(key) == Some(&task.id))
    };
    let stored = index.by_seq.values();
    let stored = stored.filter_map(|id| contents.tasks.get(id));
    let matching = stored.filter(|stored| {
        matches_query(&stored.task, query)
            && has_key(&stored.task)
            && (!query.order.is_by_due_time()
                || ListOrder::WITH_DUE_TIME.contains(&stored.task.kind()))
    });
    let position = |stored: &StoredTask| -> Position {
        let due = stored
            .task
            .trigger_at()
            .filter(|_| query.order.is_by_due_time());
        (due.map_or(0, Timestamp::millis), stored.seq)
    };
    let mut matching: Vec<(Position, &Task)> = matching
        .map(|stored| (position(stored), &stored.task))
        .collect();
    matching.sort_unstable_by_key(|(position, _)| *position);
    if query.order.is_descending() {
        matching.reverse();
    }
    let is_later = |position: &Position| {
        after.is_none_or(|after| match query.order.is_descending() {
            true => *position < after,
            false => *position > after,
        })
    };
    let mut matching = matching
        .into_iter()
        .filter(|(position, _)| is_later(position))
        .peekable();
    while page.tasks.len() < query.limit {
        let Some(((at, seq), task)) = matching.next() else {
            break;
        };
        page.tasks.push(task.clone());
        let has_more = matching.peek().is_some();
        page.next = has_more.then(|| Arc::from(format!("{}.{at:x}.{seq:x}", query.order)));
    }
    Ok(page)
}

fn parse_cursor(cursor: &str, query: &ListQuery) -> Result<Position, StoreError> {
    let parse = || {
        let rest = cursor.strip_prefix(query.order.name())?.strip_prefix('.')?;
        let (at, seq) = rest.split_once('.')?;
        let at = i64::from_str_radix(at, 16).ok()?;
        Some((at, u64::from_str_radix(seq, 16).ok()?))
    };
    parse().ok_or_else(|| StoreError::Invalid("cursor is not from this store and order".into()))
}

fn matches_query(task: &Task, query: &ListQuery) -> bool {
    let options = task.options.as_deref();
    let matches = |filter: &Option<Arc<str>>, value: Option<&Arc<str>>| {
        filter.is_none() || filter.as_ref() == value
    };
    (query.states.is_empty() || query.states.contains(&task.kind()))
        && matches(&query.name, options.and_then(|o| o.name.as_ref()))
        && matches(&query.key, options.and_then(|o| o.key.as_ref()))
        && query
            .tag
            .as_ref()
            .is_none_or(|tag| options.is_some_and(|o| o.tags.contains(tag)))
        && query.schedule.as_ref().is_none_or(|schedule| {
            let firing = options.and_then(|o| o.firing.as_ref());
            firing.is_some_and(|firing| firing.schedule == *schedule)
        })
        && query.due_from.is_none_or(|from| task.run_at >= from)
        && query.due_before.is_none_or(|before| task.run_at < before)
}
