//! What the modes and the agent speak about: ids, records, requests and settings. Pure data with its
//! rules; no port is called here.

pub mod ceiling;
pub mod credentials;
pub mod demand;
pub mod departure;
pub mod excerpt;
pub mod failure;
pub mod finding;
pub mod heartbeat;
pub mod ids;
pub mod intent;
pub mod label;
pub mod lifetime;
pub mod machine_label;
pub mod min_idle;
pub mod money;
pub mod prices;
pub mod readiness;
pub mod record;
pub mod requirements;
pub mod reuse;
pub mod secret;
pub mod settings;
pub mod signal;
pub mod spend;
pub mod summary;
pub mod ticket;
pub mod timestamp;
