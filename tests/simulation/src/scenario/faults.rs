//! What the network to the store and the queues does.

use std::time::Duration;

use dueline_testkit::{DueFaults, QueueFaults, StoreFaults, StoreMethod, StoreRates};

use super::Dice;

pub(super) fn store_faults(dice: &Dice, is_service: bool) -> StoreFaults {
    let latency_max = dice.ms(1, 51);
    let busy_max = match is_service {
        true => dice.ms(0, 31),
        false => Duration::ZERO,
    };
    // What only a service that many hosts share does.
    let service = |max| if is_service { dice.rate(max) } else { 0 };
    let rates = |max| StoreRates {
        unavailable: dice.rate(max),
        timeout: dice.rate(max),
        throttled: dice.rate(max),
        execute_and_timeout: dice.rate(max),
        execute_twice: dice.rate(max),
        item_throttled: dice.rate(max),
        partial: service(max),
        conflict: service(1_000),
        busy_max,
        latency_max,
    };
    // Writes are where it hurts, so some worlds have much more of it there.
    let writes = [StoreMethod::Create, StoreMethod::Apply];
    StoreFaults {
        rates: rates(30),
        by_method: writes.map(|method| (method, rates(80))).into(),
        due: DueFaults {
            moved: dice.rate(200),
            late: dice.rate(300),
            empty: service(250),
            short: service(250),
        },
    }
}

pub(super) fn queue_faults(dice: &Dice, is_service: bool) -> QueueFaults {
    QueueFaults {
        unavailable: dice.rate(50),
        execute_and_timeout: dice.rate(50),
        lose: dice.rate(150),
        double: dice.rate(200),
        delay: dice.rate(200),
        entry_failed: dice.rate(50),
        lose_received: dice.rate(80),
        reorder: dice.rate(500),
        never_starving: is_service,
        delay_max: dice.ms(100, 10_000),
        latency_max: dice.ms(1, 51),
    }
}
