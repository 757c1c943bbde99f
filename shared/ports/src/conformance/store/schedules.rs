//! Schedules.

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{
    Backfill, CatchUp, CatchUpPolicy, FiringCounts, FiringEnd, FiringRecord, JobName, Overlap,
    Priority, QueuedFiring, RuleSpec, Schedule, ScheduleName, SchedulePause, ScheduleSpec,
    TaskOptions, TaskTemplate, Weight, WorkerId, WriteId,
};

use super::kit::{StoreKit, at, job, job_name, secs};
use crate::{
    DueSchedulesPage, DueSchedulesQuery, PutSchedule, ScheduleQuery, Share, Store, StoreError,
};

fn name(text: &str) -> ScheduleName {
    ScheduleName::parse(text).expect("a legal name")
}

/// A schedule of the job `mail` with defaults for all settings.
fn schedule(text: &str) -> Schedule {
    Schedule {
        job: job_name("mail"),
        name: name(text),
        spec: ScheduleSpec {
            rule: RuleSpec {
                timing: "@hourly".to_owned(),
                ..RuleSpec::default()
            },
            ..ScheduleSpec::default()
        },
        paused: None,
        decided_until: at(0),
        next_at: None,
        active: Vec::new(),
        queued: None,
        triggers: Vec::new(),
        backfills: Vec::new(),
        counts: FiringCounts::default(),
        recent: Vec::new(),
        created_by: Arc::default(),
        created_at: at(0),
        changed_at: at(0),
        write: WriteId::from_random(1),
    }
}

fn due(text: &str, ms: i64) -> Schedule {
    Schedule {
        next_at: Some(at(ms)),
        ..schedule(text)
    }
}

async fn put(store: &dyn Store, schedule: &Schedule, seen: Option<u64>) -> bool {
    let put = PutSchedule {
        schedule: schedule.clone(),
        seen: seen.map(WriteId::from_random),
    };
    let mut results = store.put_schedules(vec![put]).await;
    results.remove(0).expect("a schedule can be stored")
}

async fn get(store: &dyn Store, text: &str) -> Option<Schedule> {
    let found = store.schedule(&job_name("mail"), &name(text)).await;
    found.expect("a schedule can be read")
}

/// Answers whether there was one.
async fn delete(store: &dyn Store, text: &str) -> bool {
    let deleted = store.delete_schedule(&job_name("mail"), &name(text)).await;
    deleted.expect("a missing schedule is not an error")
}

async fn due_at(store: &dyn Store, ms: i64, limit: usize) -> DueSchedulesPage {
    let query = DueSchedulesQuery {
        now: at(ms),
        limit,
        share: None,
    };
    store.due_schedules(query).await.expect("due schedules")
}

fn names(schedules: &[Schedule]) -> Vec<&str> {
    schedules.iter().map(|found| found.name.as_str()).collect()
}

