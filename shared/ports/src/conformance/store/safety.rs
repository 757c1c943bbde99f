//! Safety: no second owner, no stale write, no write to another task, no command applied twice.

use std::sync::Arc;

use bytes::Bytes;
use dueline_domain::{Event, Modification, Reason, RunningCancel, StateKind, Task, Verb};
use tokio::task::JoinSet;

use super::kit::{StoreKit, at, job, job_name, retriable, secs, success, token, worker};
use crate::{Command, ListQuery, Rng as _, Store, StoreError};

pub async fn d_01_a_retry_of_one_task_touches_no_other(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let mut others = Vec::new();
    for _ in 0..5 {
        others.push(kit.create(0, kit.new_task()).await);
        others.push(kit.create(0, kit.new_task_of("post")).await);
        let running = kit.create(0, kit.new_task()).await;
        others.push(kit.run(0, &running, "w").await);
        others.push(kit.succeeded(0).await);
    }
    let task = kit.create(0, kit.new_task()).await;
    let task = kit.run(1, &task, "w").await;
    let task = kit.finish(2, &task, retriable("once")).await;
    let task = kit.trigger(60_000, &task).await;
    let task = kit.run(60_001, &task, "w").await;
    kit.finish(60_002, &task, retriable("twice")).await;
    for other in &others {
        assert_eq!(kit.get(other).await, *other);
    }
}

pub async fn d_02_a_stale_token_is_refused_and_nothing_is_stored(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let stale = kit.run(0, &task, "w").await;
    let current = token(&stale);
    let lost = kit.trigger(8_000, &stale).await;
    let late = || {
        vec![
            kit.claim_event(&stale, "w", true),
            Event::Start { token: current },
            Event::Heartbeat { token: current },
            Event::Extend {
                token: current,
                by: secs(60),
            },
            Event::Checkpoint {
                token: current,
                payload: Bytes::from_static(b"stale"),
            },
            kit.finish_event(&stale, success("stale")),
            kit.finish_event(&stale, retriable("stale")),
            Event::Abandon {
                token: current,
                next: kit.rng.token(),
            },
            Event::Trash {
                token: current,
                reason: "stale".into(),
            },
        ]
    };
    for event in late() {
        assert_eq!(kit.refused(8_001, &lost, event).await, Reason::Lost);
    }
    let claimed = kit.claim(8_002, &lost, "v").await;
    for event in late().into_iter().skip(1) {
        assert_eq!(kit.refused(8_003, &claimed, event).await, Reason::Lost);
    }
    let running = kit.start(8_004, &claimed).await;
    for event in late().into_iter().skip(1) {
        assert_eq!(kit.refused(8_005, &running, event).await, Reason::Lost);
    }
    assert_eq!(running.input().as_ref(), b"payload");
    let ended = kit.finish(8_006, &running, success("ok")).await;
    for event in late() {
        assert_eq!(kit.refused(8_007, &ended, event).await, Reason::Finished);
    }
}

pub async fn f_072_one_of_fifty_claims_wins(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let mut claims = JoinSet::new();
    for n in 0..50 {
        let event = kit.claim_event(&task, &format!("w{n}"), n % 2 == 0);
        let (store, command) = (kit.store.clone(), kit.command(&task, event));
        claims.spawn(async move { (n, store.apply(at(1), vec![command]).await.remove(0)) });
    }
    let (mut winners, mut refused) = (Vec::new(), Vec::new());
    for (n, answer) in claims.join_all().await {
        match answer {
            Ok(applied) => winners.push((n, applied.task)),
            Err(StoreError::Rejected(rejected)) => refused.push(rejected),
            Err(other) => panic!("{other}"),
        }
    }
    let [(winner, claimed)] = &winners[..] else {
        panic!("{} claims won", winners.len());
    };
    let owner = worker(&format!("w{winner}"));
    assert_eq!(refused.len(), 49);
    for rejected in refused {
        assert_eq!(rejected.reason, Reason::AlreadyClaimed);
        assert_eq!(rejected.owner.as_ref(), Some(&owner));
    }
    assert_eq!(kit.get(&task).await, **claimed);
    assert_eq!(claimed.lease().map(|lease| &lease.worker), Some(&owner));
}

