//! What happens on the machine between two runs.
//!
//! A machine that has a user for its runner belongs to the pool alone. What docker held before its
//! first run is recorded once and restored after each run, so that nothing which one run slipped
//! past the cleaning is taken for the operator's later. On a computer with other users, only what
//! appeared during a run is removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use ondeck_processes::{MachineProcesses, Process, descendants_of, kill_others};

use super::docker::{Extent, Inventory};
use super::user::User;
use super::{GitHubRunner, Prepared, diagnostics, disk, leftover_files};
use crate::inputs::{KEEP_DOCKER_CACHE, MIN_FREE_DISK, MIN_FREE_DISK_PERCENT, TRUE, percent};

/// The state file that exists while a run is on the machine.
const BEGAN: &str = "began";
/// What docker held when the run began. Only on a computer with other users.
const DOCKER: &str = "docker";
/// What docker held before the first run.
const DOCKER_BASELINE: &str = "docker-baseline";
/// Exists from the beginning of the first run.
const SERVED: &str = "served";

/// The operator's choices about what may stay on a machine.
#[derive(Debug, PartialEq, Eq)]
struct CleaningSettings {
    docker: Extent,
    /// In percent.
    min_free_disk: u8,
}

impl CleaningSettings {
    /// Fails if a setting cannot be parsed.
    fn from_map(map: &BTreeMap<String, String>) -> Result<CleaningSettings, String> {
        let keeps = map.get(KEEP_DOCKER_CACHE.name).is_some_and(|value| value == TRUE);
        let name = MIN_FREE_DISK.name;
        let least = map.get(name).map_or(MIN_FREE_DISK_PERCENT, String::as_str);
        Ok(CleaningSettings {
            docker: if keeps { Extent::KeepCache } else { Extent::Everything },
            min_free_disk: percent(least).map_err(|why| format!("{name} {why}"))?,
        })
    }
}

impl GitHubRunner {
    /// Kills every process that runs left on this machine, including those that an earlier process of
    /// this agent started. Fails if one survives.
    pub(super) async fn kill_processes(&self, user: &User) -> Result<(), String> {
        let descendants = self.listeners_descendants().await?;
        self.kill_with(user, descendants).await
    }

    /// The processes that the listener has started, directly or not, and that have not lost their
    /// parent.
    pub(super) async fn listeners_descendants(&self) -> Result<Vec<Process>, String> {
        let Some(leader) = self.layout.group()? else { return Ok(Vec::new()) };
        descendants_of(leader).await.map_err(|e| format!("leftover processes: {e}"))
    }

    /// Kills `known` processes and those that belong to runs in another way: by the user, by the
    /// process group of the listener, or by the cgroup of jobs, where `sudo` and `setsid` leave them.
    pub(super) async fn kill_with(&self, user: &User, known: Vec<Process>) -> Result<(), String> {
        let group = self.layout.group()?;
        let machine = MachineProcesses {
            known,
            groups: group.into_iter().collect(),
            found_by: user.found_by(),
            cgroup: self.cgroup.clone(),
            ..MachineProcesses::of(&self.options.id)
        };
        let left = kill_others(machine).await.map_err(|e| format!("leftover processes: {e}"))?;
        left.map_or(Ok(()), |survivors| Err(survivors.to_string()))
    }

    /// Records what docker holds, unless that has been done or a run has been on the machine. Docker
    /// may start later than the agent, so this is repeated until the first run.
    pub(super) async fn take_baseline(&self, prepared: &Prepared) -> Result<(), String> {
        let is_late = || Ok::<_, String>(self.layout.load(SERVED)?.is_some());
        if !prepared.user.dedicated || self.docker_baseline()?.is_some() || is_late()? {
            return Ok(());
        }
        match self.docker().inventory(&*self.clock, Extent::Everything).await {
            Ok(found) => self.save_inventory(DOCKER_BASELINE, Some(&found)),
            Err(why) => {
                tracing::debug!("no docker here: {why}");
                Ok(())
            }
        }
    }

    fn docker_baseline(&self) -> Result<Option<Inventory>, String> {
        self.load_inventory(DOCKER_BASELINE)
    }

    fn load_inventory(&self, name: &str) -> Result<Option<Inventory>, String> {
        let Some(text) = self.layout.load(name)? else { return Ok(None) };
        serde_json::from_str(&text).map_err(|e| format!("cannot read the state {name}: {e}"))
    }

    fn save_inventory(&self, name: &str, found: Option<&Inventory>) -> Result<(), String> {
        let text = serde_json::to_string(&found).map_err(|e| e.to_string())?;
        self.layout.save(name, &text)
    }

    /// Records the start of a run, unless an earlier process of this agent has already done so for
    /// the same run.
    pub(super) async fn begin(&self) -> Result<(), String> {
        let prepared = self.prepared()?;
        if prepared.user.dedicated {
            self.take_baseline(&prepared).await?;
        } else if self.layout.load(DOCKER)?.is_none() {
            let there = self.docker().inventory(&*self.clock, Extent::Shared).await;
            self.save_inventory(DOCKER, there.ok().as_ref())?;
        }
        for name in [SERVED, BEGAN] {
            if self.layout.load(name)?.is_none() {
                self.layout.save(name, "")?;
            }
        }
        Ok(())
    }

