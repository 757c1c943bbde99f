//! Claims and drops that are refused.

use dueline_api::operation::{
    ClaimTask, DropTasks, ExplainTask, GetLease, GetRuns, GetScheduling, ReadChanges, WaitAny,
};
use dueline_domain::{ClaimLifetime, StateKind, WorkerId};
use dueline_ports::ListOrder;

use super::*;

fn claim(lifetime: ClaimLifetime) -> ClaimTask {
    ClaimTask {
        job: mail(),
        id: id(),
        owner: WorkerId::parse("ann").unwrap(),
        lifetime,
        request: None,
    }
}

fn drop_tasks(job: &str, tag: Option<&str>) -> DropTasks {
    DropTasks {
        job: JobName::parse(job).unwrap(),
        tag: tag.map(Arc::from),
        reason: None,
        cursor: None,
    }
}

fn wait(jobs: &[&str]) -> WaitAny {
    let jobs = jobs.iter().map(|job| JobName::parse(job).unwrap());
    WaitAny {
        jobs: jobs.collect(),
        wait: Duration::from_secs(1),
        limit: 100,
    }
}

fn changes(job: &str, cursor: Option<&str>, limit: usize) -> ReadChanges {
    ReadChanges {
        job: JobName::parse(job).unwrap(),
        id: None,
        cursor: cursor.map(Arc::from),
        wait: Duration::ZERO,
        limit,
    }
}

fn list(order: ListOrder, states: &[StateKind]) -> ListTasks {
    ListTasks(ListQuery {
        order,
        states: states.to_vec(),
        ..ListQuery::of(JobName::parse("mail").unwrap())
    })
}

pub(super) fn orders() -> Vec<Case> {
    let get = |path: &'static str| (Method::GET, path, None);
    let ended = [StateKind::New, StateKind::Failed];
    vec![case(
        "a list by due time of tasks that have ended",
        ("no_due_order", Some("order")),
        get("jobs/mail/tasks?order=-due&state=new,failed"),
        ask!(frontend => frontend.call(&call(), list(ListOrder::DueLast, &ended))),
    )]
}

pub(super) fn watches() -> Vec<Case> {
    let gone = TaskId::parse("00000000-0000-7000-8000-000000000001").unwrap();
    let of = move |id, cursor: &str| ReadChanges {
        id: Some(id),
        ..changes("mail", Some(cursor), 10)
    };
    let first = move |id| ReadChanges {
        cursor: None,
        ..of(id, "")
    };
    let get = |path: &'static str| (Method::GET, path, None);
    vec![
        case(
            "a watch of an unknown job",
            ("unknown_job", None),
            get("jobs/nobody/watch"),
            ask!(frontend => frontend.call(&call(), changes("nobody", None, 10))),
        ),
        case(
            "a watch from a position that is none",
            ("invalid_cursor", Some("cursor")),
            get("jobs/mail/watch?cursor=p-1"),
            ask!(frontend => frontend.call(&call(), changes("mail", Some("p-1"), 10))),
        ),
        case(
            "more changes than fit one answer",
            ("out_of_range", Some("limit")),
            get("jobs/mail/changes?limit=1001"),
            ask!(frontend => frontend.call(&call(), changes("mail", None, 1_001))),
        ),
        case(
            "a watch of a task that is not there",
            ("unknown_task", None),
            get("jobs/mail/watch?task=00000000-0000-7000-8000-000000000001"),
            ask!(frontend => frontend.call(&call(), first(gone))),
        ),
        case(
            "a watch of a task from a position of its job",
            ("invalid_cursor", Some("cursor")),
            get("jobs/mail/watch?task=6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e&cursor=c1-1-1"),
            ask!(frontend => frontend.call(&call(), of(id(), "c1-1-1"))),
        ),
    ]
}

