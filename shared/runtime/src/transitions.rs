//! A log line for each transition of a task.

use dueline_domain::{RunEnd, StateKind, Task};

/// Logs the transition that a write has just made: at `info` what an operator wants to know of a task (failed for good,
/// retried, lost), at `debug` the rest. Contains no payload, result or error text, because these may be secret.
///
/// `before` is the state that the caller read before the write, if it read one. Costs a few comparisons when the
/// level is off.
pub fn log_transition(before: Option<StateKind>, task: &Task) {
    let kind = task.kind();
    let history = task.history.as_ref();
    let last_run = history.and_then(|history| history.runs.last());
    // The run that this transition has ended.
    let ended = last_run
        .filter(|run| run.finished_at == task.changed_at && kind != StateKind::Processing)
        .map(|run| run.end);
    let reason = ended.map_or("", RunEnd::name);
    let is_lost_claim = kind == StateKind::Enqueued && before == Some(StateKind::Claimed);
    macro_rules! line {
        ($level:ident, $text:literal) => {
            tracing::$level!(
                job.name = %task.job,
                task.id = %task.id,
                state = kind.name(),
                attempt = task.latest_attempt().unwrap_or(0),
                reason,
                $text
            )
        };
    }
    match kind {
        StateKind::Failed | StateKind::Trashed => line!(info, "task failed for good"),
        StateKind::Retriable => line!(info, "task will be retried"),
        StateKind::Enqueued if ended == Some(RunEnd::Lost) => {
            line!(info, "task was lost by its worker and is enqueued again");
        }
        StateKind::Enqueued if is_lost_claim => {
            line!(
                info,
                "task was claimed but not started and is enqueued again"
            );
        }
        // A heartbeat is no transition.
        StateKind::Processing if task.started_at != Some(task.changed_at) => {}
        _ => line!(debug, "task moved"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use dueline_domain::{
        Claim, Event, Jitter, JobName, NewTask, Outcome, Policy, Reclaim, RetryClass, Timestamp,
        Token, WorkerId, WriteId, apply,
    };

    use super::*;

    /// The bytes of log lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::clamped(1_000 + ms)
    }

    const TOKEN: fn() -> Token = || Token::from_random(7);

    /// A running task with a secret payload.
    fn running() -> Task {
        let job = JobName::parse("mail").unwrap();
        let id = dueline_domain::TaskId::from_bytes([7; 16]);
        let new = NewTask::now(id, job, "secret payload".into());
        let write = WriteId::from_random(1);
        let task = new.into_task(&Policy::default(), at(0), TOKEN(), write, true);
        let claim = Event::Claim(Claim {
            token: TOKEN(),
            worker: WorkerId::new("w", 1).unwrap(),
            start: false,
        });
        let task = after(
            &after(&task, &claim, 1),
            &Event::Start { token: TOKEN() },
            2,
        );
        assert_eq!(task.kind(), StateKind::Processing);
        task
    }

    fn after(task: &Task, event: &Event, ms: i64) -> Task {
        let write = WriteId::from_random(ms.unsigned_abs() + 10);
        let transition = apply(task, &Policy::default(), event, write, at(ms)).unwrap();
        let mut task = task.clone();
        task.advance(transition);
        task
    }

    fn finish(outcome: Outcome) -> Event {
        Event::Finish {
            token: TOKEN(),
            started_at: None,
            outcome,
            jitter: Jitter::default(),
        }
    }

    fn lines(level: &str, tasks: &[Task]) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tasks.iter().for_each(|task| log_transition(None, task));
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn an_operator_sees_what_failed_and_no_secret() {
        let running = running();
        let error: Arc<str> = Arc::from("secret error");
        let retried = Outcome::Retriable {
            class: RetryClass::Standard,
            delay: None,
            error: error.clone(),
        };
        let lost = Event::Reclaim(Reclaim {
            token: TOKEN(),
            next: Token::from_random(8),
            jitter: Jitter::default(),
        });
        let done = Outcome::Success {
            result: Some("secret result".into()),
        };
        let heartbeat = Event::Heartbeat { token: TOKEN() };
        let tasks = [
            after(&running, &finish(retried), 9),
            after(&running, &finish(Outcome::Fatal { error }), 9),
            after(&running, &lost, 9),
            after(&running, &heartbeat, 9),
            after(&running, &finish(done), 9),
            running,
        ];
        let shown = lines("info", &tasks);
        assert_eq!(shown.lines().count(), 3, "{shown}");
        for part in [
            "task will be retried",
            "reason=\"retriable\"",
            "task failed for good",
            "reason=\"fatal\"",
            "task was lost by its worker",
            "reason=\"lost\"",
            "job.name=mail",
            "attempt=0",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let shown = lines("debug", &tasks);
        assert_eq!(shown.lines().count(), 5, "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
        assert_eq!(lines("warn", &tasks), "");
    }
}
