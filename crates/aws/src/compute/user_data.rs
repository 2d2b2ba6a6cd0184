//! What a machine does at its first start: get the agent, check it, and run it as a service.

use super::options::AgentSource;
use super::pool_tag;
use crate::names::Names;

/// The script, without its values.
const SCRIPT: &str = include_str!("user_data.sh");
/// Where they belong.
const VALUES: &str = "# (values)\n";

/// The script for a pool. It holds nothing that may not be read by every job on the machine.
pub(super) fn render(names: &Names, region: &str, agent: Option<&AgentSource>) -> String {
    let (url, sha256) = agent.map_or(("", ""), |agent| (agent.url.as_str(), agent.sha256.as_str()));
    let (_, pool) = pool_tag(names);
    let values = [("pool", pool.as_str()), ("region", region), ("url", url), ("sha256", sha256)];
    let lines: String =
        values.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect();
    SCRIPT.replacen(VALUES, &lines, 1)
}

/// As one word to a shell, whatever it holds.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
