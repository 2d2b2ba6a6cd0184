//! The backend on AWS against emulators, and against answers that no emulator gives.

#![expect(clippy::unwrap_used, reason = "in a test, every unexpected value is a failure")]

mod checked;
mod dynamodb_proxy;
mod ec2_machines;
mod permissions;
mod pool;
mod pool_answers;
mod pool_on_stand_in;
mod pool_set_up;
mod queues;
mod store;
mod store_busy;
mod store_calls;
mod store_ceiling;
mod store_faults;
mod store_harness;
mod store_paging;
mod store_units;
mod wake_ups;
