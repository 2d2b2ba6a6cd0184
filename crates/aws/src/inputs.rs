//! The inputs of the AWS backend. The rows' names are also the names of the stored settings;
//! `compute::options` reads and checks those together, because some depend on each other.

use ondeck_core::inputs::{ActionInput, FileForm, Input, InputTable, InputValue, Mode};

use crate::machine_logs::LogDestination;
use crate::names::check_trust;
use crate::secret_source::SecretSource;

pub const POOL: Input = Input::process(
    "pool",
    "NAME",
    "Pool to use: OWNER/REPOSITORY, or OWNER for a pool that an organisation shares",
)
.or_described("GITHUB_REPOSITORY");
pub const TRUST: Input = Input::process(
    "trust",
    "LEVEL",
    "Trust level, such as release: each is a pool of its own, with its own table, queues and machines",
)
.or_described("the pool without a level")
.checked(check_trust);
pub const REGION: Input =
    Input::process("aws-region", "REGION", "AWS region").or_described("as the AWS CLI finds it");
pub const APP_KEY_SOURCE: Input = Input::call(
    "github-app-key-source",
    "SOURCE",
    "Where AWS keeps the private key of the GitHub App: ssm:NAME of a parameter, or \
     secretsmanager:ARN of a secret",
    &[Mode::Refresh, Mode::Doctor],
)
.checked(|text| SecretSource::parse(text).map(drop))
.in_action(ActionInput::Absent);
pub const TOKEN_SOURCE: Input = Input::call(
    "github-token-source",
    "SOURCE",
    "Where AWS keeps the token that may register runners, as for github-app-key-source",
    &[Mode::Refresh, Mode::Doctor],
)
.checked(|text| SecretSource::parse(text).map(drop))
.in_action(ActionInput::Absent);
pub const ENDPOINT_URL: Input =
    Input::process("aws-endpoint-url", "URL", "Endpoint of all AWS services, for emulators")
        .or_described("AWS_ENDPOINT_URL, or AWS itself");

pub const AMI: Input = Input::stored(
    "ami",
    "AMI",
    "Image that machines boot: its id, or resolve:ssm:PARAMETER to look the id up at every launch",
)
.in_file("image", FileForm::Text);
pub(crate) const SUBNET_IDS: Input = Input::stored(
    "subnet-ids",
    "SUBNET ...",
    "Subnets to launch machines in, no more than one in each availability zone; a launch tries four \
     of them, and different launches try different ones",
)
.in_file("network", FileForm::List(" "));
pub(crate) const SECURITY_GROUP_IDS: Input =
    Input::stored("security-group-ids", "GROUP ...", "Security groups of the machines")
        .in_file("network", FileForm::List(" "));
pub(crate) const IAM_INSTANCE_PROFILE: Input = Input::stored(
    "iam-instance-profile",
    "PROFILE",
    "Instance profile of the machines, by name or ARN; it must allow them to use the table and to \
     terminate themselves",
)
.in_file("machines", FileForm::Text);
/// The modes that store where machines get their agent. Apply stores it beside the file, for a refresh
/// that is given none.
const OF_AGENT: &[Mode] = &[Mode::Refresh, Mode::Apply];
pub(crate) const AGENT_URL: Input = Input::stored(
    "agent-url",
    "URL",
    "Where x86-64 machines download the agent: https://, or s3:// if the image has the AWS CLI; \
     empty if the agent is on the image",
)
.in_action(ActionInput::Adapted {
    help: "Where x86-64 machines download the agent: https://, or s3:// if the image has the AWS CLI; \
           image if the agent is on the image [default: that of the release]",
    default: None,
    step_output: true,
})
.of_modes(OF_AGENT)
.in_file("image", FileForm::Text);
pub(crate) const AGENT_SHA256: Input =
    Input::stored("agent-sha256", "HEX", "SHA-256 digest that the x86-64 agent must have")
        .in_action(ActionInput::Adapted {
            help: "SHA-256 digest that the x86-64 agent must have [default: the release's]",
            default: None,
            step_output: true,
        })
        .of_modes(OF_AGENT)
        .in_file("image", FileForm::Text);
pub(crate) const AGENT_URL_ARM64: Input = Input::stored(
    "agent-url-arm64",
    "URL",
    "Where arm64 machines download the agent, as agent-url",
)
.in_action(ActionInput::Adapted {
    help: "Where arm64 machines download the agent, as agent-url [default: that of the \
                   release, unless agent-url is given]",
    default: None,
    step_output: true,
})
.of_modes(OF_AGENT)
.in_file("image", FileForm::Text);
pub(crate) const AGENT_SHA256_ARM64: Input =
    Input::stored("agent-sha256-arm64", "HEX", "SHA-256 digest that the arm64 agent must have")
        .in_action(ActionInput::Adapted {
            help: "SHA-256 digest that the arm64 agent must have [default: the release's]",
            default: None,
            step_output: true,
        })
        .of_modes(OF_AGENT)
        .in_file("image", FileForm::Text);
