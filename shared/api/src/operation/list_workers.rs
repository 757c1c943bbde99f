//! Returns the registered workers.

use dueline_ports::WorkerRecord;

use super::Operation;

/// Returns the registered workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListWorkers;

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

        fn from_request(_: Self::Request, _: &RequestDefaults) -> Result<Self, ApiError> {
            Ok(Self)
        }

        fn into_request(self) -> Self::Request {
            proto::ListWorkersRequest {}
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
