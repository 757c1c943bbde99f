//! Waiting for conditions instead of fixed times.

use std::{io::Write as _, time::Duration};

use tokio::time::Instant;

/// Pause between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Repeats `check` until it returns `Ok`. After `bound` the test fails with the last error.
pub async fn wait_until<T>(
    what: &str,
    bound: Duration,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let since = Instant::now();
    loop {
        match check().await {
            Ok(answer) => return answer,
            Err(last) => assert!(
                since.elapsed() < bound,
                "waited {bound:?} for {what}; last check: {last}"
            ),
        }
        pause(CHECK_EVERY).await;
    }
}

/// Repeats `check` for the time `span`. The first `Err` fails the test.
pub async fn assert_stays(
    what: &str,
    span: Duration,
    mut check: impl AsyncFnMut() -> Result<(), String>,
) {
    let since = Instant::now();
    while since.elapsed() < span {
        if let Err(error) = check().await {
            panic!("{what} did not last for {span:?}: {error}");
        }
        pause(CHECK_EVERY * 5).await;
    }
}

/// Lets time pass between two actions of a test.
pub async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Prints a line to standard error, also when the test passes.
pub fn print_note(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "    {line}");
}
