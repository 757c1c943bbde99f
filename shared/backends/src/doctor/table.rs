//! A DynamoDB table. What it should be is decided by the plan of setup, so that the two cannot disagree.

use std::sync::Arc;

use aws_sdk_dynamodb::{Client, config::Builder};
use dueline_aws::{Class, Failure, Meter, Service, SetupError, connect};
use dueline_store_dynamodb::{
    DynamoOptions, DynamoStore, OpenError, schema,
    setup::{self, Found, Shape, Site, Step, Wanted},
};

use super::{
    Finding, Look, Reach, StoreReport,
    permissions::{self, Needed},
    watch::Watch,
};

const AREA: &str = "table";

pub(super) async fn look_at(options: &DynamoOptions, look: &Look) -> StoreReport {
    let table = options.table.as_str();
    let config = match connect(Service::DynamoDb, &options.aws).await {
        Ok(config) => config,
        Err(error) => {
            return StoreReport::new(Reach::NotTried, vec![no_client(AREA, table, &error)]);
        }
    };
    let watch = Watch::new(look.clock.clone());
    let settings = Builder::from(&config).interceptor(watch.clone()).build();
    let site = Site {
        client: Client::from_conf(settings),
        place: dueline_aws::place(&config),
    };
    let client = &site.client;
    let described = Box::pin(client.describe_table().table_name(table).send()).await;
    let described = permissions::tried(described);
    if let Err(failure) = &described
        && !watch.is_answered()
    {
        let finding = unreachable(AREA, table, &watch.address(), failure);
        return StoreReport::new(Reach::No, vec![finding]);
    }
    let mut report = StoreReport::new(Reach::Yes, Vec::new());
    Box::pin(examine(&mut report, &site, options, look, described)).await;
    report.clock = watch.reading("DynamoDB");
    report
}

async fn examine(
    report: &mut StoreReport,
    site: &Site,
    options: &DynamoOptions,
    look: &Look,
    described: Result<(), Failure>,
) {
    let (client, table) = (&site.client, options.table.as_str());
    // That there is no table was answered to somebody who may ask.
    let may = described
        .as_ref()
        .map(drop)
        .or_else(|failure| match failure.class {
            Class::Missing => Ok(()),
            _ => Err(failure),
        });
    let may = permissions::judge("dynamodb:DescribeTable", Needed::ByServices, may);
    let findings = &mut report.findings;
    let mut allowed = vec![may];
    match site.inspect(table).await {
        Ok(found) => {
            findings.extend(judge(options, &found, &look.setup));
            let shape = found.table.as_ref();
            if shape.is_some_and(|shape| shape.has_our_key() && shape.is_active()) {
                allowed.extend(permissions::of_items(client, table).await);
                allowed.extend(permissions::of_settings(client, table).await);
            }
        }
        Err(error) => {
            let detail = format!("cannot be looked at: {error}");
            findings.push(match error {
                // The permissions name what is denied.
                OpenError::Denied { .. } => Finding::unknown(AREA, table, detail),
                _ => Finding::defect(
                    AREA,
                    table,
                    detail,
                    "set right what it complains of, then look again",
                ),
            });
            // With the table unknown this finds out what else is denied.
            if described.is_ok() {
                allowed.extend(permissions::of_items(client, table).await);
            }
        }
    }
    findings.extend(allowed);
    let opened = DynamoStore::open_at(site.clone(), options.clone(), Meter::default());
    if let Ok(store) = Box::pin(opened).await {
        report.store = Some(Arc::new(store));
    }
}

