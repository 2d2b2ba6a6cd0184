//! The three modes with real agents, over in-memory ports and a virtual clock: minutes of simulated
//! time take milliseconds.

mod ceiling;
mod cost;
mod drill;
mod explain;
mod failures;
mod harness;
mod hedging;
mod interruption;
mod keep_warm;
mod labels;
mod lifetimes;
mod machine_labels;
mod machine_source;
mod notices;
mod operate;
mod outcomes;
mod preserved;
mod provision;
mod refresh;
mod release;
mod reuse;
mod runs;
mod selection;
mod settings_change;
mod spend;
mod teardown;
mod time_limit;
mod wake_ups;
