//! Messages of queues, and the errors of the queue seam.

use std::sync::Arc;

use dueline_domain::{JobName, TaskRef};
use dueline_ports::{Delivery, QueueError, Receipt};

use super::field;
use crate::{
    ApiError, ErrorKind, ErrorReason,
    grpc::proto::{self, receipt::Name},
};

/// Longest handle of a queue service in bytes; those of SQS may take 1024.
const HANDLE_BYTES_MAX: usize = 4 * 1024;

impl From<Receipt> for proto::Receipt {
    fn from(receipt: Receipt) -> Self {
        let job = receipt.job().to_string();
        let name = match receipt {
            Receipt::Local { number, .. } => Name::Number(number),
            Receipt::Handle { handle, .. } => Name::Handle(handle.as_ref().to_owned()),
        };
        Self {
            job,
            name: Some(name),
        }
    }
}

impl TryFrom<proto::Receipt> for Receipt {
    type Error = ApiError;

    fn try_from(receipt: proto::Receipt) -> Result<Self, ApiError> {
        let job = field::job_name("receipt.job", &receipt.job)?;
        Ok(match field::required("receipt.name", receipt.name)? {
            Name::Number(number) => Self::Local { job, number },
            Name::Handle(handle) => {
                field::size("receipt.handle", handle.len(), HANDLE_BYTES_MAX)?;
                let handle = Arc::from(handle);
                Self::Handle { job, handle }
            }
        })
    }
}

impl From<Delivery> for proto::Delivery {
    fn from(delivery: Delivery) -> Self {
        Self {
            task: Some(delivery.task.into()),
            receipt: Some(delivery.receipt.into()),
            received: delivery.received,
        }
    }
}

impl TryFrom<proto::Delivery> for Delivery {
    type Error = ApiError;

    fn try_from(delivery: proto::Delivery) -> Result<Self, ApiError> {
        Ok(Self {
            task: TaskRef::try_from(field::required("delivery.task", delivery.task)?)?,
            receipt: Receipt::try_from(field::required("delivery.receipt", delivery.receipt)?)?,
            received: delivery.received,
        })
    }
}

/// The error of the queue seam that a server meant; `job` is the one the call was about.
pub(crate) fn queue_error(error: &ApiError, job: &JobName) -> QueueError {
    let message = error.message();
    // The text of a queue error names the queue; said once is enough.
    let bare = |prefix| Arc::from(message.strip_prefix(prefix).unwrap_or(message));
    match (error.kind(), error.reason()) {
        (ErrorKind::NotFound, _) => QueueError::NotFound(job.clone()),
        (_, ErrorReason::QueueFull) => QueueError::Full(job.clone()),
        (_, ErrorReason::QueueThrottled) | (ErrorKind::RateLimited, _) => QueueError::Throttled,
        (ErrorKind::Unavailable | ErrorKind::Deadline | ErrorKind::Internal, _) => {
            QueueError::Unavailable(bare("queue is unavailable: "))
        }
        (ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Conflict | ErrorKind::TooLarge, _) => {
            QueueError::Invalid(bare("queue refused the call: "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_errors_survive_the_way_through_the_error_of_all_services() {
        let job = JobName::parse("mail").unwrap();
        let errors = [
            QueueError::NotFound(job.clone()),
            QueueError::Full(job.clone()),
            QueueError::Throttled,
            QueueError::Unavailable(Arc::from("no route")),
            QueueError::Invalid(Arc::from("too long")),
        ];
        for error in errors {
            let back = queue_error(&ApiError::from(error.clone()), &job);
            assert_eq!(format!("{back:?}"), format!("{error:?}"));
        }
    }
}
