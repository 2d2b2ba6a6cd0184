//! What settings of a pool would have meant for a history of runs: provision, release and refresh, as
//! they are, on ports in memory and on virtual time, once for each point of a grid.
//!
//! Agents are modelled by their answers to their records. Nothing fails but what the model says: spot
//! machines may be interrupted. The same history, model and grid always give the same figures.

mod generate;
mod grid;
mod history;
mod model;
mod play;
mod recommendation;
mod world;

pub use generate::generate;
pub use grid::{Grid, play_all};
pub use history::{History, HistoryRun, InvalidHistory, LONGEST_SPAN, MOST_RUNS};
pub use model::{Model, Point};
pub use play::Measured;
pub use recommendation::{Candidate, Reason, Recommendation, recommend};
