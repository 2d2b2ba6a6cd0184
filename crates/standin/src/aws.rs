//! AWS on loopback: a gateway in front of emulators for DynamoDB and SQS, and an EC2
//! whose machines are processes.

mod call;
mod ec2;
mod faults;
mod gateway;
mod imds;
mod machines;
mod models;
mod params;
mod xml;

pub use call::Service;
pub use ec2::{Capacity, Ec2, Lifecycle, Machine, MachineState};
pub use faults::{AwsFault, AwsFaultRule};
pub use gateway::{Endpoint, Gateway, GatewayOptions, LogEntry};
pub use machines::MachineCommand;
pub use models::Violation;
