//! Requests that a browser sends for a page of another site, to every route of every role that listens.

use std::{collections::BTreeSet, fs, path::Path};

use dueline_tests_end_to_end::{ControllerProcess, RestClient, ServerProcess, TestFolder};
use reqwest::{
    Method, Version,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::Value;

const CONTENT_TYPES: [&str; 6] = [
    "",
    "application/json",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/grpc",
];

/// Headers that identify a request from a page of another site, with the reason of the refusal.
const CROSS_SITE_HEADERS: [(&str, &str, &str); 5] = [
    ("origin", "http://evil.example", "cross_origin"),
    ("origin", "null", "cross_origin"),
    ("sec-fetch-site", "cross-site", "cross_origin"),
    ("sec-fetch-site", "same-site", "cross_origin"),
    ("host", "evil.example", "foreign_host"),
];

/// One HTTP client per version.
fn clients() -> [(Version, reqwest::Client); 2] {
    let builder = || reqwest::Client::builder().no_proxy();
    let http1 = builder().http1_only().build().expect("a client");
    let http2 = builder().http2_prior_knowledge().build().expect("a client");
    [(Version::HTTP_11, http1), (Version::HTTP_2, http2)]
}

/// Every method and path of the REST API, from the OpenAPI document of the server.
async fn rest_routes(api: &RestClient) -> Vec<(Method, String)> {
    let (status, text) = api.page("openapi.json").await.expect("an answer");
    assert_eq!(status, 200);
    let description: Value = serde_json::from_str(&text).expect("a JSON document");
    let mut routes = Vec::new();
    for (path, methods) in description["paths"].as_object().expect("paths") {
        let path = path
            .replace("{id}", "6f1d1a52-0000-4000-8000-000000000000")
            .replace(['{', '}'], "");
        for method in methods.as_object().expect("methods").keys() {
            let method = method.to_uppercase();
            routes.push((method.parse().expect("a method"), path.clone()));
        }
    }
    assert!(routes.len() > 25, "{routes:?}");
    routes
}

/// Every method of every gRPC service, from the proto files.
fn grpc_routes() -> Vec<(Method, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/api/proto/dueline/v1");
    let mut routes = Vec::new();
    for file in fs::read_dir(root).expect("the protocol") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("a text");
        let mut service = "";
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("service ") {
                service = rest.split_whitespace().next().unwrap_or_default();
            } else if let Some(rest) = line.strip_prefix("rpc ") {
                let method = rest.split('(').next().unwrap_or_default();
                routes.push((Method::POST, format!("/dueline.v1.{service}/{method}")));
            }
        }
    }
    let services: BTreeSet<_> = routes
        .iter()
        .filter_map(|(_, path)| path.split('/').nth(1))
        .collect();
    assert!(services.len() >= 4 && routes.len() > 25, "{routes:?}");
    routes
}

/// The standard services of gRPC.
fn standard_routes() -> [(Method, String); 4] {
    [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ]
    .map(|path| (Method::POST, path.to_owned()))
}

async fn call(
    client: &reqwest::Client,
    version: Version,
    (method, url): (&Method, &str),
    content_type: &str,
    header: Option<(&str, &str)>,
) -> (u16, String) {
    let mut headers = HeaderMap::new();
    let mut put = |name: &str, value: &str| {
        let name: HeaderName = name.parse().expect("a name");
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
    };
    if !content_type.is_empty() {
        put("content-type", content_type);
    }
    if let Some((name, value)) = header {
        put(name, value);
    }
    // A gRPC frame around an empty message: valid for every method.
    let request = client
        .request(method.clone(), url)
        .version(version)
        .headers(headers)
        .body(vec![0_u8; 5]);
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.text().await.unwrap_or_default())
}

/// Sends every combination to the server at `url` and expects refusals.
async fn assert_all_are_refused(url: &str, routes: &[(Method, String)]) {
    for (method, path) in routes {
        // A connection is closed after some hundred requests that were refused before their body was read.
        for (version, client) in &clients() {
            let url = format!("{url}{path}");
            for content_type in CONTENT_TYPES {
                for (name, value, reason) in CROSS_SITE_HEADERS {
                    let header = Some((name, value));
                    let target = (method, url.as_str());
                    let (status, text) = call(client, *version, target, content_type, header).await;
                    assert!(
                        status == 403 && text.contains(reason),
                        "{version:?} {method} {path} as '{content_type}' with {name}: {value} \
                         answered {status}: {text}"
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_13_no_route_of_any_role_answers_a_page_of_another_site() {
    let folder = TestFolder::new();
    let mut server = ServerProcess::start(&folder, &["--no-worker"]).await;
    let mut routes = rest_routes(&server.api).await;
    routes.extend(grpc_routes());
    routes.extend(standard_routes());
    assert_all_are_refused(server.url(), &routes).await;
    let jobs = server.api.get("jobs").await.expect_success();
    assert_eq!(jobs["jobs"], serde_json::json!([]));

    let controller = ControllerProcess::start(&folder, server.url()).await;
    assert_all_are_refused(controller.url(), &routes).await;
    drop(controller);

    for role in ["frontend", "consumer", "status-controller"] {
        server.kill().await;
        server
            .start_again_with(&["--no-worker", "--services", role])
            .await;
        assert_all_are_refused(server.url(), &routes).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g_13_grpc_is_served_over_http_2_with_its_own_content_type_only() {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &["--no-worker"]).await;
    for (version, client) in &clients() {
        for (method, path) in grpc_routes() {
            let url = format!("{}{path}", server.url());
            let target = (&method, url.as_str());
            for content_type in CONTENT_TYPES {
                let (status, text) = call(client, *version, target, content_type, None).await;
                let answer = format!("{version:?} {path} as '{content_type}': {status} {text}");
                if *version == Version::HTTP_11 {
                    assert!(status == 400 && text.contains("http2_required"), "{answer}");
                } else if content_type == "application/grpc" {
                    assert_eq!(status, 200, "{answer}");
                } else {
                    assert!(status == 415, "{answer}");
                    assert!(text.contains("unsupported_media_type"), "{answer}");
                }
            }
        }
    }
}
