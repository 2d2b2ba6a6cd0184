//! Stand-ins for AWS and GitHub on loopback, as far as ondeck uses them.
//!
//! `aws` is a gateway in front of emulators for DynamoDB and SQS. It routes, counts and checks
//! requests and injects faults. Its own EC2 runs machines as processes. `github` is a GitHub with a
//! runner double that takes its jobs.
//!
//! ```no_run
//! use ondeck_standin::emulators::Emulators;
//! use ondeck_standin::{AwsFault, AwsFaultRule, Gateway, GatewayOptions, Occurrence, Service};
//!
//! let gateway = Gateway::start(GatewayOptions::on(&Emulators::running()));
//! let control = gateway.endpoint("control");
//! // Set AWS_ENDPOINT_URL of the program under test to this.
//! let url = control.url();
//! let lost = control.inject(
//!     AwsFaultRule::new(AwsFault::LostAnswer)
//!         .service(Service::DynamoDb)
//!         .operation("UpdateItem")
//!         .occurrence(Occurrence::First(1)),
//! );
//! // …
//! assert_eq!(lost.fired(), 1);
//! gateway.assert_requests_valid();
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ondeck_standin::{GitHub, GitHubOptions, Permission, runner_package};
//!
//! let github = GitHub::start(GitHubOptions::default());
//! github.allow("ghp_test", "acme/web", &[Permission::Administration]);
//! github.publish_runner("2.336.0", runner_package("2.336.0"));
//! // Pass both URLs to the program under test, which registers a runner with the label 4711.
//! let (web, api) = (github.url(), github.api_url());
//! let job = github.queue_job("acme/web", "4711", &["4711"], "echo hello");
//! assert_eq!(github.wait_for_job(job, Duration::from_secs(20)).log, "hello\n");
//! ```

mod applicable;
mod aws;
pub mod emulators;
mod github;
mod http;
mod injection;
mod lambda;
mod processes;
mod sync;
mod timestamps;

pub use applicable::not_applicable;
pub use aws::{
    Architecture, AwsFault, AwsFaultRule, Capacity, Consumption, Denial, Ec2, Endpoint, Gateway,
    GatewayOptions, GroupFault, IamDecision, Lifecycle, LogEntry, MACHINE_MAC, Machine,
    MachineCommand, MachineState, PartitionKey, PolicyPool, ProfileFault, Role, Service,
    SubnetFault, Units, Violation, critical_path,
};
pub use github::{
    APP_PRIVATE_KEY, APP_PUBLIC_KEY, Conclusion, GitHub, GitHubFault, GitHubFaultRule,
    GitHubOptions, GitHubRequest, GitHubRunner, GitHubViolation, Job, JobId, JobState,
    LISTENER_VARIABLE, Permission, RegistrationTimes, RequestLimits, RunState, RunnerFault,
    RunnerPackage, RunnerTimes, run_listener, runner_package,
};
pub use injection::{ActiveFault, Occurrence};
pub use lambda::{FunctionAnswer, Lambda};
