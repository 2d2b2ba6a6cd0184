//! Every input, as a flag and as an environment variable. The help is written for a person.

mod times;

use std::path::PathBuf;

#[cfg(feature = "control")]
use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum};
#[cfg(feature = "control")]
use ondeck_core::model::excerpt::one_line;
#[cfg(feature = "control")]
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
#[cfg(feature = "control")]
use ondeck_core::model::ids::{ResourceClass, RunId};
#[cfg(feature = "control")]
use ondeck_core::model::requirements::{TypePatterns, UsageClass};
#[cfg(feature = "control")]
use ondeck_core::model::secret::Secret;
#[cfg(feature = "control")]
use ondeck_core::modes::provision::{DEFAULT_TYPES, MAX_COUNT};

#[cfg(feature = "control")]
pub(crate) use self::times::{ForProvision, ForRefresh, ForRelease, TimeInputs};

const MORE: &str = "\
Every option with a value can also be given as a variable: --instance-count as
ONDECK_INSTANCE_COUNT. Data goes to stdout, everything else to stderr.

Exit codes:
  0  done                          6  store, queue or compute out of reach or busy
  2  invalid input                 7  GitHub refused, or the token is bad
  3  not set up: refresh first     8  released, but some machines did not answer
  4  no capacity                  10  unexpected; everything was dumped
  5  machines did not get ready  130  interrupted, 143 terminated; cleared up";

/// Keeps self-hosted GitHub Actions runners warm and hands them from workflow to workflow.
#[derive(Debug, Parser)]
#[command(version, about, after_help = MORE, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten, next_help_heading = "General options")]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Common {
    /// Where machines, records and the pool are
    #[arg(long, global = true, env = "ONDECK_BACKEND", default_value = "local")]
    pub(crate) backend: Backend,
    /// Where the local backend keeps its files, and the local forge its jobs [default: ~/.ondeck]
    #[arg(long, global = true, env = "ONDECK_HOME", value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// One JSON object on stdout instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more on stderr: every state change; twice for details
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing on stderr but errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(flatten, next_help_heading = "AWS backend, for every command")]
    pub(crate) aws: AwsCommon,
}

/// What every command takes on AWS.
#[derive(Debug, Args)]
pub(crate) struct AwsCommon {
    /// Whose pool: OWNER/REPOSITORY, or OWNER for one that is shared [default: GITHUB_REPOSITORY]
    #[arg(long, global = true, env = "ONDECK_POOL", value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// The region [default: as for AWS's own programs]
    #[arg(long, global = true, env = "ONDECK_AWS_REGION", value_name = "REGION")]
    pub(crate) aws_region: Option<String>,
    /// Where all of AWS is, for emulators [default: AWS_ENDPOINT_URL, or AWS itself]
    #[arg(long, global = true, env = "ONDECK_AWS_ENDPOINT_URL", value_name = "URL")]
    pub(crate) aws_endpoint_url: Option<String>,
}

/// The backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    // One SQLite file, and processes on this computer for machines. Not a doc comment: help on
    // values makes clap spread every option over several lines.
    Local,
    // DynamoDB, SQS and EC2. Every build knows the word; those without the backend say so.
    Aws,
}

impl Cli {
    /// Reads the command line. Wrong ones end the process here, with exit code 2.
    pub(crate) fn read() -> Cli {
        let command = without_values(<Cli as clap::CommandFactory>::command());
        let cli = command
            .try_get_matches()
            .and_then(|matches| <Cli as clap::FromArgMatches>::from_arg_matches(&matches));
        cli.unwrap_or_else(|error| {
            #[cfg(feature = "control")]
            if error.use_stderr()
                && crate::control::github_actions::show_usage_error(&misuse(&error))
            {
                // Once more and as it is, a value of several lines could pass for a command.
                std::process::exit(error.exit_code());
            }
            error.exit()
        })
    }
}

/// What is wrong with a command line, without the part that is about the help. It repeats the
/// value, which may hold whatever else parts one from the other.
#[cfg(feature = "control")]
fn misuse(error: &clap::Error) -> String {
    let mut said = error.render().to_string();
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg] {
        if let Some(ContextValue::String(given)) = error.get(kind) {
            said = said.replacen(given, &one_line(given), 1);
        }
    }
    let said = said.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    said.trim().to_owned()
}

