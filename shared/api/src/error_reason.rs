//! The reasons of errors: what programs branch on that know the case.

use std::fmt;

use dueline_domain::Reason;

use crate::wire_enum::wire_enum;

wire_enum! {
    /// The case of an error. Its name on the wire is `snake_case` and never changes.
    ErrorReason

    /// A worker owns the task already.
    AlreadyClaimed = "already_claimed",
    /// The run has begun already.
    AlreadyStarted = "already_started",
    /// Two fields that exclude each other are both there.
    Ambiguous = "ambiguous",
    /// The connection ended before the answer arrived. The call may have taken effect.
    AnswerLost = "answer_lost",
    /// The answer of a batch holds no answer for this item.
    AnswerMissing = "answer_missing",
    /// The server's answer is not in the expected form.
    AnswerNotUnderstood = "answer_not_understood",
    /// The answer of another service makes no sense.
    BadAnswer = "bad_answer",
    /// A value does not fit the state of the task that it belongs to.
    BadState = "bad_state",
    /// The address is no URI of a service.
    BadUri = "bad_uri",
    /// The batch has too many items, or too many bytes.
    BatchTooLarge = "batch_too_large",
    /// The text is empty or blank.
    Blank = "blank",
    /// The body is larger than the limit.
    BodyTooLarge = "body_too_large",
    /// The body ended early, or could not be read.
    BrokenBody = "broken_body",
    /// No cancel of the task was requested.
    CancelNotRequested = "cancel_not_requested",
    /// A value differs from the one that the stream began with.
    Changed = "changed",
    /// The checkpoint is larger than the limit.
    CheckpointTooLarge = "checkpoint_too_large",
    /// Whether the claim was made is unknown; the task returns when its lease ends.
    ClaimLost = "claim_lost",
    /// The configuration of the program is invalid.
    Config = "config",
    /// The current state conflicts with the call.
    Conflict = "conflict",
    /// What is stored cannot be read.
    Corrupt = "corrupt",
    /// The request comes from a web page of another site.
    CrossOrigin = "cross_origin",
    /// The task would wait for itself, perhaps by way of other tasks.
    Cycle = "cycle",
    /// The call was not completed in time. It may have taken effect.
    Deadline = "deadline",
    /// The call is not allowed.
    Denied = "denied",
    /// The field is there twice.
    DuplicateField = "duplicate_field",
    /// The text, list or range is empty.
    Empty = "empty",
    /// The end of the range is not later than its start.
    EmptyRange = "empty_range",
    /// A thing of this name or id exists already, and differs.
    Exists = "exists",
    /// The lease has lapsed, and no renewal moves its end. The run must stop.
    Expired = "expired",
    /// The family has more tasks than one call may change.
    FamilyTooLarge = "family_too_large",
    /// A cron expression has neither five nor six fields.
    FieldCount = "field_count",
    /// The file is larger than the limit.
    FileTooLarge = "file_too_large",
    /// The task has already ended.
    Finished = "finished",
    /// The host of the request is not one that the server answers to.
    ForeignHost = "foreign_host",
    /// The job has schedules.
    HasSchedules = "has_schedules",
    /// The route needs HTTP/2.
    Http2Required = "http2_required",
    /// The thing is in use.
    InUse = "in_use",
    /// A fault of the server.
    Internal = "internal",
    /// The command was interrupted.
    Interrupted = "interrupted",
    /// The value is invalid.
    Invalid = "invalid",
    /// The backoff is invalid.
    InvalidBackoff = "invalid_backoff",
    /// The text is not base64.
    InvalidBase64 = "invalid_base64",
    /// The cursor is none that this list gave out.
    InvalidCursor = "invalid_cursor",
    /// The duration is invalid.
    InvalidDuration = "invalid_duration",
    /// The settings of the handler are invalid.
    InvalidHandler = "invalid_handler",
    /// The header is invalid.
    InvalidHeader = "invalid_header",
    /// The text is no id of a task.
    InvalidId = "invalid_id",
    /// The name is invalid.
    InvalidName = "invalid_name",
    /// The path is invalid.
    InvalidPath = "invalid_path",
    /// The priority is invalid.
    InvalidPriority = "invalid_priority",
    /// The quota is invalid.
    InvalidQuota = "invalid_quota",
    /// The sink is invalid.
    InvalidSink = "invalid_sink",
    /// The text does not follow the syntax.
    InvalidSyntax = "invalid_syntax",
    /// The time is invalid.
    InvalidTime = "invalid_time",
    /// The timeout is invalid.
    InvalidTimeout = "invalid_timeout",
    /// The value has another type.
    InvalidType = "invalid_type",
    /// The text has an escape that is no character.
    InvalidUnicode = "invalid_unicode",
    /// The value is none of those that the field takes.
    InvalidValue = "invalid_value",
    /// The weight is invalid.
    InvalidWeight = "invalid_weight",
    /// A file or stream could not be read or written.
    Io = "io",
    /// Another task holds the key of the submit.
    KeyHeld = "key_held",
    /// The token is stale: the task has left the claim that it belongs to. The run must stop.
    Lost = "lost",
    /// The text is not JSON.
    MalformedJson = "malformed_json",
    /// The bytes are no message of the protocol.
    MalformedMessage = "malformed_message",
    /// The route exists, and does not have this method.
    MethodNotAllowed = "method_not_allowed",
    /// Something that the call needs is missing.
    Missing = "missing",
    /// A field that the call needs is missing.
    MissingField = "missing_field",
    /// The task has changed since it was read.
    Moved = "moved",
    /// The rule never fires.
    NeverFires = "never_fires",
    /// No answer arrived in time. The call may have taken effect.
    NoAnswer = "no_answer",
    /// The call needs a body, and has none.
    MissingBody = "no_body",
    /// The call changes nothing.
    NoChange = "no_change",
    /// The HTTP client could not be built.
    NoClient = "no_client",
    /// A list by due time asks for tasks in states that have no such order.
    NoDueOrder = "no_due_order",
    /// This process serves no calls of clients.
    NoFrontendHere = "no_frontend_here",
    /// No job is named.
    NoJob = "no_job",
    /// This process exports no metrics.
    NoMetrics = "no_metrics",
    /// No owner is named.
    NoOwner = "no_owner",
    /// The field needs a predecessor.
    NoPredecessor = "no_predecessor",
    /// No queue is named.
    NoQueue = "no_queue",
    /// No range of time is given.
    NoRange = "no_range",
    /// The worker has no room for a task.
    NoRoom = "no_room",
    /// No schedule is given.
    NoSchedule = "no_schedule",
    /// No task is named, or the batch is empty.
    NoTask = "no_task",
    /// This process serves no calls of workers.
    NoWorkHere = "no_work_here",
    /// The field has no meaning here.
    NotApplicable = "not_applicable",
    /// No worker owns the task.
    NotClaimed = "not_claimed",
    /// The time of the task has not come.
    NotDue = "not_due",
    /// The task has not ended within the time that the command waited.
    NotEnded = "not_ended",
    /// The task has not ended.
    NotFinished = "not_finished",
    /// There is no such thing.
    NotFound = "not_found",
    /// The server does not offer this call.
    NotOffered = "not_offered",
    /// The task has another owner than the named one.
    NotOwner = "not_owner",
    /// The process cannot serve at present.
    NotReady = "not_ready",
    /// The call was not sent.
    NotSent = "not_sent",
    /// The run has not begun.
    NotStarted = "not_started",
    /// The task waits for no other task.
    NotWaiting = "not_waiting",
    /// No task could be claimed within the time that the command waited.
    NothingClaimable = "nothing_claimable",
    /// The number is outside its limits.
    OutOfRange = "out_of_range",
    /// The server has too many calls at once.
    Overloaded = "overloaded",
    /// The server had a defect while it handled the call.
    Panic = "panic",
    /// The parent has ended without success.
    ParentEnded = "parent_ended",
    /// The parent, in the same batch, was refused.
    ParentRefused = "parent_refused",
    /// The job is paused.
    Paused = "paused",
    /// The payload is larger than the limit.
    PayloadTooLarge = "payload_too_large",
    /// A predecessor has ended in a way for which the task would be cancelled.
    PredecessorEnded = "predecessor_ended",
    /// A predecessor, in the same batch, was refused.
    PredecessorRefused = "predecessor_refused",
    /// The queue takes no more messages.
    QueueFull = "queue_full",
    /// The queue refused the call.
    QueueRefused = "queue_refused",
    /// The queue is called too often.
    QueueThrottled = "queue_throttled",
    /// The queue cannot be reached.
    QueueUnavailable = "queue_unavailable",
    /// Something on the way refused the call.
    Refused = "refused",
    /// The result is larger than the limit.
    ResultTooLarge = "result_too_large",
    /// A worker owns the task.
    Running = "running",
    /// The job runs as many tasks as it may at once.
    RunningLimit = "running_limit",
    /// A service of the process has failed.
    ServiceFailed = "service_failed",
    /// The process is stopping.
    ShuttingDown = "shutting_down",
    /// The kind of sink is not available in this process.
    SinkNotAvailable = "sink_not_available",
    /// The body did not arrive in time.
    SlowBody = "slow_body",
    /// Nothing has happened for too long.
    Stalled = "stalled",
    /// The process could not start.
    Start = "start",
    /// The store holds something that cannot be read.
    StoreCorrupt = "store_corrupt",
    /// The disk of the store is full.
    StoreFull = "store_full",
    /// The store cannot be reached.
    StoreUnavailable = "store_unavailable",
    /// The address of the sink is not allowed.
    TargetNotAllowed = "target_not_allowed",
    /// The store is called too often.
    Throttled = "throttled",
    /// Too many tasks wait for each other in a row.
    TooDeep = "too_deep",
    /// The value is larger than the limit.
    TooLarge = "too_large",
    /// The text is longer than the limit.
    TooLong = "too_long",
    /// There are more items than the limit.
    TooMany = "too_many",
    /// The parent has as many children as it may have.
    TooManyChildren = "too_many_children",
    /// The schedule has as many requested firings as it may have.
    TooManyRequests = "too_many_requests",
    /// Too much is watched at once: jobs by one process, or unfinished tasks of a job on a store that several processes write.
    TooManyWatched = "too_many_watched",
    /// A reader of a watch was so slow that changes were missed. Read the tasks, and watch again.
    TooSlow = "too_slow",
    /// The server cannot be reached, or not just now.
    Unavailable = "unavailable",
    /// There is no such retry class.
    UnknownClass = "unknown_class",
    /// The task owes an effect that this program does not know.
    UnknownEffect = "unknown_effect",
    /// There is no such field.
    UnknownField = "unknown_field",
    /// There is no such handler.
    UnknownHandler = "unknown_handler",
    /// There is no such job.
    UnknownJob = "unknown_job",
    /// No process is of this kind.
    UnknownKind = "unknown_kind",
    /// There is no such name.
    UnknownName = "unknown_name",
    /// The parent does not exist.
    UnknownParent = "unknown_parent",
    /// A predecessor does not exist.
    UnknownPredecessor = "unknown_predecessor",
    /// There is no such queue.
    UnknownQueue = "unknown_queue",
    /// There is no such route.
    UnknownRoute = "unknown_route",
    /// There is no such schedule.
    UnknownSchedule = "unknown_schedule",
    /// There is no such task.
    UnknownTask = "unknown_task",
    /// There is no such value.
    UnknownValue = "unknown_value",
    /// The time zone is not in the IANA database.
    UnknownZone = "unknown_zone",
    /// The server cannot be reached.
    Unreachable = "unreachable",
    /// The content type is none that the route takes.
    UnsupportedMediaType = "unsupported_media_type",
    /// The command line is invalid.
    Usage = "usage",
    /// The task waits for another task.
    Waiting = "waiting",
    /// A benchmark found a result that is wrong.
    WrongResult = "wrong_result",
}

