//! Which crate may know which: the arrows of ARCHITECTURE.md, checked over `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// What each crate of ours may depend on, tests aside. A new arrow is a change of the architecture: add it here in a
/// commit of its own that says why.
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("ports", &["domain"]),
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
        ],
    ),
    ("scale", &[]),
    ("runtime", &["domain", "ports"]),
    // The servers of gRPC give back what they could not deliver, in supervised tasks.
    ("api", &["domain", "ports", "runtime"]),
    ("testkit", &["domain", "ports", "api"]),
    ("frontend", SERVICE),
    ("consumer", SERVICE),
    ("controller", SERVICE),
    ("executor", SERVICE),
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
            "backends",
            "all-in-one",
            "controller",
            "executor",
            "scale",
        ],
    ),
    (
        "tests-simulation",
        &[
            "domain",
            "ports",
            "api",
            "runtime",
            "testkit",
            "queue-local",
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

/// A service knows the seams and the traits of the others, never an adapter and never another service.
const SERVICE: &[&str] = &["domain", "ports", "api", "runtime"];

/// Crates that would bring input, output, time or a data format into the domain.
const KEPT_FROM_DOMAIN: &[&str] = &[
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

fn ours() -> BTreeMap<String, Package> {
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
fn every_crate_knows_only_what_it_may_know() {
    let rules: BTreeMap<_, _> = MAY_KNOW.iter().copied().collect();
    let mut wrong = Vec::new();
    for (name, package) in ours() {
        let Some(allowed) = rules.get(name.as_str()) else {
            wrong.push(format!("{name} has no rule in MAY_KNOW"));
            continue;
        };
        for dependency in &package.dependencies {
            let known = dependency.name.strip_prefix("dueline-");
            if let (Some(known), DependencyKind::Normal) = (known, dependency.kind)
                && !allowed.contains(&known)
            {
                wrong.push(format!("{name} knows {known}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_domain_stays_pure() {
    let crates = ours();
    let domain = &crates["domain"];
    let names: BTreeSet<_> = domain
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.as_str())
        .collect();
    for kept_out in KEPT_FROM_DOMAIN {
        assert!(
            !names.contains(kept_out),
            "dueline-domain depends on {kept_out}"
        );
    }
}

#[test]
fn test_tools_are_dev_dependencies_only() {
    for (name, package) in ours() {
        if name == "testkit" || name.starts_with("tests-") {
            continue;
        }
        for dependency in &package.dependencies {
            if dependency.kind != DependencyKind::Normal {
                continue;
            }
            assert_ne!(
                dependency.name, "dueline-testkit",
                "{name} ships the testkit"
            );
            for feature in ["conformance", "fakes"] {
                assert!(
                    !dependency.features.iter().any(|has| has == feature),
                    "{name} ships {feature} of {}",
                    dependency.name
                );
            }
        }
    }
}

#[test]
fn every_crate_inherits_lints_versions_and_licence() {
    for (name, package) in ours() {
        let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} sets its own lints"
        );
        assert!(
            manifest.contains("license.workspace = true"),
            "{name} has its own licence"
        );
        for dependency in &package.dependencies {
            let line = manifest
                .lines()
                .find(|line| line.split([' ', '.', '=']).next() == Some(dependency.name.as_str()))
                .unwrap_or_default();
            let inherits = line.contains("workspace") || line.contains("path = \".\"");
            assert!(inherits, "{name}: {} has its own version", dependency.name);
        }
    }
}
