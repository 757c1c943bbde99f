//! The OpenAPI document.

use std::{fs, path::PathBuf};

use dueline_frontend::openapi;

use crate::kit::Kit;

#[test]
fn the_checked_in_description_is_true() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let now = openapi();
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(&file, &now).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        stored == now,
        "openapi.json is out of date; run this test with UPDATE_OPENAPI=1"
    );
}

#[tokio::test(start_paused = true)]
async fn every_route_is_described_and_every_described_route_exists() {
    let kit = Kit::with_job().await;
    let document = kit.get("/openapi.json").await.expect(200);
    assert_eq!(document.body, openapi());
    let paths = document.json["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 41);
    for (path, methods) in paths {
        let path = path
            .replace("{job}", "mail")
            .replace("{id}", "6f2c1a34-9f0b-4d7a-8a53-0d9f3f1c2b4e");
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let reply = crate::kit::call(&kit.router, &method, &path, &[], "").await;
            let reason = reply.json["reason"].as_str().unwrap_or_default();
            let missing = ["unknown_route", "method_not_allowed"].contains(&reason);
            assert!(!missing, "{method} {path}: {}", reply.body);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_reference_of_the_description_leads_somewhere() {
    let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
    let mut open = vec![&document];
    let mut seen = 0;
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(|target| target.as_str()) {
                    let pointer = target.trim_start_matches('#');
                    assert!(document.pointer(pointer).is_some(), "{target}");
                    seen += 1;
                }
                open.extend(fields.values());
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(seen > 30, "{seen}");
}
