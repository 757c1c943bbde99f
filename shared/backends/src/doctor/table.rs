//! Checks a DynamoDB table. The findings follow from the plan of `setup`, so that the two cannot disagree.

use std::sync::Arc;

use aws_sdk_dynamodb::{Client, config::Builder};
use dueline_aws::{Class, Failure, Meter, Service, SetupError, connect};
use dueline_store_dynamodb::{
    DynamoOptions, DynamoStore, OpenError, schema,
    setup::{self, SetupClient, SetupStep, TableShape, TableSpec, TableState},
};

use super::{
    DoctorContext, Finding, Reach, StoreReport,
    call_recorder::CallRecorder,
    permissions::{self, RequiredBy},
};

const AREA: &str = "table";

pub(super) async fn check(options: &DynamoOptions, context: &DoctorContext) -> StoreReport {
    let table = options.table.as_str();
    let config = match connect(Service::DynamoDb, &options.aws).await {
        Ok(config) => config,
        Err(error) => {
            return StoreReport::new(Reach::NotTried, vec![no_client(AREA, table, &error)]);
        }
    };
    let recorder = CallRecorder::new(context.clock.clone());
    let settings = Builder::from(&config).interceptor(recorder.clone()).build();
    let setup_client = SetupClient {
        client: Client::from_conf(settings),
        endpoint: dueline_aws::endpoint_or_region(&config),
    };
    let client = &setup_client.client;
    let described = Box::pin(client.describe_table().table_name(table).send()).await;
    let described = permissions::outcome(described);
    if let Err(failure) = &described
        && !recorder.is_answered()
    {
        let finding = unreachable(AREA, table, &recorder.address(), failure);
        return StoreReport::new(Reach::No, vec![finding]);
    }
    let mut report = StoreReport::new(Reach::Yes, Vec::new());
    Box::pin(examine(
        &mut report,
        &setup_client,
        options,
        context,
        described,
    ))
    .await;
    report.clock = recorder.reading("DynamoDB");
    report
}

async fn examine(
    report: &mut StoreReport,
    setup_client: &SetupClient,
    options: &DynamoOptions,
    context: &DoctorContext,
    described: Result<(), Failure>,
) {
    let (client, table) = (&setup_client.client, options.table.as_str());
    // A missing table is reported only to callers with the permission.
    let described_or_missing =
        described
            .as_ref()
            .map(drop)
            .or_else(|failure| match failure.class {
                Class::Missing => Ok(()),
                _ => Err(failure),
            });
    let permission = permissions::permission_finding(
        "dynamodb:DescribeTable",
        RequiredBy::Services,
        described_or_missing,
    );
    let findings = &mut report.findings;
    let mut permission_findings = vec![permission];
    match setup_client.inspect(table).await {
        Ok(found) => {
            findings.extend(table_findings(options, &found, &context.setup));
            let shape = found.table.as_ref();
            if shape.is_some_and(|shape| shape.has_dueline_key() && shape.is_active()) {
                permission_findings.extend(permissions::of_items(client, table).await);
                permission_findings.extend(permissions::of_settings(client, table).await);
            }
        }
        Err(error) => {
            let detail = format!("cannot be checked: {error}");
            findings.push(match error {
                // The permission findings name the denied action.
                OpenError::Denied { .. } => Finding::unknown(AREA, table, detail),
                _ => Finding::defect(
                    AREA,
                    table,
                    detail,
                    "fix the reported problem, then run this again",
                ),
            });
            // Trying the actions on items shows what else is denied.
            if described.is_ok() {
                permission_findings.extend(permissions::of_items(client, table).await);
            }
        }
    }
    findings.extend(permission_findings);
    let opened = DynamoStore::open_at(setup_client.clone(), options.clone(), Meter::default());
    if let Ok(store) = Box::pin(opened).await {
        report.store = Some(Arc::new(store));
    }
}

