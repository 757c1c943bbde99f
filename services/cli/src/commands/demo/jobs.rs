//! The three jobs of a demo: two with the exec handler and one with the http handler.

use std::{sync::Arc, time::Duration};

use dueline_domain::{
    Backoff, BackoffError, Handler, Job, JobName, Policy, Quota, RetryPolicy, Timestamp,
};

/// What the task of a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DemoKind {
    /// A command computes the SHA-256 of the file.
    Checksum,
    /// A command compresses the file.
    Compress,
    /// An HTTP call delivers the size and hash of the file.
    Deliver,
}

impl DemoKind {
    /// All kinds in the order in which files get them.
    pub const ALL: [Self; 3] = [Self::Checksum, Self::Compress, Self::Deliver];

    /// The name of the job.
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

    /// The description of the job.
    pub const fn info(self) -> &'static str {
        match self {
            Self::Checksum => "Computes the SHA-256 of a file with a command",
            Self::Compress => "Compresses a file with gzip",
            Self::Deliver => "Delivers the size and hash of a file over HTTP",
        }
    }
}

/// Reads the first line of standard input: the path of the marker file, or nothing if the task is not to fail.
const READ_MARKER: &str = r#"set -eu
IFS= read -r marker || exit 2
"#;
/// The first run creates the marker file and fails with EX_TEMPFAIL. Later runs find the marker file and go on.
const FAIL_ONCE: &str = r#"if [ -n "$marker" ] && [ ! -e "$marker" ]; then : > "$marker"; echo "failed on purpose, once" >&2; exit 75; fi
"#;
/// Reads the rest of standard input: the path of the file, which may contain line breaks. The `x` protects line breaks
/// at the end, which `$(…)` would remove.
const READ_PATH: &str = r#"file=$(cat; printf x); file=${file%x}
"#;
pub(super) const CHECKSUM: &str = r#"if command -v sha256sum >/dev/null 2>&1; then sum=$(sha256sum < "$file"); else sum=$(shasum -a 256 < "$file"); fi
printf '%s\n' "${sum%% *}"
"#;
/// The output is written to a temporary file and renamed, so that a killed run leaves no partial output. `gzip` reads
/// standard input because it refuses to compress a file with the suffix .gz.
const COMPRESS: &str = r#"gzip -c < "$file" > "$out.$$"
mv -f "$out.$$" "$out"
"#;

/// The shell script of a kind with the exec handler.
pub(super) fn script(kind: DemoKind) -> Option<String> {
    match kind {
        DemoKind::Checksum => Some([READ_MARKER, READ_PATH, FAIL_ONCE, CHECKSUM].concat()),
        DemoKind::Compress => {
            let read_out = "IFS= read -r out || exit 2\n";
            Some([READ_MARKER, read_out, READ_PATH, FAIL_ONCE, COMPRESS].concat())
        }
        DemoKind::Deliver => None,
    }
}

/// The jobs of a demo that delivers to the URL `receiver`, with runs of at most `run_timeout`.
pub fn jobs(receiver: &str, run_timeout: Duration) -> anyhow::Result<Vec<Job>> {
    DemoKind::ALL
        .into_iter()
        .map(|kind| job(kind, receiver, run_timeout))
        .collect()
}

fn job(kind: DemoKind, receiver: &str, run_timeout: Duration) -> anyhow::Result<Job> {
    let handler = match script(kind) {
        Some(script) => exec(&script),
        None => {
            let config = serde_json::json!({ "url": receiver, "method": "POST" });
            Handler {
                kind: "http".into(),
                config: config.to_string().into(),
            }
        }
    };
    Ok(Job {
        name: JobName::parse(kind.job_name())?,
        info: kind.info().into(),
        handler,
        policy: Policy {
            retry: quick_retries()?,
            run_timeout: Some(run_timeout),
            ..Policy::default()
        },
        quota: Quota::default(),
        fair_share: None,
        paused: false,
        created_by: Arc::from("demo"),
        created_at: Timestamp::EPOCH,
        changed_at: Timestamp::EPOCH,
    })
}

/// Runs a shell script.
pub(super) fn exec(script: &str) -> Handler {
    let config = serde_json::json!({ "command": ["sh", "-c", script] });
    Handler {
        kind: "exec".into(),
        config: config.to_string().into(),
    }
}

/// Short backoffs for every class of failures, so that a demo does not take minutes.
pub(super) fn quick_retries() -> Result<RetryPolicy, BackoffError> {
    let backoff = Backoff::new(Duration::from_millis(200), 2.0, 0.2, Duration::from_secs(2))?;
    Ok(RetryPolicy {
        retries_max: Some(3),
        standard: backoff,
        quick: backoff,
        slow: backoff,
        rate_limited: backoff,
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

    fn run(kind: DemoKind, input: &str) -> Output {
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
    fn a_file_of_any_name_has_the_checksum_of_its_content() {
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
            let output = run(DemoKind::Checksum, &format!("\n{}", text(&file)));
            assert!(output.status.success(), "{name:?}: {output:?}");
            let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n";
            assert_eq!(String::from_utf8_lossy(&output.stdout), abc, "{name:?}");
        }
    }

    #[test]
    fn a_task_with_a_marker_file_fails_the_first_time_only() {
        let home = tempfile::tempdir().unwrap();
        let (file, marker, out) = (
            home.path().join("f"),
            home.path().join("marker"),
            home.path().join("o.gz"),
        );
        std::fs::write(&file, "abc").unwrap();
        let input = format!("{}\n{}\n{}", text(&marker), text(&out), text(&file));
        assert_eq!(run(DemoKind::Compress, &input).status.code(), Some(75));
        assert!(!out.exists());
        assert!(run(DemoKind::Compress, &input).status.success());
        assert!(out.exists());
    }

    #[test]
    fn a_missing_file_fails_and_leaves_no_output() {
        let home = tempfile::tempdir().unwrap();
        let (missing, out) = (home.path().join("missing"), home.path().join("o.gz"));
        assert!(
            !run(DemoKind::Checksum, &format!("\n{}", text(&missing)))
                .status
                .success()
        );
        let input = format!("\n{}\n{}", text(&out), text(&missing));
        assert!(!run(DemoKind::Compress, &input).status.success());
        assert!(!out.exists());
    }

    #[test]
    fn each_kind_has_a_job_with_a_valid_policy() {
        let jobs = jobs("http://127.0.0.1:1/deliver", Duration::from_secs(60)).unwrap();
        let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, DemoKind::ALL.map(DemoKind::job_name));
        assert!(jobs.iter().all(|job| job.policy.check().is_ok()));
        assert!(
            jobs[2]
                .handler
                .config
                .contains("http://127.0.0.1:1/deliver")
        );
    }
}