    /// When the run started, by the file system's clock, because it is compared with file times.
    pub(super) fn began(&self) -> Option<SystemTime> {
        self.layout.state.join(BEGAN).metadata().and_then(|found| found.modified()).ok()
    }

    /// Removes everything that the run left. Fails if something cannot be removed or restored; then
    /// the machine must not serve another run.
    pub(super) async fn remove_traces(&self, prepared: &Arc<Prepared>) -> Result<(), String> {
        self.kill_processes(&prepared.user).await?;
        if prepared.user.dedicated {
            let settings = self.cleaning_settings().await?;
            self.restore_docker(&settings).await?;
            self.clear_folders(prepared).await?;
            self.make_room(&settings).await?;
        } else {
            self.clean_shared_docker().await?;
            self.clear_folders(prepared).await?;
        }
        self.layout.discard(DOCKER)?;
        self.layout.discard(BEGAN)
    }

    /// The settings, or their defaults if the store does not answer: the machine is then cleaned more
    /// strictly than the operator asks for, and the store will not learn that it is clean.
    async fn cleaning_settings(&self) -> Result<CleaningSettings, String> {
        let settings = self.settings().await.unwrap_or_else(|why| {
            tracing::warn!("cleaning by default settings: {why}");
            BTreeMap::new()
        });
        CleaningSettings::from_map(&settings)
    }

    /// Fails if the disk is too full for another run, also without the docker images and the build
    /// cache that earlier runs left.
    async fn make_room(&self, settings: &CleaningSettings) -> Result<(), String> {
        let (docker, clock) = (self.docker(), &*self.clock);
        let mut places = vec![self.options.folder.clone(), "/tmp".into(), "/var/tmp".into()];
        if settings.min_free_disk == 0 {
            return Ok(());
        }
        let before = self.docker_baseline()?;
        if before.is_some() {
            places.push(docker.root(clock).await?);
        }
        let measure = || disk::shortage(&places, settings.min_free_disk);
        let mut remedies = Vec::new();
        // All that is there without the setting came with the machine.
        if let Some(before) = before
            && settings.docker == Extent::KeepCache
            && measure()?.is_some()
        {
            let images = docker.oldest_images(clock, &before).await?;
            remedies.push(None);
            remedies.extend(images.into_iter().map(Some));
        }
        let mut remedies = remedies.into_iter();
        let retired = |shortage: disk::Shortage| {
            format!("{shortage}, and {} is {}", MIN_FREE_DISK.name, settings.min_free_disk)
        };
        while let Some(remedy) = disk::next_remedy(measure()?, &mut remedies).map_err(retired)? {
            let applied = match remedy {
                None => docker.empty_cache(clock).await,
                Some(id) => docker.remove_image(clock, &id).await,
            };
            if let Err(why) = applied {
                tracing::warn!("cannot make room on the disk: {why}");
            }
        }
        Ok(())
    }

    async fn restore_docker(&self, settings: &CleaningSettings) -> Result<(), String> {
        let extent = settings.docker;
        let (docker, clock) = (self.docker(), &*self.clock);
        if let Some(before) = self.docker_baseline()? {
            return docker.restore(clock, &before, extent).await;
        }
        // Without docker there is nothing to clean. If docker has started during the first run, what
        // it holds is the run's or the operator's.
        let Ok(found) = docker.inventory(clock, Extent::Everything).await else { return Ok(()) };
        if let Some(first) = found.first(extent) {
            let why = "docker has started during a run, and this may be the run's or not";
            return Err(format!("{why}: {first}"));
        }
        let empty = Inventory::default();
        docker.restore(clock, &empty, extent).await?;
        if extent.has_images() {
            self.save_inventory(DOCKER_BASELINE, Some(&empty))?;
        }
        Ok(())
    }

    /// Removes what appeared during the run. What may be the user's own stays: all of it, if docker
    /// did not answer when the run began.
    async fn clean_shared_docker(&self) -> Result<(), String> {
        match self.load_inventory(DOCKER)? {
            Some(before) => self.docker().restore(&*self.clock, &before, Extent::Shared).await,
            None => Ok(()),
        }
    }

    /// Removes the files of a run, and moves the runner's diagnostics to the archive.
    async fn clear_folders(&self, prepared: &Arc<Prepared>) -> Result<(), String> {
        let (prepared, layout) = (prepared.clone(), self.layout.clone());
        let (folder, began) = (self.options.folder.clone(), self.began());
        let clear = move || {
            let Prepared { user, software, .. } = &*prepared;
            diagnostics::archive(&software.root.join("_diag"), &layout.diagnostics)?;
            software.clear()?;
            if let Some(began) = began
                && user.dedicated
            {
                leftover_files::remove(user, &folder, began)?;
            }
            layout.renew(user)
        };
        tokio::task::spawn_blocking(clear).await.map_err(|e| e.to_string())?
    }
}
