//! The parts of a demo beyond single files: a chain of three tasks that wait for each other, and a schedule.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use dueline_api::{
    Call, ErrorKind, ErrorReason, Frontend,
    operation::{ListTasks, PutJob, PutSchedule, Submit},
};
use dueline_domain::{
    Family, Job, JobName, NewTask, Overlap, Predecessor, RuleSpec, ScheduleName, ScheduleSpec,
    StateKind, Task, TaskAddress, TaskId, TaskOptions, Timestamp,
};
use dueline_ports::{Clock as _, ListQuery, Rng};
use dueline_runtime::{SystemClock, SystemRng};
use tokio::time::{Instant, sleep};

use super::{
    DemoFile,
    jobs::{CHECKSUM, exec, quick_retries},
    verify::{output_text, sha256_of},
};
use crate::exit::CliError;

const CHAIN_JOB: &str = "demo-chain";
const PULSE_JOB: &str = "demo-pulse";
/// The steps of the chain. Each works on what the one before it has written.
const STEPS: [&str; 3] = ["extract", "transform", "load"];
/// How often the schedule fires.
const PULSES: u64 = 3;
const PULSE_PERIOD: Duration = Duration::from_secs(1);
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// Standard input: the step, the folder for what the steps write, the path of the file.
const CHAIN: &str = r#"set -eu
IFS= read -r step || exit 2
IFS= read -r folder || exit 2
file=$(cat; printf x); file=${file%x}
case $step in
extract) gzip -c < "$file" > "$folder/extracted.$$"; mv -f "$folder/extracted.$$" "$folder/extracted"; exit 0;;
transform) gzip -dc < "$folder/extracted" > "$folder/transformed.$$"; mv -f "$folder/transformed.$$" "$folder/transformed"; exit 0;;
load) file=$folder/transformed;;
*) exit 2;;
esac
"#;

/// A chain and a schedule that have been started.
pub(super) struct DemoFlow {
    file: DemoFile,
    steps: Vec<TaskId>,
    /// The first firing is not due before this time.
    scheduled_at: Timestamp,
}

/// What the chain and the schedule have done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowResult {
    /// Steps of the chain that succeeded.
    pub steps: usize,
    /// Tasks that the schedule has created.
    pub firings: usize,
    /// What is not as expected.
    pub defects: Vec<String>,
}

impl DemoFlow {
    /// Creates the jobs and the schedule, and submits the chain, its last step first. `folder` is for what the steps
    /// write.
    pub(super) async fn start(
        frontend: &dyn Frontend,
        file: DemoFile,
        folder: &Path,
        run_timeout: Duration,
    ) -> Result<Self, CliError> {
        let call = Call::by("demo");
        for job in jobs(run_timeout)? {
            frontend.call(&call, PutJob::from(job)).await?;
        }
        let scheduled_at = SystemClock.now();
        frontend.call(&call, schedule()?).await?;
        let (steps, mut tasks) = chain(&file, folder, SystemClock.now(), &SystemRng)?;
        tasks.reverse();
        for answer in frontend.call(&call, Submit { tasks }).await? {
            answer?;
        }
        Ok(Self {
            file,
            steps,
            scheduled_at,
        })
    }

    /// Waits until the chain has ended and the schedule has fired as often as it should, and verifies both.
    pub(super) async fn until_ended(
        self,
        frontend: &dyn Frontend,
        timeout: Duration,
    ) -> Result<FlowResult, CliError> {
        let started = Instant::now();
        loop {
            let steps = tasks_of(frontend, CHAIN_JOB).await?;
            let firings = tasks_of(frontend, PULSE_JOB).await?;
            let mut tasks = steps.iter().chain(&firings);
            let expected = STEPS.len() as u64 + PULSES;
            if (steps.len() + firings.len()) as u64 >= expected
                && tasks.all(|task| task.kind().is_final())
            {
                return Ok(self.verify(&steps, &firings));
            }
            if started.elapsed() > timeout {
                let message = format!(
                    "after {} s, {} of {expected} tasks of the chain and the schedule exist, and not all have ended",
                    timeout.as_secs(),
                    steps.len() + firings.len(),
                );
                return Err(CliError::new(
                    ErrorKind::Internal,
                    ErrorReason::Stalled,
                    message,
                ));
            }
            sleep(POLL_PERIOD).await;
        }
    }

