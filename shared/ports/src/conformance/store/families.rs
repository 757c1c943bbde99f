//! Tasks that wait for others, and the edges between them.

use std::{collections::BTreeSet, sync::Arc};

use dueline_domain::{
    Close, EdgeKind, Effect, Event, Family, NewTask, Policy, Predecessor, Reason, Release, Revive,
    RunningCancel, State, StateKind, Task, TaskAddress, TaskEnd, TaskId, TaskOptions, TriggerOn,
};

use super::kit::{StoreKit, at, ids, job_name, secs, success};
use crate::{Edge, EdgeQuery, Rng as _, Store, StoreError, StoredEdge};

fn address(job: &str, number: u8) -> TaskAddress {
    TaskAddress {
        job: job_name(job),
        id: TaskId::from_bytes([number; 16]),
    }
}

/// A submit of `mail` that waits for tasks of other jobs with these numbers.
fn waiting_for(kit: &StoreKit, numbers: &[u8], trigger_on: TriggerOn) -> NewTask {
    let after = numbers.iter().map(|number| address("import", *number));
    kit.task_with(TaskOptions {
        name: Some("waits".into()),
        family: Some(Box::new(Family {
            after: after.map(Predecessor::open).collect(),
            trigger_on,
            ..Family::default()
        })),
        ..TaskOptions::default()
    })
}

fn release(kit: &StoreKit, number: u8, end: TaskEnd) -> Event {
    Event::Release(Release {
        kind: EdgeKind::Follower,
        from: address("import", number),
        end,
        token: Some(kit.rng.token()),
    })
}

pub async fn f_095_a_task_waits_until_each_of_its_predecessors_has_ended(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let submit = waiting_for(&kit, &[1, 2, 3], TriggerOn::Success);
    let task = kit.create(0, submit).await;
    let check_at = at(60_000);
    assert_eq!(task.state, State::Waiting { check_at });
    assert!(kit.ready("mail").await.is_empty());
    let task = kit
        .apply(1, &task, release(&kit, 2, TaskEnd::Succeeded))
        .await;
    let again = kit
        .refused(2, &task, release(&kit, 2, TaskEnd::Failed))
        .await;
    assert_eq!(again, Reason::NotWaiting);
    let task = kit
        .apply(3, &task, release(&kit, 3, TaskEnd::Succeeded))
        .await;
    assert_eq!(task.state, State::Waiting { check_at });
    let task = kit
        .apply(4, &task, release(&kit, 1, TaskEnd::Succeeded))
        .await;
    assert_eq!(task.kind(), StateKind::Enqueued);
    assert_eq!(kit.ready("mail").await, [task.id]);
    let task = kit.run(5, &task, "w").await;
    let task = kit.finish(6, &task, success("done")).await;
    assert_eq!(task.owed, None, "no task waits for it");
    assert_eq!(kit.due(90_000_000).await.tasks, []);
}

pub async fn a_12_a_failed_predecessor_cancels_a_task_with_a_reason(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit
        .create(0, waiting_for(&kit, &[1, 2], TriggerOn::Success))
        .await;
    let task = kit.apply(1, &task, release(&kit, 2, TaskEnd::Failed)).await;
    assert_eq!(task.kind(), StateKind::Cancelled);
    let why = format!("predecessor {} failed", address("import", 2));
    assert_eq!(task.error.as_deref(), Some(&*why));
    let late = kit
        .refused(2, &task, release(&kit, 1, TaskEnd::Succeeded))
        .await;
    assert_eq!(late, Reason::NotWaiting);
    let always = kit
        .create(0, waiting_for(&kit, &[1, 2], TriggerOn::Always))
        .await;
    let always = kit
        .apply(1, &always, release(&kit, 2, TaskEnd::Failed))
        .await;
    let always = kit
        .apply(1, &always, release(&kit, 1, TaskEnd::Cancelled))
        .await;
    assert_eq!(always.kind(), StateKind::Enqueued);
}

