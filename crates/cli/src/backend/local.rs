//! Everything on this computer: one SQLite file, and processes for machines.

use std::sync::Arc;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::Runner;
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_local::{Db, Home, LocalHost, LocalRunner, LocalStore};

use super::runner::{ChosenRunner, Place};
use crate::inputs::Common;
use crate::surroundings::{Entropy, WallClock};

/// Where the files are kept.
pub(super) fn home(common: &Common) -> Result<Home, Failure> {
    let dir = match (&common.home, std::env::home_dir()) {
        (Some(dir), _) => std::path::absolute(dir).map_err(|error| {
            Failure::invalid(format!("home cannot be used: {}: {error}", dir.display()))
        })?,
        (None, Some(user)) => user.join(".ondeck"),
        (None, None) => {
            return Err(Failure::invalid("no home directory").hint("give --home or ONDECK_HOME"));
        }
    };
    Ok(Home::new(dir))
}

/// What an agent works with.
pub(super) async fn agent(common: &Common, id: InstanceId) -> Result<ondeck_agent::Agent, Failure> {
    let home = home(common)?;
    let clock = Arc::new(WallClock);
    // A store that is busy just now must not cost the machine its life.
    let (db, boot) = retry(&WallClock, &Entropy, Retry::SHORT, |_| async {
        let db = Db::open(&home)?;
        ondeck_local::announce(&db, &id).await?;
        let boot = ondeck_local::boot_time(&db, &id).await?;
        Ok((db, boot))
    })
    .await?;
    tokio::time::sleep(boot).await;
    let store = Arc::new(LocalStore::new(db.clone()));
    let place = Place { id: id.clone(), pool: pool(&home), folder: home.machine(&id), user: None };
    let (files, machine) = ((db.clone(), home.clone()), id.clone());
    let local = Box::new(move || {
        let (db, home) = files.clone();
        let runner = LocalRunner::new(db, home, Arc::new(WallClock), machine.clone());
        Ok(Arc::new(runner) as Arc<dyn Runner>)
    });
    Ok(ondeck_agent::Agent {
        runner: Arc::new(ChosenRunner::new(store.clone(), place, local)),
        store,
        host: Arc::new(LocalHost::new(db, home, id.clone())),
        clock,
        random: Arc::new(Entropy),
        id,
    })
}

/// What tells the machines of this home from those of other computers in a forge's list.
fn pool(home: &Home) -> String {
    let computer = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("local:{}:{}", computer.trim(), home.dir().display())
}

#[cfg(feature = "control")]
pub(crate) use self::control::{Local, plane};

#[cfg(feature = "control")]
mod control {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use ondeck_core::model::failure::FailureKind;
    use ondeck_core::modes::plane::Plane;
    use ondeck_core::ports::{Forge, PortError, Progress, Store};
    use ondeck_local::{AgentCommand, LocalCompute, LocalForge, LocalPool};

    use super::super::{FORGE, GITHUB, forge};
    use super::{
        Arc, Common, Db, Entropy, Failure, Home, InstanceId, LocalStore, WallClock, home, pool,
    };
    use crate::inputs::rows;

    /// The file, for what is not in the ports: jobs and events.
    pub(crate) struct Local {
        pub(crate) home: Home,
        pub(crate) db: Db,
        pub(crate) store: LocalStore,
        pub(crate) forge: LocalForge,
    }

    impl Local {
        /// Opens the file; refresh may create it.
        pub(crate) fn open(common: &Common, create: bool) -> Result<Local, Failure> {
            let home = home(common)?;
            let db = if create { Db::create(&home)? } else { Db::open(&home)? };
            let clock = Arc::new(WallClock);
            Ok(Local {
                store: LocalStore::new(db.clone()),
                forge: LocalForge::new(db.clone(), clock),
                home,
                db,
            })
        }

        /// The process that is a machine's agent.
        pub(crate) async fn pid(&self, id: &InstanceId) -> Result<Option<i32>, Failure> {
            Ok(ondeck_local::pid(&self.db, id).await?)
        }
    }

    /// The control plane's ports.
    pub(crate) async fn plane(
        common: &Common,
        refresh: bool,
        progress: Arc<dyn Progress>,
    ) -> Result<Plane, Failure> {
        let Local { home, db, store, forge: own } = Local::open(common, refresh)?;
        let forge: Arc<dyn Forge> = if refresh && is_github(common, &store).await? {
            forge::github(&common.given, &pool(&home), None)?
        } else {
            Arc::new(own)
        };
        let clock = Arc::new(WallClock);
        let compute = LocalCompute::new(db.clone(), home, clock.clone(), agent_command()?);
        Ok(Plane {
            store: Arc::new(store),
            pool: Arc::new(LocalPool::new(db, clock.clone())),
            compute: Arc::new(compute),
            forge,
            clock,
            random: Arc::new(Entropy),
            progress,
        })
    }

    /// Whether jobs come from GitHub: as was said now, or else before.
    async fn is_github(common: &Common, store: &LocalStore) -> Result<bool, Failure> {
        if let Some(forge) = common.given.text(&rows::FORGE) {
            return Ok(forge == GITHUB);
        }
        match Store::settings(store).await {
            Ok(settings) => Ok(settings.get(FORGE).is_some_and(|forge| forge == GITHUB)),
            Err(PortError::NotSetUp { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Machines run this very program.
    fn agent_command() -> Result<AgentCommand, Failure> {
        let program: PathBuf = std::env::current_exe().map_err(|error| {
            Failure::new(FailureKind::Unexpected, format!("own program not found: {error}"))
        })?;
        Ok(AgentCommand { program, args: vec![OsString::from("agent")] })
    }
}
