//! The manifests run existing programs with valid arguments, and run them safely.

mod programs;

use std::collections::BTreeSet;

use dueline_tests_infra::{documents, root, template, text, under};
use programs::{check_command, check_variable};
use serde_json::{Value, json};

fn manifests() -> Vec<Value> {
    let folder = root().join("infra/kubernetes");
    under("infra/kubernetes", "yaml")
        .into_iter()
        .filter(|path| !path.ends_with("kustomization.yaml"))
        .flat_map(|path| {
            let name = path
                .strip_prefix(&folder)
                .expect("below the folder")
                .display();
            documents(&format!("infra/kubernetes/{name}"))
        })
        .collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    let found: Vec<_> = manifests()
        .into_iter()
        .filter(|one| one["kind"] == kind)
        .collect();
    assert!(!found.is_empty(), "no {kind}");
    found
}

fn name(manifest: &Value) -> &str {
    manifest["metadata"]["name"].as_str().expect("a name")
}

fn array<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    value[field]
        .as_array()
        .map_or_else(Vec::new, |found| found.iter().collect())
}

/// The containers of a pod, including sidecars, which are init containers that keep running.
fn containers(workload: &Value) -> Vec<&Value> {
    let pod = &workload["spec"]["template"]["spec"];
    let mut found = array(pod, "initContainers");
    found.extend(array(pod, "containers"));
    found
}

fn texts(container: &Value, field: &str) -> Vec<String> {
    let texts = array(container, field).into_iter();
    texts
        .map(|text| text.as_str().expect("text").to_owned())
        .collect()
}

fn workloads() -> Vec<Value> {
    let mut found = of_kind("Deployment");
    found.extend(of_kind("Job"));
    found
}

#[test]
fn every_container_runs_a_program_of_the_image_with_valid_arguments() {
    let mut roles = BTreeSet::new();
    for workload in workloads() {
        for container in containers(&workload) {
            assert_eq!(container["image"], "dueline", "{}", name(&workload));
            let command = texts(container, "command");
            check_command(&command[0], &texts(container, "args"));
            roles.insert(command[0].replace("/usr/local/bin/", ""));
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                let run = texts(&container[probe]["exec"], "command");
                if let Some((program, arguments)) = run.split_first() {
                    check_command(program, arguments);
                }
            }
        }
    }
    assert_eq!(roles, programs::programs().into_keys().collect());
}

#[test]
fn every_task_of_the_template_runs_a_program_of_the_image_with_valid_arguments() {
    let resources = template()["Resources"].as_object().expect("resources");
    for resource in resources.values() {
        for container in array(&resource["Properties"], "ContainerDefinitions") {
            let program = texts(container, "EntryPoint");
            let arguments: Vec<String> = array(container, "Command")
                .into_iter()
                .map(|word| {
                    word.as_str()
                        .or(word["Fn::Sub"].as_str())
                        .expect("text")
                        .to_owned()
                })
                .collect();
            check_command(&program[0], &arguments);
            let check = texts(&container["HealthCheck"], "Command");
            if let Some(["CMD", program]) = check
                .first_chunk()
                .map(|two| two.each_ref().map(String::as_str))
            {
                check_command(program, &check[2..]);
            }
        }
    }
}

#[test]
fn every_variable_in_the_environment_is_a_setting() {
    let mut maps = BTreeSet::new();
    for map in of_kind("ConfigMap") {
        for variable in map["data"].as_object().expect("data").keys() {
            check_variable(variable);
        }
        maps.insert(name(&map).to_owned());
    }
    for workload in workloads() {
        for container in containers(&workload) {
            for source in array(container, "envFrom") {
                let map = source["configMapRef"]["name"].as_str().expect("a map");
                assert!(maps.contains(map), "{map}");
            }
        }
    }
}

#[test]
fn every_deployment_is_probed_and_limited_and_has_no_privileges() {
    for deployment in of_kind("Deployment") {
        let pod = &deployment["spec"]["template"]["spec"];
        let containers = containers(&deployment);
        for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
            let http = |container: &&&Value| container[probe]["httpGet"]["path"] == path;
            assert!(
                containers.iter().any(|c| http(&c)),
                "{} {probe}",
                name(&deployment)
            );
        }
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["automountServiceAccountToken"], false);
        for container in containers {
            let what = format!("{} {}", name(&deployment), container["name"]);
            let resources = &container["resources"];
            assert!(resources["limits"]["memory"].is_string(), "{what}");
            assert!(resources["requests"]["cpu"].is_string(), "{what}");
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true, "{what}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{what}");
            assert_eq!(
                security["capabilities"],
                json!({ "drop": ["ALL"] }),
                "{what}"
            );
            assert!(container["readinessProbe"].is_object(), "{what}");
        }
    }
}

