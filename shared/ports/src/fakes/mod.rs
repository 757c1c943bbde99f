//! Fakes of the seams: a store in memory, clocks that a test turns, randomness from a seed.

mod clock;
mod memory;
mod rng;

pub use clock::{ManualClock, TokioClock};
pub use memory::MemoryStore;
pub use rng::SeededRng;
