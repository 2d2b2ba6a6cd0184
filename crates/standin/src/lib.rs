//! AWS on loopback, as far as ondeck uses it: real emulators for DynamoDB and SQS behind a
//! gateway that routes, counts, checks and disturbs, and an EC2 whose machines are processes.

pub mod emulators;