pub async fn f_103_a_schedule_is_kept_with_every_setting(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let record = |end, count, info: &str| FiringRecord {
        first: at(1),
        last: at(2),
        count,
        end,
        info: info.into(),
    };
    let full = Schedule {
        spec: ScheduleSpec {
            info: "of \u{e4} night".into(),
            rule: RuleSpec {
                timing: "30 2 * * *".to_owned(),
                zone: Some("Europe/Berlin".to_owned()),
                start: Some(at(1)),
                end: Some(at(2)),
                anchor: Some(at(3)),
            },
            jitter: secs(7),
            catch_up: CatchUpPolicy::new(CatchUp::All { max: 9 }, secs(8)).expect("a policy"),
            overlap: Overlap::CancelPrevious,
            firings_max: Some(u64::MAX),
            template: TaskTemplate {
                priority: Priority::new(-1_000).expect("a priority"),
                weight: Weight::new(77).expect("a weight"),
                payload: Bytes::from_static(b"\0\xff payload"),
                options: Some(Box::new(TaskOptions {
                    name: Some("backup".into()),
                    tags: vec!["a".into(), "b".into()],
                    content_type: Some("text/plain".into()),
                    ..TaskOptions::default()
                })),
            },
        },
        paused: Some(SchedulePause {
            at: at(4),
            by: "ann".into(),
            reason: "maintenance".into(),
        }),
        decided_until: at(5),
        next_at: Some(at(6)),
        active: vec![at(1), at(7)],
        queued: Some(QueuedFiring {
            nominal_at: at(8),
            check_at: at(9),
        }),
        triggers: vec![at(10)],
        backfills: vec![Backfill {
            from: at(1),
            to: at(2),
        }],
        counts: FiringCounts {
            fired: 1,
            created: 2,
            missed: 3,
            skipped: 4,
            failed: 5,
            repaired: 6,
        },
        recent: FiringEnd::ALL
            .into_iter()
            .map(|end| record(end, 3, "why"))
            .chain([record(FiringEnd::Created, 1, "")])
            .map(|record| FiringRecord {
                last: if record.count == 1 {
                    record.first
                } else {
                    record.last
                },
                ..record
            })
            .collect(),
        created_by: "suite".into(),
        created_at: at(11),
        changed_at: at(12),
        ..schedule("full")
    };
    assert!(put(&*kit.store, &full, None).await);
    assert_eq!(get(&*kit.store, "full").await, Some(full));
    let plain = schedule("plain");
    assert!(put(&*kit.store, &plain, None).await);
    assert_eq!(get(&*kit.store, "plain").await, Some(plain));
    assert_eq!(get(&*kit.store, "unknown").await, None);
    let unknown = kit.store.schedule(&job_name("other"), &name("full")).await;
    assert_eq!(unknown.expect("no error"), None);
}

pub async fn a_schedule_is_replaced_only_if_it_has_not_changed(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let store = &*kit.store;
    let version = |write, ms| Schedule {
        write: WriteId::from_random(write),
        next_at: Some(at(ms)),
        ..schedule("nightly")
    };
    assert!(!put(store, &version(2, 2), Some(1)).await, "there is none");
    assert!(put(store, &version(1, 1), None).await);
    assert!(
        put(store, &version(1, 1), None).await,
        "the same write again"
    );
    assert!(!put(store, &version(2, 2), None).await, "there is one");
    assert!(put(store, &version(2, 2), Some(1)).await);
    assert!(!put(store, &version(3, 3), Some(1)).await, "it has changed");
    assert!(
        put(store, &version(2, 2), Some(1)).await,
        "the same write again"
    );
    assert_eq!(get(store, "nightly").await, Some(version(2, 2)));
    let other = Schedule {
        job: job_name("other"),
        ..schedule("nightly")
    };
    let mut results = store
        .put_schedules(vec![PutSchedule {
            schedule: other,
            seen: None,
        }])
        .await;
    let refused = results.remove(0);
    assert!(
        matches!(refused, Err(StoreError::NotFound { what: "job", .. })),
        "{refused:?}"
    );
    assert!(delete(store, "nightly").await);
    assert!(!delete(store, "nightly").await);
    assert!(!put(store, &version(3, 3), Some(2)).await, "it was deleted");
    assert_eq!(get(store, "nightly").await, None);
}

pub async fn schedules_of_a_job_are_listed_by_name(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for text in ["c", "a", "b-2", "b", "Z"] {
        assert!(put(&*kit.store, &schedule(text), None).await);
    }
    kit.put(job("post")).await;
    let list = async |job: &JobName, after: Option<&str>, limit| {
        let query = ScheduleQuery {
            job: job.clone(),
            after: after.map(name),
            limit,
        };
        kit.store.schedules(query).await
    };
    let mail = job_name("mail");
    let all = list(&mail, None, 10).await.expect("a list");
    assert_eq!(names(&all), ["Z", "a", "b", "b-2", "c"]);
    let some = list(&mail, Some("a"), 2).await.expect("a list");
    assert_eq!(names(&some), ["b", "b-2"]);
    let last = list(&mail, Some("c"), 2).await.expect("a list");
    assert!(last.is_empty());
    let none = list(&job_name("post"), None, 10).await.expect("a list");
    assert!(none.is_empty());
    let unknown = list(&job_name("unknown"), None, 10).await;
    assert!(
        matches!(unknown, Err(StoreError::NotFound { .. })),
        "{unknown:?}"
    );
}

