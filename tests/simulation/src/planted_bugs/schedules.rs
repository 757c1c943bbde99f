//! What the bugs about schedules change.

use std::time::Duration;

use dueline_domain::{Schedule, TaskId, Timestamp};
use dueline_ports::{Create, DueSchedulesPage, PutSchedule, Rng as _, Store, fakes::SeededRng};
use dueline_schedule::Rule;

use super::PlantedBug;

/// A schedule that is found later than this loses its firings under [`PlantedBug::ResumesAtPresent`].
const LATE: Duration = Duration::from_secs(2);

/// Gives the task of a firing another id.
pub(super) fn change_create(bug: PlantedBug, rng: &SeededRng, create: &mut Create) {
    let options = create.task.options.as_ref();
    if bug == PlantedBug::RandomFiringIds && options.is_some_and(|o| o.firing.is_some()) {
        let mut id = *create.task.id.as_bytes();
        id[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
        create.task.id = TaskId::from_bytes(id);
    }
}

/// Changes a schedule that is stored, or what it is compared with.
pub(super) async fn change_put(bug: PlantedBug, store: &dyn Store, put: &mut PutSchedule) {
    let Some(seen) = put.seen else { return };
    let schedule = &mut put.schedule;
    match bug {
        PlantedBug::NextFiringFromEnd if schedule.active.is_empty() => {
            schedule.spec.rule.anchor = schedule
                .spec
                .rule
                .timing
                .starts_with('@')
                .then_some(schedule.changed_at);
            schedule.next_at = next_after(schedule, schedule.decided_until);
        }
        PlantedBug::SchedulesWithoutCompare => {
            let stored = store.schedule(&schedule.job, &schedule.name).await;
            let stored = stored.ok().flatten().map(|stored| stored.write);
            put.seen = Some(stored.unwrap_or(seen));
        }
        _ => {}
    }
}

/// Changes the schedules that a consumer reads.
pub(super) fn change_due(bug: PlantedBug, now: Timestamp, page: &mut DueSchedulesPage) {
    if bug != PlantedBug::ResumesAtPresent {
        return;
    }
    for schedule in &mut page.schedules {
        if schedule.next_at.is_some_and(|next| next.after(LATE) < now) {
            schedule.decided_until = now;
            schedule.next_at = next_after(schedule, now);
        }
    }
}

fn next_after(schedule: &Schedule, time: Timestamp) -> Option<Timestamp> {
    let rule = Rule::parse(&schedule.spec.rule).ok()?;
    rule.next_after(time)
}