pub(super) fn board() -> Vec<Case> {
    let path = format!("jobs/mail/tasks/{TASK}/claim");
    let missing = "00000000-0000-7000-8000-000000000001";
    let gone = TaskId::parse(missing).unwrap();
    let year = Duration::from_secs(367 * 86_400);
    let year_ms = 367 * 86_400_000_u64;
    let rest = |body: Value| (Method::POST, path.as_str(), Some(body));
    vec![
        case(
            "a claim of a task that is not due",
            ("not_due", None),
            rest(json!({"owner": "ann"})),
            ask!(frontend => frontend.call(&call(), claim(ClaimLifetime::OfJob))),
        ),
        case(
            "a claim for no time",
            ("invalid_duration", Some("lifetime_ms")),
            rest(json!({"owner": "ann", "lifetime_ms": 0})),
            ask!(frontend => frontend.call(&call(), claim(ClaimLifetime::For(Duration::ZERO)))),
        ),
        case(
            "a claim for more than a year",
            ("invalid_duration", Some("lifetime_ms")),
            rest(json!({"owner": "ann", "lifetime_ms": year_ms})),
            ask!(frontend => frontend.call(&call(), claim(ClaimLifetime::For(year)))),
        ),
        case(
            "a claim without an owner",
            ("no_owner", Some("owner")),
            rest(json!({"owner": ""})),
            raw!(client => async move {
                let request = proto::ClaimTaskRequest {
                    job: "mail".into(),
                    id: TASK.into(),
                    ..Default::default()
                };
                status(client.claim_task(request).await)
            }),
        ),
        case(
            "a claim for a name that is no name",
            ("invalid_name", Some("owner")),
            rest(json!({"owner": "a b"})),
            raw!(client => async move {
                let request = proto::ClaimTaskRequest {
                    job: "mail".into(),
                    id: TASK.into(),
                    owner: "a b".into(),
                    ..Default::default()
                };
                status(client.claim_task(request).await)
            }),
        ),
        case(
            "a claim of a task that does not exist",
            ("unknown_task", None),
            (
                Method::POST,
                &format!("jobs/mail/tasks/{missing}/claim"),
                Some(json!({"owner": "ann"})),
            ),
            ask!(frontend => frontend.call(&call(), ClaimTask { id: gone, ..claim(ClaimLifetime::OfJob) })),
        ),
        case(
            "a drop of a collection without a name",
            ("blank", Some("tag")),
            (
                Method::POST,
                "jobs/mail/tasks:drop",
                Some(json!({"tag": " "})),
            ),
            ask!(frontend => frontend.call(&call(), drop_tasks("mail", Some(" ")))),
        ),
        case(
            "a drop in a job that does not exist",
            ("unknown_job", None),
            (Method::POST, "jobs/nope/tasks:drop", None),
            ask!(frontend => frontend.call(&call(), drop_tasks("nope", None))),
        ),
        case(
            "a wait for a task of no job",
            ("no_job", Some("jobs")),
            (Method::GET, "claimable", None),
            ask!(frontend => frontend.call(&call(), wait(&[]))),
        ),
        case(
            "a wait for a task of a job that does not exist",
            ("unknown_job", None),
            (Method::GET, "claimable?job=mail&job=nope&wait=1s", None),
            ask!(frontend => frontend.call(&call(), wait(&["mail", "nope"]))),
        ),
        case(
            "a wait of two hours for any task",
            ("out_of_range", Some("wait")),
            (Method::GET, "claimable?job=mail&wait=2h", None),
            ask!(frontend => frontend.call(&call(), WaitAny { wait: Duration::from_secs(7_200), ..wait(&["mail"]) })),
        ),
        case(
            "the scheduling record of a task that does not exist",
            ("unknown_task", None),
            (
                Method::GET,
                &format!("jobs/mail/tasks/{missing}/scheduling"),
                None,
            ),
            ask!(frontend => frontend.call(&call(), GetScheduling { job: mail(), id: gone })),
        ),
        case(
            "the runs of a task that does not exist",
            ("unknown_task", None),
            (
                Method::GET,
                &format!("jobs/mail/tasks/{missing}/runs"),
                None,
            ),
            ask!(frontend => frontend.call(&call(), GetRuns { job: mail(), id: gone })),
        ),
        case(
            "the claim of a task that does not exist",
            ("unknown_task", None),
            (
                Method::GET,
                &format!("jobs/mail/tasks/{missing}/lease"),
                None,
            ),
            ask!(frontend => frontend.call(&call(), GetLease { job: mail(), id: gone })),
        ),
        case(
            "why a task that does not exist is not running",
            ("unknown_task", None),
            (
                Method::GET,
                &format!("jobs/mail/tasks/{missing}/explain"),
                None,
            ),
            ask!(frontend => frontend.call(&call(), ExplainTask { job: mail(), id: gone })),
        ),
    ]
}
