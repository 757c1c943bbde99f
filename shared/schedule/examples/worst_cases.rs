//! Measures the slowest rules that are known: `cargo run --release -p dueline-schedule --example worst_cases`.

#![expect(
    clippy::disallowed_methods,
    reason = "it measures this machine, so the real clock is its subject"
)]

use std::time::{Duration, Instant};

use dueline_domain::{CatchUp, CatchUpPolicy, RuleSpec, Timestamp};
use dueline_schedule::{DueFirings, Rule};

/// What is measured, the expression, and its zone.
const RULES: [(&str, &str, &str); 8] = [
    (
        "never matches a day",
        "* * * 31 4,6,9,11 *",
        "Europe/Berlin",
    ),
    ("every second", "* * * * * *", "Africa/Casablanca"),
    ("an interval of a second", "@every 1s", "UTC"),
    (
        "up to 40 years apart",
        "59 59 23 29 2 +MON",
        "America/New_York",
    ),
    ("only in a gap", "*/30 2 * 3 SUN#L", "Europe/Berlin"),
    (
        "only in a gap of half an hour",
        "* 0-29 2 1-7 10 +SUN",
        "Australia/Lord_Howe",
    ),
    (
        "many items",
        "0-58/2,1-59/2 0-59 0-23 1-31,L,1W,31W 1-12 0-7,MON#1",
        "Atlantic/Azores",
    ),
    ("once a year", "0 0 0 1 1 *", "Africa/Casablanca"),
];

fn main() {
    println!(
        "{:32} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "", "parse", "next", "count", "last", "due"
    );
    let at = Timestamp::clamped;
    // 2026, and the year 2100.
    let (now, late) = (at(1_790_000_000_000), at(4_102_444_800_000));
    let all = CatchUpPolicy::new(CatchUp::All { max: 1_000 }, Duration::from_secs(3_600));
    let all = all.expect("the greatest values");
    for (what, timing, zone) in RULES {
        let spec = RuleSpec {
            timing: timing.to_owned(),
            zone: Some(zone.to_owned()),
            ..RuleSpec::default()
        };
        let (rule, parse) = median(|| Rule::parse(&spec));
        let Ok(rule) = rule else {
            println!("{what:32} {parse:>10.1?}");
            continue;
        };
        let (_, next) = median(|| rule.next_after(now));
        let (_, count) = median(|| rule.count(Timestamp::EPOCH, late));
        let (_, last) = median(|| rule.from_last(u64::MAX, Timestamp::EPOCH, late));
        let (_, due) = median(|| DueFirings::decide(all, &rule, Timestamp::EPOCH, late, None));
        println!(
            "{what:32} {parse:>10.1?} {next:>10.1?} {count:>10.1?} {last:>10.1?} {due:>10.1?}"
        );
    }
}

/// The median of some calls; the machine may do other work too.
fn median<T>(call: impl Fn() -> T) -> (T, Duration) {
    let mut times: Vec<_> = (0..9)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(call());
            start.elapsed()
        })
        .collect();
    times.sort();
    (call(), times[times.len() / 2])
}
