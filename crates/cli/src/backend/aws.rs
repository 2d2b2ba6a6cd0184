//! Machines from EC2, and records in DynamoDB. All of it goes by AWS's clock.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ondeck_agent::Agent;
use ondeck_aws::{
    Cloud, DynamoStore, Ec2Host, FirewalledRunner, Imds, LogDestination, MachineLogs,
    MetadataFirewall, Options, PoolName,
};
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{PortResult, Runner};
use ondeck_core::runtime::retry::{Retry, retry};

use super::AgentRecords;
use super::runner::{ChosenRunner, RunnerPlace};
use crate::inputs::{Common, rows};
use crate::logging::LogCopy;
use crate::surroundings::{Entropy, WallClock};

/// How long a machine that has just booted may take to learn its identity. One without an identity
/// can neither be given to a run nor be found by refresh, so it shuts down.
const IDENTITY: Retry = Retry {
    attempts: u32::MAX,
    first_pause: Duration::from_millis(200),
    longest_pause: Duration::from_secs(5),
    within: Duration::from_secs(180),
    retry_all_errors: true,
};

/// Assembles the agent of this EC2 instance. If that fails, it shuts the machine down, unless the
/// command line is to blame: then this may be the computer of the person who typed it. Where a
/// service started the agent, the service gives up after a while, and that ends the machine.
pub(super) async fn agent(common: &Common, copy: &LogCopy) -> Result<Agent, Failure> {
    let command = common.given.text_or_default(&rows::SHUTDOWN_COMMAND).unwrap_or_default();
    let made = make_agent(common, command, copy).await;
    if let Err(failure) = &made
        && failure.kind != FailureKind::InvalidInput
    {
        let why = format!("the agent does not start: {failure}");
        let _succeeded = ondeck_aws::shut_down(command, &why).await;
    }
    made
}

async fn make_agent(
    common: &Common,
    shutdown_command: &str,
    copy: &LogCopy,
) -> Result<Agent, Failure> {
    // Comes first, because it concerns connections that are opened later.
    let firewall = firewall(common).await;
    let (wrapper, cgroup) = match &firewall {
        Some(Ok(firewall)) => (firewall.job_wrapper(), Some(firewall.job_cgroup())),
        Some(Err(_)) | None => (Vec::new(), None),
    };
    let told = super::instance_id(common)?;
    let imds = Imds::new();
    let given = pool(common)?;
    let identify = |_| async {
        let id = match &told {
            Some(id) => id.clone(),
            None => imds.instance_id().await?,
        };
        let pool = match &given {
            Some(pool) => pool.clone(),
            None => imds.pool().await?,
        };
        let arn = imds.arn().await?;
        let cloud = Cloud::connect(options(common, pool.clone()), Arc::new(Entropy)).await?;
        PortResult::Ok((id, pool, arn, cloud))
    };
    let (id, pool, arn, cloud): (InstanceId, PoolName, String, Cloud) =
        retry(&WallClock, &Entropy, IDENTITY, identify).await?;
    tracing::debug!(instance = %id, %pool, region = cloud.region(), "identified");
    let logs = machine_logs(common, &cloud, &id, copy);
    let folder = super::home_dir(common)?.join("machines").join(id.as_str());
    let AgentRecords { store, clock, label } = records_in(&cloud, &pool, Some(arn));
    let place = RunnerPlace {
        id: id.clone(),
        label,
        folder: folder.clone(),
        pool_folders: Vec::new(),
        user: Some(ondeck_aws::DEFAULT_RUNNER_USER),
        wrapper: wrapper.clone(),
        cgroup,
        own_machine: common.given.text_or_default(&rows::OWN_MACHINE) == Some(rows::TRUE),
    };
    // On a machine of its own the local forge's file is the machine's own, too.
    #[cfg(feature = "local")]
    let local = {
        let home = super::local::home(common)?;
        super::local::local_runner(None, home, id.clone(), clock.clone(), wrapper)
    };
    #[cfg(not(feature = "local"))]
    let local = super::runner::no_local_runner();
    let runner = Arc::new(ChosenRunner::new(store.clone(), clock.clone(), place, local));
    let runner: Arc<dyn Runner> = match firewall {
        Some(firewall) => Arc::new(FirewalledRunner::new(runner, firewall)),
        None => runner,
    };
    let host = Ec2Host::new(imds, clock.clone(), id.clone(), folder, shutdown_command.to_owned());
    Ok(Agent {
        runner,
        store,
        host: Arc::new(host.copying(logs)),
        clock,
        random: Arc::new(Entropy),
        id,
    })
}

