//! What schedules cost, counted by the store's meter.

mod kit;

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{
    FiringCounts, FiringEnd, FiringRecord, RuleSpec, Schedule, ScheduleName, ScheduleSpec,
    TaskTemplate, WriteId,
};
use dueline_ports::{DueSchedulesQuery, PutSchedule, ScheduleQuery, ScheduleStore as _};
use kit::{TaskDriver, at};

fn schedule(number: u32, payload: usize) -> Schedule {
    let fired = |n: i64| FiringRecord {
        first: at(n * 60_000),
        last: at(n * 60_000),
        count: 1,
        end: FiringEnd::Created,
        info: Arc::default(),
    };
    Schedule {
        job: "mail".parse().unwrap(),
        name: ScheduleName::parse(&format!("s{number:05}")).unwrap(),
        spec: ScheduleSpec {
            info: "of the night".into(),
            rule: RuleSpec {
                timing: "30 2 * * *".to_owned(),
                zone: Some("America/Argentina/Buenos_Aires".to_owned()),
                ..RuleSpec::default()
            },
            template: TaskTemplate {
                payload: Bytes::from(vec![b'x'; payload]),
                ..TaskTemplate::default()
            },
            ..ScheduleSpec::default()
        },
        paused: None,
        decided_until: at(0),
        next_at: Some(at(i64::from(number) * 1_000)),
        active: vec![at(0)],
        queued: None,
        triggers: Vec::new(),
        backfills: Vec::new(),
        counts: FiringCounts::default(),
        recent: (0..10).map(fired).collect(),
        created_by: "somebody".into(),
        created_at: at(0),
        changed_at: at(0),
        write: WriteId::from_random(1),
    }
}

/// Stores a schedule, or the next version of it, and returns the write units.
async fn put(driver: &TaskDriver, schedule: &Schedule, seen: Option<WriteId>) -> f64 {
    let before = driver.cost().write_units;
    let schedule = schedule.clone();
    let put = PutSchedule { schedule, seen };
    let mut results = driver.store.put_schedules(vec![put]).await;
    assert!(results.remove(0).unwrap());
    driver.cost().write_units - before
}

#[tokio::test]
async fn g_05_a_firing_costs_three_write_units_and_one_for_each_further_kibibyte_of_its_schedule() {
    let (store, _) = kit::faulty().await;
    let driver = TaskDriver::new(store).await;
    for (payload, firing) in [(0, 3.0), (300, 3.0), (1_100, 4.0), (16_384, 19.0)] {
        let mut schedule = schedule(u32::try_from(payload).unwrap(), payload);
        put(&driver, &schedule, None).await;
        let seen = schedule.write;
        schedule.write = WriteId::from_random(2);
        schedule.next_at = Some(at(90_000_000));
        let units = put(&driver, &schedule, Some(seen)).await;
        assert!((units - firing).abs() < 1e-9, "{payload} bytes: {units}");
    }
}

#[tokio::test]
async fn g_05_a_poll_reads_only_schedules_that_are_due() {
    let (store, _) = kit::faulty().await;
    let driver = TaskDriver::new(store).await;
    let puts = (1..=1_000).map(|number| PutSchedule {
        schedule: schedule(number, 100),
        seen: None,
    });
    let results = driver.store.put_schedules(puts.collect()).await;
    assert!(results.into_iter().all(|result| result.unwrap()));
    let poll = async |ms: i64| {
        let before = driver.cost().read_units;
        let query = DueSchedulesQuery {
            now: at(ms),
            limit: 1_000,
            share: None,
        };
        let page = driver.store.due_schedules(query).await.unwrap();
        (page.schedules.len(), driver.cost().read_units - before)
    };
    let (due, idle) = poll(500).await;
    assert_eq!(due, 0);
    // Half a unit for each shard, and one for the definitions of the jobs, which every poll may read again.
    assert!(
        idle <= 8.0 * 0.5 + 1.0,
        "{idle} read units while nothing is due"
    );
    let (due, some) = poll(3_000).await;
    assert_eq!(due, 3);
    assert!(
        some <= 8.0 * 0.5 + 1.0 + 3.0,
        "{some} read units for three schedules"
    );
}

#[tokio::test]
async fn f_015_the_frequency_of_a_job_reads_a_unit_for_each_slot_however_many_schedules_there_are()
{
    let (store, _) = kit::faulty().await;
    let driver = TaskDriver::new(store).await;
    for stored in [0, 400] {
        let puts = (1..=stored).map(|number| PutSchedule {
            schedule: schedule(number, 100),
            seen: None,
        });
        let results = driver.store.put_schedules(puts.collect()).await;
        assert!(results.into_iter().all(|result| result.unwrap()));
        let before = driver.cost().read_units;
        let query = ScheduleQuery {
            job: "mail".parse().unwrap(),
            after: None,
            limit: 2,
        };
        let found = driver.store.schedules(query).await.unwrap();
        assert_eq!(found.len(), usize::try_from(stored.min(2)).unwrap());
        let units = driver.cost().read_units - before;
        // And one for the definitions of the jobs.
        assert!(units <= 17.0, "{units} read units with {stored} schedules");
    }
}
