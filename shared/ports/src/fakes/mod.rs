//! Fakes of the seams: a store in memory, layers around stores, a queue that keeps what was sent, clocks that a
//! test turns, randomness from a seed.

mod clock;
mod layer;
mod memory;
mod messages;
mod rng;

pub use clock::{ManualClock, TokioClock};
pub use layer::StoreLayer;
pub use memory::MemoryStore;
pub use messages::MessageLog;
pub use rng::SeededRng;
