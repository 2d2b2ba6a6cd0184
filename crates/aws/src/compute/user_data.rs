//! The script that a machine runs at its first start: it gets the agent, checks it, and runs it as a
//! service.

use super::options::MachineOptions;
use super::pool_tag;
use crate::inputs;
use crate::names::Names;

const SCRIPT: &str = include_str!("user_data.sh");
/// The line of the script that the values replace.
const VALUES: &str = "# (values)\n";

/// The script for a pool. It contains no secret, because every job on the machine can read it.
pub(super) fn render(names: &Names, region: &str, options: &MachineOptions) -> String {
    let agents = &options.agents;
    let [(url_x86_64, sha256_x86_64), (url_arm64, sha256_arm64)] = [&agents.x86_64, &agents.arm64]
        .map(|source| source.as_ref().map_or(("", ""), |it| (&it.url, &it.sha256)));
    let (_, pool) = pool_tag(names);
    let firewall = if options.firewall { inputs::ON } else { inputs::OFF };
    let proxies: Vec<String> =
        options.proxies.variables().map(|(name, value)| format!("{name}={value}")).collect();
    let values = [
        ("pool", pool.as_str()),
        ("region", region),
        ("url_x86_64", url_x86_64),
        ("sha256_x86_64", sha256_x86_64),
        ("url_arm64", url_arm64),
        ("sha256_arm64", sha256_arm64),
        ("firewall", firewall),
        ("logs", &options.machine_logs),
        ("connect", &options.connect),
        ("user", &options.runner_user),
        ("proxies", &proxies.join(" ")),
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
