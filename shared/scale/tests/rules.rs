//! Plays tasks one by one against a small table that charges by AWS's published rules, and against queues that count
//! their calls; the formulas must give the same sums.

use std::collections::BTreeMap;

use dueline_scale::{GATHER_S, HINT_SLACK_S, INLINE_BYTES_MAX, Load, look, per_task};

/// What the state of a task needs beside its payload.
const STATE_BYTES: u32 = 450;
const BACKOFF_S: f64 = 5.0;
/// The shortest time of a job by default, which is also its backoff.
const SOONEST_S: f64 = 5.0;

#[derive(Clone, Copy)]
struct Item {
    bytes: u32,
    hint_s: Option<f64>,
}

/// A table with one sparse index that projects keys only.
#[derive(Default)]
struct Table {
    items: BTreeMap<String, Item>,
    base_wru: u32,
    index_wru: u32,
    rru: f64,
}

impl Table {
    /// The larger of the old and the new item counts, by whole kilobytes; the index counts what changes in it.
    fn write(&mut self, key: &str, new: Option<Item>, times: u32) {
        let old = self.items.remove(key);
        let bytes = |item: Option<Item>| item.map_or(0, |item| item.bytes);
        self.base_wru += times * bytes(old).max(bytes(new)).div_ceil(1_024);
        let hint = |item: Option<Item>| item.and_then(|item| item.hint_s);
        self.index_wru += match (hint(old), hint(new)) {
            (None, None) => 0,
            (Some(old), Some(new)) if old == new => 0,
            (Some(_), Some(_)) => 2,
            _ => 1,
        };
        if let Some(new) = new {
            self.items.insert(key.to_owned(), new);
        }
    }

    fn read(&mut self, key: &str, unit: f64) {
        self.rru += unit * f64::from(self.items[key].bytes.div_ceil(4_096));
    }
}

/// One task through all of its steps.
struct Walk<'a> {
    table: &'a mut Table,
    load: &'a Load,
    key: String,
    item: Item,
    now_s: f64,
}

impl Walk<'_> {
    fn part(&self) -> Option<String> {
        (self.load.payload_bytes > INLINE_BYTES_MAX).then(|| format!("{}#part", self.key))
    }

    fn put(&mut self) {
        self.table.write(&self.key, Some(self.item), 1);
    }

    /// The entry moves to `fresh_s` only when the new trigger is before it, or too far ahead of it.
    fn put_with_trigger(&mut self, trigger_s: f64, fresh_s: f64) {
        let hint_s = self.item.hint_s.expect("not finished");
        if trigger_s < hint_s || trigger_s - hint_s > HINT_SLACK_S {
            self.item.hint_s = Some(trigger_s.min(fresh_s));
        }
        self.put();
    }

    fn create(&mut self, scheduled: bool, keyed: bool) {
        let in_s = if scheduled {
            3_600.0
        } else {
            self.load.heartbeat_timeout_s.min(SOONEST_S)
        };
        self.item.hint_s = Some(self.now_s + in_s);
        if let Some(part) = self.part() {
            let bytes = self.load.payload_bytes;
            let item = Item {
                bytes,
                hint_s: None,
            };
            self.table.write(&part, Some(item), 1);
        } else {
            self.item.bytes += self.load.payload_bytes;
        }
        let times = if keyed { 2 } else { 1 };
        self.table.write(&self.key, Some(self.item), times);
        if keyed {
            let item = Item {
                bytes: 100,
                hint_s: None,
            };
            self.table
                .write(&format!("{}#key", self.key), Some(item), 2);
        }
        if scheduled {
            self.now_s += in_s;
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        self.table.read(&self.key, 0.5);
        // The write that marks the task as handed on never moves its entry.
        self.put();
    }

    fn run(&mut self) {
        let timeout_s = self.load.heartbeat_timeout_s;
        // A claim comes a moment after the hand-on.
        self.now_s += 0.02;
        self.table.read(&self.key, 0.5);
        if let Some(part) = self.part() {
            self.table.read(&part, 0.5);
        }
        let started_s = self.now_s;
        let mut lease_s = self.now_s + timeout_s;
        self.put_with_trigger(lease_s, self.now_s + SOONEST_S);
        // Executors tell four times a timeout that they are alive; it is written when half of the lease is gone.
        for beat in 1.. {
            self.now_s = started_s + f64::from(beat) * timeout_s / 4.0;
            if self.now_s >= started_s + self.load.run_s {
                break;
            }
            if lease_s - self.now_s <= timeout_s / 2.0 + 1e-9 {
                lease_s = self.now_s + timeout_s;
                self.put_with_trigger(lease_s, self.now_s + SOONEST_S);
            }
        }
        self.now_s = started_s + self.load.run_s;
    }

    fn fail(&mut self) {
        self.now_s += BACKOFF_S;
        self.put_with_trigger(self.now_s, self.now_s);
        self.hand_on();
    }

    fn finish(&mut self) {
        self.item.hint_s = None;
        self.put();
        if let Some(part) = self.part() {
            self.table.write(&part, None, 1);
        }
    }
}

/// Plays `tasks` tasks; each share of the load picks every so-manieth one.
fn play(load: &Load, tasks: u32) -> Table {
    let mut table = Table::default();
    for n in 0..tasks {
        let chosen = |share: f64| f64::from(n % 100) < share * 100.0;
        let bytes = STATE_BYTES;
        let mut walk = Walk {
            table: &mut table,
            load,
            key: n.to_string(),
            item: Item {
                bytes,
                hint_s: None,
            },
            now_s: 0.0,
        };
        walk.create(chosen(load.scheduled), chosen(load.keyed));
        walk.run();
        for _ in 0..load.retries as u32 {
            walk.fail();
            walk.run();
        }
        walk.finish();
    }
    table
}