pub async fn f_095_a_followed_task_owes_its_end_in_whatever_state_it_was_followed(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        retention: Some(secs(1)),
        ..Policy::default()
    })
    .await;
    let waiting = kit
        .create(0, waiting_for(&kit, &[1], TriggerOn::Success))
        .await;
    let new = kit.create(0, kit.task_due(9_000)).await;
    let named = kit.create(
        0,
        kit.task_with(TaskOptions {
            tags: vec!["blue".into()],
            ..TaskOptions::default()
        }),
    );
    let enqueued = named.await;
    let claimed = kit.create(0, kit.new_task()).await;
    let claimed = kit.claim(0, &claimed, "w").await;
    let running = kit.create(0, kit.new_task()).await;
    let running = kit.run(0, &running, "w").await;
    let mut ended = Vec::new();
    for task in [waiting, new, enqueued, claimed, running] {
        let followed = kit
            .apply(10, &task, Event::Follow(EdgeKind::Follower))
            .await;
        assert_eq!(followed.state, task.state, "only the mark is new");
        assert!(followed.has_followers());
        let cancel = Event::Cancel {
            running: RunningCancel::Request,
            reason: None,
        };
        let mut task = kit.apply(20, &followed, cancel).await;
        if task.kind().is_owned() {
            let stopped = kit.finish_event(&task, dueline_domain::Outcome::Cancelled);
            let stopped = match stopped {
                Event::Finish {
                    token,
                    outcome,
                    jitter,
                    ..
                } => Event::Finish {
                    token,
                    started_at: Some(at(15)),
                    outcome,
                    jitter,
                },
                other => other,
            };
            task = kit.apply(30, &task, stopped).await;
        }
        assert_eq!(task.kind(), StateKind::Cancelled);
        let owed = task.owed.as_ref().map(|owed| owed.effects.clone());
        assert_eq!(owed, Some(vec![Effect::Release]));
        let refused = kit
            .refused(40, &task, Event::Follow(EdgeKind::Follower))
            .await;
        assert_eq!(refused, Reason::Finished);
        ended.push(task);
    }
    let owed: BTreeSet<_> = kit.due(50).await.owed.iter().map(|due| due.id).collect();
    assert_eq!(owed, ids(&ended).into_iter().collect());
    assert_eq!(
        kit.prune(90_000, 100).await,
        0,
        "they are kept until their followers know"
    );
    for task in &ended {
        let settle = Event::Settle(dueline_domain::Settle {
            seen: task.write,
            effect: Effect::Release,
            failed: None,
        });
        kit.apply(60, task, settle).await;
    }
    assert_eq!(kit.prune(90_000, 100).await, ended.len());
}

pub async fn f_095_waiting_tasks_are_checked_and_hide_no_other(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let mut waiting = Vec::new();
    for number in 0..4 {
        waiting.push(
            kit.create(number, waiting_for(&kit, &[1], TriggerOn::Success))
                .await,
        );
    }
    assert_eq!(kit.due(59_999).await.tasks, []);
    let next = kit.due(59_999).await.next_at;
    assert!(next.is_some_and(|next| next <= at(60_000)), "{next:?}");
    let due = kit.create(5, kit.task_due(100_000)).await;
    let page = kit.due_by(100_000, 2, &[]).await;
    let first = page.tasks.first().map(|due| (due.id, due.kind));
    assert_eq!(first, Some((due.id, StateKind::New)));
    assert!(page.more);
    let checked = kit.trigger(60_000, &waiting[0]).await;
    assert_eq!(checked.trigger_at(), Some(at(120_000)));
    let page = kit.due(100_000).await;
    let ids_due: Vec<_> = page.tasks.iter().map(|due| due.id).collect();
    let expected = [vec![due.id], ids(&waiting[1..])].concat();
    assert_eq!(ids_due, expected);
    // A user may cancel a task that waits, or change it.
    let cancel = Event::Cancel {
        running: RunningCancel::Refuse,
        reason: Some("not needed".into()),
    };
    let cancelled = kit.apply(100_000, &waiting[1], cancel).await;
    assert_eq!(cancelled.kind(), StateKind::Cancelled);
}

