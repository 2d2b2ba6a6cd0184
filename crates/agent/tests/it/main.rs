//! The three modes and the agent together, over ports in memory and a virtual clock: what takes
//! minutes in life takes milliseconds here.

mod agents;
mod provision;
mod refresh;
mod release;
mod selection;
mod world;
