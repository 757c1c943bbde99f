//! Random numbers from a seed.

use std::sync::atomic::{AtomicU64, Ordering};

use dueline_domain::hash::mix64;

use crate::Rng;

/// SplitMix64: the same numbers for the same seed. Predictable on purpose, so for tests only.
#[derive(Debug)]
pub struct SeededRng(AtomicU64);

impl SeededRng {
    /// Distance between two states. It is odd, so that all states occur before the first one repeats.
    const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

    /// A source that starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number below `bound`, which must not be zero. The distribution is slightly uneven, which tests tolerate.
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        let state = self.0.fetch_add(Self::STRIDE, Ordering::Relaxed);
        mix64(state.wrapping_add(Self::STRIDE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let draw = |seed| {
            let rng = SeededRng::new(seed);
            (0..4).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
