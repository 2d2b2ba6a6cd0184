//! Deterministic simulation: the real control plane and the real agents, many of each, on a
//! simulated world with a virtual clock and a seeded scheduler.
//!
//! Everything that happens is an event of the `kernel`, and one seed makes one history,
//! exactly. Processes are futures; one that crashes is dropped between two of its calls. After
//! every event the `audit` holds what records, runners, agents and jobs say against the
//! promises of the design.

mod audit;
mod explore;
mod faults;
mod harness;
mod history;
mod kernel;
mod machine;
mod plan;
mod policy;
mod process;
mod report;
mod shrink;
mod simulated_machines;
mod sweep;
mod walk;
mod wire;
mod world;

pub use audit::{Invariant, Violation};
pub use explore::{Explored, SCENES, Scene, explore};
pub use faults::{Fault, Place, Rates, Spared};
pub use harness::Tally;
pub use history::{History, Watched, play};
pub use plan::{Action, Plan};
pub use policy::{Aim, CallFault, Outage, Script};
pub use process::Ending;
pub use report::{Sum, broken, grouped, worth_seeing};
pub use shrink::{Shrunk, shrink};
pub use sweep::{Case, Row, Scenario, Sweep, sweep};
pub use walk::{Walk, walk};
