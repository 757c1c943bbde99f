//! The three jobs of a demo: two that run commands and one that calls a URL.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Backoff, BackoffError, Handler, Job, JobName, Policy, Quota, RetryPolicy, Timestamp,
};

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A command computes its SHA-256.
    Checksum,
    /// A command compresses it.
    Compress,
    /// A call delivers facts about it.
    Deliver,
}

impl Kind {
    /// All kinds in the order in which files get them.
    pub const ALL: [Self; 3] = [Self::Checksum, Self::Compress, Self::Deliver];

    /// The name of its job.
    pub const fn job_name(self) -> &'static str {
        match self {
            Self::Checksum => "demo-checksum",
            Self::Compress => "demo-compress",
            Self::Deliver => "demo-deliver",
        }
    }

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Compress => "compress",
            Self::Deliver => "deliver",
        }
    }

    /// What its tasks do.
    pub const fn info(self) -> &'static str {
        match self {
            Self::Checksum => "Computes the SHA-256 of a file with a command",
            Self::Compress => "Compresses a file with gzip",
            Self::Deliver => "Delivers facts about a file over HTTP",
        }
    }
}

/// A command reads from its standard input: a line with the marker file (empty: never fail on purpose), and then the
/// path, which may hold anything, line breaks included. The `x` keeps line breaks at its end.
const READ_INPUT: &str = r#"set -eu
IFS= read -r mark || exit 2
"#;
/// The first run leaves the marker and fails with EX_TEMPFAIL; later runs find the marker.
const FAIL_ONCE: &str = r#"if [ -n "$mark" ] && [ ! -e "$mark" ]; then : > "$mark"; echo "failed on purpose, once" >&2; exit 75; fi
"#;
const READ_PATH: &str = r#"file=$(cat; printf x); file=${file%x}
"#;
const CHECKSUM: &str = r#"if command -v sha256sum >/dev/null 2>&1; then sum=$(sha256sum < "$file"); else sum=$(shasum -a 256 < "$file"); fi
printf '%s\n' "${sum%% *}"
"#;
/// Written beside and moved into place, so that a run that was killed leaves no half file. `gzip` reads its standard
/// input because it refuses to compress a file that is called .gz already.
const COMPRESS: &str = r#"gzip -c < "$file" > "$out.$$"
mv -f "$out.$$" "$out"
"#;

/// The command of a kind that runs one.
pub(super) fn script(kind: Kind) -> Option<String> {
    match kind {
        Kind::Checksum => Some([READ_INPUT, READ_PATH, FAIL_ONCE, CHECKSUM].concat()),
        Kind::Compress => {
            let read_out = "IFS= read -r out || exit 2\n";
            Some([READ_INPUT, read_out, READ_PATH, FAIL_ONCE, COMPRESS].concat())
        }
        Kind::Deliver => None,
    }
}

/// The jobs of a demo that delivers to `receiver`, with runs of at most `run_timeout`.
pub fn jobs(receiver: &str, run_timeout: Duration) -> anyhow::Result<Vec<Job>> {
    Kind::ALL
        .into_iter()
        .map(|kind| job(kind, receiver, run_timeout))
        .collect()
}

fn job(kind: Kind, receiver: &str, run_timeout: Duration) -> anyhow::Result<Job> {
    let (handler, config) = match script(kind) {
        Some(script) => (
            "exec",
            serde_json::json!({ "command": ["sh", "-c", script] }),
        ),
        None => (
            "http",
            serde_json::json!({ "url": receiver, "method": "POST" }),
        ),
    };
    Ok(Job {
        name: JobName::parse(kind.job_name())?,
        info: kind.info().into(),
        handler: Handler {
            kind: handler.into(),
            config: config.to_string().into(),
        },
        policy: Policy {
            retry: quick_retries()?,
            run_timeout: Some(run_timeout),
            ..Policy::default()
        },
        quota: Quota::default(),
        paused: false,
        created_by: Arc::from("demo"),
        created_at: Timestamp::EPOCH,
        changed_at: Timestamp::EPOCH,
    })
}

/// Nobody wants to watch a minute of backoff in a demo, so every class waits shortly.
fn quick_retries() -> Result<RetryPolicy, BackoffError> {
    let wait = Backoff::new(Duration::from_millis(200), 2.0, 0.2, Duration::from_secs(2))?;
    Ok(RetryPolicy {
        retries_max: Some(3),
        standard: wait,
        quick: wait,
        slow: wait,
        rate_limited: wait,
        worker_lost: None,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        path::Path,
        process::{Command, Output, Stdio},
    };

    use super::*;

    fn run(kind: Kind, input: &str) -> Output {
        let script = script(kind).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    fn text(path: &Path) -> &str {
        path.to_str().unwrap()
    }

    #[test]
    fn the_checksum_of_a_file_of_any_name_is_that_of_its_content() {
        let home = tempfile::tempdir().unwrap();
        for name in [
            "plain",
            "a b",
            "-n",
            "$(exit 9)",
            "quote'\"`",
            "new\nline\n",
            "ü.gz",
        ] {
            let file = home.path().join(name);
            std::fs::write(&file, "abc").unwrap();
            let output = run(Kind::Checksum, &format!("\n{}", text(&file)));
            assert!(output.status.success(), "{name:?}: {output:?}");
            let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";
            assert_eq!(String::from_utf8_lossy(&output.stdout), abc, "{name:?}");
        }
    }

    #[test]
    fn a_marked_task_fails_the_first_time_only() {
        let home = tempfile::tempdir().unwrap();
        let (file, mark, out) = (
            home.path().join("f"),
            home.path().join("mark"),
            home.path().join("o.gz"),
        );
        std::fs::write(&file, "abc").unwrap();
        let input = format!("{}\n{}\n{}", text(&mark), text(&out), text(&file));
        assert_eq!(run(Kind::Compress, &input).status.code(), Some(75));
        assert!(!out.exists());
        assert!(run(Kind::Compress, &input).status.success());
        assert!(out.exists());
    }

    #[test]
    fn a_missing_file_fails_and_leaves_no_output() {
        let home = tempfile::tempdir().unwrap();
        let (gone, out) = (home.path().join("gone"), home.path().join("o.gz"));
        assert!(
            !run(Kind::Checksum, &format!("\n{}", text(&gone)))
                .status
                .success()
        );
        let input = format!("\n{}\n{}", text(&out), text(&gone));
        assert!(!run(Kind::Compress, &input).status.success());
        assert!(!out.exists());
    }

    #[test]
    fn each_kind_has_a_job_with_a_policy_that_holds() {
        let jobs = jobs("http://127.0.0.1:1/deliver", Duration::from_secs(60)).unwrap();
        let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, Kind::ALL.map(Kind::job_name));
        assert!(jobs.iter().all(|job| job.policy.check().is_ok()));
        assert!(
            jobs[2]
                .handler
                .config
                .contains("http://127.0.0.1:1/deliver")
        );
    }
}
