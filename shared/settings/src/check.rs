//! Checks the ranges of settings and the relations between them, before any file or connection is opened.

use std::fmt;

use dueline_domain::Policy;
use dueline_telemetry::{TelemetryError, check_log_level};

use super::{Settings, nearest::nearest, settings::HANDLERS};

/// A setting that is out of range, or settings that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The settings with their values, such as `worker.concurrency = 0`.
    pub settings: Vec<String>,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings.join(" and ");
        write!(f, "{settings}: {}; {}", self.what, self.fix)
    }
}

/// Consecutive failed heartbeats after which an executor stops a run by itself.
const HEARTBEATS_LOST_MAX: u64 = 3;
/// Shortest poll period. A shorter one only uses processor time, because due tasks are announced within the process.
const POLL_PERIOD_MS_MIN: u64 = 10;
/// Longest time of any setting. A longer one is a typing error. The limit also keeps sums within 64 bits.
const TIME_MS_MAX: u64 = 366 * 86_400_000;
/// Longest heartbeat interval and kill grace that an executor accepts.
const WORKER_MS_MAX: u64 = 3_600_000;

impl Settings {
    /// Checks the settings; returns all problems at once.
    pub fn check(&self) -> Result<(), Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        self.check_ranges(&mut problems);
        self.check_relations(&mut problems);
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }

    fn check_ranges(&self, problems: &mut Vec<ConfigProblem>) {
        let (worker, defaults) = (&self.worker, &self.defaults);
        // These are the timeouts of jobs without their own values, so the minimum of a policy applies.
        let timeout_min = u64::try_from(Policy::TIMEOUT_MIN.as_millis()).unwrap_or(u64::MAX);
        let times = [
            (
                "scheduler.poll_period_ms",
                self.scheduler.poll_period_ms,
                POLL_PERIOD_MS_MIN,
            ),
            (
                "worker.heartbeat_interval_ms",
                worker.heartbeat_interval_ms,
                10,
            ),
            ("worker.kill_grace_ms", worker.kill_grace_ms, 0),
            (
                "defaults.enqueue_timeout_ms",
                defaults.enqueue_timeout_ms,
                timeout_min,
            ),
            (
                "defaults.claim_timeout_ms",
                defaults.claim_timeout_ms,
                timeout_min,
            ),
            (
                "defaults.heartbeat_timeout_ms",
                defaults.heartbeat_timeout_ms,
                timeout_min,
            ),
            ("shutdown.grace_ms", self.shutdown.grace_ms, 0),
        ];
        for (name, value, least) in times {
            if value < least || value > TIME_MS_MAX {
                problems.push(ConfigProblem {
                    settings: vec![format!("{name} = {value}")],
                    what: "is out of range".into(),
                    fix: format!("set {name} from {least} to {TIME_MS_MAX} (366 days)"),
                });
            }
        }
        for (name, value) in [
            ("worker.heartbeat_interval_ms", worker.heartbeat_interval_ms),
            ("worker.kill_grace_ms", worker.kill_grace_ms),
        ] {
            if (WORKER_MS_MAX + 1..=TIME_MS_MAX).contains(&value) {
                problems.push(ConfigProblem {
                    settings: vec![format!("{name} = {value}")],
                    what: "is out of range".into(),
                    fix: format!("set {name} to at most {WORKER_MS_MAX} (an hour)"),
                });
            }
        }
        if worker.concurrency < 1 {
            problems.push(ConfigProblem {
                settings: vec![format!("worker.concurrency = {}", worker.concurrency)],
                what: "a worker must be able to run a task".into(),
                fix: "set worker.concurrency to 1 or more".into(),
            });
        }
        for handler in &worker.handlers {
            if !HANDLERS.contains(&handler.as_str()) {
                let nearest = nearest(handler, HANDLERS).unwrap_or("exec");
                problems.push(ConfigProblem {
                    settings: vec![format!("worker.handlers contains '{handler}'")],
                    what: "this built-in handler does not exist".into(),
                    fix: format!(
                        "did you mean '{nearest}'? The built-in handlers are {}",
                        HANDLERS.join(", ")
                    ),
                });
            }
        }
        if let Err(TelemetryError::Level { source, .. }) = check_log_level(&self.log.level) {
            problems.push(ConfigProblem {
                settings: vec![format!("log.level = \"{}\"", self.log.level)],
                what: format!("is neither a level nor a list of directives ({source})"),
                fix: "set log.level to error, warn, info, debug or trace".into(),
            });
        }
        let data = self.server.data.to_string_lossy();
        if data.is_empty() || data.contains('?') {
            problems.push(ConfigProblem {
                settings: vec![format!("server.data = \"{data}\"")],
                what: "is empty or contains '?', so it cannot be part of a store URI".into(),
                fix: "set server.data to the path of a file, without '?'".into(),
            });
        }
        if self.queue.is_empty() {
            problems.push(ConfigProblem {
                settings: vec!["queue = \"\"".into()],
                what: "the queue has no URI".into(),
                fix: "set queue to \"local:\"".into(),
            });
        }
    }

    fn check_relations(&self, problems: &mut Vec<ConfigProblem>) {
        let (worker, defaults) = (&self.worker, &self.defaults);
        let (interval, timeout) = (worker.heartbeat_interval_ms, defaults.heartbeat_timeout_ms);
        let silence = interval.saturating_mul(HEARTBEATS_LOST_MAX);
        if silence >= timeout {
            problems.push(ConfigProblem {
                settings: vec![
                    format!("worker.heartbeat_interval_ms = {interval}"),
                    format!("defaults.heartbeat_timeout_ms = {timeout}"),
                ],
                what: format!(
                    "an executor stops a run after {HEARTBEATS_LOST_MAX} lost heartbeats ({silence} ms), which must \
                     happen before the lease of the run expires ({timeout} ms)"
                ),
                fix: format!(
                    "lower worker.heartbeat_interval_ms to at most {} or raise defaults.heartbeat_timeout_ms above \
                     {silence}",
                    timeout.saturating_sub(1) / HEARTBEATS_LOST_MAX
                ),
            });
        }
        if worker.concurrency_min > worker.concurrency {
            problems.push(ConfigProblem {
                settings: vec![
                    format!("worker.concurrency_min = {}", worker.concurrency_min),
                    format!("worker.concurrency = {}", worker.concurrency),
                ],
                what: "the minimum exceeds the maximum".into(),
                fix: format!(
                    "lower worker.concurrency_min to at most {} or raise worker.concurrency",
                    worker.concurrency
                ),
            });
        }
        let poll_period = self.scheduler.poll_period_ms;
        if poll_period >= defaults.enqueue_timeout_ms {
            problems.push(ConfigProblem {
                settings: vec![
                    format!("scheduler.poll_period_ms = {poll_period}"),
                    format!("defaults.enqueue_timeout_ms = {}", defaults.enqueue_timeout_ms),
                ],
                what: "each scan would find every enqueued task overdue and send it again".into(),
                fix: format!(
                    "lower scheduler.poll_period_ms or raise defaults.enqueue_timeout_ms above {poll_period}"
                ),
            });
        }
        if !self.server.listen.ip().is_loopback() && !self.server.allow_remote {
            problems.push(ConfigProblem {
                settings: vec![
                    format!("server.listen = \"{}\"", self.server.listen),
                    "server.allow_remote = false".into(),
                ],
                what: "other machines could reach the server, which has no authentication".into(),
                fix: "listen on 127.0.0.1, or allow it with --allow-remote-without-authentication \
                      (server.allow_remote = true)"
                    .into(),
            });
        }
        let default_data = Self::default().server.data;
        if !self.store.is_empty() && self.server.data != default_data {
            problems.push(ConfigProblem {
                settings: vec![
                    format!("store = \"{}\"", self.store),
                    format!("server.data = \"{}\"", self.server.data.display()),
                ],
                what: "both set where tasks are stored".into(),
                fix: "remove one of the two".into(),
            });
        }
        if !self.store.is_empty() && self.durability != super::Durability::default() {
            problems.push(ConfigProblem {
                settings: vec![
                    format!("store = \"{}\"", self.store),
                    format!("durability = \"{}\"", self.durability),
                ],
                what: "durability only applies to the SQLite file server.data".into(),
                fix: format!(
                    "remove durability and add ?durability={} to store",
                    self.durability
                ),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only problem of the default settings with `change`.
    #[track_caller]
    fn problem(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        let problems = settings.check().expect_err("a problem");
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems[0].to_string()
    }

    #[track_caller]
    fn assert_contains(problem: &str, parts: &[&str]) {
        for part in parts {
            assert!(problem.contains(part), "'{part}' is not in: {problem}");
        }
    }

    #[test]
    fn f_149_three_heartbeats_must_fit_into_the_timeout() {
        let text = problem(|s| s.defaults.heartbeat_timeout_ms = 6_000);
        assert_contains(
            &text,
            &[
                "worker.heartbeat_interval_ms = 2000",
                "defaults.heartbeat_timeout_ms = 6000",
                "at most 1999",
                "above 6000",
            ],
        );
        let mut settings = Settings::default();
        settings.defaults.heartbeat_timeout_ms = 6_001;
        assert_eq!(settings.check(), Ok(()));
        // The proposed fix works.
        settings.defaults.heartbeat_timeout_ms = 6_000;
        settings.worker.heartbeat_interval_ms = 1_999;
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn f_149_a_huge_interval_is_refused_and_does_not_overflow() {
        let mut settings = Settings::default();
        settings.worker.heartbeat_interval_ms = u64::MAX;
        assert!(settings.check().is_err());
    }

    #[test]
    fn a_poll_period_below_ten_milliseconds_is_refused() {
        assert_contains(
            &problem(|s| s.scheduler.poll_period_ms = 9),
            &["scheduler.poll_period_ms = 9", "from 10"],
        );
    }

    #[test]
    fn a_poll_period_beyond_the_enqueue_timeout_is_refused() {
        let text = problem(|s| s.scheduler.poll_period_ms = 60_000);
        assert_contains(
            &text,
            &["scheduler.poll_period_ms", "defaults.enqueue_timeout_ms"],
        );
    }

    #[test]
    fn a_worker_without_room_is_refused() {
        let text = problem(|s| s.worker.concurrency = 0);
        assert_contains(&text, &["worker.concurrency = 0", "1 or more"]);
    }

    #[test]
    fn the_minimum_concurrency_may_not_exceed_the_maximum() {
        let text = problem(|s| s.worker.concurrency_min = 17);
        assert_contains(
            &text,
            &[
                "worker.concurrency_min = 17",
                "worker.concurrency = 16",
                "lower",
                "raise",
            ],
        );
    }

    #[test]
    fn an_address_that_other_machines_can_reach_must_be_allowed() {
        let open = |s: &mut Settings| s.server.listen = "0.0.0.0:7070".parse().unwrap();
        assert_contains(
            &problem(open),
            &[
                "server.listen",
                "server.allow_remote",
                "--allow-remote-without-authentication",
            ],
        );
        let mut settings = Settings::default();
        open(&mut settings);
        settings.server.allow_remote = true;
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn an_unknown_handler_is_refused_with_the_nearest_one() {
        let text = problem(|s| s.worker.handlers.push("htpp".into()));
        assert_contains(&text, &["htpp", "did you mean 'http'"]);
    }

    #[test]
    fn an_unknown_log_level_is_refused() {
        assert_contains(
            &problem(|s| s.log.level = "dueline=loud".into()),
            &["log.level"],
        );
    }

    #[test]
    fn a_data_file_that_cannot_be_part_of_a_uri_is_refused() {
        for path in ["", "/srv/why?.db"] {
            assert_contains(&problem(|s| s.server.data = path.into()), &["server.data"]);
        }
    }

    #[test]
    fn a_store_and_a_data_file_together_are_refused() {
        let text = problem(|s| {
            s.store = "sqlite:a.db".into();
            s.server.data = "b.db".into();
        });
        assert_contains(&text, &["store = ", "server.data = "]);
    }
}
