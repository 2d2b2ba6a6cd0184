//! AWS on loopback: a gateway in front of emulators for DynamoDB and SQS, an EC2 whose machines are
//! processes, and an SQS in memory.

mod call;
mod ec2;
mod faults;
mod gateway;
mod iam;
mod imds;
mod machines;
mod models;
mod params;
mod sqs;
mod units;
mod xml;

pub use call::Service;
pub use ec2::{
    Architecture, Capacity, Ec2, GroupFault, Lifecycle, Machine, MachineState, ProfileFault,
    SubnetFault,
};
pub use faults::{AwsFault, AwsFaultRule};
pub use gateway::{
    Denial, Endpoint, Gateway, GatewayOptions, IamDecision, LogEntry, critical_path,
};
pub use iam::{PolicyPool, Role};
pub use imds::MACHINE_MAC;
pub use machines::MachineCommand;
pub use models::Violation;
pub use units::{Consumption, PartitionKey, Units};
