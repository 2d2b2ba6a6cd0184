//! Ports in memory, a clock that is moved by hand, and the suites that every adapter must pass.

mod clock;
pub mod contract;
mod memory;

pub use clock::{FixedRandom, SeededRandom, VirtualClock};
pub use memory::{
    Calls, Event, Memory, MemoryCompute, MemoryForge, MemoryPool, MemoryStore, Scant, Silent, plane,
};