/// Where the log of the agent is to be copied to; `None` if nowhere. A value that cannot be read was
/// refused by the command line.
pub(crate) fn log_destination(common: &Common) -> Option<LogDestination> {
    let text = common.given.text(&ondeck_aws::MACHINE_LOGS)?;
    LogDestination::parse(text).ok().flatten()
}

/// Starts to send the log of the agent away, if that is wanted.
fn machine_logs(
    common: &Common,
    cloud: &Cloud,
    id: &InstanceId,
    copy: &LogCopy,
) -> Option<Arc<MachineLogs>> {
    let (destination, lines) = (log_destination(common)?, copy.lines.clone()?);
    let logs = Arc::new(MachineLogs::new(cloud, destination, id, lines));
    tokio::spawn(logs.clone().send_at_intervals());
    Some(copy.sender.get_or_init(|| logs).clone())
}

/// Keeps jobs from the metadata service, or says why that is impossible; `None` if the operator
/// permits jobs to use it. A rule that an earlier agent has left names a cgroup that may be gone, so
/// without a new one this agent could not reach the service either. If the rule cannot be loaded, the
/// agent tries again before the first job, and then reports it.
async fn firewall(common: &Common) -> Option<Result<Arc<MetadataFirewall>, String>> {
    if common.given.text_or_default(&ondeck_aws::METADATA_FIREWALL) == Some(ondeck_aws::OFF) {
        return None;
    }
    // This program, also after its file was replaced.
    let program = format!("/proc/{}/exe", std::process::id());
    let mut firewall = MetadataFirewall::enter(vec![program.into(), PROBE.into()]);
    if common.given.text(&ondeck_aws::CONNECT) == Some(ondeck_aws::SSM) {
        firewall = firewall.map(MetadataFirewall::admitting_ssm);
    }
    if let Ok(firewall) = &firewall
        && let Err(why) = firewall.load().await
    {
        tracing::warn!("{why}");
    }
    Some(firewall.map(Arc::new))
}

/// The command by which an agent starts a process that tries to reach the metadata service. It is no
/// command for people, so the command line does not show it.
const PROBE: &str = "probe-metadata";

/// Whether this process was started to try to reach the metadata service.
pub(crate) fn is_probe() -> bool {
    std::env::args_os().skip(1).eq([PROBE])
}

/// Prints the address at which this process reaches the metadata service. Returns the exit code: 0
/// if there is none.
pub(crate) async fn probe() -> u8 {
    let Some(address) = ondeck_aws::reachable_metadata().await else { return 0 };
    // The exit code alone says that there is one.
    writeln!(std::io::stdout(), "{address}").ok();
    1
}

/// The records in DynamoDB, for an agent on a machine that is not EC2's.
#[cfg(feature = "local")]
pub(super) async fn records(common: &Common) -> Result<AgentRecords, Failure> {
    let pool = named_pool(common)?;
    let cloud = Cloud::connect(options(common, pool.clone()), Arc::new(Entropy)).await?;
    Ok(records_in(&cloud, &pool, None))
}

fn records_in(cloud: &Cloud, pool: &PoolName, identity: Option<String>) -> AgentRecords {
    AgentRecords {
        store: Arc::new(DynamoStore::of_agent(cloud, identity)),
        clock: Arc::new(cloud.clock()),
        label: pool.to_string(),
    }
}

/// How to connect to the pool of this name.
pub(crate) fn options(common: &Common, pool: PoolName) -> Options {
    Options {
        pool,
        region: common.given.owned(&ondeck_aws::REGION),
        endpoint_url: common.given.owned(&ondeck_aws::ENDPOINT_URL),
    }
}

/// The pool that was named, or that of the repository whose workflow this process is part of.
fn pool(common: &Common) -> Result<Option<PoolName>, Failure> {
    let named = match common.given.owned(&ondeck_aws::POOL) {
        Some(pool) => Some(pool),
        None => std::env::var("GITHUB_REPOSITORY").ok().filter(|name| !name.is_empty()),
    };
    let trust = common.given.text(&ondeck_aws::TRUST).filter(|level| !level.is_empty());
    let parse = |name: String| {
        let pool = name.parse::<PoolName>();
        let pool = match trust {
            Some(level) => pool.and_then(|pool| pool.at_trust(level)),
            None => pool,
        };
        pool.map_err(|error| Failure::invalid(error.to_string()))
    };
    named.map(parse).transpose()
}

/// The same, where there is no machine to ask for it.
#[cfg(any(feature = "control", feature = "local"))]
pub(crate) fn named_pool(common: &Common) -> Result<PoolName, Failure> {
    pool(common)?.ok_or_else(|| {
        Failure::invalid("no pool given")
            .hint("give --pool OWNER/REPOSITORY, or set ONDECK_POOL or GITHUB_REPOSITORY")
    })
}
