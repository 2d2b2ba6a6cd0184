//! Records in DynamoDB, tickets in SQS, machines from EC2.

use std::sync::Arc;
use std::time::Duration;

use ondeck_aws::{Cloud, DynamoStore, Ec2Compute, Ec2Host, Imds, Options, PoolName};
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{PortResult, Runner};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_local::LocalRunner;

use super::local;
use super::runner::{ChosenRunner, Place};
use crate::inputs::{Common, rows};
use crate::surroundings::{Entropy, WallClock};

/// How long a machine that has just booted is given to tell who it is. One that cannot be told
/// apart from others can neither be given to a run nor be found by anybody, so it ends.
const IDENTITY: Retry = Retry {
    attempts: u32::MAX,
    first_pause: Duration::from_millis(200),
    longest_pause: Duration::from_secs(5),
    within: Duration::from_secs(180),
    retry_all_errors: true,
};

/// The user that jobs run as on a machine of their own.
const RUNNER_USER: &str = "runner";

/// What an agent works with. A machine that cannot even get so far is ended.
pub(super) async fn agent(common: &Common) -> Result<ondeck_agent::Agent, Failure> {
    let command = common.given.text_or_default(&rows::SHUTDOWN_COMMAND).unwrap_or_default();
    let made = make_agent(common, command).await;
    // What is wrong with the command line is no reason to end the computer of whoever typed it.
    // Where nobody did, the service gives up after a while, and that ends the machine.
    if let Err(failure) = &made
        && failure.kind != FailureKind::InvalidInput
    {
        let why = format!("the agent does not start: {failure}");
        ondeck_aws::shut_down(command, &why).await;
    }
    made
}

async fn make_agent(
    common: &Common,
    shutdown_command: &str,
) -> Result<ondeck_agent::Agent, Failure> {
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
        let cloud = Cloud::connect(options(common, pool.clone()), Arc::new(Entropy)).await?;
        PortResult::Ok((id, pool.to_string(), cloud))
    };
    let (id, pool, cloud): (InstanceId, String, Cloud) =
        retry(&WallClock, &Entropy, IDENTITY, identify).await?;
    tracing::debug!(instance = %id, pool, region = cloud.region(), "knows who it is");
    let home = local::home(common)?;
    let (clock, store) = (Arc::new(cloud.clock()), Arc::new(DynamoStore::new(&cloud)));
    let compute = Arc::new(Ec2Compute::new(&cloud));
    let folder = home.machine(&id);
    let place = Place { id: id.clone(), pool, folder: folder.clone(), user: Some(RUNNER_USER) };
    let machine = id.clone();
    let local = Box::new(move || {
        // The local forge's file; on a machine of its own it is the machine's own.
        let db = ondeck_local::Db::create(&home).map_err(|error| error.to_string())?;
        let runner = LocalRunner::new(db, home.clone(), Arc::new(WallClock), machine.clone());
        Ok(Arc::new(runner) as Arc<dyn Runner>)
    });
    Ok(ondeck_agent::Agent {
        runner: Arc::new(ChosenRunner::new(store.clone(), place, local)),
        store,
        host: Arc::new(Ec2Host::new(
            imds,
            compute,
            clock.clone(),
            id.clone(),
            folder,
            shutdown_command.to_owned(),
        )),
        clock,
        random: Arc::new(Entropy),
        id,
    })
}

fn options(common: &Common, pool: PoolName) -> Options {
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
    let parse = |name: String| {
        name.parse()
            .map_err(|error: ondeck_aws::InvalidPoolName| Failure::invalid(error.to_string()))
    };
    named.map(parse).transpose()
}

#[cfg(feature = "control")]
pub(crate) use self::control::plane;

#[cfg(feature = "control")]
mod control {
    use ondeck_aws::SqsPool;
    use ondeck_core::modes::plane::Plane;
    use ondeck_core::ports::{Forge, Progress};

    use super::super::forge;
    use super::super::no_forge::NoForge;
    use super::local::Local;
    use super::{Arc, Cloud, Common, DynamoStore, Ec2Compute, Entropy, Failure, options, pool};
    use crate::inputs::rows;

    /// The control plane's ports.
    pub(crate) async fn plane(
        common: &Common,
        refresh: bool,
        progress: Arc<dyn Progress>,
    ) -> Result<Plane, Failure> {
        let pool = pool(common)?.ok_or_else(|| {
            Failure::invalid("no pool given")
                .hint("give --pool OWNER/REPOSITORY, or set ONDECK_POOL or GITHUB_REPOSITORY")
        })?;
        let forge: Arc<dyn Forge> = if !refresh {
            Arc::new(NoForge)
        } else if common.given.text(&rows::FORGE) == Some(rows::LOCAL) {
            // This file is about jobs alone.
            Arc::new(Local::open(common, true)?.forge)
        } else {
            let name = pool.to_string();
            forge::github(&common.given, &name, Some(&name))?
        };
        let cloud = Cloud::connect(options(common, pool), Arc::new(Entropy)).await?;
        let store = Arc::new(DynamoStore::new(&cloud));
        Ok(Plane {
            pool: Arc::new(SqsPool::new(&cloud)),
            compute: Arc::new(Ec2Compute::new(&cloud)),
            store,
            forge,
            clock: Arc::new(cloud.clock()),
            random: Arc::new(Entropy),
            progress,
        })
    }
}