impl fmt::Display for ErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Reason> for ErrorReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Lost => Self::Lost,
            Reason::AlreadyClaimed => Self::AlreadyClaimed,
            Reason::NotClaimed => Self::NotClaimed,
            Reason::NotStarted => Self::NotStarted,
            Reason::AlreadyStarted => Self::AlreadyStarted,
            Reason::Running => Self::Running,
            Reason::Finished => Self::Finished,
            Reason::NotFinished => Self::NotFinished,
            Reason::Expired => Self::Expired,
            Reason::Waiting => Self::Waiting,
            Reason::NotWaiting => Self::NotWaiting,
            Reason::NotDue => Self::NotDue,
            Reason::Moved => Self::Moved,
            Reason::CancelNotRequested => Self::CancelNotRequested,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_name_and_is_found_by_it() {
        let names: Vec<_> = ErrorReason::ALL
            .iter()
            .map(|(reason, _)| reason.name())
            .collect();
        assert!(
            names.is_sorted_by(|a, b| a < b),
            "sorted, and none twice: {names:?}"
        );
        for (reason, about) in ErrorReason::ALL {
            assert_eq!(&ErrorReason::from_name(reason.name()), reason);
            assert!(about.trim().ends_with('.'), "{about}");
        }
        let newer = ErrorReason::from_name("of_a_newer_program");
        assert_eq!(newer.name(), "of_a_newer_program");
        for reason in Reason::ALL {
            assert_eq!(ErrorReason::from(reason).name(), reason.name());
        }
    }
}
