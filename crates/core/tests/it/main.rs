//! What holds for every input, not only for those that somebody thought of.

#![expect(clippy::unwrap_used, reason = "in a test, whatever is not as expected is a failure")]

mod anything;
mod kept;
mod patterns;
mod records;
mod settings;
mod tickets;
mod timing;
mod transitions;
