//! Which crate may depend on which: the arrows of ARCHITECTURE.md, checked with `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// The crates of the workspace that each crate may depend on, except in tests. A new dependency changes the
/// architecture: add it here in a commit of its own that says why.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("domain", &[]),
    // Spans of a task, on the API of OpenTelemetry; without a provider it does nothing.
    ("trace", &["domain"]),
    ("ports", &["domain", "trace"]),
    ("records", &["domain", "ports"]),
    ("store-sqlite", &["domain", "ports", "records"]),
    ("queue-local", &["domain", "ports"]),
    ("aws", &["ports"]),
    ("store-dynamodb", &["domain", "ports", "records", "aws"]),
    ("queue-sqs", &["domain", "ports", "aws"]),
    (
        "backends",
        &[
            "domain",
            "ports",
            "store-sqlite",
            "queue-local",
            "aws",
            "store-dynamodb",
            "queue-sqs",
            "sinks",
        ],
    ),
    // A job is placed in a cell by the hash functions that never change.
    ("scale", &["domain"]),
    ("schedule", &["domain"]),
    ("outbound", &[]),
    // A sink may be an SQS queue.
    ("sinks", &["domain", "ports", "outbound", "aws"]),
    ("runtime", &["domain", "ports", "trace"]),
    ("telemetry", &["trace"]),
    // The settings include those of the log, and check them.
    ("settings", &["domain", "telemetry"]),
    // The gRPC servers abandon tasks whose response could not be delivered, in supervised tasks of the runtime.
    ("api", &["domain", "ports", "runtime", "trace"]),
    ("testkit", &["domain", "ports", "api"]),
    // It checks the rules of schedules and shows their next firings.
    (
        "frontend",
        &["domain", "ports", "api", "runtime", "trace", "schedule"],
    ),
    // It carries schedules out.
    (
        "consumer",
        &["domain", "ports", "api", "runtime", "trace", "schedule"],
    ),
    ("controller", SERVICE),
    // It makes the calls of the `http` handler.
    (
        "executor",
        &["domain", "ports", "api", "runtime", "outbound", "trace"],
    ),
    ("status-controller", SERVICE),
    (
        "all-in-one",
        &[
            "domain",
            "ports",
            "api",
            "runtime",
            "backends",
            "frontend",
            "consumer",
            "controller",
            "executor",
            "status-controller",
        ],
    ),
    (
        "cli",
        &[
            "domain",
            "ports",
            "api",
            "runtime",
            "settings",
            "telemetry",
            "backends",
            "all-in-one",
            "controller",
            "executor",
            "scale",
            "schedule",
        ],
    ),
    (
        "tests-simulation",
        &[
            "domain",
            "ports",
            "api",
            "runtime",
            "trace",
            "testkit",
            "queue-local",
            // It plans changes of schedules, and checks their firings against the rule.
            "schedule",
            "frontend",
            "consumer",
            "controller",
            "executor",
            "status-controller",
        ],
    ),
    ("tests-end-to-end", &[]),
    ("tests-engines", &[]),
    ("tests-fleet", &["tests-end-to-end", "tests-engines"]),
    ("tests-infra", &[]),
    ("tests-tidy", &[]),
];

/// A service depends on the ports and on the traits of other services, never on an adapter or on another service.
const SERVICE: &[&str] = &["domain", "ports", "api", "runtime", "trace"];

/// Crates that the domain must not depend on: input and output, time, randomness and data formats.
const BANNED_IN_DOMAIN: &[&str] = &[
    "tokio",
    "serde",
    "serde_json",
    "rusqlite",
    "tracing",
    "metrics",
    "fastrand",
    "rand",
    "jiff",
];

/// The crates of the workspace by their names without the prefix.
fn workspace_crates() -> BTreeMap<String, Package> {
    let metadata = MetadataCommand::new()
        .no_deps()
        .other_options(vec!["--offline".into()])
        .exec()
        .expect("cargo metadata");
    metadata
        .packages
        .into_iter()
        .map(|package| {
            let name = package.name.to_string();
            (name.trim_start_matches("dueline-").to_owned(), package)
        })
        .collect()
}

#[test]
fn every_crate_depends_only_on_allowed_crates() {
    let rules: BTreeMap<_, _> = ALLOWED_DEPENDENCIES.iter().copied().collect();
    let mut violations = Vec::new();
    for (name, package) in workspace_crates() {
        let Some(allowed) = rules.get(name.as_str()) else {
            violations.push(format!("{name} has no entry in ALLOWED_DEPENDENCIES"));
            continue;
        };
        for dependency in &package.dependencies {
            let used = dependency.name.strip_prefix("dueline-");
            if let (Some(used), DependencyKind::Normal) = (used, dependency.kind)
                && !allowed.contains(&used)
            {
                violations.push(format!("{name} may not depend on {used}"));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn the_domain_has_no_banned_dependency() {
    let crates = workspace_crates();
    let domain = &crates["domain"];
    let names: BTreeSet<_> = domain
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.as_str())
        .collect();
    for banned in BANNED_IN_DOMAIN {
        assert!(
            !names.contains(banned),
            "dueline-domain depends on {banned}"
        );
    }
}

#[test]
fn test_tools_are_dev_dependencies_only() {
    for (name, package) in workspace_crates() {
        if name == "testkit" || name.starts_with("tests-") {
            continue;
        }
        for dependency in &package.dependencies {
            if dependency.kind != DependencyKind::Normal {
                continue;
            }
            assert_ne!(
                dependency.name, "dueline-testkit",
                "{name} depends on the testkit outside its tests"
            );
            for feature in ["conformance", "fakes"] {
                assert!(
                    !dependency.features.iter().any(|enabled| enabled == feature),
                    "{name} enables {feature} of {} outside its tests",
                    dependency.name
                );
            }
        }
    }
}

#[test]
fn every_crate_inherits_lints_versions_and_licence() {
    for (name, package) in workspace_crates() {
        let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} does not inherit the lints of the workspace"
        );
        assert!(
            manifest.contains("license.workspace = true"),
            "{name} does not inherit the licence of the workspace"
        );
        for dependency in &package.dependencies {
            let line = manifest
                .lines()
                // A feature may have the name of a dependency; its value is a list.
                .filter(|line| {
                    !line
                        .split('=')
                        .nth(1)
                        .unwrap_or_default()
                        .trim()
                        .starts_with('[')
                })
                .find(|line| line.split([' ', '.', '=']).next() == Some(dependency.name.as_str()))
                .unwrap_or_default();
            let inherits = line.contains("workspace") || line.contains("path = \".\"");
            assert!(
                inherits,
                "{name}: {} does not inherit its version from the workspace",
                dependency.name
            );
        }
    }
}
