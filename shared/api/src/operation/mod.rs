//! The operations of clients, one file each: what an operation takes, the rules for it, what it answers, and its
//! messages in gRPC. Every service that offers an operation, and every client of one, implements [`Callable`] for it.

mod backfill_schedule;
mod cancel;
mod claim_task;
mod delete_job;
mod delete_schedule;
mod drop_tasks;
mod explain_task;
mod get_family;
mod get_job;
mod get_job_stats;
mod get_lease;
mod get_runs;
mod get_schedule;
mod get_scheduling;
mod get_task;
mod list_jobs;
mod list_schedules;
mod list_tasks;
mod list_workers;
mod modify;
mod pause_job;
mod pause_schedule;
mod put_job;
mod put_schedule;
mod read_changes;
mod redrive;
mod report_task;
mod shown_schedule;
mod submit;
mod trigger_schedule;
mod wait_any;

use std::fmt::Debug;

use async_trait::async_trait;

pub use self::{
    backfill_schedule::BackfillSchedule,
    cancel::Cancel,
    claim_task::{ClaimTask, ClaimedTask},
    delete_job::DeleteJob,
    delete_schedule::DeleteSchedule,
    drop_tasks::{DropTasks, DroppedTasks},
    explain_task::{Cause, ExplainTask, Explanation},
    get_family::{FamilyMember, FamilyPage, GetFamily, PathStep},
    get_job::{GetJob, ShownJob},
    get_job_stats::GetJobStats,
    get_lease::{GetLease, LeaseEnd, TaskLease},
    get_runs::{GetRuns, TaskRun, TaskRuns},
    get_schedule::{GetSchedule, NEXT_DEFAULT, NEXT_MAX},
    get_scheduling::{GetScheduling, Scheduling, SchedulingStatus},
    get_task::GetTask,
    list_jobs::ListJobs,
    list_schedules::{ListSchedules, SchedulePage},
    list_tasks::ListTasks,
    list_workers::ListWorkers,
    modify::Modify,
    pause_job::PauseJob,
    pause_schedule::PauseSchedule,
    put_job::PutJob,
    put_schedule::PutSchedule,
    read_changes::{ReadChanges, WatchPage, WatchedChange},
    redrive::Redrive,
    report_task::{ReportTask, ReportedTask},
    shown_schedule::{NextFiring, ShownSchedule},
    submit::{Submit, Submitted},
    trigger_schedule::TriggerSchedule,
    wait_any::WaitAny,
};
use crate::{ApiError, Call};

/// The input of an operation.
pub trait Operation: Clone + Debug + Send + Sync + 'static {
    /// The answer.
    type Output: Send + 'static;

    /// The name of the method in gRPC.
    const NAME: &'static str;
    /// Whether the operation may change something. Such a call runs to completion once it has begun, and a caller that
    /// has lost its answer cannot know whether it took effect.
    const WRITES: bool;

    /// Checks the input, and brings it into the form that is stored. The rules are those of [`crate::check`]. A service
    /// calls this function before it does anything else, so that no transport can leave a rule out.
    fn check(&mut self) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Carries an operation out: the service itself, or a client of it.
#[async_trait]
pub trait Callable<O: Operation>: Send + Sync + 'static {
    /// Carries out `operation` for the caller of `call`. Answers hold no fencing token and no write id,
    /// except for the token that the caller of [`ClaimTask`] gets.
    async fn call(&self, call: &Call, operation: O) -> Result<O::Output, ApiError>;
}

/// Passes the table of all operations to a macro: the method of the generated gRPC server, and the operation.
macro_rules! with_operations {
    ($macro:ident) => {
        $macro! {
            put_job: PutJob,
            get_job: GetJob,
            list_jobs: ListJobs,
            pause_job: PauseJob,
            delete_job: DeleteJob,
            job_stats: GetJobStats,
            submit: Submit,
            get_task: GetTask,
            list_tasks: ListTasks,
            get_family: GetFamily,
            cancel: Cancel,
            drop_tasks: DropTasks,
            modify: Modify,
            redrive: Redrive,
            claim_task: ClaimTask,
            get_lease: GetLease,
            report_task: ReportTask,
            wait_any: WaitAny,
            read_changes: ReadChanges,
            get_scheduling: GetScheduling,
            get_runs: GetRuns,
            explain_task: ExplainTask,
            put_schedule: PutSchedule,
            get_schedule: GetSchedule,
            list_schedules: ListSchedules,
            delete_schedule: DeleteSchedule,
            pause_schedule: PauseSchedule,
            trigger_schedule: TriggerSchedule,
            backfill_schedule: BackfillSchedule,
            list_workers: ListWorkers,
        }
    };
}
#[cfg(feature = "grpc")]
pub(crate) use with_operations;

macro_rules! frontend {
    ($($method:ident: $operation:ident,)*) => {
        /// All operations of clients: the frontend, or a client of it.
        pub trait Frontend: $(Callable<$operation> +)* {}

        impl<T: $(Callable<$operation> +)*> Frontend for T {}
    };
}
with_operations!(frontend);