/// Variables may hold what is nobody's business; the help says once how they are named. An empty
/// one counts as none: that is how a workflow passes on an input that nobody gave.
fn without_values(command: clap::Command) -> clap::Command {
    let mild = |arg: clap::Arg| {
        let empty = |name| std::env::var_os(name).is_some_and(|value| value.is_empty());
        let unset = arg.get_env().is_some_and(empty);
        let arg = arg.hide_env(true);
        if unset { arg.env(clap::builder::Resettable::Reset) } else { arg }
    };
    command.mut_args(mild).mut_subcommands(without_values)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set everything up, and clear up whatever went wrong; to be run first, and on a schedule
    #[cfg(feature = "control")]
    Refresh(Box<Refresh>),
    /// Give a run its machines: idle ones from the pool, else new ones
    #[cfg(feature = "control")]
    Provision(Provision),
    /// Give a run's machines back to the pool
    #[cfg(feature = "control")]
    Release(Release),
    /// Queue a job for a run, show its output, and exit with its code (local forge)
    #[cfg(feature = "control")]
    Run(Run),
    /// Show the machines, what they are doing and how long they may, and the pool
    #[cfg(feature = "control")]
    Status(Status),
    /// Watch it work: a story with real processes, in a temporary home, in under a minute
    #[cfg(feature = "control")]
    Demo(Demo),
    /// Be the agent of a machine; started by the machine itself
    Agent(Agent),
}

#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct Refresh {
    /// The sizes that can be asked for, as JSON: {"large":{"cpu":2,"mem":4096}}
    /// [default: large 2/4096, xlarge 4/8192, 2xlarge 8/16384, 4xlarge 16/32768, 8xlarge 32/65536,
    /// 12xlarge 48/98304, 16xlarge 64/131072]
    #[arg(long, env = "ONDECK_RESOURCE_CLASS_CONFIG", value_name = "JSON")]
    pub(crate) resource_class_config: Option<String>,
    /// Idle machines to keep, by class: "large=2 xlarge=1"
    #[arg(long, env = "ONDECK_MIN_IDLE", value_name = "CLASS=COUNT ...")]
    pub(crate) min_idle: Option<String>,
    /// Shell script that every machine runs before its first run
    #[arg(long, env = "ONDECK_PRE_RUNNER_SCRIPT", value_name = "SCRIPT")]
    pub(crate) pre_runner_script: Option<String>,
    /// What to do for runs whose jobs wait without a machine: provision, report or off
    /// [default: provision]
    #[arg(long, env = "ONDECK_RESCUE", value_name = "WHAT")]
    pub(crate) rescue: Option<String>,
    #[command(flatten, next_help_heading = "GitHub")]
    pub(crate) github: GitHubInputs,
    #[command(flatten, next_help_heading = "AWS backend")]
    pub(crate) aws: AwsInputs,
    #[command(flatten, next_help_heading = "Local backend")]
    pub(crate) local: LocalInputs,
    #[command(flatten)]
    pub(crate) times: TimeInputs<ForRefresh>,
}