pub(crate) const ON_DEMAND_PRICE_PROTECTION: Input = Input::stored(
    "on-demand-price-protection-percent",
    "PERCENT",
    "How far the price of an on-demand machine may exceed that of the cheapest C, M or R type that \
     fits; 999999 for no limit. For spot machines EC2 sets a limit of its own",
)
.or(DEFAULT_PRICE_PROTECTION)
.checked(|text| percent(text).map(drop))
.in_file("machines", FileForm::Whole);
/// The default of [`ON_DEMAND_PRICE_PROTECTION`]. EC2's own is 20, which leaves few types.
pub(crate) const DEFAULT_PRICE_PROTECTION: &str = "100";
pub(crate) const INSTANCE_GENERATIONS: Input = Input::stored(
    "instance-generations",
    "",
    "Generations of instance types to accept: current, or any for previous ones too",
)
.valued(InputValue::Choice("CURRENT|ANY", &[CURRENT, ANY]), None)
.or(CURRENT)
.in_file("machines", FileForm::Text);
/// The default of [`INSTANCE_GENERATIONS`].
pub(crate) const CURRENT: &str = "current";
/// The value of [`INSTANCE_GENERATIONS`] that accepts previous generations.
pub(crate) const ANY: &str = "any";
pub(crate) const HTTP_PROXY: Input = Input::stored(
    "http-proxy",
    "URL",
    "Proxy for http requests of the machines: user data, agent, pre-runner script, runner and jobs",
)
.in_file("network", FileForm::Text);
pub(crate) const HTTPS_PROXY: Input =
    Input::stored("https-proxy", "URL", "Proxy for https requests of the machines, as http-proxy")
        .in_file("network", FileForm::Text);
pub(crate) const NO_PROXY: Input = Input::stored(
    "no-proxy",
    "HOST,...",
    "Hosts that machines reach without a proxy, beside themselves and the metadata service",
)
.in_file("network", FileForm::List(","));
pub(crate) const VOLUME_SIZE_GB: Input = Input::stored(
    "volume-size-gb",
    "GB",
    "Size of each machine's root volume; empty for the size of the image",
)
.in_file("machines", FileForm::Whole);
pub(crate) const KEY_NAME: Input =
    Input::stored("key-name", "NAME", "EC2 key pair for ssh to the machines; empty for none")
        .in_file("machines", FileForm::Text);
/// Refresh stores it, and user data hands it to the agent, which needs it before it can read settings.
pub const METADATA_FIREWALL: Input = Input::stored(
    "metadata-firewall",
    "",
    "Keep jobs from the instance metadata service, and so from the role of their machine; needs \
     nftables and cgroup v2 on the image",
)
.valued(InputValue::Choice("ON|OFF", &[ON, OFF]), None)
.or(ON)
.of_modes(&[Mode::Refresh, Mode::Agent])
.in_file("machines", FileForm::Text);
/// The default of [`METADATA_FIREWALL`].
pub(crate) const ON: &str = "on";
/// The value of [`METADATA_FIREWALL`] that lets jobs reach the metadata service.
pub const OFF: &str = "off";

/// Refresh stores it, and user data hands it to the agent, which copies its log from the start.
pub const MACHINE_LOGS: Input = Input::stored(
    "machine-logs",
    "DESTINATION",
    "Where machines copy the log of their agent, so that it outlives them: off, or cloudwatch:GROUP \
     for a log group of CloudWatch Logs that exists",
)
.or(OFF)
.checked(|text| LogDestination::parse(text).map(drop))
.of_modes(&[Mode::Refresh, Mode::Agent])
.in_file("machines", FileForm::Text);
/// Refresh stores it, and user data hands it to the agent, whose firewall must admit the SSM agent.
pub const CONNECT: Input = Input::stored(
    "connect",
    "",
    "How ondeck connect reaches machines: off, or ssm for Session Manager, if the image has its agent",
)
.valued(InputValue::Choice("OFF|SSM", &[OFF, SSM]), None)
.or(OFF)
.of_modes(&[Mode::Refresh, Mode::Agent])
.in_file("machines", FileForm::Text);
/// The value of [`CONNECT`] for sessions of AWS Systems Manager.
pub const SSM: &str = "ssm";

/// Every input of the AWS backend.
pub const INPUTS: InputTable = InputTable {
    heading: "AWS backend",
    rows: &[
        AMI,
        SUBNET_IDS,
        SECURITY_GROUP_IDS,
        IAM_INSTANCE_PROFILE,
        AGENT_URL,
        AGENT_SHA256,
        AGENT_URL_ARM64,
        AGENT_SHA256_ARM64,
        ON_DEMAND_PRICE_PROTECTION,
        INSTANCE_GENERATIONS,
        VOLUME_SIZE_GB,
        KEY_NAME,
        METADATA_FIREWALL,
        MACHINE_LOGS,
        CONNECT,
        HTTP_PROXY,
        HTTPS_PROXY,
        NO_PROXY,
        APP_KEY_SOURCE,
        TOKEN_SOURCE,
        POOL,
        TRUST,
        REGION,
        ENDPOINT_URL,
    ],
};

/// Reads a percentage in the range that EC2 takes. Fails with what is wrong with the text.
pub(crate) fn percent(text: &str) -> Result<u32, String> {
    const MOST: u32 = 999_999;
    let number = text.parse().ok().filter(|number| *number <= MOST);
    number.ok_or_else(|| format!("is not from 0 to {MOST}"))
}
