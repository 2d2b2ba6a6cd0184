//! In-memory ports, a virtual clock, and the contract suites that every adapter must pass.

mod clock;
pub mod contract;
mod memory;
mod virtual_time;

pub use clock::{FixedRandom, SeededRandom, VirtualClock};
pub use memory::{
    Calls, Event, Hearing, MachineDefect, MemoryCompute, MemoryForge, MemoryMachine, MemoryPool,
    MemoryPorts, MemoryStore, OwnRegistration, PartialLaunch, PlayedAgents, RegisteredLabels,
    SilentProgress, plane,
};
pub use virtual_time::VirtualTime;
