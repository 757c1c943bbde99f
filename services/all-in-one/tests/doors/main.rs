//! One node on a real SQLite file with its port open, asked through REST, gRPC and the embedded API. The same fault has
//! the same kind, reason, field and text, whichever of the three is used.

mod board;
mod cases;
mod drop;
mod explain;
mod fair_share;
mod families;
mod looks;
mod node;
mod orders;
mod processes;
mod redrive;
mod results;
mod schedules;
mod staged;
mod undelivered;
mod unique;
mod watch;

use dueline_api::ErrorReason;
use node::{TestNode, fault};

/// What a caller learns about a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    kind: String,
    reason: String,
    field: Option<String>,
    message: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn f_020_f_135_a_fault_is_the_same_through_rest_grpc_and_embedded() {
    let node = TestNode::start().await;
    let cases = cases::all();
    assert!(cases.len() >= 45, "{} cases", cases.len());
    for case in cases {
        let name = case.name;
        let rest = node.rest(&case.rest).await;
        let rest = rest.unwrap_or_else(|| panic!("{name}: REST has accepted it"));
        assert_eq!(rest.reason, case.reason, "{name}: {rest:?}");
        let known = !matches!(ErrorReason::from_name(&rest.reason), ErrorReason::Other(_));
        assert!(known, "{name}: {} is not in docs/errors.md", rest.reason);
        assert_eq!(rest.field.as_deref(), case.field, "{name}: {rest:?}");
        let grpc = (case.grpc)(node.grpc()).await;
        let grpc = grpc.err().map(|error| fault(&error));
        assert_eq!(grpc.as_ref(), Some(&rest), "{name}: gRPC beside REST");
        if let Some(embedded) = case.embedded {
            let embedded = embedded(node.frontend()).await;
            let embedded = embedded.err().map(|error| fault(&error));
            assert_eq!(
                embedded.as_ref(),
                Some(&rest),
                "{name}: embedded beside REST"
            );
        }
    }
    // No refused call has left anything behind.
    let (jobs, tasks) = node.stored().await;
    assert_eq!((jobs, tasks), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn f_003_f_021_no_answer_holds_a_fencing_token_or_a_write_id() {
    let node = TestNode::start().await;
    let (token, texts) = node.texts_about_a_claimed_task().await;
    assert!(texts.len() >= 4, "{texts:?}");
    for text in &texts {
        assert!(text.contains("thief"), "the owner is shown: {text}");
        assert!(!text.contains(&token), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_012_f_130_a_task_has_the_principal_and_the_trace_of_its_call_through_each_door() {
    let node = TestNode::start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (door, (created_by, context)) in node.origins("ann", trace).await {
        assert_eq!(created_by.as_deref(), Some("ann"), "{door}");
        assert_eq!(context.as_deref(), Some(trace), "{door}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_019_a_deadline_of_the_caller_bounds_a_wait_through_rest_and_grpc() {
    let node = TestNode::start().await;
    for (door, waited) in node.waits_with_a_deadline().await {
        assert!(waited.as_secs() < 10, "{door} has waited for {waited:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f_010_a_delayed_submit_repeated_with_its_key_is_one_task_through_each_door() {
    let node = TestNode::start().await;
    let ids = node.repeated_delays().await;
    assert_eq!(ids.len(), 6);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}
