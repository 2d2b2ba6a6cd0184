//! The adapters for AWS, against emulators of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod ec2_machines;