pub async fn a_12_a_task_that_was_cancelled_because_of_another_one_waits_for_it_again(
    store: Arc<dyn Store>,
) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        retention: Some(secs(1)),
        ..Policy::default()
    })
    .await;
    let task = kit
        .create(0, waiting_for(&kit, &[1, 2], TriggerOn::Success))
        .await;
    let task = kit
        .apply(1, &task, release(&kit, 1, TaskEnd::Succeeded))
        .await;
    let task = kit.apply(2, &task, release(&kit, 2, TaskEnd::Failed)).await;
    let revive = |number| {
        Event::Revive(Revive {
            kind: EdgeKind::Follower,
            from: address("import", number),
        })
    };
    assert_eq!(
        kit.refused(3, &task, revive(1)).await,
        Reason::NotWaiting,
        "it was not cancelled because of this one"
    );
    let task = kit.apply(4, &task, revive(2)).await;
    let check_at = at(60_004);
    assert_eq!(task.state, State::Waiting { check_at });
    assert_eq!((task.error.as_deref(), task.finished_at), (None, None));
    assert_eq!(kit.refused(5, &task, revive(2)).await, Reason::NotFinished);
    assert_eq!(kit.prune(90_000, 10).await, 0);
    let due: Vec<_> = kit
        .due(60_004)
        .await
        .tasks
        .iter()
        .map(|due| due.id)
        .collect();
    assert_eq!(due, [task.id]);
    let task = kit
        .apply(6, &task, release(&kit, 2, TaskEnd::Succeeded))
        .await;
    assert_eq!(task.kind(), StateKind::Enqueued);
}

pub async fn f_002_a_repeated_submit_that_waits_is_one_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let submit = waiting_for(&kit, &[1, 2], TriggerOn::Success);
    let task = kit.create(0, submit.clone()).await;
    kit.apply(1, &task, release(&kit, 1, TaskEnd::Succeeded))
        .await;
    let again = kit
        .try_create(2, submit.clone())
        .await
        .expect("the same submit");
    assert!(again.existed);
    let mut other = submit;
    other.options = waiting_for(&kit, &[1, 3], TriggerOn::Success).options;
    match kit.try_create(3, other).await {
        Err(StoreError::Exists(id)) => assert_eq!(id, task.id),
        result => panic!("another submit under the same id: {result:?}"),
    }
}

fn query(from: &Task, after: Option<TaskAddress>, limit: usize) -> EdgeQuery {
    EdgeQuery {
        from: from.address(),
        kind: EdgeKind::Follower,
        after,
        limit,
    }
}

fn tasks(edges: Vec<StoredEdge>) -> Vec<TaskAddress> {
    edges.into_iter().map(|edge| edge.to).collect()
}

pub async fn f_095_followers_are_read_page_by_page_and_each_once(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let one = kit.create(0, kit.new_task()).await;
    let two = kit.create(0, kit.new_task()).await;
    let none = kit
        .store
        .edges(query(&one, None, 10))
        .await
        .expect("a page");
    assert_eq!((none.edges, none.more), (vec![], false));
    let mut expected: Vec<_> = (0..70).map(|n| address("import", n)).collect();
    expected.extend((0..30).map(|n| address("import-more", n)));
    let edge = |to: &TaskAddress| Edge {
        from: one.address(),
        kind: EdgeKind::Follower,
        to: to.clone(),
    };
    let mut edges: Vec<Edge> = expected.iter().rev().map(edge).collect();
    edges.push(Edge {
        from: two.address(),
        kind: EdgeKind::Follower,
        to: one.address(),
    });
    // The same edge may be stored again, also within one call.
    edges.push(edges[0].clone());
    for _ in 0..2 {
        kit.store.put_edges(edges.clone()).await.expect("edges");
    }
    for limit in [1, 7, 100, 1_000] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = kit.store.edges(query(&one, after, limit)).await;
            let page = page.expect("a page");
            assert!(page.edges.len() <= limit);
            after = page.edges.last().map(|edge| edge.to.clone());
            found.extend(page.edges.into_iter().map(|edge| edge.to));
            if !page.more || after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "pages of {limit}");
    }
    let page = kit.store.edges(query(&two, None, 9)).await.expect("a page");
    assert_eq!((tasks(page.edges), page.more), (vec![one.address()], false));
    let listed = kit
        .list_by(&crate::ListQuery::of(job_name("mail")), 10)
        .await;
    assert_eq!(ids(&listed), [two.id, one.id], "edges are no tasks");
}

