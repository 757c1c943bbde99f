//! Simulates tasks one by one against a small table that charges by AWS's published rules, and against queues that
//! count their calls. The formulas must give the same sums.

use std::collections::BTreeMap;

use dueline_scale::{BATCH_WINDOW_S, HINT_SLACK_S, INLINE_BYTES_MAX, Load, per_task, scan_cost};

/// Size of a task's item without its payload.
const STATE_BYTES: u32 = 450;
const BACKOFF_S: f64 = 5.0;
/// How far ahead a new index hint lies: the shortest timeout of the default policy, which is also its backoff.
const HINT_LEAD_S: f64 = 5.0;

#[derive(Clone, Copy)]
struct ChargedItem {
    bytes: u32,
    hint_s: Option<f64>,
}

/// A table with one sparse index that projects keys only.
#[derive(Default)]
struct ChargedTable {
    items: BTreeMap<String, ChargedItem>,
    base_wru: u32,
    index_wru: u32,
    rru: f64,
}

impl ChargedTable {
    /// Charges the larger of the old and the new item, by whole kibibytes, and the change of the index entry.
    fn write(&mut self, key: &str, new: Option<ChargedItem>, times: u32) {
        let old = self.items.remove(key);
        let bytes = |item: Option<ChargedItem>| item.map_or(0, |item| item.bytes);
        self.base_wru += times * bytes(old).max(bytes(new)).div_ceil(1_024);
        let hint = |item: Option<ChargedItem>| item.and_then(|item| item.hint_s);
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
struct SimulatedTask<'a> {
    table: &'a mut ChargedTable,
    load: &'a Load,
    key: String,
    item: ChargedItem,
    now_s: f64,
}

impl SimulatedTask<'_> {
    fn blob(&self) -> Option<String> {
        (self.load.payload_bytes > INLINE_BYTES_MAX).then(|| format!("{}#blob", self.key))
    }

    fn put(&mut self) {
        self.table.write(&self.key, Some(self.item), 1);
    }

    /// Writes the task. The hint moves to `new_hint_s` only when the new trigger time is before the hint, or later than
    /// the hint by more than the slack.
    fn put_with_trigger(&mut self, trigger_s: f64, new_hint_s: f64) {
        let hint_s = self.item.hint_s.expect("not finished");
        if trigger_s < hint_s || trigger_s - hint_s > HINT_SLACK_S {
            self.item.hint_s = Some(trigger_s.min(new_hint_s));
        }
        self.put();
    }

    fn create(&mut self, scheduled: bool, keyed: bool) {
        let in_s = if scheduled {
            3_600.0
        } else {
            self.load.heartbeat_timeout_s.min(HINT_LEAD_S)
        };
        self.item.hint_s = Some(self.now_s + in_s);
        if let Some(blob) = self.blob() {
            let bytes = self.load.payload_bytes;
            let item = ChargedItem {
                bytes,
                hint_s: None,
            };
            self.table.write(&blob, Some(item), 1);
        } else {
            self.item.bytes += self.load.payload_bytes;
        }
        let times = if keyed { 2 } else { 1 };
        self.table.write(&self.key, Some(self.item), times);
        if keyed {
            let item = ChargedItem {
                bytes: 100,
                hint_s: None,
            };
            self.table
                .write(&format!("{}#key", self.key), Some(item), 2);
        }
        if scheduled {
            self.now_s += in_s;
            self.enqueue();
        }
    }

    fn enqueue(&mut self) {
        self.table.read(&self.key, 0.5);
        // The write that marks the task as enqueued never moves its hint.
        self.put();
    }

    fn run(&mut self) {
        let timeout_s = self.load.heartbeat_timeout_s;
        // The claim follows shortly after the enqueue.
        self.now_s += 0.02;
        self.table.read(&self.key, 0.5);
        if let Some(blob) = self.blob() {
            self.table.read(&blob, 0.5);
        }
        let started_s = self.now_s;
        let mut lease_s = self.now_s + timeout_s;
        self.put_with_trigger(lease_s, self.now_s + HINT_LEAD_S);
        // Executors send four heartbeats per timeout; the lease is written when half of it has passed.
        for beat in 1.. {
            self.now_s = started_s + f64::from(beat) * timeout_s / 4.0;
            if self.now_s >= started_s + self.load.run_s {
                break;
            }
            if lease_s - self.now_s <= timeout_s / 2.0 + 1e-9 {
                lease_s = self.now_s + timeout_s;
                self.put_with_trigger(lease_s, self.now_s + HINT_LEAD_S);
            }
        }
        self.now_s = started_s + self.load.run_s;
    }

