//! The built program on the aws backend: real DynamoDB Local and a real SQS emulator behind a
//! gateway on loopback, and an EC2 whose machines are real agent processes.

mod ceiling;
mod connect;
mod crash;
mod direct_requests;
mod ec2_network;
mod failure;
mod faults;
mod firewall;
pub(crate) mod harness;
mod instance_choice;
mod lifecycle;
mod local_machines;
mod machine;
mod machine_logs;
mod permissions;
mod refused_agent;
mod trust;
mod wake_ups;
