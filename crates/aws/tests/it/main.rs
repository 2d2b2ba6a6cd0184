//! The backend on AWS against emulators, and against answers that no emulator gives.

#![expect(clippy::unwrap_used, reason = "in a test, whatever is not as expected is a failure")]

mod pool;
mod pool_answers;
mod pool_set_up;
mod queues;