/// The findings about a table, derived from the steps that setup would take.
fn table_findings(options: &DynamoOptions, found: &TableState, setup: &str) -> Vec<Finding> {
    let expected = TableSpec {
        table: options.table.clone(),
        slots: options.slots,
        backups: true,
    };
    let steps = setup::plan(found, &expected);
    let table = options.table.as_str();
    let Some(shape) = &found.table else {
        return vec![Finding::defect(
            AREA,
            table,
            "the table does not exist",
            setup,
        )];
    };
    let mut findings = Vec::new();
    if let Some(SetupStep::Foreign(why)) = steps
        .iter()
        .find(|step| matches!(step, SetupStep::Foreign(_)))
    {
        findings.push(Finding::defect(
            AREA,
            table,
            why,
            fix_for_unusable_table(shape, found),
        ));
        return findings;
    }
    findings.push(
        if steps.contains(&SetupStep::Wait) && !steps.contains(&SetupStep::AddIndex) {
            let status = shape.status.to_lowercase();
            let detail =
                format!("not ready: the table is {status}, or its index is still being created");
            Finding::defect(
                AREA,
                table,
                detail,
                "wait until AWS has finished, then run this again",
            )
        } else {
            let detail = format!(
                "{}, about {} items",
                shape.status.to_lowercase(),
                shape.items
            );
            Finding::ok(AREA, table, detail)
        },
    );
    findings.push(match &shape.index {
        Some(index) => {
            let detail = format!("{}, {}", index.status.to_lowercase(), index.key);
            Finding::ok(AREA, index_name(), detail)
        }
        None => Finding::defect(AREA, index_name(), SetupStep::AddIndex.to_string(), setup),
    });
    findings.push(switch(
        "expiry",
        found.ttl,
        &SetupStep::EnableExpiry,
        &steps,
        setup,
    ));
    findings.push(
        match switch(
            "backups",
            found.backups,
            &SetupStep::EnableBackups,
            &steps,
            setup,
        ) {
            // Only a warning: tasks run without backups, and they may be off on purpose.
            finding if steps.contains(&SetupStep::EnableBackups) => {
                let detail =
                    "point-in-time recovery is off: a lost or corrupted table cannot be restored";
                Finding::warning(AREA, finding.name, detail, setup)
            }
            finding => finding,
        },
    );
    findings.push(
        match (
            &found.meta,
            steps
                .iter()
                .find(|step| matches!(step, SetupStep::WriteMeta { .. })),
        ) {
            (_, Some(step)) => {
                Finding::defect(AREA, "layout", format!("not set up: {step}"), setup)
            }
            (Some(meta), None) if meta.version < i64::from(schema::VERSION) => Finding::warning(
                AREA,
                "layout",
                format!("version {} is older than {}", meta.version, schema::VERSION),
                "use the dueline that wrote it, or move its tasks to a new table",
            ),
            (meta, None) => {
                let (version, slots) = meta
                    .as_ref()
                    .map_or((0, 0), |meta| (meta.version, meta.slots));
                Finding::ok(AREA, "layout", format!("version {version}, {slots} slots"))
            }
        },
    );
    findings.extend(steps.iter().filter_map(drift));
    findings
}

fn index_name() -> String {
    format!("index {}", schema::DUE_INDEX)
}

fn switch(
    name: &str,
    is_on: Option<bool>,
    step: &SetupStep,
    steps: &[SetupStep],
    setup: &str,
) -> Finding {
    match is_on {
        _ if steps.contains(step) => Finding::defect(AREA, name, format!("off; {step}"), setup),
        Some(_) => Finding::ok(AREA, name, "on"),
        None => Finding::unknown(
            AREA,
            name,
            "the service does not report it, or denies the request",
        ),
    }
}

/// The finding about a difference that setup does not change.
fn drift(step: &SetupStep) -> Option<Finding> {
    let SetupStep::Drift(what) = step else {
        return None;
    };
    let (name, fix) = if what.contains("index") {
        let fix = "accept the cost, or stop all processes, delete the index and run 'dueline setup' to create it again";
        (index_name(), fix)
    } else if what.contains("slots") {
        (
            "slots".to_owned(),
            "leave 'slots' out of the URI, or set it to the table's number",
        )
    } else {
        let fix = "set the table to on-demand billing (PAY_PER_REQUEST), or make sure that its capacity is sufficient";
        ("billing".to_owned(), fix)
    };
    Some(Finding::warning(AREA, name, what, fix))
}

fn fix_for_unusable_table(shape: &TableShape, found: &TableState) -> String {
    let meta = found.meta.as_ref();
    if meta.is_some_and(|meta| meta.app == schema::APP && meta.version > i64::from(schema::VERSION))
    {
        "use a newer dueline: the one that wrote it, or later".into()
    } else if shape.status == "DELETING" {
        "wait until it is deleted, then run 'dueline setup'".into()
    } else if shape.has_dueline_key() && meta.is_none_or(|meta| meta.app == schema::APP) {
        let index = schema::DUE_INDEX;
        format!(
            "stop all processes and delete the index '{index}'; 'dueline setup' creates the right one"
        )
    } else {
        "name another table by --store; this one belongs to another program".into()
    }
}

/// The finding about a client that cannot be configured.
pub(super) fn no_client(area: &'static str, name: &str, error: &SetupError) -> Finding {
    let fix = match error {
        SetupError::NoRegion(_) => "set AWS_REGION, or add ?region=REGION to the URI",
        SetupError::NoCredentials { .. } => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile by ?profile=NAME, or assign a role to the host"
        }
        SetupError::Endpoint(_) => "write endpoint=http://HOST:PORT or endpoint=https://HOST",
    };
    Finding::defect(area, name, error.to_string(), fix)
}