    fn fail(&mut self) {
        self.now_s += BACKOFF_S;
        self.put_with_trigger(self.now_s, self.now_s);
        self.enqueue();
    }

    fn finish(&mut self) {
        self.item.hint_s = None;
        self.put();
        if let Some(blob) = self.blob() {
            self.table.write(&blob, None, 1);
        }
    }
}

/// Simulates `tasks` tasks; each share of the load applies to that many of every hundred.
fn simulate(load: &Load, tasks: u32) -> ChargedTable {
    let mut table = ChargedTable::default();
    for n in 0..tasks {
        let chosen = |share: f64| f64::from(n % 100) < share * 100.0;
        let bytes = STATE_BYTES;
        let mut task = SimulatedTask {
            table: &mut table,
            load,
            key: n.to_string(),
            item: ChargedItem {
                bytes,
                hint_s: None,
            },
            now_s: 0.0,
        };
        task.create(chosen(load.scheduled), chosen(load.keyed));
        task.run();
        for _ in 0..load.retries as u32 {
            task.fail();
            task.run();
        }
        task.finish();
    }
    table
}

fn assert_same(load: &Load) {
    const TASKS: u32 = 100;
    let table = simulate(load, TASKS);
    let task = per_task(load);
    let model = [task.base_wru, task.index_wru, task.rru].map(|units| units * f64::from(TASKS));
    let simulated = [
        f64::from(table.base_wru),
        f64::from(table.index_wru),
        table.rru,
    ];
    for (model, simulated) in model.into_iter().zip(simulated) {
        assert!(
            (model - simulated).abs() < 1e-6,
            "{load:?}: model {model}, simulated {simulated}"
        );
    }
}

#[test]
fn units_of_a_task_are_those_that_aws_charges_for_its_steps() {
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
fn a_task_that_runs_at_once_costs_five_units_and_a_scheduled_one_six() {
    let now = Load::default();
    assert_eq!(per_task(&now).wru(), 5.0);
    let scheduled = Load {
        scheduled: 1.0,
        ..now
    };
    assert_eq!(per_task(&scheduled).wru(), 6.0);
}

/// Number of batches for messages that arrive at `times_s`. A batch is open from its first message on, for `window_s`,
/// or until it is full.
fn batches(times_s: &[f64], window_s: f64) -> u32 {
    let (mut calls, mut open_s, mut full) = (0, f64::NEG_INFINITY, 0);
    for &at_s in times_s {
        if at_s > open_s + window_s || full == 10 {
            (calls, open_s, full) = (calls + 1, at_s, 0);
        }
        full += 1;
    }
    calls
}

/// Times of independent arrivals at `rate` a second, the same in each run of the test.
fn random_arrivals(rate: f64) -> Vec<f64> {
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
fn queue_requests_of_the_model_are_those_of_simulated_batches_of_ten() {
    for rate in [0.5, 5.0, 20.0, 60.0, 200.0, 400.0, 2_000.0] {
        let times = random_arrivals(rate);
        // Send, receive and delete of tasks that run at once.
        let simulated = 3.0 * f64::from(batches(&times, BATCH_WINDOW_S)) / 4_000.0;
        let load = Load {
            tasks_per_s: rate,
            jobs: 1,
            ..Load::default()
        };
        let model = per_task(&load).sqs_requests;
        assert!(
            (model - simulated).abs() / simulated < 0.12,
            "{rate}/s: model {model}, simulated {simulated}"
        );
    }
}

#[test]
fn tasks_that_became_due_between_two_scans_are_sent_in_full_batches() {
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
fn each_scan_reads_the_entries_of_running_tasks_again() {
    let load = Load {
        tasks_per_s: 30.0,
        jobs: 1,
        run_s: 60.0,
        ..Load::default()
    };
    let at_s = 1_000.0;
    // All tasks that were created, have not ended, and whose hint has passed.
    let entries = (0..100_000)
        .map(|n: u32| f64::from(n) / load.tasks_per_s)
        .filter(|created_s| created_s + load.run_s > at_s && created_s + HINT_LEAD_S <= at_s)
        .count();
    let units = 0.5 * (entries as f64 * 110.0 / 4_096.0).ceil();
    assert_eq!(scan_cost(&load, 1).rru, units);
    let idle = Load {
        tasks_per_s: 0.0,
        idle_jobs: 10,
        ..load
    };
    assert_eq!(scan_cost(&idle, 1).rru, 0.5 + 10.0 * 0.25);
}