fn assert_same(load: &Load) {
    const TASKS: u32 = 100;
    let table = play(load, TASKS);
    let task = per_task(load);
    let model = [task.base_wru, task.index_wru, task.rru].map(|units| units * f64::from(TASKS));
    let played = [
        f64::from(table.base_wru),
        f64::from(table.index_wru),
        table.rru,
    ];
    for (model, played) in model.into_iter().zip(played) {
        assert!(
            (model - played).abs() < 1e-6,
            "{load:?}: model {model}, played {played}"
        );
    }
}

#[test]
fn units_of_a_task_are_what_aws_would_charge_for_its_steps() {
    let load = Load::default();
    for run_s in [0.0, 1.0, 4.0, 4.5, 30.0, 131.0, 600.0, 3_600.0] {
        for heartbeat_timeout_s in [8.0, 30.0, 120.0, 300.0] {
            for payload_bytes in [0, 512, 513, 5_000, 50_000] {
                for scheduled in [0.0, 0.5, 1.0] {
                    assert_same(&Load {
                        run_s,
                        heartbeat_timeout_s,
                        payload_bytes,
                        scheduled,
                        ..load.clone()
                    });
                }
            }
        }
    }
}

#[test]
fn a_retry_and_a_key_cost_three_units_each() {
    let load = Load::default();
    for (retries, keyed, base) in [
        (0.0, 0.0, 3.0),
        (1.0, 0.0, 6.0),
        (3.0, 0.0, 12.0),
        (0.0, 1.0, 6.0),
    ] {
        let load = Load {
            retries,
            keyed,
            ..load.clone()
        };
        assert_eq!(per_task(&load).base_wru, base);
        assert_same(&load);
    }
}

#[test]
fn a_task_for_now_costs_five_units_and_one_with_a_date_six() {
    let now = Load::default();
    assert_eq!(per_task(&now).wru(), 5.0);
    let dated = Load {
        scheduled: 1.0,
        ..now
    };
    assert_eq!(per_task(&dated).wru(), 6.0);
}

/// A batch is open from its first message on, for `gather_s`, or until it is full.
fn batches(times_s: &[f64], gather_s: f64) -> u32 {
    let (mut calls, mut open_s, mut full) = (0, f64::NEG_INFINITY, 0);
    for &at_s in times_s {
        if at_s > open_s + gather_s || full == 10 {
            (calls, open_s, full) = (calls + 1, at_s, 0);
        }
        full += 1;
    }
    calls
}

/// Arrivals that know nothing of each other, the same in each run of the test.
fn at_random(rate: f64) -> Vec<f64> {
    let (mut seed, mut at_s) = (1_u64, 0.0);
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let fraction = ((seed >> 40) as f64 + 1.0) / f64::from(1 << 24);
        at_s -= fraction.ln() / rate;
        at_s
    };
    (0..4_000).map(|_| next()).collect()
}

#[test]
fn requests_to_the_queue_are_what_batches_of_ten_make_of_a_stream() {
    for rate in [0.5, 5.0, 20.0, 60.0, 200.0, 400.0, 2_000.0] {
        let times = at_random(rate);
        // Send, receive and delete of tasks that run at once.
        let played = 3.0 * f64::from(batches(&times, GATHER_S)) / 4_000.0;
        let load = Load {
            tasks_per_s: rate,
            jobs: 1,
            ..Load::default()
        };
        let model = per_task(&load).sqs_requests;
        assert!(
            (model - played).abs() / played < 0.12,
            "{rate}/s: model {model}, played {played}"
        );
    }
}

#[test]
fn what_became_due_between_two_looks_leaves_in_full_batches() {
    for (rate, calls) in [
        (0.2_f64, 1.0),
        (7.0, 1.0),
        (10.0, 1.0),
        (25.0, 3.0),
        (200.0, 20.0),
    ] {
        let at = |scheduled| {
            let load = Load {
                tasks_per_s: rate,
                jobs: 1,
                scheduled,
                ..Load::default()
            };
            per_task(&load).sqs_requests
        };
        let receives_and_deletes = 2.0 * at(0.0) / 3.0;
        let sends = at(1.0) - receives_and_deletes;
        let expected = calls / rate.max(1.0);
        assert!(
            (sends - expected).abs() < 1e-9,
            "{rate}/s: {sends} instead of {expected}"
        );
    }
}

#[test]
fn a_look_reads_the_entries_of_running_tasks_again_and_again() {
    let load = Load {
        tasks_per_s: 30.0,
        jobs: 1,
        run_s: 60.0,
        ..Load::default()
    };
    let at_s = 1_000.0;
    // Every task that was created, has not ended, and whose entry lies in the past.
    let seen = (0..100_000)
        .map(|n: u32| f64::from(n) / load.tasks_per_s)
        .filter(|created_s| created_s + load.run_s > at_s && created_s + SOONEST_S <= at_s)
        .count();
    let units = 0.5 * (seen as f64 * 110.0 / 4_096.0).ceil();
    assert_eq!(look(&load, 1).rru, units);
    let idle = Load {
        tasks_per_s: 0.0,
        idle_jobs: 10,
        ..load
    };
    assert_eq!(look(&idle, 1).rru, 0.5 + 10.0 * 0.25);
}
