//! The adapters for AWS, against emulators of it.

#![expect(clippy::unwrap_used, reason = "in a test, whatever is not as expected is a failure")]

mod fixture;
mod store;
mod store_calls;
mod store_faults;
mod store_paging;
mod store_tap;
