//! What refresh reports about the applied configuration.

use serde::Serialize;

use crate::control::applied::Enforcement;

/// The applied configuration, and whether it is in force.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ConfigurationJson"))]
pub(super) struct ConfigurationInForce {
    /// The SHA-256 of its settings.
    pub(super) digest: String,
    /// When it was applied: RFC 3339, in UTC.
    pub(super) applied_at: String,
    /// Only if a workflow applied it: the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) commit: Option<String>,
    /// Whether its settings are stored. If not, those stored before are in force.
    pub(super) in_force: bool,
    /// Whether this refresh has stored them, in place of other settings.
    pub(super) newly_enforced: bool,
}

impl ConfigurationInForce {
    /// What became of the configuration in a refresh that has stored its settings, or has not.
    pub(super) fn after(enforcement: Enforcement, set_up: bool) -> Option<ConfigurationInForce> {
        let applied = enforcement.applied?;
        let was_in_force = enforcement.enforced_before.as_ref() == Some(&applied.digest);
        Some(ConfigurationInForce {
            in_force: set_up || was_in_force,
            newly_enforced: set_up && !was_in_force,
            digest: applied.digest,
            applied_at: applied.applied_at,
            commit: applied.commit,
        })
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        let state = match (self.in_force, self.newly_enforced) {
            (true, true) => "newly enforced",
            (true, false) => "in force",
            (false, _) => "not enforced yet",
        };
        let commit = self.commit.as_ref().map(|commit| format!(", commit {}", short(commit)));
        format!(
            "configuration {} (applied {}{}): {state}",
            short(&self.digest),
            self.applied_at,
            commit.unwrap_or_default()
        )
    }
}

/// A value on one line, as far as it fits into a table.
#[cfg(any(test, feature = "config"))]
pub(super) fn cut(value: &str) -> String {
    const WIDEST: usize = 60;
    let line: String = value.trim_end().replace(char::is_control, " ");
    match line.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The first digits of a digest, which are enough for people.
pub(crate) fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
