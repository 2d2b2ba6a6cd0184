//! The script that a machine runs at its first start: it gets the agent, checks it, and runs it as a
//! service.

use super::options::AgentSource;
use super::pool_tag;
use crate::inputs;
use crate::names::Names;

const SCRIPT: &str = include_str!("user_data.sh");
/// The line of the script that the values replace.
const VALUES: &str = "# (values)\n";

/// The script for a pool. It contains no secret, because every job on the machine can read it.
pub(super) fn render(
    names: &Names,
    region: &str,
    agent: Option<&AgentSource>,
    firewall: bool,
) -> String {
    let (url, sha256) = agent.map_or(("", ""), |agent| (agent.url.as_str(), agent.sha256.as_str()));
    let (_, pool) = pool_tag(names);
    let firewall = if firewall { inputs::ON } else { inputs::OFF };
    let values = [
        ("pool", pool.as_str()),
        ("region", region),
        ("url", url),
        ("sha256", sha256),
        ("firewall", firewall),
    ];
    let lines: String =
        values.iter().map(|(name, value)| format!("{name}={}\n", quoted(value))).collect();
    SCRIPT.replacen(VALUES, &lines, 1)
}

/// The value quoted as one word of a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
