//! Tasks that wait for others, as commands of real processes.

use dueline_tests_end_to_end::{ServerProcess, TestFolder};
use serde_json::{Value, json};

use crate::s;

/// A job whose command is a shell script.
fn script(script: &str, input: &str) -> Value {
    json!({"handler": {
        "kind": "exec",
        "config": {"command": ["sh", "-c", script], "input": input},
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn f_095_what_commands_print_is_the_input_of_the_next_ones_without_another_store() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &[]).await;
    let api = &server.api;
    let extract = script(r"printf '3 pears\n4 plums\n'", "stdin");
    api.put_job("extract", extract, json!({})).await;
    let transform = script("sort -rn | sed 's/ /,/'", "results");
    api.put_job("transform", transform, json!({})).await;
    let load = script(
        r#"echo "$(cat) of $DUELINE_RESULT_0_TASK $DUELINE_RESULT_0_END $DUELINE_RESULT_0_BYTES: $DUELINE_RESULT_0""#,
        "stdin",
    );
    api.put_job("load", load, json!({})).await;
    let extract = api.submit("extract", json!({})).await;
    let after = |job: &str, id: &str| json!([{"job": job, "id": id}]);
    let task = json!({"after": after("extract", &extract)});
    let transform = api.submit("transform", task).await;
    let task = json!({"after": after("transform", &transform), "payload_text": "fruit"});
    let load = api.submit("load", task).await;
    let last = api.finished("load", &load, s(30)).await;
    let text = format!("fruit of transform/{transform} succeeded 16: 4,plums\n3,pears\n\n");
    assert_eq!(last["result_text"], text, "{last}");
}
