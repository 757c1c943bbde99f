//! Randomness from a seed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Rng;

/// The same numbers for the same seed. Predictable on purpose: for tests only.
#[derive(Debug)]
pub struct SeededRng(AtomicU64);

impl SeededRng {
    /// Distance between two inner states: odd, so that every state comes up once before any repeats.
    const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number below `bound`, which must not be zero. Slightly uneven, as tests may be.
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        let state = self.0.fetch_add(Self::STRIDE, Ordering::Relaxed);
        let mut z = state.wrapping_add(Self::STRIDE);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