/// Sends one command twice. The repetition must be recognised and change nothing.
async fn apply_twice(kit: &StoreKit, ms: i64, task: &Task, event: Event) -> Task {
    let command = kit.command(task, event);
    let verb = command.event.verb();
    let first = kit.send(ms, command.clone()).await.expect("a legal event");
    assert!(!first.repeated, "{verb} is new");
    let again = kit.send(ms + 1, command.clone()).await;
    let again = again.unwrap_or_else(|error| panic!("a repeated {verb}: {error}"));
    assert!(again.repeated, "a repeated {verb} is recognised");
    assert_eq!(again.task, first.task);
    // Two repetitions in one batch.
    let both = kit.store.apply(at(ms + 2), vec![command.clone(), command]);
    for answer in both.await {
        assert!(answer.expect("a repetition").repeated);
    }
    assert_eq!(kit.get(task).await, *first.task);
    *first.task
}

pub async fn a_repeated_command_of_any_verb_is_recognised(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut verbs = Vec::new();
    let mut task = kit.create(0, kit.task_due(10)).await;
    let modify = |priority| Event::Modify {
        change: Modification {
            priority: dueline_domain::Priority::new(priority).ok(),
            ..Modification::default()
        },
        token: kit.rng.token(),
    };
    let cancel = || Event::Cancel {
        running: RunningCancel::Request,
        reason: None,
    };
    let mut ms = 10;
    // Each event is made for the task as the event before left it.
    let events: [&dyn Fn(&Task) -> Event; 18] = [
        &|_| modify(3),
        &|task| kit.trigger_event(task),
        &|_| modify(4),
        &|task| kit.claim_event(task, "w", false),
        &|task| Event::Abandon {
            token: token(task),
            next: kit.rng.token(),
        },
        &|task| kit.claim_event(task, "v", false),
        &|task| Event::Extend {
            token: token(task),
            by: secs(30),
        },
        &|task| Event::Start { token: token(task) },
        &|task| Event::Heartbeat { token: token(task) },
        &|task| Event::Checkpoint {
            token: token(task),
            payload: Bytes::from_static(b"half"),
        },
        &|task| kit.reclaim_event(task),
        &|task| kit.claim_event(task, "u", true),
        &|task| Event::Trash {
            token: token(task),
            reason: "broken".into(),
        },
        &|_| Event::Redrive,
        &|task| kit.trigger_event(task),
        &|task| kit.claim_event(task, "t", true),
        &|_| cancel(),
        &|task| kit.finish_event(task, success("done")),
    ];
    for event in events {
        let event = event(&task);
        verbs.push(event.verb());
        task = apply_twice(&kit, ms, &task, event).await;
        ms += 10;
    }
    assert_eq!(task.kind(), StateKind::Succeeded);
    let waiting = kit.create(0, kit.new_task()).await;
    let reason = "gate".into();
    apply_twice(&kit, ms, &waiting, Event::Drop { reason }).await;
    verbs.push(Verb::Drop);
    verbs.sort_unstable();
    verbs.dedup();
    // All verbs but release, because no task can be created as waiting yet.
    assert_eq!(verbs.len(), 14, "{verbs:?}");
}

pub async fn an_unknown_task_is_not_found(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.put(job("post")).await;
    let task = kit.create(0, kit.new_task()).await;
    let unknown = Task {
        id: kit.rng.task_id(at(0)),
        ..task.clone()
    };
    let elsewhere = Task {
        job: job_name("post"),
        ..task.clone()
    };
    for missing in [unknown, elsewhere] {
        assert_eq!(kit.find(&missing.job, &missing.id).await, None);
        let event = kit.claim_event(&task, "w", false);
        let answer = kit.send(1, kit.command(&missing, event)).await;
        let refused = matches!(answer, Err(StoreError::NotFound { .. }));
        assert!(refused, "{answer:?}");
    }
    assert_eq!(kit.get(&task).await, task);
}

