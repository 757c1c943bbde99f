//! Fakes of the seams: a store in memory, layers around stores, clocks that a test turns, randomness from a seed.

mod clock;
mod layer;
mod memory;
mod rng;

pub use clock::{ManualClock, TokioClock};
pub use layer::StoreLayer;
pub use memory::MemoryStore;
pub use rng::SeededRng;
