//! Waiting for something, never for time alone.

use std::{io::Write as _, time::Duration};

use tokio::time::Instant;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until `look` has an answer. After `bound` the test fails with what the last look said.
pub async fn wait_until<T>(
    what: &str,
    bound: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let since = Instant::now();
    loop {
        match look().await {
            Ok(answer) => return answer,
            Err(last) => assert!(
                since.elapsed() < bound,
                "waited {bound:?} for {what}; at last: {last}"
            ),
        }
        pause(LOOK_EVERY).await;
    }
}

/// Looks again and again for as long as `span`; the first `Err` fails the test.
pub async fn hold(what: &str, span: Duration, mut look: impl AsyncFnMut() -> Result<(), String>) {
    let since = Instant::now();
    while since.elapsed() < span {
        if let Err(why) = look().await {
            panic!("{what} did not last for {span:?}: {why}");
        }
        pause(LOOK_EVERY * 5).await;
    }
}

/// Lets time pass between two actions of a test.
pub async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}

/// A line for whoever runs the tests; it is shown also when the test passes.
pub fn say(line: &str) {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "    {line}");
}
