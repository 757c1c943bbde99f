//! A fast hasher for keys that are random or chosen by this process.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

/// Folds the key by multiplication. Fit for fencing tokens, which no client can choose, and for counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FoldHasher(u64);

/// Bits of the golden ratio: odd, and no pattern in it.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl FoldHasher {
    fn fold(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }

    fn finish(&self) -> u64 {
        // The product's low bits are weak, and the tables use them.
        self.0 ^ (self.0 >> 32)
    }
}

/// A map keyed by numbers that this process draws.
pub(crate) type FoldMap<K, V> = HashMap<K, V, BuildHasherDefault<FoldHasher>>;
/// A set of keys that hold a token.
pub(crate) type FoldSet<K> = HashSet<K, BuildHasherDefault<FoldHasher>>;