pub async fn g_05_a_schedule_is_due_at_its_time_and_not_before(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let store = &*kit.store;
    assert_eq!(
        due_at(store, 1_000_000, 10).await,
        DueSchedulesPage::default()
    );
    let paused = Schedule {
        paused: Some(SchedulePause {
            at: at(0),
            by: Arc::default(),
            reason: Arc::default(),
        }),
        ..due("paused", 1)
    };
    let queued = Schedule {
        queued: Some(QueuedFiring {
            nominal_at: at(0),
            check_at: at(3_000),
        }),
        ..due("queued", 9_000)
    };
    for schedule in [
        due("later", 5_000),
        due("first", 2_000),
        paused,
        queued,
        schedule("over"),
    ] {
        assert!(put(store, &schedule, None).await);
    }
    let page = due_at(store, 1_999, 10).await;
    assert_eq!(names(&page.schedules), [""; 0]);
    assert_eq!((page.more, page.next_at), (false, Some(at(2_000))));
    let page = due_at(store, 2_000, 10).await;
    assert_eq!(page.schedules, [due("first", 2_000)]);
    assert_eq!((page.more, page.next_at), (false, Some(at(3_000))));
    let page = due_at(store, 8_000, 10).await;
    assert_eq!(names(&page.schedules), ["first", "queued", "later"]);
    assert_eq!(page.next_at, None);
    let page = due_at(store, 8_000, 2).await;
    assert_eq!(names(&page.schedules), ["first", "queued"]);
    assert!(page.more);
    // A schedule that has moved is not due any more.
    let moved = Schedule {
        write: WriteId::from_random(2),
        ..due("first", 7_000)
    };
    assert!(put(store, &moved, Some(1)).await);
    let page = due_at(store, 4_000, 10).await;
    assert_eq!(names(&page.schedules), ["queued"]);
    assert!(delete(store, "queued").await);
    assert_eq!(names(&due_at(store, 4_000, 10).await.schedules), [""; 0]);
}

pub async fn all_shares_together_return_every_due_schedule_once(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    for number in 0..40 {
        assert!(put(&*kit.store, &due(&format!("s{number:02}"), 1), None).await);
    }
    let members = [3, 4].map(|number| WorkerId::new("c", number).expect("an id"));
    let mut found = Vec::new();
    for me in &members {
        let query = DueSchedulesQuery {
            now: at(5),
            limit: 100,
            share: Some(Share::of(me, &members)),
        };
        let page = kit.store.due_schedules(query).await.expect("a page");
        assert!(
            (1..40).contains(&page.schedules.len()),
            "{}",
            page.schedules.len()
        );
        found.extend(page.schedules.into_iter().map(|schedule| schedule.name));
    }
    found.sort_unstable();
    let all: Vec<_> = (0..40)
        .map(|number| name(&format!("s{number:02}")))
        .collect();
    assert_eq!(found, all);
}

pub async fn a_job_with_schedules_is_not_deleted(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    assert!(put(&*kit.store, &schedule("nightly"), None).await);
    let mail = job_name("mail");
    let refused = kit.store.delete_job(&mail).await;
    assert!(
        matches!(&refused, Err(StoreError::HasSchedules(job)) if *job == mail),
        "{refused:?}"
    );
    assert!(delete(&*kit.store, "nightly").await);
    kit.store.delete_job(&mail).await.expect("nothing is left");
}
