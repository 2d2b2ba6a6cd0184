//! GitHub, as ondeck uses it: the interface that refresh calls, and the runner that an agent
//! drives.

mod mark;

pub use mark::mark;
