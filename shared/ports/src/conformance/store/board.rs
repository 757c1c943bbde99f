//! Claims of chosen tasks: without a message, and with a lifetime of the owner's.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    ClaimChosen, ClaimLifetime, Event, Lease, Reason, StateKind, Task, Timestamp,
};
use tokio::task::JoinSet;

use super::kit::{StoreKit, at, retriable, secs, success, token, worker};
use crate::{Rng as _, Store, StoreError};

fn choose(kit: &StoreKit, name: &str, lifetime: ClaimLifetime) -> Event {
    Event::ClaimChosen(ClaimChosen {
        token: kit.rng.token(),
        worker: worker(name),
        lifetime,
    })
}

fn of_job(kit: &StoreKit, name: &str) -> Event {
    choose(kit, name, ClaimLifetime::OfJob)
}

fn ends_at(task: &Task) -> Option<Timestamp> {
    task.lease().map(Lease::ends_at)
}

pub async fn f_072_one_of_fifty_claims_of_a_chosen_task_wins(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let mut claims = JoinSet::new();
    for n in 0..50 {
        let command = kit.command(&task, of_job(&kit, &format!("w{n}")));
        let store = kit.store.clone();
        claims.spawn(async move { (n, store.apply(at(1), vec![command]).await.remove(0)) });
    }
    let (mut winners, mut refused) = (Vec::new(), Vec::new());
    for (n, answer) in claims.join_all().await {
        match answer {
            Ok(_) => winners.push(worker(&format!("w{n}"))),
            Err(StoreError::Rejected(rejected)) => refused.push(rejected),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((winners.len(), refused.len()), (1, 49));
    for rejected in refused {
        assert_eq!(rejected.reason, Reason::AlreadyClaimed);
        assert_eq!(rejected.owner.as_ref(), winners.first());
    }
}

pub async fn f_072_a_due_task_is_claimed_before_its_message_is_sent(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = kit.create(0, kit.task_due(5_000)).await;
    let failed = kit.create(0, kit.new_task()).await;
    let failed = kit.run(0, &failed, "w").await;
    let failed = kit.finish(1, &failed, retriable("once")).await;
    for task in [new, failed] {
        let due = task.state.trigger_at().expect("a time");
        let due_ms = due.millis() - at(0).millis();
        let early = kit.refused(due_ms - 1, &task, of_job(&kit, "w")).await;
        assert_eq!(early, Reason::NotDue);
        let claimed = kit.apply(due_ms, &task, of_job(&kit, "w")).await;
        assert_eq!(claimed.kind(), StateKind::Claimed);
        // The consumer, which has read the task before, is refused.
        let late = kit.refused(due_ms, &task, kit.trigger_event(&task)).await;
        assert_eq!(late, Reason::Moved);
        let started = kit.start(due_ms, &claimed).await;
        kit.finish(due_ms + 1, &started, success("ok")).await;
    }
    assert!(kit.due(9_000_000).await.tasks.is_empty());
}

pub async fn f_079_a_claim_lasts_as_long_as_its_owner_has_asked(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(kit.create(0, kit.new_task()).await);
    }
    let half = ClaimLifetime::For(Duration::from_millis(500));
    let hour = ClaimLifetime::For(secs(3_600));
    let short = kit.apply(10, &tasks[0], choose(&kit, "w", half)).await;
    let long = kit.apply(10, &tasks[1], choose(&kit, "w", hour)).await;
    let never = choose(&kit, "w", ClaimLifetime::Never);
    let never = kit.apply(10, &tasks[2], never).await;
    assert_eq!(ends_at(&short), Some(at(510)));
    assert_eq!(ends_at(&never), Some(Timestamp::MAX));
    let due = async |ms| {
        let tasks = kit.due(ms).await.tasks;
        tasks.iter().map(|task| task.id).collect::<Vec<_>>()
    };
    assert!(due(509).await.is_empty());
    assert_eq!(due(510).await, [short.id]);
    let lapsed = kit.trigger(510, &short).await;
    assert_eq!(lapsed.kind(), StateKind::Enqueued);
    let again = kit.apply(511, &lapsed, of_job(&kit, "v")).await;
    kit.apply(
        512,
        &again,
        Event::Start {
            token: token(&again),
        },
    )
    .await;
    // An owner that is late has lost its claim.
    let late = kit
        .refused(
            513,
            &short,
            Event::Start {
                token: token(&short),
            },
        )
        .await;
    assert_eq!(late, Reason::Lost);
    assert!(!due(3_600_009).await.contains(&long.id));
    assert!(due(3_600_010).await.contains(&long.id));
    let year_ms = 366 * 86_400_000;
    assert!(!due(year_ms).await.contains(&never.id));
    // The claims that are still there are those of their owner.
    let owned = kit.store.owned(at(600), Some(&worker("w"))).await;
    let owned: Vec<_> = owned
        .expect("owned tasks")
        .iter()
        .map(|task| task.id)
        .collect();
    assert!(!owned.contains(&short.id), "{owned:?}");
}

pub async fn f_053_an_extension_ends_a_claim_that_never_expires(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let never = choose(&kit, "w", ClaimLifetime::Never);
    let task = kit.apply(10, &task, never).await;
    let extend = Event::Extend {
        token: token(&task),
        by: secs(1),
    };
    let task = kit.apply(20, &task, extend).await;
    assert!(kit.due(1_019).await.tasks.is_empty());
    assert_eq!(kit.due(1_020).await.tasks.len(), 1);
    // A run that begins brings the claim of an hour back to the heartbeats of a run at its end.
    let long = kit.create(30, kit.new_task()).await;
    let hour = choose(&kit, "w", ClaimLifetime::For(secs(3_600)));
    let long = kit.apply(40, &long, hour).await;
    let extend = Event::Extend {
        token: token(&long),
        by: secs(2),
    };
    let long = kit.apply(50, &long, extend).await;
    assert!(
        kit.due(2_050)
            .await
            .tasks
            .iter()
            .any(|due| due.id == long.id)
    );
    kit.trigger(1_020, &task).await;
}

pub async fn a_17_a_repeated_claim_is_the_same_and_a_second_one_is_refused(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let command = kit.command(&task, of_job(&kit, "w"));
    let first = kit.send(1, command.clone()).await.expect("a claim");
    let again = kit.send(2, command).await.expect("the same claim");
    assert!(!first.repeated && again.repeated);
    assert_eq!(again.task, first.task);
    let refused = kit.refused(3, &task, of_job(&kit, "w")).await;
    assert_eq!(
        refused,
        Reason::AlreadyClaimed,
        "not even for the same owner"
    );
}
