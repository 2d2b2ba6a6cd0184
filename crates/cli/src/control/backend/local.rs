//! Records in a SQLite file, machines that are processes, and the local forge.

use std::ffi::OsString;
use std::sync::Arc;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{Compute, Diagnosis};
use ondeck_local::{
    AgentCommand, Db, Home, LocalCompute, LocalDiagnosis, LocalForge, LocalPool, LocalStore,
};

use super::Records;
use crate::backend::local::{home, label};
use crate::inputs::{Backend, Common, rows};
use crate::surroundings::WallClock;

/// The SQLite file, for what is not in the ports: jobs and events.
pub(crate) struct LocalFiles {
    pub(crate) db: Db,
    pub(crate) store: LocalStore,
    pub(crate) forge: LocalForge,
}

impl LocalFiles {
    /// Opens the existing file. Fails if refresh has not created it.
    pub(crate) fn open(common: &Common) -> Result<LocalFiles, Failure> {
        let db = Db::open(&home(common)?)?;
        Ok(LocalFiles {
            store: LocalStore::new(db.clone()),
            forge: LocalForge::new(db.clone(), Arc::new(WallClock)),
            db,
        })
    }

    /// The id of the process that is a machine's agent, if one was started.
    pub(crate) async fn pid(&self, id: &InstanceId) -> Result<Option<i32>, Failure> {
        Ok(ondeck_local::pid(&self.db, id).await?)
    }
}

pub(super) fn records(common: &Common, create: bool) -> Result<Records, Failure> {
    let clock = Arc::new(WallClock);
    let home = home(common)?;
    let db = open(&home, create)?;
    let store = Arc::new(LocalStore::new(db.clone()));
    Ok(Records {
        history: store.clone(),
        store,
        pool: Arc::new(LocalPool::new(db.clone(), clock.clone())),
        clock,
        label: label(&home),
        owner: None,
        db: Some(db),
        #[cfg(feature = "aws")]
        cloud: None,
    })
}

/// Machines that are processes of this computer. Their list is in the local file, wherever the
/// records are.
pub(super) fn compute(
    common: &Common,
    create: bool,
    records: &Records,
) -> Result<Arc<dyn Compute>, Failure> {
    let home = home(common)?;
    let db = match &records.db {
        Some(db) => db.clone(),
        None => open(&home, create)?,
    };
    let command = agent_command(common, records)?;
    Ok(Arc::new(LocalCompute::new(db, home, records.clock.clone(), command)))
}

/// This computer, as doctor asks about it.
pub(super) fn diagnosis(
    common: &Common,
    records: &Records,
    has_forge: bool,
) -> Result<Arc<dyn Diagnosis>, Failure> {
    let home = home(common)?;
    let db = match &records.db {
        Some(db) => db.clone(),
        None => open(&home, false)?,
    };
    Ok(Arc::new(LocalDiagnosis::new(db, home, records.clock.clone(), has_forge)))
}

/// The forge whose jobs are in the local file, which is created if it is missing.
pub(super) fn forge(common: &Common, records: &Records) -> Result<LocalForge, Failure> {
    let db = match &records.db {
        Some(db) => db.clone(),
        None => open(&home(common)?, true)?,
    };
    Ok(LocalForge::new(db, records.clock.clone()))
}

fn open(home: &Home, create: bool) -> Result<Db, Failure> {
    Ok(if create { Db::create(home)? } else { Db::open(home)? })
}

/// Machines run this very program. What it needs to find the records is either an argument or, if
/// it may be secret, a variable that it inherits.
#[cfg_attr(
    not(feature = "aws"),
    expect(unused_variables, reason = "records that are not in this file are on AWS")
)]
fn agent_command(common: &Common, records: &Records) -> Result<AgentCommand, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(FailureKind::Unexpected, format!("own program not found: {error}"))
    })?;
    let mut command = AgentCommand { program, args: vec![OsString::from("agent")], variables: &[] };
    if common.records == Backend::Aws {
        let mut option = |name: &str, value: &str| {
            command.args.push(format!("--{name}={value}").into());
        };
        option(rows::RECORDS.name, rows::AWS);
        option(rows::COMPUTE.name, rows::LOCAL);
        #[cfg(feature = "aws")]
        {
            option(ondeck_aws::POOL.name, &records.label);
            for row in [ondeck_aws::REGION, ondeck_aws::ENDPOINT_URL] {
                if let Some(text) = common.given.text(&row) {
                    option(row.name, text);
                }
            }
            command.variables = ondeck_aws::VARIABLES;
        }
    }
    Ok(command)
}
