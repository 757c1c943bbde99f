//! Stores tasks.

use dueline_domain::{JobName, NewTask, StateKind, TaskId, Timestamp};

use super::Operation;
use crate::{ApiError, check};

/// Stores tasks. Each has an answer of its own, in the order of the tasks; `Ok` means durable. The call as a whole is
/// refused only for the number of its tasks: the service checks each task alone, with [`crate::check::new_task`].
#[derive(Clone, Debug, PartialEq)]
pub struct Submit {
    /// The tasks.
    pub tasks: Vec<NewTask>,
}

/// The answer for one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The job.
    pub job: JobName,
    /// The task.
    pub id: TaskId,
    /// Its state.
    pub state: StateKind,
    /// When it is due.
    pub run_at: Timestamp,
    /// Whether an earlier submit had made it.
    pub existed: bool,
    /// Whether this submit has replaced its content.
    pub replaced: bool,
}

impl Operation for Submit {
    type Output = Vec<Result<Submitted, ApiError>>;
    const NAME: &'static str = "Submit";
    const WRITES: bool = true;

    fn check(&mut self) -> Result<(), ApiError> {
        check::batch_len(self.tasks.len())
    }
}

#[cfg(feature = "grpc")]
mod grpc {
    use std::time::Duration;

    use async_trait::async_trait;

    use super::*;
    use crate::{
        Call,
        grpc::{
            FrontendClient, FrontendServer, Rpc, answers, convert::new_task, each, missing, proto,
            send_in_chunks, value,
        },
    };

    #[async_trait]
    impl Rpc for Submit {
        type Request = proto::SubmitRequest;
        type Response = proto::SubmitResponse;

        async fn answer(
            server: &FrontendServer,
            call: &Call,
            request: Self::Request,
        ) -> Result<Self::Response, ApiError> {
            check::batch_len(request.tasks.len())?;
            let defaults = &server.defaults;
            let now = defaults.clock.now();
            let parse = |task| new_task(task, || defaults.rng.task_id(now));
            let submit = async |tasks: Vec<NewTask>| {
                let len = tasks.len();
                let answers = server.frontend.call(call, Submit { tasks }).await;
                answers.unwrap_or_else(|error| vec![Err(error); len])
            };
            let answers = each(request.tasks, parse, submit).await;
            let results = answers.into_iter().map(Into::into).collect();
            Ok(proto::SubmitResponse { results })
        }

        async fn ask(self, client: &FrontendClient, call: &Call) -> Result<Self::Output, ApiError> {
            let mut tasks = self.tasks;
            let len = tasks.len();
            check::batch_len(len)?;
            // A task that the server would refuse is not sent. It might not even fit into a message.
            let checked: Vec<_> = tasks.iter_mut().map(check::new_task).collect();
            let good = tasks.into_iter().zip(&checked);
            let good = good.filter(|(_, check)| check.is_ok());
            let mut good: Vec<_> = good.map(|(task, _)| task).enumerate().collect();
            sort_by_depth(&mut good);
            let order: Vec<usize> = good.iter().map(|(place, _)| *place).collect();
            let good = good.into_iter().map(|(_, task)| task.into()).collect();
            let send = async |tasks: Vec<proto::NewTask>| {
                let asked = tasks.len();
                let request = proto::SubmitRequest { tasks };
                let answer = client.send::<Submit>(call, Duration::ZERO, request).await;
                let answer = answer.map(|answer| answer.results);
                answers(asked, answer, submitted)
            };
            let sent = send_in_chunks(good, len, send).await;
            let mut sent: Vec<_> = order.into_iter().zip(sent).collect();
            sent.sort_unstable_by_key(|(place, _)| *place);
            let mut sent = sent.into_iter().map(|(_, answer)| answer);
            let answer = |check: Result<(), ApiError>| match check {
                Ok(()) => sent.next().unwrap_or_else(|| Err(missing())),
                Err(error) => Err(error),
            };
            Ok(checked.into_iter().map(answer).collect())
        }
    }

    /// Brings tasks into an order in which each comes after those that it waits for, because a long submit is sent in
    /// several messages.
    fn sort_by_depth(tasks: &mut [(usize, NewTask)]) {
        if !tasks.iter().any(|(_, task)| task.family().is_some()) {
            return;
        }
        let plain: Vec<NewTask> = tasks.iter().map(|(_, task)| task.clone()).collect();
        let depths = check::batch_order(&plain).depths;
        tasks.sort_by_key(|(place, _)| match depths.get(*place) {
            Some(Ok(depth)) => *depth,
            _ => usize::MAX,
        });
    }

    fn submitted(result: proto::SubmitResult) -> Result<Submitted, ApiError> {
        use proto::submit_result::Result::{Error, Submitted};
        match result.result.ok_or_else(missing)? {
            Submitted(submitted) => value(Some(submitted)),
            Error(error) => Err(error.into()),
        }
    }

    impl From<Result<Submitted, ApiError>> for proto::SubmitResult {
        fn from(answer: Result<Submitted, ApiError>) -> Self {
            use proto::submit_result::Result::{Error, Submitted};
            let result = Some(match answer {
                Ok(submitted) => Submitted(submitted.into()),
                Err(error) => Error(error.into()),
            });
            Self { result }
        }
    }
}