    fn verify(&self, steps: &[Task], firings: &[Task]) -> FlowResult {
        let mut result = FlowResult {
            firings: firings.len(),
            ..FlowResult::default()
        };
        let mut chain: Vec<&Task> = Vec::new();
        for (id, name) in self.steps.iter().zip(STEPS) {
            match steps.iter().find(|task| task.id == *id) {
                Some(task) if task.kind() == StateKind::Succeeded => chain.push(task),
                Some(task) => {
                    let error = task.error.as_deref().unwrap_or_default();
                    let kind = task.kind();
                    result
                        .defects
                        .push(format!("step {name} is {kind}: {error}"));
                }
                None => result.defects.push(format!("step {name} does not exist")),
            }
        }
        result.steps = chain.len();
        if chain
            .windows(2)
            .any(|pair| pair[1].started_at < pair[0].finished_at)
        {
            let defect = "a step of the chain began before the one that it waits for had ended";
            result.defects.push(defect.to_owned());
        }
        result
            .defects
            .extend(chain.last().and_then(|last| self.wrong_sum(last)));

        let mut times: Vec<_> = firings.iter().map(|task| task.run_at).collect();
        times.sort_unstable();
        if firings.len() as u64 != PULSES
            || times
                .windows(2)
                .any(|pair| pair[1].since(pair[0]) != PULSE_PERIOD)
            || times
                .first()
                .is_some_and(|first| *first < self.scheduled_at)
        {
            let times: Vec<_> = times.iter().map(ToString::to_string).collect();
            let defect = format!("the schedule fired at {}", times.join(", "));
            result.defects.push(defect);
        }
        for task in firings {
            if task.kind() != StateKind::Succeeded {
                let kind = task.kind();
                result
                    .defects
                    .push(format!("the task of a firing is {kind}"));
            }
            if task
                .started_at
                .is_none_or(|started_at| started_at < task.run_at)
            {
                let defect = "the task of a firing started before its time";
                result.defects.push(defect.to_owned());
            }
        }
        result
    }

    /// What is wrong with the result of the last step, unless the file itself has changed.
    fn wrong_sum(&self, last: &Task) -> Option<String> {
        let actual = output_text(last.result.as_deref().unwrap_or_default());
        match sha256_of(&self.file.path) {
            Ok((_, expected)) if actual == expected => None,
            _ if self.file.is_changed() => None,
            Ok(_) => Some("the chain has another checksum than its file".to_owned()),
            Err(error) => Some(format!("the file of the chain cannot be read: {error}")),
        }
    }
}

fn jobs(run_timeout: Duration) -> Result<[Job; 2], CliError> {
    let mut chain = Job::new(job_name(CHAIN_JOB)?);
    chain.info = "Three commands, each after the one before it".into();
    chain.handler = exec(&[CHAIN, CHECKSUM].concat());
    let mut pulse = Job::new(job_name(PULSE_JOB)?);
    pulse.info = "A command that a schedule runs each second".into();
    pulse.handler = exec("date -u");
    for job in [&mut chain, &mut pulse] {
        job.policy.run_timeout = Some(run_timeout);
        job.policy.retry = quick_retries().map_err(|error| CliError::invalid(error.to_string()))?;
    }
    Ok([chain, pulse])
}

fn schedule() -> Result<PutSchedule, CliError> {
    let name = ScheduleName::parse("pulse");
    Ok(PutSchedule {
        job: job_name(PULSE_JOB)?,
        name: name.map_err(|error| CliError::invalid(error.to_string()))?,
        spec: ScheduleSpec {
            rule: RuleSpec {
                timing: "@every 1s".to_owned(),
                ..RuleSpec::default()
            },
            overlap: Overlap::Allow,
            firings_max: Some(PULSES),
            ..ScheduleSpec::default()
        },
    })
}

/// The steps of the chain and their ids, the first one first.
fn chain(
    file: &DemoFile,
    folder: &Path,
    now: Timestamp,
    rng: &dyn Rng,
) -> Result<(Vec<TaskId>, Vec<NewTask>), CliError> {
    let job = job_name(CHAIN_JOB)?;
    let ids: Vec<_> = STEPS.map(|_| rng.task_id(now)).into();
    let mut tasks = Vec::with_capacity(STEPS.len());
    for (number, (step, id)) in STEPS.into_iter().zip(&ids).enumerate() {
        let payload = format!("{step}\n{}\n{}", folder.display(), file.path.display());
        let before = number.checked_sub(1).and_then(|before| ids.get(before));
        let after = before.map(|before| {
            Predecessor::open(TaskAddress {
                job: job.clone(),
                id: *before,
            })
        });
        let family = after.map(|after| {
            Box::new(Family {
                after: vec![after],
                ..Family::default()
            })
        });
        tasks.push(NewTask {
            id_is_given: true,
            options: Some(Box::new(TaskOptions {
                name: Some(step.into()),
                content_type: Some("text/plain".into()),
                family,
                ..TaskOptions::default()
            })),
            ..NewTask::now(*id, job.clone(), Bytes::from(payload))
        });
    }
    Ok((ids, tasks))
}

fn job_name(name: &str) -> Result<JobName, CliError> {
    JobName::parse(name).map_err(|error| CliError::invalid(error.to_string()))
}

/// All tasks of a job that has few.
async fn tasks_of(frontend: &dyn Frontend, job: &str) -> Result<Vec<Task>, CliError> {
    let query = ListQuery {
        limit: 100,
        ..ListQuery::of(job_name(job)?)
    };
    let page = frontend.call(&Call::by("demo"), ListTasks(query)).await?;
    Ok(page.tasks)
}