/// The findings about a table, from the very steps that setup would take.
fn judge(options: &DynamoOptions, found: &Found, setup: &str) -> Vec<Finding> {
    let wanted = Wanted {
        table: options.table.clone(),
        slots: options.slots,
        backups: true,
    };
    let steps = setup::plan(found, &wanted);
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
    if let Some(Step::Foreign(why)) = steps.iter().find(|step| matches!(step, Step::Foreign(_))) {
        findings.push(Finding::defect(
            AREA,
            table,
            why,
            mend_foreign(shape, found),
        ));
        return findings;
    }
    findings.push(
        if steps.contains(&Step::Wait) && !steps.contains(&Step::AddIndex) {
            let status = shape.status.to_lowercase();
            let detail =
                format!("not ready: the table is {status}, or its index is still being made");
            Finding::defect(
                AREA,
                table,
                detail,
                "wait until AWS has finished, then look again",
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
        None => Finding::defect(AREA, index_name(), Step::AddIndex.to_string(), setup),
    });
    findings.push(switch(
        "expiry",
        found.ttl,
        &Step::EnableExpiry,
        &steps,
        setup,
    ));
    findings.push(match switch("backups", found.backups, &Step::EnableBackups, &steps, setup) {
        // Tasks run without it. Whoever turned it off may have meant it.
        finding if steps.contains(&Step::EnableBackups) => {
            let detail = "point-in-time recovery is off: a table that is lost or spoiled cannot be put back";
            Finding::warning(AREA, finding.name, detail, setup)
        }
        finding => finding,
    });
    findings.push(
        match (
            &found.meta,
            steps
                .iter()
                .find(|step| matches!(step, Step::WriteMeta { .. })),
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

fn switch(name: &str, is_on: Option<bool>, step: &Step, steps: &[Step], setup: &str) -> Finding {
    match is_on {
        _ if steps.contains(step) => Finding::defect(AREA, name, format!("off; {step}"), setup),
        Some(_) => Finding::ok(AREA, name, "on"),
        None => Finding::unknown(
            AREA,
            name,
            "the service does not tell, or does not allow to ask",
        ),
    }
}

/// What differs and is left as it is.
fn drift(step: &Step) -> Option<Finding> {
    let Step::Drift(what) = step else {
        return None;
    };
    let (name, mend) = if what.contains("index") {
        let mend = "live with the cost, or delete the index while nothing runs and let 'dueline setup' make it anew";
        (index_name(), mend)
    } else if what.contains("slots") {
        (
            "slots".to_owned(),
            "leave 'slots' out of the URI, or say what the table has",
        )
    } else {
        let mend =
            "set the table to pay by request (PAY_PER_REQUEST), or see that its capacity is enough";
        ("billing".to_owned(), mend)
    };
    Some(Finding::warning(AREA, name, what, mend))
}

fn mend_foreign(shape: &Shape, found: &Found) -> String {
    let meta = found.meta.as_ref();
    if meta.is_some_and(|meta| meta.app == schema::APP && meta.version > i64::from(schema::VERSION))
    {
        "use a newer dueline: the one that wrote it, or later".into()
    } else if shape.status == "DELETING" {
        "wait until it is gone, then set it up again".into()
    } else if shape.has_our_key() && meta.is_none_or(|meta| meta.app == schema::APP) {
        let index = schema::DUE_INDEX;
        format!(
            "delete the index '{index}' while nothing runs; 'dueline setup' makes the right one"
        )
    } else {
        "name another table by --store; this one belongs to something else".into()
    }
}

/// A client cannot even be made.
pub(super) fn no_client(area: &'static str, name: &str, error: &SetupError) -> Finding {
    let mend = match error {
        SetupError::NoRegion(_) => "set AWS_REGION, or add ?region=REGION to the URI",
        SetupError::NoCredentials { .. } => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile by ?profile=NAME, or give the host a role"
        }
        SetupError::Endpoint(_) => "write endpoint=http://HOST:PORT or endpoint=https://HOST",
    };
    Finding::defect(area, name, error.to_string(), mend)
}

/// Nobody answers.
pub(super) fn unreachable(area: &'static str, name: &str, at: &str, failure: &Failure) -> Finding {
    let detail = format!("nobody answers at {at}: {}", failure.message);
    let mend = "see that endpoint and region are right and that the network lets this machine through; nothing else was \
                looked at here";
    Finding::defect(area, name, detail, mend)
}

#[cfg(test)]
mod tests {
    use dueline_store_dynamodb::setup::{Index, Meta};

    use super::{super::State, *};

    fn healthy() -> Found {
        Found {
            table: Some(Shape {
                status: "ACTIVE".into(),
                key: "pk (S), sk (B)".into(),
                index: Some(Index {
                    status: "ACTIVE".into(),
                    key: "d (S), h (N)".into(),
                    projection: "KEYS_ONLY".into(),
                }),
                on_demand: true,
                ..Shape::default()
            }),
            ttl: Some(true),
            backups: Some(true),
            meta: Some(Meta {
                app: schema::APP.into(),
                version: schema::VERSION.into(),
                slots: 16,
            }),
        }
    }

    /// The findings that are not ok, as `state name`, and all their mends.
    fn of(change: impl FnOnce(&mut Found)) -> (Vec<String>, String) {
        let mut found = healthy();
        change(&mut found);
        let mut findings = judge(&DynamoOptions::of("t"), &found, "SETUP");
        findings.retain(|finding| finding.state != State::Ok);
        let names = findings
            .iter()
            .map(|f| format!("{} {}", f.state.name(), f.name));
        let mends = findings.iter().filter_map(|f| f.mend.clone());
        (names.collect(), mends.collect::<Vec<_>>().join("\n"))
    }

    fn shape(change: impl FnOnce(&mut Shape)) -> impl FnOnce(&mut Found) {
        |found| change(found.table.as_mut().expect("a shape"))
    }

    #[track_caller]
    fn is(change: impl FnOnce(&mut Found), names: &[&str], mend: &str) {
        let (found, mends) = of(change);
        assert_eq!(found, names);
        assert!(mends.contains(mend), "'{mend}' is not in: {mends}");
    }

    #[test]
    fn g_18_a_table_as_it_should_be_has_nothing_but_ok() {
        is(|_| (), &[], "");
    }

    #[test]
    fn g_18_each_defect_of_a_table_is_named_with_its_mend() {
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
            "wait until it is gone",
        );
        let index =
            |change: fn(&mut Index)| shape(move |s| change(s.index.as_mut().expect("an index")));
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
            "live with the cost",
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
        let meta = |change: fn(&mut Meta)| {
            move |found: &mut Found| change(found.meta.as_mut().expect("a meta item"))
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
    fn g_18_what_setup_would_change_is_never_ok() {
        let breaks: [fn(&mut Found); 5] = [
            |found| found.table = None,
            |found| found.table.as_mut().expect("a shape").index = None,
            |found| found.ttl = Some(false),
            |found| found.backups = Some(false),
            |found| found.meta = None,
        ];
        for change in breaks {
            let (found, mends) = of(change);
            assert!(!found.is_empty() && mends == "SETUP", "{found:?}: {mends}");
        }
    }
}