/// What only GitHub knows.
#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct GitHubInputs {
    /// Where jobs come from; local is for trying it out [default: github on aws, else what it was,
    /// or local]
    #[arg(long, env = "ONDECK_FORGE")]
    pub(crate) forge: Option<ForgeKind>,
    /// A token that may register runners; best given as a variable, since others can see a
    /// command line
    #[arg(long, env = "ONDECK_GITHUB_TOKEN", value_name = "TOKEN")]
    pub(crate) github_token: Option<Secret>,
    /// In place of a token: the id of a GitHub App that may register runners
    #[arg(
        long,
        env = "ONDECK_GITHUB_APP_ID",
        value_name = "ID",
        conflicts_with = "github_token",
        requires = "github_app_private_key"
    )]
    pub(crate) github_app_id: Option<String>,
    /// The App's private key, in PEM; best given as a variable
    #[arg(
        long,
        env = "ONDECK_GITHUB_APP_PRIVATE_KEY",
        value_name = "PEM",
        requires = "github_app_id"
    )]
    pub(crate) github_app_private_key: Option<Secret>,
    /// A token that may read workflow runs, for rescue [default: the one that registers runners]
    #[arg(long, env = "ONDECK_JOBS_TOKEN", value_name = "TOKEN")]
    pub(crate) jobs_token: Option<Secret>,
    /// Where GitHub is; an Enterprise Server has its own [default: GITHUB_SERVER_URL, or
    /// github.com]
    #[arg(long, env = "ONDECK_GITHUB_URL", value_name = "URL")]
    pub(crate) github_url: Option<String>,
    /// Whose runners they are: the repository's, or its whole organisation's
    #[arg(long, env = "ONDECK_SCOPE", default_value = "repository")]
    pub(crate) scope: ScopeKind,
    /// The repository [default: GITHUB_REPOSITORY, or the pool]
    #[arg(long, env = "ONDECK_REPOSITORY", value_name = "OWNER/NAME")]
    pub(crate) repository: Option<String>,
    /// The group that runners of an organisation join; empty for the default one
    #[arg(long, env = "ONDECK_RUNNER_GROUP", value_name = "NAME")]
    pub(crate) runner_group: Option<String>,
    /// The version of actions/runner: a number, or latest for what GitHub offers; one that is on
    /// the image will do for latest [default: latest]
    #[arg(long, env = "ONDECK_ACTIONS_RUNNER_VERSION", value_name = "VERSION")]
    pub(crate) actions_runner_version: Option<String>,
    /// Where releases of actions/runner are looked up [default: api.github.com]
    #[arg(long, env = "ONDECK_ACTIONS_RUNNER_API_URL", value_name = "URL")]
    pub(crate) actions_runner_api_url: Option<String>,
    /// The user that jobs run as; made if there is none [default: runner on aws, else the
    /// agent's own]
    #[arg(long, env = "ONDECK_RUNNER_USER", value_name = "USER")]
    pub(crate) runner_user: Option<String>,
}

#[cfg(feature = "control")]
impl GitHubInputs {
    /// Those that nobody may see.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        [&self.github_token, &self.github_app_private_key, &self.jobs_token].into_iter().flatten()
    }
}

/// Where jobs come from.
#[cfg(feature = "control")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ForgeKind {
    // Jobs queued by `ondeck run` in the local files.
    Local,
    // GitHub. Every build knows the word; those without it say so.
    Github,
}

/// Whose runners they are.
#[cfg(feature = "control")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeKind {
    Repository,
    Organisation,
}

/// What only AWS knows.
#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct AwsInputs {
    /// The image that machines start from
    #[arg(long, env = "ONDECK_AMI", value_name = "AMI")]
    pub(crate) ami: Option<String>,
    /// The subnets that machines may be in; best one in each zone
    #[arg(long, env = "ONDECK_SUBNET_IDS", value_name = "SUBNET ...")]
    pub(crate) subnet_ids: Option<String>,
    /// The security groups of machines
    #[arg(long, env = "ONDECK_SECURITY_GROUP_IDS", value_name = "GROUP ...")]
    pub(crate) security_group_ids: Option<String>,
    /// The instance profile of machines, by name or ARN; it must let them use the table and end
    /// themselves
    #[arg(long, env = "ONDECK_IAM_INSTANCE_PROFILE", value_name = "PROFILE")]
    pub(crate) iam_instance_profile: Option<String>,
    /// Where machines get the agent: https://, or s3:// if the image has the aws program; empty if
    /// it is on the image
    #[arg(long, env = "ONDECK_AGENT_URL", value_name = "URL")]
    pub(crate) agent_url: Option<String>,
    /// What the agent's SHA-256 must be
    #[arg(long, env = "ONDECK_AGENT_SHA256", value_name = "HEX")]
    pub(crate) agent_sha256: Option<String>,
    /// The size of each machine's disk; empty for that of the image
    #[arg(long, env = "ONDECK_VOLUME_SIZE_GB", value_name = "GB")]
    pub(crate) volume_size_gb: Option<String>,
    /// The key pair that opens machines to ssh; empty for none
    #[arg(long, env = "ONDECK_KEY_NAME", value_name = "NAME")]
    pub(crate) key_name: Option<String>,
}