#[test]
fn the_grace_period_of_a_pod_covers_the_shutdown_of_its_services() {
    let by_default = text("config.default.toml")
        .lines()
        .find_map(|line| line.strip_prefix("grace_ms = ")?.parse::<u64>().ok())
        .expect("a default");
    for deployment in of_kind("Deployment") {
        let pod = &deployment["spec"]["template"]["spec"];
        let given_ms = 1_000
            * pod["terminationGracePeriodSeconds"]
                .as_u64()
                .expect("a time");
        // Containers end one after another, sidecars last.
        let taken_ms: u64 = containers(&deployment)
            .into_iter()
            .map(|container| {
                let args = texts(container, "args").into_iter();
                args.filter_map(|arg| arg.strip_prefix("shutdown.grace_ms=")?.parse().ok())
                    .next()
                    .unwrap_or(by_default)
            })
            .sum();
        assert!(
            given_ms > taken_ms + 5_000,
            "{}: {given_ms} ms",
            name(&deployment)
        );
    }
}

#[test]
fn executors_get_no_rights_and_no_address_of_the_store() {
    let deployments = of_kind("Deployment");
    let worker = deployments
        .iter()
        .find(|one| name(one) == "dueline-worker")
        .expect("workers");
    let pod = &worker["spec"]["template"];
    let skipped = &pod["metadata"]["annotations"]["eks.amazonaws.com/skip-containers"];
    let executor = array(&pod["spec"], "containers")[0];
    assert_eq!(*skipped, executor["name"]);
    assert!(executor["envFrom"].is_null() && executor["env"].is_null());
    let sidecar = array(&pod["spec"], "initContainers")[0];
    assert_eq!(
        sidecar["restartPolicy"], "Always",
        "the controller must outlive the executor"
    );
}

#[test]
fn references_between_manifests_resolve() {
    let all = manifests();
    let names = |kind: &str| -> BTreeSet<_> {
        let found = all.iter().filter(|one| one["kind"] == kind);
        found.map(|one| name(one).to_owned()).collect()
    };
    let (accounts, deployments) = (names("ServiceAccount"), names("Deployment"));
    for workload in workloads() {
        let pod = &workload["spec"]["template"]["spec"];
        assert!(accounts.contains(pod["serviceAccountName"].as_str().expect("a name")));
    }
    for scaled in of_kind("ScaledObject")
        .into_iter()
        .chain(of_kind("HorizontalPodAutoscaler"))
    {
        let target = scaled["spec"]["scaleTargetRef"]["name"]
            .as_str()
            .expect("a name");
        assert!(deployments.contains(target), "{target}");
    }
    for budget in of_kind("PodDisruptionBudget")
        .into_iter()
        .chain(of_kind("Service"))
    {
        let selector = &budget["spec"]["selector"];
        let labels = selector.get("matchLabels").unwrap_or(selector);
        let deployments = all.iter().filter(|one| one["kind"] == "Deployment");
        let found = deployments
            .filter(|one| one["spec"]["template"]["metadata"]["labels"] == *labels)
            .count();
        assert_eq!(found, 1, "{}", name(&budget));
    }
    let resources = template()["Resources"].as_object().expect("resources");
    for resource in resources.values() {
        if resource["Type"] == "AWS::EKS::PodIdentityAssociation" {
            let account = resource["Properties"]["ServiceAccount"]
                .as_str()
                .expect("a name");
            assert!(accounts.contains(account), "{account}");
        }
    }
    let listed = documents("infra/kubernetes/kustomization.yaml");
    for file in array(&listed[0], "resources") {
        let path = format!("infra/kubernetes/{}", file.as_str().expect("a name"));
        assert!(root().join(&path).is_file(), "{path}");
    }
}

#[test]
fn workers_scale_by_the_backlog_metric_and_have_a_fallback_without_prometheus() {
    let scaled = &of_kind("ScaledObject")[0]["spec"];
    let trigger = &scaled["triggers"][0];
    assert_eq!(trigger["type"], "prometheus");
    let query = trigger["metadata"]["query"].as_str().expect("a query");
    assert!(query.contains("dueline_backlog_tasks"), "{query}");
    assert!(
        text("docs/metrics.md").contains("`dueline_backlog_tasks`"),
        "no such metric"
    );
    let fallback = scaled["fallback"]["replicas"].as_u64().expect("a fallback");
    let least = scaled["minReplicaCount"].as_u64().expect("a minimum");
    assert!(fallback >= least);
}
