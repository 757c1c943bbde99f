//! Prints the worked loads of docs/scale.md.

use dueline_scale::{Load, Prices, Quotas, cells, plan};

/// One million tasks a day, a hundred million, and ten thousand a second.
pub(crate) fn loads() -> [Load; 3] {
    let half = Load {
        scheduled: 0.5,
        ..Load::default()
    };
    [
        Load {
            tasks_per_s: 11.6,
            peak: 5.0,
            ..half.clone()
        },
        Load {
            tasks_per_s: 1_157.0,
            peak: 3.0,
            jobs: 100,
            ..half.clone()
        },
        Load {
            tasks_per_s: 10_000.0,
            jobs: 100,
            slots: 64,
            busiest_job: Some(0.2),
            ..half
        },
    ]
}

/// The plan of one load.
pub(crate) fn text(load: &Load) -> String {
    let (prices, quotas) = (Prices::default(), Quotas::default());
    format!("{}\n{}", plan(load, &prices, &quotas), cells(load, &quotas))
}

fn main() {
    for load in loads() {
        println!("{}", text(&load));
    }
}
