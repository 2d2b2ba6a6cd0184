//! ondeck on AWS: records in DynamoDB, tickets in SQS, machines from EC2.
//!
//! Every adapter here translates and decides nothing. None of them repeats a call: what did not
//! answer is said to be unavailable, and core's one retry does the rest. So a conditional write
//! whose answer was lost is known to whoever judges it.

mod cloud;
mod compute;
mod ec2;
mod fault;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod host;
mod imds;
mod inputs;
mod names;
mod pool;
mod skew;
mod store;
mod wire;

pub use cloud::{Cloud, Options, VARIABLES};
pub use compute::Ec2Compute;
pub use host::{Ec2Host, shut_down};
pub use imds::Imds;
pub use inputs::{ENDPOINT_URL, INPUTS, POOL, REGION};
pub use names::{InvalidPoolName, PoolName};
pub use pool::SqsPool;
pub use skew::AwsClock;
pub use store::DynamoStore;