/// What only the local backend knows.
#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct LocalInputs {
    /// The most machines that may be alive at once; empty for no limit
    #[arg(long, env = "ONDECK_LOCAL_CAPACITY", value_name = "COUNT")]
    pub(crate) local_capacity: Option<String>,
    /// How long every machine takes to boot, in milliseconds
    #[arg(long, env = "ONDECK_LOCAL_BOOT_MS", value_name = "MS")]
    pub(crate) local_boot_ms: Option<String>,
    /// The types of machine, as JSON: [{"type":"c6i.large","cpu":2,"mem":4096,"bootMs":0,"capacity":3}]
    #[arg(long, env = "ONDECK_LOCAL_CATALOGUE", value_name = "JSON")]
    pub(crate) local_catalogue: Option<String>,
    /// Make every launch fail with this text; empty to stop
    #[arg(long, env = "ONDECK_LOCAL_LAUNCH_FAILURE", value_name = "TEXT")]
    pub(crate) local_launch_failure: Option<String>,
    /// Deliver every ticket twice, as SQS may
    #[arg(long, env = "ONDECK_LOCAL_DUPLICATE_TICKETS", value_name = "true|false")]
    pub(crate) local_duplicate_tickets: Option<String>,
}

#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct RunInput {
    /// The workflow run; also the label of its machines [default: GITHUB_RUN_ID]
    #[arg(long, env = "ONDECK_RUN_ID", value_name = "ID")]
    run_id: Option<RunId>,
}

#[cfg(feature = "control")]
impl RunInput {
    /// The run that was named, or the one that this process is part of.
    pub(crate) fn get(&self) -> Result<RunId, Failure> {
        if let Some(run) = &self.run_id {
            return Ok(run.clone());
        }
        let hint = "give --run-id, or set ONDECK_RUN_ID or GITHUB_RUN_ID";
        match std::env::var("GITHUB_RUN_ID") {
            Ok(run) if !run.is_empty() => {
                RunId::new(run).map_err(|error| Failure::invalid(error.to_string()).hint(hint))
            }
            _ => Err(Failure::invalid("no run id given").hint(hint)),
        }
    }
}

#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct Provision {
    #[command(flatten)]
    pub(crate) run: RunInput,
    /// How many machines
    #[arg(long, env = "ONDECK_INSTANCE_COUNT", default_value = "1", value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_COUNT)),
          allow_negative_numbers = true)]
    pub(crate) instance_count: u32,
    /// Of which size, by the name that refresh configured
    #[arg(long, env = "ONDECK_RESOURCE_CLASS", default_value = "large", value_name = "CLASS")]
    pub(crate) resource_class: ResourceClass,
    /// Paid for how: spot or on-demand
    #[arg(long, env = "ONDECK_USAGE_CLASS", default_value = "on-demand", value_name = "CLASS")]
    pub(crate) usage_class: UsageClass,
    /// Which instance types will do; * stands for anything
    #[arg(long, env = "ONDECK_ALLOWED_INSTANCE_TYPES", default_value = DEFAULT_TYPES,
          value_name = "PATTERNS")]
    pub(crate) allowed_instance_types: TypePatterns,
    /// Try again for what could not be launched, and then on demand instead of spot
    #[arg(long, env = "ONDECK_CAPACITY_FALLBACK")]
    pub(crate) capacity_fallback: bool,
    #[command(flatten)]
    pub(crate) times: TimeInputs<ForProvision>,
}

#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) run: RunInput,
    #[command(flatten)]
    pub(crate) times: TimeInputs<ForRelease>,
}

#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) run: RunInput,
    /// How long the job may wait for a machine of its run before it is withdrawn
    #[arg(long, env = "ONDECK_QUEUE_TIMEOUT_SEC", default_value = "300", value_name = "SEC")]
    pub(crate) queue_timeout_sec: u32,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Show terminated machines too
    #[arg(long)]
    pub(crate) all: bool,
    /// Show it again every second, until interrupted
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,
}

#[cfg(feature = "control")]
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leave the home with its store and logs behind, and say where
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// The machine that this is; on EC2 the machine knows
    #[arg(long, env = "ONDECK_INSTANCE_ID", value_name = "ID")]
    pub(crate) instance_id: Option<InstanceId>,
    /// What ends this machine where EC2 cannot be asked to
    #[arg(
        long,
        env = "ONDECK_SHUTDOWN_COMMAND",
        default_value = "shutdown -h now",
        value_name = "COMMAND"
    )]
    pub(crate) shutdown_command: String,
}
