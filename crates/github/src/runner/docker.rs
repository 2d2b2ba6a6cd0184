//! Brings docker back to what it held before the first run.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use ondeck_core::ports::Clock;
use ondeck_core::runtime::retry::{Pauses, Retry};
use tokio::process::Command;

pub(crate) use self::plan::{Extent, Inventory};
use self::plan::{Kind, Step, plan};
use super::fetch::FastRandom;
use super::{environment, program};

/// The docker of this machine, which may be missing or not running.
#[derive(Debug, Clone)]
pub(crate) struct Docker {
    pub(crate) program: OsString,
    /// How long one call may take.
    pub(crate) within: Duration,
    /// How long docker is asked again while nothing changes: it may still be removing a container
    /// that was started with `--rm`, or be restarting.
    pub(crate) patience: Duration,
}

/// How docker is asked again. [`Docker::patience`] limits it.
const PATIENCE: Retry = Retry {
    attempts: u32::MAX,
    first_pause: Duration::from_millis(50),
    longest_pause: Duration::from_secs(2),
    within: Duration::ZERO,
    retry_all_errors: true,
};

/// How many names one command gets, so that neither its time nor its output grows too large.
const AT_ONCE: usize = 100;

impl Kind {
    fn plural(self) -> &'static str {
        match self {
            Kind::Container => "containers",
            Kind::Network => "networks",
            Kind::Volume => "volumes",
            Kind::Image => "images",
        }
    }

    fn removal(self) -> &'static [&'static str] {
        match self {
            Kind::Container => &["rm", "--force", "--volumes"],
            Kind::Network => &["network", "rm"],
            Kind::Volume => &["volume", "rm", "--force"],
            Kind::Image => &["image", "rm", "--force"],
        }
    }
}

impl Inventory {
    /// The name of one object, if there is any.
    pub(crate) fn first(&self, extent: Extent) -> Option<String> {
        let Inventory { containers, networks, volumes, images, tags, .. } = self;
        let first = |what, names: &BTreeSet<String>| Some(format!("{what} {}", names.first()?));
        let objects = first("container", containers)
            .or_else(|| first("network", networks))
            .or_else(|| first("volume", volumes));
        let image = || {
            let tag = tags.keys().next().or(images.first())?;
            Some(format!("image {tag}"))
        };
        objects.or_else(|| if extent.has_images() { image() } else { None })
    }
}

impl Docker {
    /// Lists what exists now. Fails if docker is missing or does not answer.
    pub(crate) async fn inventory(
        &self,
        clock: &dyn Clock,
        extent: Extent,
    ) -> Result<Inventory, String> {
        let list = async |args: &[&str]| -> Result<BTreeSet<String>, String> {
            let said = self.ask(clock, args, &[]).await?;
            Ok(said.split_whitespace().map(str::to_owned).collect())
        };
        let mut found = Inventory {
            containers: list(&["ps", "--all", "--quiet", "--no-trunc"]).await?,
            // Docker makes the others itself, and refuses to remove them.
            networks: list(&["network", "ls", "--filter", "type=custom", "--quiet", "--no-trunc"])
                .await?,
            volumes: list(&["volume", "ls", "--quiet"]).await?,
            ..Inventory::default()
        };
        if extent.has_images() {
            found.images = list(&["image", "ls", "--all", "--quiet", "--no-trunc"]).await?;
            found.tags = self.tags(clock, &found.images).await?;
            found.cache = self.cache_entries(clock).await?;
        }
        Ok(found)
    }

