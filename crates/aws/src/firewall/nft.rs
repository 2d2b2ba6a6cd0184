//! The rule, as nftables takes it.

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::process::Stdio;
use std::time::Duration;

use ondeck_core::model::signal::output_tail;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::cgroup::Cgroup;
use super::probe::{IPV4, IPV6};

/// The table that holds the rule and nothing else.
const TABLE: &str = "inet ondeck_metadata";

/// How long one call of nft may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The program that loads and lists rules.
#[derive(Debug, Clone)]
pub(super) struct Nft {
    pub(super) program: OsString,
}

/// Why the table cannot be listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ListError {
    /// There is no such table.
    Gone,
    Failed(String),
}

impl Nft {
    /// Replaces the table by one that admits these cgroups, in one transaction: there is no moment
    /// without a rule if there was one before, and a failure changes nothing.
    pub(super) async fn load(&self, admitted: &[Cgroup]) -> Result<(), String> {
        self.run(&["-f", "-"], &rules(admitted)).await.map(drop)
    }

    /// Removes the table. One that is not there is no error.
    pub(super) async fn unload(&self) -> Result<(), String> {
        self.run(&["-f", "-"], &format!("table {TABLE}\ndelete table {TABLE}\n")).await.map(drop)
    }

    /// The table as nft prints it, which is the same text as long as nothing is changed.
    pub(super) async fn list(&self) -> Result<String, ListError> {
        let table: Vec<&str> = ["list", "table"].into_iter().chain(TABLE.split(' ')).collect();
        self.run(&table, "").await.map_err(|why| {
            if why.contains("No such file or directory") {
                ListError::Gone
            } else {
                ListError::Failed(why)
            }
        })
    }

    /// Returns what it prints. Fails with the end of that if it does not exit with 0.
    async fn run(&self, args: &[&str], input: &str) -> Result<String, String> {
        let program = self.program.to_string_lossy();
        let spawned = Command::new(&self.program)
            .args(args)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                format!(
                    "{program} is not on this machine: install the package nftables on the image"
                )
            }
            _ => format!("{program} cannot be started: {error}"),
        })?;
        let stdin = child.stdin.take();
        let exchange = async {
            if let Some(mut stdin) = stdin {
                // It may have exited without reading; its exit status then says why.
                stdin.write_all(input.as_bytes()).await.ok();
            }
            child.wait_with_output().await
        };
        let output = match timeout(LIMIT, exchange).await {
            Ok(output) => output.map_err(|error| format!("{program}: {error}"))?,
            Err(_) => return Err(format!("{program} took more than {} s", LIMIT.as_secs())),
        };
        if !output.status.success() {
            let words = output_tail(&String::from_utf8_lossy(&output.stderr));
            return Err(format!("{program} ended with {}: {words}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListError::Gone => f.write_str("the rule is not there"),
            ListError::Failed(why) => f.write_str(why),
        }
    }
}

/// A script that replaces the table. The first line makes sure that there is one to delete.
///
/// The chain of forwarded packets is for containers with a network of their own. Both chains come
/// after address translation, so that another address that leads to the service is recognised.
/// `reset` makes clients fail at once, as if the service did not exist.
fn rules(admitted: &[Cgroup]) -> String {
    let admit = |cgroup: &Cgroup| {
        let (path, level) = (cgroup.path(), cgroup.level());
        format!("        socket cgroupv2 level {level} \"{path}\" accept\n")
    };
    let admitted: String = admitted.iter().map(admit).collect();
    format!(
        r#"table {TABLE}
delete table {TABLE}
table {TABLE} {{
    chain output {{
        type filter hook output priority 300; policy accept;
        ip daddr {IPV4} goto agent_only
        ip6 daddr {IPV6} goto agent_only
    }}
    chain forward {{
        type filter hook forward priority 300; policy accept;
        ip daddr {IPV4} goto refuse
        ip6 daddr {IPV6} goto refuse
    }}
    chain agent_only {{
{admitted}        goto refuse
    }}
    chain refuse {{
        meta l4proto tcp reject with tcp reset
        reject with icmpx type admin-prohibited
    }}
}}
"#
    )
}

/// The listing without the rules that admit one of these cgroups, or one that is gone. nft shows a
/// cgroup that is gone as a number. No process can be in such a cgroup.
pub(super) fn without(listed: &str, cgroups: &[Cgroup]) -> String {
    let is_left_out = |line: &str| {
        let rule = line.trim().strip_prefix("socket cgroupv2 level ");
        let cgroup = rule.and_then(|rule| rule.strip_suffix(" accept")?.split_once(' '));
        cgroup.is_some_and(|(_, name)| {
            let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
            is_number || cgroups.iter().any(|it| name == format!("\"{}\"", it.path()))
        })
    };
    listed.lines().filter(|line| !is_left_out(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_cgroups_that_come_and_go_are_left_out() {
        let ssm = Cgroup::at("system.slice/amazon-ssm-agent.service");
        let line = |cgroup: &str| format!("\t\tsocket cgroupv2 level 2 {cgroup} accept\n");
        let table = |rules: &str| format!("chain agent_only {{\n{rules}\t\tgoto refuse\n}}\n");
        let agent = line("\"system.slice/ondeck-agent.service/agent\"");
        let with =
            |more: &str| without(&table(&format!("{agent}{more}")), std::slice::from_ref(&ssm));
        let plain = with("");
        assert_eq!(with(&line("\"system.slice/amazon-ssm-agent.service\"")), plain);
        assert_eq!(with(&line("4711")), plain, "it was restarted");
        assert_ne!(with(&line("\"system.slice/other.service\"")), plain);
        assert_ne!(with("\t\taccept\n"), plain);
        assert_ne!(without(&table(""), std::slice::from_ref(&ssm)), plain);
    }

    #[tokio::test]
    async fn a_missing_program_names_its_package() {
        let nft = Nft { program: "/nonexistent/nft".into() };
        let error = nft.unload().await.unwrap_err();
        assert!(error.contains("install the package nftables"), "{error}");
    }

    #[tokio::test]
    async fn a_failure_is_told_in_its_words() {
        let error = Nft { program: "false".into() }.list().await.unwrap_err();
        assert_eq!(error.to_string(), "false ended with exit status: 1: ");
    }
}
