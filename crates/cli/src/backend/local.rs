//! Machines that are processes of this computer, and records in its SQLite file.

use std::ffi::OsString;
use std::sync::Arc;

use ondeck_agent::Agent;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, ProviderName};
use ondeck_core::ports::{Clock, Runner};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_local::{Db, Home, LocalHost, LocalRunner, LocalStore, Process};

use super::runner::{ChosenRunner, MakeRunner, RunnerPlace};
use super::{AgentRecords, home_dir};
use crate::inputs::{Backend, Common};
use crate::surroundings::{Entropy, WallClock};

/// The directory of the local files. Nothing is created. Fails with exit code 2 without `/proc`,
/// because processes could be neither found nor told apart.
pub(crate) fn home(common: &Common) -> Result<Home, Failure> {
    if !Process::are_visible() {
        return Err(Failure::invalid(
            "the local backend needs /proc, which does not show this process",
        )
        .hint("mount it by: mount -t proc proc /proc; or give --backend aws"));
    }
    Ok(Home::new(home_dir(common)?))
}

/// Assembles the agent of a machine that is this process. Fails if the list of machines does not
/// have it.
pub(super) async fn agent(common: &Common) -> Result<Agent, Failure> {
    let id = identity(common)?;
    let home = home(common)?;
    // Processes of jobs could otherwise leave the machine. Without it they are found as far as they
    // can be recognised.
    if let Err(error) = ondeck_local::adopt_orphans() {
        tracing::warn!("cannot adopt orphaned processes: {error}");
    }
    // A store that is busy just now must not cost the machine its life.
    let (db, boot) = retry(&WallClock, &Entropy, Retry::SHORT, |_| async {
        let db = Db::open(&home)?;
        ondeck_local::announce(&db, &id).await?;
        let boot = ondeck_local::boot_time(&db, &id).await?;
        Ok((db, boot))
    })
    .await?;
    tokio::time::sleep(boot).await;
    let AgentRecords { store, clock, label } = records(common, &db, &home).await?;
    let place = RunnerPlace {
        id: id.clone(),
        label,
        folder: home.machine(&id),
        pool_folders: vec![home.dir().to_owned(), home.machines()],
        user: None,
        wrapper: Vec::new(),
        cgroup: None,
        own_machine: false,
    };
    let local = local_runner(Some(db.clone()), home.clone(), id.clone(), clock.clone(), Vec::new());
    Ok(Agent {
        runner: Arc::new(ChosenRunner::new(store.clone(), clock.clone(), place, local)),
        store,
        host: Arc::new(LocalHost::new(db, home, id.clone(), clock.clone())),
        clock,
        random: Arc::new(Entropy),
        id,
    })
}

/// The identity under which records know this process, from the name it was launched under.
fn identity(common: &Common) -> Result<InstanceId, Failure> {
    let named = super::instance_id(common)?.ok_or_else(|| {
        Failure::invalid("no instance id given")
            .hint("give --instance-id; the local backend does so when it starts a machine")
    })?;
    ProviderName::new(named)
        .and_then(|name| ondeck_local::identity(&name))
        .map_err(|error| Failure::invalid(error.to_string()))
}

async fn records(common: &Common, db: &Db, home: &Home) -> Result<AgentRecords, Failure> {
    match common.records {
        Backend::Local => Ok(AgentRecords {
            store: Arc::new(LocalStore::new(db.clone())),
            clock: Arc::new(WallClock),
            label: label(home),
        }),
        #[cfg(feature = "aws")]
        Backend::Aws => super::aws::records(common).await,
        #[cfg(not(feature = "aws"))]
        Backend::Aws => Err(super::not_built(Backend::Aws)),
    }
}

/// Makes the runner for jobs of the local forge. Without an open file it creates one in `home`.
/// `wrapper` is put in front of each job's command.
pub(super) fn local_runner(
    db: Option<Db>,
    home: Home,
    id: InstanceId,
    clock: Arc<dyn Clock>,
    wrapper: Vec<OsString>,
) -> MakeRunner {
    Box::new(move || {
        let db = match &db {
            Some(db) => db.clone(),
            None => Db::create(&home).map_err(|error| error.to_string())?,
        };
        let runner = LocalRunner::new(db, home.clone(), clock.clone(), id.clone());
        Ok(Arc::new(runner.with_wrapper(wrapper.clone())) as Arc<dyn Runner>)
    })
}

/// Names the records of this home among those of all computers.
pub(crate) fn label(home: &Home) -> String {
    let computer = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("local:{}:{}", computer.trim(), home.dir().display())
}