/// The finding about a service that does not answer.
pub(super) fn unreachable(area: &'static str, name: &str, at: &str, failure: &Failure) -> Finding {
    let detail = format!("no answer from {at}: {}", failure.message);
    let fix = "check that endpoint and region are right and that the network allows the connection; nothing else was \
               checked in this area";
    Finding::defect(area, name, detail, fix)
}

#[cfg(test)]
mod tests {
    use dueline_store_dynamodb::setup::{IndexShape, TableMeta};

    use super::{super::State, *};

    fn healthy() -> TableState {
        TableState {
            table: Some(TableShape {
                status: "ACTIVE".into(),
                key: "pk (S), sk (B)".into(),
                index: Some(IndexShape {
                    status: "ACTIVE".into(),
                    key: "d (S), h (N)".into(),
                    projection: "KEYS_ONLY".into(),
                }),
                on_demand: true,
                ..TableShape::default()
            }),
            ttl: Some(true),
            backups: Some(true),
            meta: Some(TableMeta {
                app: schema::APP.into(),
                version: schema::VERSION.into(),
                slots: 16,
            }),
        }
    }

    /// The findings that are not ok, as `state name`, and all their fixes.
    fn of(change: impl FnOnce(&mut TableState)) -> (Vec<String>, String) {
        let mut found = healthy();
        change(&mut found);
        let mut findings = table_findings(&DynamoOptions::of("t"), &found, "SETUP");
        findings.retain(|finding| finding.state != State::Ok);
        let names = findings
            .iter()
            .map(|f| format!("{} {}", f.state.name(), f.name));
        let fixes = findings.iter().filter_map(|f| f.fix.clone());
        (names.collect(), fixes.collect::<Vec<_>>().join("\n"))
    }

    fn shape(change: impl FnOnce(&mut TableShape)) -> impl FnOnce(&mut TableState) {
        |found| change(found.table.as_mut().expect("a shape"))
    }

    #[track_caller]
    fn is(change: impl FnOnce(&mut TableState), names: &[&str], fix: &str) {
        let (found, fixes) = of(change);
        assert_eq!(found, names);
        assert!(fixes.contains(fix), "'{fix}' is not in: {fixes}");
    }

    #[test]
    fn g_18_a_healthy_table_has_only_ok_findings() {
        is(|_| (), &[], "");
    }

    #[test]
    fn g_18_each_defect_of_a_table_is_reported_with_its_fix() {
        is(|found| found.table = None, &["defect t"], "SETUP");
        is(shape(|s| s.index = None), &["defect index due"], "SETUP");
        is(
            shape(|s| s.key = "id (S)".into()),
            &["defect t"],
            "another table",
        );
        is(
            shape(|s| s.status = "CREATING".into()),
            &["defect t"],
            "wait",
        );
        is(
            shape(|s| s.status = "DELETING".into()),
            &["defect t"],
            "wait until it is deleted",
        );
        let index = |change: fn(&mut IndexShape)| {
            shape(move |s| change(s.index.as_mut().expect("an index")))
        };
        is(
            index(|i| i.key = "x (S)".into()),
            &["defect t"],
            "delete the index 'due'",
        );
        is(
            index(|i| i.status = "CREATING".into()),
            &["defect t"],
            "wait",
        );
        is(
            index(|i| i.projection = "ALL".into()),
            &["warning index due"],
            "accept the cost",
        );
        is(
            shape(|s| s.on_demand = false),
            &["warning billing"],
            "PAY_PER_REQUEST",
        );
        is(|found| found.ttl = Some(false), &["defect expiry"], "SETUP");
        is(
            |found| found.backups = Some(false),
            &["warning backups"],
            "SETUP",
        );
        is(|found| found.ttl = None, &["unknown expiry"], "");
        is(|found| found.backups = None, &["unknown backups"], "");
        is(|found| found.meta = None, &["defect layout"], "SETUP");
        let meta = |change: fn(&mut TableMeta)| {
            move |found: &mut TableState| change(found.meta.as_mut().expect("a meta item"))
        };
        is(meta(|m| m.version += 1), &["defect t"], "newer dueline");
        is(
            meta(|m| m.version -= 1),
            &["warning layout"],
            "use the dueline that wrote it",
        );
        is(
            meta(|m| m.app = "other".into()),
            &["defect t"],
            "another table",
        );
        is(
            meta(|m| m.slots = 8),
            &["warning slots"],
            "leave 'slots' out",
        );
    }

    #[test]
    fn g_18_an_item_that_setup_would_change_is_never_ok() {
        let breaks: [fn(&mut TableState); 5] = [
            |found| found.table = None,
            |found| found.table.as_mut().expect("a shape").index = None,
            |found| found.ttl = Some(false),
            |found| found.backups = Some(false),
            |found| found.meta = None,
        ];
        for change in breaks {
            let (found, fixes) = of(change);
            assert!(!found.is_empty() && fixes == "SETUP", "{found:?}: {fixes}");
        }
    }
}
