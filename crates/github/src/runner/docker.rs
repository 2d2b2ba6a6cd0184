//! Containers, networks and volumes that a run has left behind.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use ondeck_core::ports::Clock;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::{environment, program};

/// The docker of this machine, if there is one that answers.
#[derive(Debug, Clone)]
pub(crate) struct Docker {
    pub(crate) program: OsString,
    pub(crate) within: Duration,
}

/// What there was at some moment, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inventory([BTreeSet<String>; 3]);

/// How each kind is listed and removed, in the order in which they depend on each other.
const KINDS: [(&str, &[&str], &[&str]); 3] = [
    ("containers", &["ps", "--all", "--quiet", "--no-trunc"], &["rm", "--force", "--volumes"]),
    ("networks", &["network", "ls", "--quiet", "--no-trunc"], &["network", "rm"]),
    ("volumes", &["volume", "ls", "--quiet"], &["volume", "rm", "--force"]),
];

impl Docker {
    /// What there is now; nothing if nobody answers, because there is no docker or it is not
    /// running.
    pub(crate) async fn inventory(&self, clock: &dyn Clock) -> Option<Inventory> {
        let mut found = Inventory::default();
        for (names, (_, list, _)) in found.0.iter_mut().zip(KINDS) {
            match self.ask(clock, list, &BTreeSet::new()).await {
                Ok(said) => names.extend(said.split_whitespace().map(str::to_owned)),
                Err(why) => {
                    tracing::debug!("no docker here: {why}");
                    return None;
                }
            }
        }
        Some(found)
    }

    /// Removes what was not there at an earlier moment. One that answered then must answer now.
    pub(crate) async fn remove_since(
        &self,
        clock: &dyn Clock,
        before: Option<Inventory>,
    ) -> Result<(), String> {
        let now = match (self.inventory(clock).await, &before) {
            (Some(now), _) => now,
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err("docker does not answer any more".to_owned()),
        };
        let before = before.unwrap_or_default();
        for ((there, then), (kind, _, remove)) in now.0.iter().zip(&before.0).zip(KINDS) {
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
        environment::give_plain(&mut command);
        command.args(args).args(names);
        let ended = program::run(clock, command, self.within).await?;
        ended.problem().map_or_else(|| Ok(ended.output()), Err)
    }
}
