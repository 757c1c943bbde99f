//! Tasks that are submitted from inside a run.

use std::sync::Arc;

use dueline_domain::{
    Adopt, EdgeKind, Effect, Event, Family, FromRun, Modification, NewTask, Reason, RunEnded,
    RunFate, State, StateKind, Task, TaskEnd, TaskOptions, Token,
};

use super::kit::{StoreKit, at, retriable, success, token};
use crate::{Edge, EdgeQuery, Rng as _, Store};

/// A submit from inside a run of `from`.
fn staged(kit: &StoreKit, from: &Task, run: Token) -> NewTask {
    kit.task_with(TaskOptions {
        family: Some(Box::new(family(from, run))),
        ..TaskOptions::default()
    })
}

fn family(from: &Task, run: Token) -> Family {
    Family {
        from_run: Some(FromRun {
            task: from.address(),
            token: run,
            end: None,
        }),
        ..Family::default()
    }
}

fn ended(kit: &StoreKit, run: Token, succeeded: bool) -> Event {
    Event::RunEnded(RunEnded {
        run,
        succeeded,
        token: Some(kit.rng.token()),
    })
}

pub async fn a_13_what_a_run_has_staged_goes_on_with_its_success_and_is_discarded_otherwise(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    let from = kit.create(0, kit.new_task()).await;
    let from = kit.run(1, &from, "w").await;
    let run = token(&from);
    let other = Event::Stage {
        token: kit.rng.token(),
    };
    assert_eq!(kit.refused(2, &from, other).await, Reason::Lost);
    let from = kit.apply(2, &from, Event::Stage { token: run }).await;
    assert_eq!(kit.get(&from).await, from, "the mark is stored");
    let task = kit.create(3, staged(&kit, &from, run)).await;
    assert_eq!(
        task.state,
        State::Waiting {
            check_at: at(60_003)
        }
    );
    assert_eq!(kit.get(&task).await, task);
    assert!(!kit.ready("mail").await.contains(&task.id));
    let edge = Edge {
        from: from.address(),
        kind: EdgeKind::Staged,
        to: task.address(),
    };
    let edges = vec![edge.clone(), edge.clone()];
    kit.store.put_edges(edges).await.expect("stored");
    let edges = async |kind| {
        let query = EdgeQuery {
            from: from.address(),
            kind,
            after: None,
            limit: 9,
        };
        kit.store.edges(query).await.expect("edges").edges.len()
    };
    assert_eq!(edges(EdgeKind::Staged).await, 1);
    assert_eq!(
        edges(EdgeKind::Child).await + edges(EdgeKind::Follower).await,
        0
    );

    // A run that will be repeated leaves the mark, and what it has staged is over.
    let lost = kit.create(4, staged(&kit, &from, run)).await;
    let from = kit.finish(5, &from, retriable("no luck")).await;
    assert_eq!(
        (from.owed.clone(), from.run_fate(run)),
        (None, RunFate::Over)
    );
    let lost = kit.apply(6, &lost, ended(&kit, run, false)).await;
    assert_eq!(lost.kind(), StateKind::Cancelled);
    assert_eq!(lost.family_end(), Some(TaskEnd::Discarded));
    let why = format!(
        "discarded: the run of {} that submitted it did not succeed",
        from.address()
    );
    assert_eq!(kit.get(&lost).await.error.as_deref(), Some(&*why));
    let again = kit.refused(7, &lost, ended(&kit, run, true)).await;
    assert_eq!(again, Reason::NotWaiting);

    let State::Retriable { retry_at } = from.state else {
        panic!("{:?}", from.state);
    };
    let ms = retry_at.millis();
    let from = kit.trigger(ms, &from).await;
    let from = kit.run(ms, &from, "w").await;
    let (old, run) = (run, token(&from));
    let from = kit.apply(ms, &from, Event::Stage { token: run }).await;
    let kept = kit.create(ms, staged(&kit, &from, run)).await;
    let from = kit.finish(ms, &from, success("done")).await;
    let owed = from.owed.as_ref().map(|owed| owed.effects.clone());
    assert_eq!(owed, Some(vec![Effect::Staged]));
    let from = kit.get(&from).await;
    assert_eq!(from.run_fate(run), RunFate::Succeeded);
    assert_eq!(from.run_fate(old), RunFate::Over);
    let stale = kit.refused(ms, &kept, ended(&kit, old, false)).await;
    assert_eq!(stale, Reason::NotWaiting, "it is of another run");
    let kept = kit.apply(ms, &kept, ended(&kit, run, true)).await;
    assert_eq!(kept.kind(), StateKind::Enqueued);
    let again = kit.refused(ms, &kept, ended(&kit, run, true)).await;
    assert_eq!(again, Reason::NotWaiting);
}

pub async fn a_13_a_later_run_takes_over_what_an_earlier_one_has_staged(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let from = kit.create(0, kit.new_task()).await;
    let [first, second, third] = [(); 3].map(|()| kit.rng.token());
    let adopt = |seen, next| {
        Event::Adopt(Box::new(Adopt {
            seen,
            family: family(&from, next),
            change: Modification {
                payload: Some("again".into()),
                ..Modification::default()
            },
        }))
    };
    let task = kit.create(1, staged(&kit, &from, first)).await;
    assert_eq!(
        kit.refused(2, &task, adopt(third, second)).await,
        Reason::Moved
    );
    // While it waits, and after it was discarded.
    let task = kit.apply(3, &task, adopt(first, second)).await;
    assert_eq!(
        (task.kind(), &task.payload),
        (StateKind::Waiting, &"again".into())
    );
    assert_eq!(
        kit.refused(4, &task, adopt(first, third)).await,
        Reason::Moved,
        "a run that is over does not take it back"
    );
    let stale = kit.refused(5, &task, ended(&kit, first, false)).await;
    assert_eq!(stale, Reason::NotWaiting);
    let task = kit.apply(6, &task, ended(&kit, second, false)).await;
    assert_eq!(task.kind(), StateKind::Cancelled);
    let task = kit.apply(7, &task, adopt(second, third)).await;
    let task = kit.apply(8, &task, ended(&kit, third, true)).await;
    assert_eq!((task.kind(), &task.error), (StateKind::Enqueued, &None));
    assert_eq!(kit.get(&task).await, task);
    // What a user has cancelled, or what goes on, is not taken over.
    assert_eq!(
        kit.refused(9, &task, adopt(third, first)).await,
        Reason::NotWaiting
    );
    let other = kit.create(10, staged(&kit, &from, first)).await;
    let cancel = Event::Cancel {
        running: Default::default(),
        reason: None,
    };
    let other = kit.apply(11, &other, cancel).await;
    assert_eq!(
        kit.refused(12, &other, adopt(first, second)).await,
        Reason::Finished
    );
}
