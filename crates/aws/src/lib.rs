//! ondeck on AWS: records in DynamoDB, tickets in SQS, machines from EC2.
//!
//! Every adapter here translates and decides nothing. The SDK's retries are off. A call without an
//! answer is reported as unavailable, and core's retry repeats it, so core knows how often a
//! conditional write was sent.

mod cloud;
mod compute;
mod diagnosis;
mod ec2;
mod error;
mod firewall;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod host;
mod imds;
mod inputs;
mod machine_logs;
mod names;
mod permissions;
mod pool;
mod raw_client;
mod runtime_api;
mod secret_source;
mod skew;
mod store;
mod teardown;
mod wake_ups;
mod wire;

pub use cloud::{Cloud, Options, VARIABLES};
pub use compute::{DEFAULT_RUNNER_USER, Ec2Compute, RUNNER_USER_SETTING, check_settings};
pub use diagnosis::AwsDiagnosis;
pub use firewall::{FirewalledRunner, MetadataFirewall, reachable_metadata};
pub use host::{Ec2Host, shut_down};
pub use imds::Imds;
pub use inputs::{
    AMI, APP_KEY_SOURCE, CONNECT, ENDPOINT_URL, INPUTS, MACHINE_LOGS, METADATA_FIREWALL, OFF, POOL,
    REGION, SSM, TOKEN_SOURCE, TRUST,
};
pub use machine_logs::{LogBuffer, LogDestination, MachineLogs};
pub use names::{InvalidPoolName, PoolName};
pub use permissions::{
    CheckResult, CheckSubject, Decision, PermissionCheck, ROLES, check_permissions,
};
pub use pool::SqsPool;
pub use runtime_api::{FunctionCall, RuntimeApi};
pub use secret_source::SecretSource;
pub use skew::AwsClock;
pub use store::{DynamoStore, EventsOf};
pub use teardown::AwsInfrastructure;
