//! Task ids in ascending order.

use std::sync::{Mutex, PoisonError};

use dueline_domain::{TaskId, Timestamp};

/// Number of random bits in an id. The highest one starts as zero, to leave room for increments.
const RANDOM_BITS: u32 = 74;

/// A source of task ids, each greater than the one before, even if the clock steps back. A store that lists tasks by
/// id thus lists them in submit order, also within a millisecond and within a batch.
#[derive(Debug, Default)]
pub struct TaskIds(Mutex<(i64, u128)>);

impl TaskIds {
    /// A new source.
    pub const fn new() -> Self {
        Self(Mutex::new((i64::MIN, 0)))
    }

    /// The next id. `random` makes the ids of different sources differ: within a millisecond, each id is a random step
    /// of up to 2^32 above the one before.
    pub fn next(&self, now: Timestamp, random: u128) -> TaskId {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (millis, bits) = &mut *last;
        if now.millis() > *millis {
            (*millis, *bits) = (now.millis(), random & ((1 << (RANDOM_BITS - 1)) - 1));
        } else {
            *bits += 1 + (random & 0xffff_ffff);
            if *bits >> RANDOM_BITS != 0 {
                (*millis, *bits) = (*millis + 1, random & ((1 << (RANDOM_BITS - 1)) - 1));
            }
        }
        TaskId::from_time(*millis, spread(*bits))
    }
}

/// Moves the bits to their positions in an id: twelve beside the version, the rest beside the variant.
fn spread(bits: u128) -> [u8; 10] {
    let high = ((bits >> 62) & 0xfff) << 64;
    let low = bits & ((1 << 62) - 1);
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&(high | low).to_be_bytes()[6..]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ascend_even_while_the_clock_stands_still_or_steps_back() {
        let ids = TaskIds::new();
        let mut last = ids.next(Timestamp::clamped(5_000), u128::MAX);
        for n in 0..10_000_u32 {
            let now = Timestamp::clamped(5_000 - i64::from(n % 7) + i64::from(n / 500));
            let random = u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            let id = ids.next(now, random);
            assert!(id.as_bytes() > last.as_bytes(), "{last} then {id}");
            last = id;
        }
    }

    #[test]
    fn an_id_contains_its_time_and_its_uuid_version() {
        let id = TaskIds::new().next(Timestamp::clamped(1_700_000_000_123), u128::MAX);
        assert!(id.to_string().starts_with("018bcfe5-687b-7"), "{id}");
    }
}
