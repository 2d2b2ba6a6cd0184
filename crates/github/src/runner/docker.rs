//! Removes the containers, networks and volumes that a run left behind.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use ondeck_core::ports::Clock;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::{environment, program};

/// The docker of this machine, which may be missing or not running.
#[derive(Debug, Clone)]
pub(crate) struct Docker {
    pub(crate) program: OsString,
    pub(crate) within: Duration,
}

/// Ids of the containers, networks and volumes that existed at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inventory([BTreeSet<String>; 3]);

/// How each kind of object is listed and removed, dependents first.
const KINDS: [(&str, &[&str], &[&str]); 3] = [
    ("containers", &["ps", "--all", "--quiet", "--no-trunc"], &["rm", "--force", "--volumes"]),
    ("networks", &["network", "ls", "--quiet", "--no-trunc"], &["network", "rm"]),
    ("volumes", &["volume", "ls", "--quiet"], &["volume", "rm", "--force"]),
];

impl Docker {
    /// Lists what exists now. `None` if docker is missing or not running.
    pub(crate) async fn inventory(&self, clock: &dyn Clock) -> Option<Inventory> {
        let mut found = Inventory::default();
        for (names, (_, list, _)) in found.0.iter_mut().zip(KINDS) {
            match self.ask(clock, list, &BTreeSet::new()).await {
                Ok(ids) => names.extend(ids.split_whitespace().map(str::to_owned)),
                Err(why) => {
                    tracing::debug!("no docker here: {why}");
                    return None;
                }
            }
        }
        Some(found)
    }

    /// Removes everything that is not in `before`. Fails if docker answered when `before` was taken
    /// and does not answer now.
    pub(crate) async fn remove_since(
        &self,
        clock: &dyn Clock,
        before: Option<Inventory>,
    ) -> Result<(), String> {
        let current = match (self.inventory(clock).await, &before) {
            (Some(current), _) => current,
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err("docker has stopped answering".to_owned()),
        };
        let before = before.unwrap_or_default();
        for ((there, then), (kind, _, remove)) in current.0.iter().zip(&before.0).zip(KINDS) {
            let left: BTreeSet<String> = there.difference(then).cloned().collect();
            if left.is_empty() {
                continue;
            }
            let removed = self.ask(clock, remove, &left).await;
            removed.map_err(|why| format!("cannot remove {kind}: {why}"))?;
            tracing::info!("removed {} {kind}", left.len());
        }
        Ok(())
    }

    async fn ask(
        &self,
        clock: &dyn Clock,
        args: &[&str],
        names: &BTreeSet<String>,
    ) -> Result<String, String> {
        let mut command = Command::new(OsStr::new(&self.program));
        environment::apply_minimal(&mut command);
        command.args(args).args(names);
        let output = program::run(clock, command, self.within).await?;
        output.problem().map_or_else(|| Ok(output.stdout()), Err)
    }
}