pub async fn f_098_edges_from_an_unknown_job_are_refused(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let task = kit.create(0, kit.new_task()).await;
    let edge = |job| Edge {
        from: TaskAddress {
            job: job_name(job),
            id: task.id,
        },
        kind: EdgeKind::Follower,
        to: address("import", 1),
    };
    let refused = kit
        .store
        .put_edges(vec![edge("mail"), edge("nowhere")])
        .await;
    assert!(
        matches!(refused, Err(StoreError::NotFound { .. })),
        "{refused:?}"
    );
    let page = kit
        .store
        .edges(query(&task, None, 9))
        .await
        .expect("a page");
    assert_eq!(page.edges, [], "nothing is left half-added");
}

pub async fn edges_are_deleted_some_time_after_their_task(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        retention: Some(secs(2)),
        ..Policy::default()
    })
    .await;
    let kept = kit.create(0, kit.new_task()).await;
    let task = kit.succeeded(0).await;
    let edge = |from: &Task| Edge {
        from: from.address(),
        kind: EdgeKind::Follower,
        to: address("import", 1),
    };
    let edges = vec![edge(&kept), edge(&task)];
    kit.store.put_edges(edges).await.expect("edges");
    assert_eq!(kit.prune(10_000, 100).await, 1);
    // A store may delete the edges with its next round.
    kit.prune(20_000, 100).await;
    let page = kit
        .store
        .edges(query(&task, None, 9))
        .await
        .expect("a page");
    assert_eq!(page.edges, []);
    let page = kit
        .store
        .edges(query(&kept, None, 9))
        .await
        .expect("a page");
    assert_eq!(page.edges.len(), 1);
}

pub async fn f_094_open_children_are_those_whose_end_is_not_recorded(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    let parent = kit.create(0, kit.new_task()).await;
    let edge = |kind, number| Edge {
        from: parent.address(),
        kind,
        to: address("import", number),
    };
    let child = |number| edge(EdgeKind::Child, number);
    let open = async |limit| {
        let open = kit.store.open_children(&parent.address(), limit).await;
        let mut open = open.expect("children");
        open.sort_unstable();
        open
    };
    assert_eq!(open(9).await, []);
    let mut edges: Vec<_> = (0..60).map(child).collect();
    // Followers are no children, also if the same task is both.
    edges.push(edge(EdgeKind::Follower, 0));
    edges.push(edge(EdgeKind::Follower, 77));
    kit.store.put_edges(edges.clone()).await.expect("edges");
    assert_eq!(open(100).await.len(), 60);
    assert_eq!(open(7).await.len(), 7);
    for number in 0..60 {
        if number != 31 {
            let end = TaskEnd::ALL[usize::from(number % 5)];
            kit.store
                .end_edge(child(number), end)
                .await
                .expect("an end");
        }
    }
    // Storing an edge again does not make its child open again.
    kit.store.put_edges(edges).await.expect("edges");
    assert_eq!(open(100).await, [address("import", 31)]);
    for end in [TaskEnd::Failed, TaskEnd::Failed] {
        kit.store.end_edge(child(31), end).await.expect("an end");
    }
    // The child was redriven.
    for _ in 0..2 {
        kit.store.reopen_edge(child(31)).await.expect("reopened");
        assert_eq!(open(100).await, [address("import", 31)]);
    }
    let end = TaskEnd::Failed;
    kit.store.end_edge(child(31), end).await.expect("an end");
    // The edge of a child may be missing.
    let late = kit.store.end_edge(child(200), TaskEnd::Succeeded).await;
    late.expect("an end");
    assert_eq!(open(100).await, []);
    let query = EdgeQuery {
        kind: EdgeKind::Child,
        ..query(&parent, None, 100)
    };
    let page = kit.store.edges(query).await.expect("a page");
    let ends: Vec<_> = page.edges.iter().map(|edge| edge.end).collect();
    assert_eq!(ends.len(), 61);
    assert_eq!(
        (ends[1], ends[31]),
        (Some(TaskEnd::ALL[1]), Some(TaskEnd::Failed))
    );
}

