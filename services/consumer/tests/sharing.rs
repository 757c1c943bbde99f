//! Several consumers on one store.

mod kit;

use dueline_consumer::{CONSUMER_KIND, Config, Sharing};
use dueline_domain::{StateKind, WorkerId};
use dueline_ports::WorkerStore as _;
use dueline_runtime::Shutdown;
use kit::{Kit, definition, name, secs};
use tokio::time::sleep;

fn config(who: u64) -> Config {
    Config {
        sharing: Some(Sharing {
            me: WorkerId::new("consumer", who).unwrap(),
            interval: secs(2),
        }),
        ..Config::default()
    }
}

/// Submits one task per job, due in a second; all must be enqueued at most `late` after that.
async fn round(kit: &Kit, late: u64) {
    let due_in = kit.since_start() + secs(1);
    let mut tasks = Vec::new();
    for n in 0..30 {
        tasks.push(kit.submit(&format!("job-{n}"), due_in).await);
    }
    for task in &tasks {
        kit.until_state(task, StateKind::Enqueued, secs(2 + late))
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn consumers_share_the_work_and_take_over_from_one_that_is_gone() {
    let kit = Kit::new().await;
    for n in 0..30 {
        kit.put(definition(&format!("job-{n}"))).await;
    }
    let stops: Vec<Shutdown> = (1..=3).map(|who| kit.start_own(config(who))).collect();
    // Strangers at first, so each reads everything.
    round(&kit, 0).await;
    // They know each other by now: each reads a part, together all, and nothing is late.
    sleep(secs(6)).await;
    kit.store.forget_shares();
    round(&kit, 0).await;
    let shares = kit.store.shares();
    assert!(shares.len() >= 6, "all of them look every second");
    for n in 0..30 {
        let job = name(&format!("job-{n}"));
        let readers = shares.iter().filter(|share| match share {
            Some(share) => share.covers(&job, 0),
            None => true,
        });
        let count = readers.count();
        assert!(count > 0 && count < shares.len(), "{job} has {count}");
    }
    // One says goodbye, which others see at their next look around.
    stops[0].stop_intake();
    sleep(secs(3)).await;
    let left = kit.store.workers().await.unwrap();
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|record| &*record.kind == CONSUMER_KIND));
    round(&kit, 0).await;
    // One dies without a word: its part is late by three intervals at most.
    kit.store.mute(&WorkerId::new("consumer", 2).unwrap());
    stops[1].stop_intake();
    round(&kit, 8).await;
    round(&kit, 0).await;
}