    async fn tags(
        &self,
        clock: &dyn Clock,
        images: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, String>, String> {
        const INSPECT: [&str; 4] = ["image", "inspect", "--format", "{{.Id}} {{json .RepoTags}}"];
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        let mut tags = BTreeMap::new();
        for some in images.chunks(AT_ONCE) {
            for line in self.ask(clock, &INSPECT, some).await?.lines() {
                let read = || {
                    let (id, names) = line.split_once(' ')?;
                    let names: Option<Vec<String>> = serde_json::from_str(names).ok()?;
                    Some((id, names.unwrap_or_default()))
                };
                let (id, names) = read().ok_or_else(|| format!("not an image: {line:?}"))?;
                tags.extend(names.into_iter().map(|name| (name, id.to_owned())));
            }
        }
        Ok(tags)
    }

    async fn cache_entries(&self, clock: &dyn Clock) -> Result<u64, String> {
        let count = ["system", "df", "--format", "{{.Type}}={{.TotalCount}}"];
        let said = self.ask(clock, &count, &[]).await?;
        let line = said.lines().find_map(|line| line.strip_prefix("Build Cache="));
        // A docker without BuildKit has no such line, and no cache.
        line.map_or(Ok(0), |number| {
            number.trim().parse().map_err(|_| format!("not a size of the build cache: {said:?}"))
        })
    }

    /// The images that are not in `before`, the one that was tagged first in front.
    pub(crate) async fn oldest_images(
        &self,
        clock: &dyn Clock,
        before: &Inventory,
    ) -> Result<Vec<String>, String> {
        const INSPECT: [&str; 4] =
            ["image", "inspect", "--format", "{{json .Metadata.LastTagTime}} {{.Id}}"];
        let images = self.inventory(clock, Extent::Everything).await?.images;
        let new: Vec<&str> = images.difference(&before.images).map(String::as_str).collect();
        let mut dated = Vec::new();
        for some in new.chunks(AT_ONCE) {
            let said = self.ask(clock, &INSPECT, some).await?;
            dated.extend(said.lines().map(str::to_owned));
        }
        dated.sort();
        let id = |line: String| line.rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(dated.into_iter().map(id).collect())
    }

    pub(crate) async fn remove_image(&self, clock: &dyn Clock, id: &str) -> Result<(), String> {
        self.ask(clock, Kind::Image.removal(), &[id]).await.map(drop)
    }

    /// The folder that docker keeps everything in.
    pub(crate) async fn root(&self, clock: &dyn Clock) -> Result<PathBuf, String> {
        let said = self.ask(clock, &["info", "--format", "{{.DockerRootDir}}"], &[]).await?;
        Ok(said.trim().into())
    }

    /// Makes docker hold what it held `before`, and returns once an inventory shows that. Repeats
    /// what docker refuses as long as there is less and less to do, and for its patience after that.
    /// Fails if docker does not answer, if something cannot be removed, or if something that was
    /// there is gone.
    pub(crate) async fn restore(
        &self,
        clock: &dyn Clock,
        before: &Inventory,
        extent: Extent,
    ) -> Result<(), String> {
        let policy = Retry { within: self.patience, ..PATIENCE };
        let mut pauses = Pauses::new(clock, &FastRandom, policy);
        let mut fewest = usize::MAX;
        loop {
            let problem = match self.inventory(clock, extent).await {
                Ok(now) => {
                    let steps = plan(before, &now, extent).map_err(|lost| lost.to_string())?;
                    if steps.is_empty() {
                        return Ok(());
                    }
                    let left = steps.iter().map(Step::size).sum();
                    if left < fewest {
                        fewest = left;
                        pauses = Pauses::new(clock, &FastRandom, policy);
                    }
                    let problem = self.take(clock, &steps).await;
                    problem.unwrap_or_else(|| format!("docker does not change: {steps:?}"))
                }
                Err(why) => format!("docker has stopped answering: {why}"),
            };
            if !pauses.another(&problem).await {
                return Err(problem);
            }
        }
    }

    /// Takes all steps. Returns the first problem, and takes the steps behind it nevertheless.
    async fn take(&self, clock: &dyn Clock, steps: &[Step]) -> Option<String> {
        let mut problem = None;
        for step in steps {
            if let Err(why) = self.step(clock, step).await {
                problem.get_or_insert(why);
            }
        }
        problem
    }

    async fn step(&self, clock: &dyn Clock, step: &Step) -> Result<(), String> {
        let of = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>();
        match step {
            Step::Remove(kind, names) => {
                let what = kind.plural();
                let removed = self.each(clock, kind.removal(), &of(names)).await;
                removed.map_err(|why| format!("cannot remove {what}: {why}"))?;
                tracing::info!("removed {} {what} from docker", names.len());
            }
            Step::Tag { tag, image } => {
                let tagged = self.ask(clock, &["image", "tag"], &[image, tag]).await;
                tagged.map_err(|why| format!("cannot put back the tag {tag}: {why}"))?;
                tracing::info!(tag, image, "a tag of docker was put back");
            }
            Step::Untag(tags) => {
                let removed = self.each(clock, &["image", "rm"], &of(tags)).await;
                removed.map_err(|why| format!("cannot remove tags: {why}"))?;
                tracing::info!("removed {} tags from docker", tags.len());
            }
            Step::EmptyCache => self.empty_cache(clock).await?,
        }
        Ok(())
    }

    /// Removes the whole build cache.
    pub(crate) async fn empty_cache(&self, clock: &dyn Clock) -> Result<(), String> {
        let emptied = self.ask(clock, &["builder", "prune", "--all", "--force"], &[]).await;
        emptied.map(drop).map_err(|why| format!("cannot empty the build cache: {why}"))
    }

    async fn each(&self, clock: &dyn Clock, args: &[&str], names: &[String]) -> Result<(), String> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut done = Ok(());
        for some in names.chunks(AT_ONCE) {
            let asked = self.ask(clock, args, some).await.map(drop);
            done = done.and(asked);
        }
        done
    }

    async fn ask(
        &self,
        clock: &dyn Clock,
        args: &[&str],
        names: &[&str],
    ) -> Result<String, String> {
        let mut command = Command::new(OsStr::new(&self.program));
        environment::apply_minimal(&mut command);
        command.args(args).args(names);
        let output = program::run(clock, command, self.within).await?;
        output.problem().map_or_else(|| output.whole_stdout(), Err)
    }
}
