//! A process in which tracing is off.

use dueline_domain::{JobName, TaskId};
use dueline_trace::{Began, Step, TaskSpan, active, is_on, within};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn f_130_while_tracing_is_off_nothing_is_recorded() {
    let (job, task) = (JobName::parse("job").unwrap(), TaskId::from_bytes([1; 16]));
    assert!(!is_on() && active().is_none());
    let began = Began::now();
    assert!(TaskSpan::submit(Some(TRACE), &job, &task, began).is_none());
    assert!(TaskSpan::start(Step::Run, Some(TRACE), &job, &task, began).is_none());
    assert_eq!(within(None, async { 7 }).await, 7);
}
