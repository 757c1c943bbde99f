//! Returns the registered workers, or other registered processes.

use dueline_ports::{ProcessKind, WorkerRecord};

use super::Operation;

/// Returns the processes that are registered: the executors, or those of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListWorkers {
    /// Of this kind; `None` for every kind.
    pub kind: Option<ProcessKind>,
}

impl Default for ListWorkers {
    fn default() -> Self {
        let kind = Some(ProcessKind::Executor);
        Self { kind }
    }
}

impl ListWorkers {
    /// Stands for every kind.
    pub const ALL: &str = "all";

    /// What a name asks for: a kind, [`Self::ALL`], or executors without a name.
    pub fn of_kind(name: Option<&str>) -> Result<Self, crate::ApiError> {
        let kind = match name {
            Some(Self::ALL) => None,
            name => Some(crate::check::process_kind(name)?),
        };
        Ok(Self { kind })
    }
}

impl Operation for ListWorkers {
    type Output = Vec<WorkerRecord>;
    const NAME: &'static str = "ListWorkers";
    const WRITES: bool = false;
}

#[cfg(feature = "grpc")]
mod grpc {
    use super::*;
    use crate::{
        ApiError,
        grpc::{RequestDefaults, Unary, proto, values},
    };

    impl Unary for ListWorkers {
        type Request = proto::ListWorkersRequest;
        type Response = proto::ListWorkersResponse;

        fn from_request(request: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Self::of_kind(Some(&request.kind))
        }

        fn into_request(self) -> Self::Request {
            let kind = self.kind.map_or(Self::ALL, ProcessKind::name);
            proto::ListWorkersRequest { kind: kind.into() }
        }

        fn into_response(workers: Vec<WorkerRecord>) -> Self::Response {
            let workers = workers.into_iter().map(Into::into).collect();
            proto::ListWorkersResponse { workers }
        }

        fn from_response(response: Self::Response) -> Result<Vec<WorkerRecord>, ApiError> {
            values(response.workers)
        }
    }
}
