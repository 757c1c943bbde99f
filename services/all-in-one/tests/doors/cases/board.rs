//! Claims and drops that are refused.

use dueline_api::operation::{
    ClaimTask, DropTasks, ExplainTask, GetLease, GetRuns, GetScheduling, WaitAny,
};
use dueline_domain::{ClaimLifetime, WorkerId};

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
