//! Checks the template itself: with cfn-lint, and properties that an engine ignores.

use dueline_tests_infra::{cfn_lint, root, template, text};
use serde_json::json;

#[test]
fn f_147_the_template_is_valid_without_an_account() {
    let result = cfn_lint(&root().join("infra/cloudformation.yaml"));
    assert!(result.success, "{}{}", result.output, result.errors);
}

#[test]
fn a_misspelt_property_would_be_refused() {
    let right = text("infra/cloudformation.yaml");
    let wrong = right.replace("PointInTimeRecoveryEnabled", "PointInTimeRecoveryEnable");
    assert_ne!(right, wrong);
    let folder = std::env::temp_dir().join(format!("dueline-infra-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for a broken template");
    let file = folder.join("broken.yaml");
    std::fs::write(&file, wrong).expect("a broken template");
    let result = cfn_lint(&file);
    std::fs::remove_dir_all(&folder).expect("the folder is removed");
    assert!(!result.success);
    assert!(
        result.output.contains("PointInTimeRecoveryEnable"),
        "{}{}",
        result.output,
        result.errors
    );
}

#[test]
fn the_template_is_small_enough_to_be_sent_without_a_bucket() {
    const BYTES_MAX: usize = 51_200;
    let bytes = text("infra/cloudformation.yaml").len();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}

/// The engine accepts these properties but ignores them, so they are checked here and not after a deployment.
#[test]
fn the_table_expires_items_can_be_restored_is_encrypted_and_is_retained() {
    let table = &template()["Resources"]["Table"];
    assert_eq!(table["DeletionPolicy"], "Retain");
    assert_eq!(table["UpdateReplacePolicy"], "Retain");
    let properties = &table["Properties"];
    assert_eq!(
        properties["TimeToLiveSpecification"],
        json!({ "AttributeName": "x", "Enabled": true })
    );
    assert_eq!(
        properties["PointInTimeRecoverySpecification"],
        json!({ "PointInTimeRecoveryEnabled": true })
    );
    let encryption = &properties["SSESpecification"];
    assert_eq!(encryption["SSEEnabled"], true);
    assert_eq!(encryption["SSEType"], "KMS");
}

#[test]
fn containers_run_without_privileges() {
    let resources = template()["Resources"].as_object().expect("resources");
    let tasks: Vec<_> = resources
        .values()
        .filter(|resource| resource["Type"] == "AWS::ECS::TaskDefinition")
        .collect();
    assert_eq!(tasks.len(), 6);
    for task in tasks {
        let containers = task["Properties"]["ContainerDefinitions"]
            .as_array()
            .expect("containers");
        for container in containers {
            let name = &container["Name"];
            assert_eq!(container["ReadonlyRootFilesystem"], true, "{name}");
            assert_eq!(container["User"], "65532:65532", "{name}");
            assert_eq!(
                container["LinuxParameters"]["Capabilities"]["Drop"],
                json!(["ALL"]),
                "{name}"
            );
        }
    }
}