pub async fn one_bad_command_of_a_batch_does_not_affect_the_others(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let new = (0..50).map(|_| kit.new_task()).collect();
    let tasks = kit.create_all(0, new).await;
    kit.claim(1, &tasks[17], "early").await;
    let claim = |task| kit.command(task, kit.claim_event(task, "w", true));
    let mut commands: Vec<Command> = tasks.iter().map(claim).collect();
    commands[33].id = kit.rng.task_id(at(0));
    let results = kit.store.apply(at(2), commands).await;
    assert_eq!(results.len(), 50);
    for (n, (task, result)) in tasks.iter().zip(results).enumerate() {
        match (n, result) {
            (17, Err(StoreError::Rejected(_))) | (33, Err(StoreError::NotFound { .. })) => {}
            (_, Ok(applied)) => {
                assert_eq!(applied.task.id, task.id, "results keep the order");
                assert_eq!(kit.get(task).await, *applied.task);
            }
            (n, other) => panic!("command {n}: {other:?}"),
        }
    }
    assert_eq!(kit.get(&tasks[33]).await, tasks[33]);
}

pub async fn commands_for_one_task_in_one_call_are_applied_in_their_order(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let tasks = kit
        .create_all(0, vec![kit.new_task(), kit.new_task()])
        .await;
    let mut commands = Vec::new();
    for task in &tasks {
        let token = token(task);
        commands.push(kit.command(task, kit.claim_event(task, "w", false)));
        commands.push(kit.command(task, Event::Start { token }));
    }
    for task in &tasks {
        commands.push(kit.command(task, kit.finish_event(task, success("ok"))));
    }
    let results = kit.store.apply(at(1), commands).await;
    let kinds = results
        .into_iter()
        .map(|r| r.expect("a legal event").task.kind());
    let kinds: Vec<_> = kinds.collect();
    use StateKind::{Claimed, Processing, Succeeded};
    let expected = [
        Claimed, Processing, Claimed, Processing, Succeeded, Succeeded,
    ];
    assert_eq!(kinds, expected);
}

pub async fn counts_are_exact_after_concurrent_writes(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut writers = JoinSet::new();
    for writer in 0..8_u64 {
        let store = kit.store.clone();
        writers.spawn(async move {
            let kit = StoreKit {
                store,
                rng: crate::fakes::SeededRng::new(writer << 32),
                ids: crate::TaskIds::new(),
            };
            for n in 0..25 {
                let task = kit.create(n, kit.task_due(n * 3 - 10)).await;
                if task.kind() != StateKind::Enqueued || kit.rng.below(4) == 0 {
                    continue;
                }
                let task = kit.claim(n, &task, "w").await;
                if kit.rng.below(4) == 0 {
                    continue;
                }
                let task = kit.start(n, &task).await;
                match kit.rng.below(3) {
                    0 => drop(kit.finish(n, &task, success("ok")).await),
                    1 => drop(kit.finish(n, &task, retriable("no")).await),
                    _ => {}
                }
            }
        });
    }
    writers.join_all().await;
    let all = kit.list_by(&ListQuery::of(job_name("mail")), 64).await;
    assert_eq!(all.len(), 200);
    let stats = kit.store.stats(&job_name("mail")).await.expect("stats");
    for kind in StateKind::ALL {
        let counted = all.iter().filter(|task| task.kind() == kind).count();
        let reported = stats.by_state.get(&kind).copied();
        let expected = (counted > 0).then_some(counted as u64);
        assert_eq!(reported, expected, "{kind}");
    }
    let owned = kit
        .store
        .owned(at(10), Some(&worker("w")))
        .await
        .expect("owned");
    let expected = all.iter().filter(|task| task.kind().is_owned()).count();
    assert_eq!(owned.len(), expected);
}
