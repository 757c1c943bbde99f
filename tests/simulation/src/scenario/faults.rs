//! Random faults of the connections to the store and the queues.

use std::time::Duration;

use dueline_testkit::{DueFaults, QueueFaults, StoreFaults, StoreMethod, StoreRates};

use super::ScenarioRng;

pub(super) fn store_faults(rng: &ScenarioRng, is_service: bool) -> StoreFaults {
    let latency_max = rng.ms(1, 51);
    let busy_max = match is_service {
        true => rng.ms(0, 31),
        false => Duration::ZERO,
    };
    // Faults that only a service shared by many hosts has.
    let service = |max| if is_service { rng.rate(max) } else { 0 };
    let rates = |max| StoreRates {
        unavailable: rng.rate(max),
        timeout: rng.rate(max),
        throttled: rng.rate(max),
        execute_and_timeout: rng.rate(max),
        execute_twice: rng.rate(max),
        item_throttled: rng.rate(max),
        partial: service(max),
        conflict: service(1_000),
        busy_max,
        latency_max,
    };
    // Faults of writes are the critical ones, so some worlds have more of them.
    let writes = [StoreMethod::Create, StoreMethod::Apply];
    StoreFaults {
        rates: rates(30),
        by_method: writes.map(|method| (method, rates(80))).into(),
        due: DueFaults {
            moved: rng.rate(200),
            late: rng.rate(300),
            empty: service(250),
            short: service(250),
        },
    }
}

pub(super) fn queue_faults(rng: &ScenarioRng, is_service: bool) -> QueueFaults {
    QueueFaults {
        unavailable: rng.rate(50),
        execute_and_timeout: rng.rate(50),
        lose: rng.rate(150),
        double: rng.rate(200),
        delay: rng.rate(200),
        entry_failed: rng.rate(50),
        lose_received: rng.rate(80),
        reorder: rng.rate(500),
        unbounded: is_service,
        delay_max: rng.ms(100, 10_000),
        latency_max: rng.ms(1, 51),
    }
}
