//! Enums of the domain as numbers and back. A number that this version does not know is refused, never guessed.

use std::fmt;

use dueline_domain::{
    ChangeKind, Children, FiringEnd, HeldUntil, OnConflict, Overlap, RetryClass, RunEnd,
    RunningCancel, StateKind, TaskEnd, TriggerOn,
};

use dueline_ports::ListOrder;

use crate::{ApiError, ErrorKind, ErrorReason, grpc::proto};

/// The value of an enum's number.
fn known<E: TryFrom<i32>>(field: &'static str, number: i32) -> Result<E, ApiError> {
    E::try_from(number).map_err(|_| unknown(field, number))
}

fn unknown(field: &'static str, value: impl fmt::Display) -> ApiError {
    let text = format!("{value} is not a value that this version knows");
    ApiError::invalid(field, ErrorReason::InvalidValue, text)
}

macro_rules! enums {
    ($($domain:ident = $proto:ident, unspecified: $unspecified:expr, fn $parse:ident, [$($name:ident),*];)*) => {$(
        impl From<$domain> for proto::$proto {
            fn from(value: $domain) -> Self {
                match value {
                    $($domain::$name => Self::$name,)*
                }
            }
        }

        /// Parses the number of the enum.
        pub(crate) fn $parse(field: &'static str, number: i32) -> Result<$domain, ApiError> {
            match known(field, number)? {
                $(proto::$proto::$name => Ok($domain::$name),)*
                proto::$proto::Unspecified => {
                    let default: Option<$domain> = $unspecified;
                    default.ok_or_else(|| unknown(field, number))
                }
            }
        }
    )*};
}

enums! {
    StateKind = TaskState, unspecified: None, fn state_kind,
        [Waiting, New, Enqueued, Claimed, Processing, Retriable, Succeeded, Failed, Cancelled, Trashed, Dropped];
    RunEnd = RunEnd, unspecified: None, fn run_end,
        [Succeeded, Retriable, Fatal, Lost, Abandoned, Cancelled, Trashed];
    TriggerOn = TriggerOn, unspecified: Some(TriggerOn::Success), fn trigger_on,
        [Success, Failure, Always];
    ListOrder = ListOrder, unspecified: Some(ListOrder::Newest), fn list_order,
        [Newest, Oldest, DueFirst, DueLast];
    ChangeKind = ChangeKind, unspecified: None, fn change_kind,
        [Posted, Changed, Ended, Removed];
    TaskEnd = TaskEnd, unspecified: None, fn task_end,
        [Succeeded, Failed, Cancelled, Trashed, Dropped, Deleted, ChildrenFailed, Discarded];
    Children = Children, unspecified: Some(Children::None), fn children,
        [None, Open, Closing, Closed];
    HeldUntil = HeldUntil, unspecified: Some(HeldUntil::Ended), fn held_until,
        [Started, Ended, Deleted];
    OnConflict = OnConflict, unspecified: Some(OnConflict::Return), fn on_conflict,
        [Return, Replace, Reject];
    RetryClass = RetryClass, unspecified: Some(RetryClass::Standard), fn retry_class,
        [Standard, Quick, Slow, RateLimited, WorkerLost];
    Overlap = Overlap, unspecified: Some(Overlap::QueueOne), fn overlap,
        [Skip, QueueOne, Allow, CancelPrevious];
    FiringEnd = FiringEnd, unspecified: None, fn firing_end,
        [Created, Missed, Skipped, Paused, Dropped, Failed];
    RunningCancel = RunningCancel, unspecified: Some(RunningCancel::Refuse), fn running_cancel,
        [Refuse, Request];
    ErrorKind = ErrorKind, unspecified: None, fn error_kind,
        [Invalid, Denied, NotFound, Conflict, TooLarge, RateLimited, Unavailable, Deadline, Internal];
}

/// The number of a state.
pub(super) fn state_number(kind: StateKind) -> i32 {
    proto::TaskState::from(kind).into()
}

/// Many states.
pub(super) fn state_kinds(
    field: &'static str,
    numbers: &[i32],
) -> Result<Vec<StateKind>, ApiError> {
    super::field::batch(field, numbers.len())?;
    numbers
        .iter()
        .map(|number| state_kind(field, *number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_and_unknown_numbers_are_refused() {
        for kind in StateKind::ALL {
            assert_eq!(state_kind("state", state_number(kind)), Ok(kind));
        }
        for end in RunEnd::ALL {
            let number = proto::RunEnd::from(end).into();
            assert_eq!(run_end("end", number), Ok(end));
        }
        for class in RetryClass::ALL {
            let number = proto::RetryClass::from(class).into();
            assert_eq!(retry_class("class", number), Ok(class));
        }
        for kind in ErrorKind::ALL {
            let number = proto::ErrorKind::from(kind).into();
            assert_eq!(error_kind("kind", number), Ok(kind));
        }
        for number in [-1, 0, 99] {
            let error = state_kind("state", number).unwrap_err();
            assert_eq!(error.field(), Some("state"));
            assert!(error.message().contains(&number.to_string()), "{error}");
        }
    }
}
