//! Fakes of the seams: a store in memory, layers around stores, a queue that records messages, clocks that a test sets,
//! and seeded random numbers.

mod clock;
mod layer;
mod memory;
mod messages;
mod rng;
mod sink;

pub use clock::{ManualClock, TokioClock};
pub use layer::StoreLayer;
pub use memory::MemoryStore;
pub use messages::MessageLog;
pub use rng::SeededRng;
pub use sink::MemorySinks;
