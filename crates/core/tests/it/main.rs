//! Integration tests of core: the modes with agents over in-memory ports, and properties that hold
//! for every input.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test and names the line")]

mod modes;
mod properties;
