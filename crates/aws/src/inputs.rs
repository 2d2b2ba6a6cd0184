//! The inputs of the AWS backend. The rows' names are also the names of the stored settings;
//! `compute::options` reads and checks those together, because some depend on each other.

use ondeck_core::inputs::{ActionInput, Input, InputTable, InputValue, Mode};

pub const POOL: Input = Input::process(
    "pool",
    "NAME",
    "Pool to use: OWNER/REPOSITORY, or OWNER for a pool that an organisation shares",
)
.or_described("GITHUB_REPOSITORY");
pub const REGION: Input =
    Input::process("aws-region", "REGION", "AWS region").or_described("as the AWS CLI finds it");
pub const ENDPOINT_URL: Input =
    Input::process("aws-endpoint-url", "URL", "Endpoint of all AWS services, for emulators")
        .or_described("AWS_ENDPOINT_URL, or AWS itself");

pub(crate) const AMI: Input = Input::stored(
    "ami",
    "AMI",
    "Image that machines boot: its id, or resolve:ssm:PARAMETER to look the id up at every launch",
);
pub(crate) const SUBNET_IDS: Input = Input::stored(
    "subnet-ids",
    "SUBNET ...",
    "Subnets to launch machines in, at most four; one in each availability zone is best",
);
pub(crate) const SECURITY_GROUP_IDS: Input =
    Input::stored("security-group-ids", "GROUP ...", "Security groups of the machines");
pub(crate) const IAM_INSTANCE_PROFILE: Input = Input::stored(
    "iam-instance-profile",
    "PROFILE",
    "Instance profile of the machines, by name or ARN; it must allow them to use the table and to \
     terminate themselves",
);
pub(crate) const AGENT_URL: Input = Input::stored(
    "agent-url",
    "URL",
    "Where machines download the agent: https://, or s3:// if the image has the AWS CLI; empty if \
     the agent is on the image",
)
.in_action(ActionInput::Adapted {
    help: "Where machines download the agent: https://, or s3:// if the image has the AWS CLI; \
           image if the agent is on the image [default: that of the release, for x86-64]",
    default: None,
    step_output: true,
});
pub(crate) const AGENT_SHA256: Input =
    Input::stored("agent-sha256", "HEX", "SHA-256 digest that the downloaded agent must have")
        .in_action(ActionInput::Adapted {
            help: "SHA-256 digest that the downloaded agent must have [default: the release's]",
            default: None,
            step_output: true,
        });
pub(crate) const VOLUME_SIZE_GB: Input = Input::stored(
    "volume-size-gb",
    "GB",
    "Size of each machine's root volume; empty for the size of the image",
);
pub(crate) const KEY_NAME: Input =
    Input::stored("key-name", "NAME", "EC2 key pair for ssh to the machines; empty for none");
/// Refresh stores it, and user data hands it to the agent, which needs it before it can read settings.
pub const METADATA_FIREWALL: Input = Input::stored(
    "metadata-firewall",
    "",
    "Keep jobs from the instance metadata service, and so from the role of their machine; needs \
     nftables and cgroup v2 on the image",
)
.valued(InputValue::Choice("ON|OFF", &[ON, OFF]), None)
.or(ON)
.of_modes(&[Mode::Refresh, Mode::Agent]);
/// The default of [`METADATA_FIREWALL`].
pub(crate) const ON: &str = "on";
/// The value of [`METADATA_FIREWALL`] that lets jobs reach the metadata service.
pub const OFF: &str = "off";

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
        VOLUME_SIZE_GB,
        KEY_NAME,
        METADATA_FIREWALL,
        POOL,
        REGION,
        ENDPOINT_URL,
    ],
};
