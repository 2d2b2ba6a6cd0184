//! The built program on the aws backend: real DynamoDB Local and a real SQS emulator behind a
//! gateway on loopback, and an EC2 whose machines are real agent processes.

mod ceiling;
mod config;
mod connect;
mod cost;
mod crash;
mod dashboard;
pub(crate) mod direct_requests;
mod doctor;
mod drill;
mod ec2_network;
mod explain;
mod failure;
mod faults;
mod firewall;
pub(crate) mod harness;
mod instance_choice;
mod lifecycle;
mod local_machines;
mod machine;
mod machine_logs;
mod observation;
mod operate;
pub(crate) mod permissions;
mod proxy;
mod refused_agent;
mod spend;
mod teardown;
mod trust;
mod wake_ups;
mod watch;
