//! What happens on the machine between two runs.
//!
//! A machine may belong to the pool alone. What was on it before its first run is then recorded once
//! and restored after each run, so that nothing which one run slipped past the cleaning is taken for
//! the operator's later. On a computer with other users, only what appeared during a run is removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ondeck_processes::{MachineProcesses, Process, descendants_of, kill_others};

use super::docker::{Extent, Inventory};
use super::traces::{Baseline, Machine};
use super::user::User;
use super::{GitHubRunner, Prepared, diagnostics, disk, leftover_files};
use crate::inputs::{
    CLEAN_IGNORE, KEEP_DOCKER_CACHE, MIN_FREE_DISK, MIN_FREE_DISK_PERCENT, TRUE, absolute_paths,
    percent,
};

/// The state file that exists while a run is on the machine.
const BEGAN: &str = "began";
/// What docker held when the run began. Only on a computer with other users.
const DOCKER: &str = "docker";
/// What was on the machine before the first run. Its time is compared with those of files.
const BASELINE: &str = "baseline";
/// What docker held before the first run.
const DOCKER_BASELINE: &str = "docker-baseline";
/// Exists from the beginning of the first run.
const SERVED: &str = "served";

/// The operator's choices about what may stay on a machine.
#[derive(Debug, PartialEq, Eq)]
struct CleaningSettings {
    docker: Extent,
    /// How much of each file system has to be free, in percent.
    min_free_disk: u8,
    /// Paths that runs may change.
    ignored: Vec<PathBuf>,
}

impl Default for CleaningSettings {
    fn default() -> CleaningSettings {
        CleaningSettings { docker: Extent::Everything, min_free_disk: 0, ignored: Vec::new() }
    }
}

impl CleaningSettings {
    /// Fails if a setting cannot be parsed.
    fn from_map(map: &BTreeMap<String, String>) -> Result<CleaningSettings, String> {
        let keeps = map.get(KEEP_DOCKER_CACHE.name).is_some_and(|value| value == TRUE);
        let name = MIN_FREE_DISK.name;
        let least = map.get(name).map_or(MIN_FREE_DISK_PERCENT, String::as_str);
        let ignored = map.get(CLEAN_IGNORE.name).map_or("", String::as_str);
        Ok(CleaningSettings {
            docker: if keeps { Extent::KeepCache } else { Extent::Everything },
            min_free_disk: percent(least).map_err(|why| format!("{name} {why}"))?,
            ignored: absolute_paths(ignored)
                .map_err(|why| format!("{} {why}", CLEAN_IGNORE.name))?,
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

    /// Records what is on the machine, unless that has been done or a run has been on it. Docker may
    /// start later than the agent, and services may still be starting, so this is repeated until the
    /// first run.
    pub(super) async fn take_baseline(&self, prepared: &Prepared) -> Result<(), String> {
        if self.own_machine.is_none() || self.layout.load(SERVED)?.is_some() {
            return Ok(());
        }
        if let Some(machine) = self.machine(prepared, &CleaningSettings::default()) {
            let found = machine.baseline()?;
            let text = serde_json::to_string(&found).map_err(|e| e.to_string())?;
            self.layout.save(BASELINE, &text)?;
        }
        if self.docker_baseline()?.is_some() {
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
        if self.own_machine.is_some() {
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
        if let Some(root) = &self.own_machine {
            let settings = self.cleaning_settings().await?;
            self.restore_docker(&settings).await?;
            self.clear_folders(prepared).await?;
            self.prove_clean(prepared, &settings).await?;
            self.make_room(root, &settings).await?;
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

    /// The machine as far as it is looked at for traces: if jobs have a user of their own, since files
    /// of the agent's user cannot be told from theirs.
    fn machine(&self, prepared: &Prepared, settings: &CleaningSettings) -> Option<Machine> {
        let root = self.own_machine.clone()?;
        let Prepared { user, software } = prepared;
        prepared.user.dedicated.then(|| Machine {
            root,
            home: user.home.clone(),
            cleaned_elsewhere: vec![self.options.folder.clone()],
            software: software.root.clone(),
            ignored: settings.ignored.clone(),
        })
    }

    /// Removes the traces of runs from the whole machine. Fails if one cannot be removed.
    async fn prove_clean(
        &self,
        prepared: &Prepared,
        settings: &CleaningSettings,
    ) -> Result<(), String> {
        let Some(mut machine) = self.machine(prepared, settings) else { return Ok(()) };
        if self.docker_baseline()?.is_some() {
            machine.ignored.push(self.docker().root(&*self.clock).await?);
        }
        let text = self.layout.load(BASELINE)?;
        let text = text.ok_or("what was on the machine before the first run is not known")?;
        let before: Baseline =
            serde_json::from_str(&text).map_err(|e| format!("cannot read {BASELINE}: {e}"))?;
        let found = self.layout.state.join(BASELINE).metadata().and_then(|it| it.modified());
        let since = found.map_err(|e| format!("cannot read {BASELINE}: {e}"))?;
        let remove = move || {
            let started = Instant::now();
            machine.remove_traces(&before, since)?;
            tracing::debug!(took = ?started.elapsed(), "no trace of a run is left");
            Ok(())
        };
        tokio::task::spawn_blocking(remove).await.map_err(|e| e.to_string())?
    }

    /// Fails if the disk is too full for another run, also without the docker images and the build
    /// cache that earlier runs left.
    async fn make_room(&self, root: &Path, settings: &CleaningSettings) -> Result<(), String> {
        let (docker, clock) = (self.docker(), &*self.clock);
        let mut places = vec![self.options.folder.clone(), root.join("tmp"), root.join("var/tmp")];
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
        let own_machine = self.own_machine.is_some();
        let clear = move || {
            let Prepared { user, software, .. } = &*prepared;
            diagnostics::archive(&software.root.join("_diag"), &layout.diagnostics)?;
            software.clear()?;
            if let Some(began) = began
                && user.dedicated
                && !own_machine
            {
                leftover_files::remove(user, &folder, began)?;
            }
            layout.renew(user)
        };
        tokio::task::spawn_blocking(clear).await.map_err(|e| e.to_string())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_defaults_and_errors_name_them() {
        let read = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            CleaningSettings::from_map(&pairs.collect())
        };
        let strict = CleaningSettings { min_free_disk: 10, ..CleaningSettings::default() };
        assert_eq!(read(&[]), Ok(strict));
        let chosen = CleaningSettings {
            docker: Extent::KeepCache,
            min_free_disk: 25,
            ignored: vec!["/etc/motd".into()],
        };
        let given = [
            ("keep-docker-cache", "true"),
            ("min-free-disk-percent", "25"),
            ("clean-ignore", "/etc/motd"),
        ];
        assert_eq!(read(&given), Ok(chosen));
        for (name, value) in [("min-free-disk-percent", "many"), ("clean-ignore", "motd")] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
    }
}
