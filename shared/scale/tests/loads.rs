//! The plans of common loads, and the check of invalid ones.

use dueline_scale::{DESIGNS, Load, Plan, Prices, Quotas, cell_of, cells, idle_job_usd, plan};

#[path = "../examples/loads.rs"]
#[expect(dead_code, reason = "its main is the example")]
mod worked;

fn planned(load: &Load) -> Plan {
    load.check().expect("a valid load");
    plan(load, &Prices::default(), &Quotas::default())
}

#[test]
fn f_128_a_million_and_a_hundred_million_a_day_and_ten_thousand_a_second_stay_within_quotas() {
    for load in worked::loads() {
        let plan = planned(&load);
        for limit in &plan.limits {
            assert!(limit.used < 1.0, "{limit:?}");
        }
        assert!(plan.slots <= load.slots, "{} slots", plan.slots);
    }
}

#[test]
fn ten_thousand_scheduled_tasks_a_second_take_the_whole_table_quota() {
    let load = Load {
        tasks_per_s: 10_000.0,
        scheduled: 1.0,
        jobs: 100,
        ..Load::default()
    };
    let plan = planned(&load);
    assert_eq!(plan.first_limit().name, "write units of the table");
    assert_eq!(plan.first_limit().at_tasks_per_s, 10_000.0);
    assert!(plan.warm_up);
}

#[test]
fn the_first_limit_is_the_one_that_is_met_first() {
    let load = Load {
        tasks_per_s: 100.0,
        jobs: 1,
        slots: 1,
        ..Load::default()
    };
    let plan = planned(&load);
    assert_eq!(plan.first_limit().name, "slots of the busiest job");
    let met = planned(&load.at(plan.first_limit().at_tasks_per_s));
    assert!((met.first_limit().used - 1.0).abs() < 1e-9);
    assert!(
        plan.limits
            .is_sorted_by(|a, b| a.at_tasks_per_s <= b.at_tasks_per_s)
    );
}

#[test]
fn too_few_shards_are_the_first_limit() {
    let load = Load {
        tasks_per_s: 2_000.0,
        jobs: 1,
        slots: 64,
        shards: Some(1),
        ..Load::default()
    };
    let plan = planned(&load);
    assert_eq!(plan.first_limit().name, "due shards of the busiest job");
    assert_eq!(plan.first_limit().at_tasks_per_s, 500.0);
    assert_eq!(plan.shards, 8, "twice 4 000 units by 1 000 each");
}

#[test]
fn an_idle_job_costs_less_than_a_fifth_of_a_dollar_a_month() {
    let cost = idle_job_usd(2, &Prices::default());
    assert!((0.15..0.20).contains(&cost), "{cost}");
}

#[test]
fn an_idle_fleet_has_a_bill_but_no_price_per_task() {
    let plan = planned(&Load {
        tasks_per_s: 0.0,
        ..Load::default()
    });
    assert_eq!(plan.million_tasks_usd, None);
    assert!(plan.month_usd.total > 0.0);
    assert!(plan.to_string().contains("a job without tasks"));
}

#[test]
fn a_task_costs_less_than_with_any_design_that_has_an_index_on_its_state() {
    let plan = planned(&Load {
        tasks_per_s: 10_000.0,
        jobs: 20,
        scheduled: 1.0,
        ..Load::default()
    });
    let own_cost = plan.million_tasks_usd.expect("tasks")
        - plan.month_usd.storage / plan.load.tasks_per_s / 2.628;
    let designs: Vec<f64> = DESIGNS
        .iter()
        .map(|design| (design.million_tasks_usd(&Prices::default()) * 100.0).round() / 100.0)
        .collect();
    assert_eq!(designs, [21.39, 17.64, 11.39, 5.13, 3.26, 2.06]);
    assert!(own_cost < designs[3], "{own_cost}");
}

#[test]
fn beyond_one_table_the_plan_is_cells() {
    let quotas = Quotas::default();
    let load = Load {
        tasks_per_s: 100_000.0,
        jobs: 1_000,
        ..Load::default()
    };
    let plan = cells(&load, &quotas);
    assert_eq!(plan.cells, 11, "100 000/s by seven tenths of 13 333/s each");
    assert!(plan.busiest_job_fits);
    let one = Load {
        busiest_job: Some(0.5),
        ..load
    };
    assert!(!cells(&one, &quotas).busiest_job_fits);
    assert_eq!(cells(&Load::default(), &quotas).cells, 1);
}

#[test]
fn jobs_spread_evenly_over_cells_and_a_new_cell_takes_only_its_share() {
    let names: Vec<String> = (0..5).map(|n| format!("cell-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (four, five) = (&names[..4], &names[..]);
    let jobs: Vec<String> = (0..4_000).map(|n| format!("job-{n}")).collect();
    for cell in four {
        let has = jobs
            .iter()
            .filter(|job| cell_of(job, four) == Some(cell))
            .count();
        assert!(
            (850..=1_150).contains(&has),
            "{cell} has {has} of 4 000 jobs"
        );
    }
    let moved: Vec<_> = jobs
        .iter()
        .filter(|job| cell_of(job, four) != cell_of(job, five))
        .collect();
    assert!((650..=950).contains(&moved.len()), "{} moved", moved.len());
    assert!(moved.iter().all(|job| cell_of(job, five) == Some("cell-4")));
    assert_eq!(cell_of("job", &[]), None);
}

#[test]
fn a_plan_can_be_written_as_json() {
    let plan = planned(&Load::default());
    let json = serde_json::to_value(&plan).expect("numbers");
    assert_eq!(json["per_task"]["base_wru"], 3.0);
    assert_eq!(json["limits"][0]["name"], plan.first_limit().name);
    let load: Load = serde_json::from_value(json["load"].clone()).expect("a load that was written");
    assert_eq!(load, plan.load);
    let prices: Prices =
        serde_json::from_str(r#"{"million_wru": 1.25}"#).expect("the rest is default");
    assert_eq!(prices.million_rru, Prices::default().million_rru);
    assert!(serde_json::from_str::<Quotas>(r#"{"tabel_wru": 1}"#).is_err());
}

#[test]
fn an_invalid_load_is_refused_and_its_field_named() {
    let load = Load::default();
    let wrong = [
        (
            Load {
                tasks_per_s: -1.0,
                ..load.clone()
            },
            "tasks_per_s",
        ),
        (
            Load {
                run_s: f64::NAN,
                ..load.clone()
            },
            "run_s",
        ),
        (
            Load {
                scheduled: 1.5,
                ..load.clone()
            },
            "scheduled",
        ),
        (
            Load {
                jobs: 0,
                ..load.clone()
            },
            "jobs",
        ),
        (
            Load {
                shards: Some(0),
                ..load.clone()
            },
            "shards",
        ),
        (
            Load {
                poll_period_s: 0.0,
                ..load.clone()
            },
            "poll_period_s",
        ),
        (
            Load {
                peak: 0.5,
                ..load.clone()
            },
            "peak",
        ),
    ];
    for (load, field) in wrong {
        assert_eq!(load.check().expect_err(field).field, field);
    }
    assert_eq!(load.check(), Ok(()));
}

#[test]
fn the_worked_loads_of_the_docs_are_what_the_model_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scale.md");
    let docs = std::fs::read_to_string(path).expect("docs/scale.md");
    for load in worked::loads() {
        let text = worked::text(&load);
        assert!(
            docs.contains(text.trim_end()),
            "docs/scale.md lacks:\n{text}"
        );
    }
}