pub async fn f_094_an_open_family_is_kept_until_it_is_closed(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        retention: Some(secs(1)),
        ..Policy::default()
    })
    .await;
    let parent = kit.create(0, kit.new_task()).await;
    let parent = kit.apply(1, &parent, Event::Follow(EdgeKind::Child)).await;
    let parent = kit.run(2, &parent, "w").await;
    let parent = kit.finish(3, &parent, success("done")).await;
    let settle = |task: &Task, effect, failed: bool| {
        Event::Settle(dueline_domain::Settle {
            seen: task.write,
            effect,
            failed: failed.then(|| ("open".into(), Default::default())),
        })
    };
    let parent = kit
        .apply(4, &parent, settle(&parent, Effect::Children, false))
        .await;
    assert_eq!(kit.due(59_000).await.owed, []);
    assert_eq!(
        kit.due(61_000).await.owed.len(),
        1,
        "it is checked now and then"
    );
    assert_eq!(kit.prune(90_000_000, 100).await, 0);
    let parent = kit
        .apply(61_000, &parent, settle(&parent, Effect::Close, true))
        .await;
    let seen = parent.write;
    let begin = Event::Close(Close { seen, failed: None });
    let parent = kit.apply(62_000, &parent, begin).await;
    let seen = parent.write;
    let close = Event::Close(Close {
        seen,
        failed: Some(3),
    });
    let parent = kit.apply(63_000, &parent, close).await;
    assert_eq!(parent.owed, None);
    assert_eq!(
        parent.family().map(|family| family.children_failed),
        Some(3)
    );
    assert_eq!(kit.prune(90_000_000, 100).await, 1);
}

pub async fn a_14_a_closed_family_is_open_again_when_a_child_is_redriven(store: Arc<dyn Store>) {
    let kit = StoreKit::new(store).await;
    kit.set_policy(Policy {
        retention: Some(secs(1)),
        ..Policy::default()
    })
    .await;
    let parent = kit.create(0, kit.new_task()).await;
    assert_eq!(
        kit.refused(1, &parent, Event::Reopen).await,
        Reason::NotFinished
    );
    let parent = kit.apply(1, &parent, Event::Follow(EdgeKind::Child)).await;
    let parent = kit.run(2, &parent, "w").await;
    let parent = kit.finish(3, &parent, success("done")).await;
    let settle = Event::Settle(dueline_domain::Settle {
        seen: parent.write,
        effect: Effect::Children,
        failed: None,
    });
    let mut parent = kit.apply(4, &parent, settle).await;
    for round in 0..2 {
        let ms = 1_000 * (round + 1);
        for failed in [None, Some(3)] {
            let seen = parent.write;
            let close = Event::Close(Close { seen, failed });
            parent = kit.apply(ms, &parent, close).await;
        }
        assert_eq!(parent.owed, None);
        if round == 0 {
            parent = kit.apply(ms + 1, &parent, Event::Reopen).await;
            assert!(parent.is_open_family());
            assert_eq!(
                kit.refused(ms + 2, &parent, Event::Reopen).await,
                Reason::NotFinished
            );
            assert_eq!(kit.prune(90_000_000, 100).await, 0);
            let due = kit.due(ms + 60_001).await.owed;
            assert_eq!(due.len(), 1, "it is checked now and then");
        }
    }
    assert_eq!(kit.prune(90_000_000, 100).await, 1);
}
