//! Deterministic simulation: the real control plane and the real agents, many of each, on a
//! simulated world with a virtual clock and a seeded scheduler.
//!
//! Everything that happens is an event of the `kernel`, so one seed always produces the same
//! history. A process is a future; a crash drops it between two of its calls. After every event the
//! `audit` checks records, runners, agents and jobs against the invariants of the design.

mod agent_machine;
mod audit;
mod explore;
mod faults;
mod harness;
mod history;
mod judge;
mod kernel;
mod lagging_index;
mod plan;
mod policy;
mod process;
mod process_ports;
mod report;
mod scale;
mod seeds;
mod shrink;
mod simulated_machines;
mod sweep;
mod wake_ups;
mod world;

pub use audit::{Invariant, Violation};
pub use explore::{Explored, SCENES, Scene, explore};
pub use faults::{CallSite, Fault, Rates, SkippedFaults};
pub use harness::Tally;
pub use history::{History, WatchedProcess, play};
pub use judge::Judge;
pub use plan::{Action, Ask, Plan};
pub use policy::{CallFault, CallSelector, Outage, ScriptedFault};
pub use process::ProcessOutcome;
pub use report::{Totals, grouped, readable_journal, violation_report};
pub use scale::{
    AtOnce, Counted, KEY_LIMITS, KeyUse, Meter, MeteredKey, MeteredStore, MeteredTable, Pace,
    ScaleOptions, ScaleResult, Units, play_scale,
};
pub use seeds::{PlayedSeeds, play_seeds};
pub use shrink::{Shrunk, shrink};
pub use sweep::{Case, Scenario, ScenarioResult, Sweep, sweep};
pub use wake_ups::WakeUpFaults;
