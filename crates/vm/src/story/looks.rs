//! What is looked at on the machine, beside what the program says.

use ondeck_standin::Machine;

use super::account::Account;
use crate::console::{self, say};
use crate::shell::Shell;

/// A job that tells about its surroundings, leaves things behind, and waits to be looked at.
pub(super) const FIRST_JOB: &str = r#"
echo "user=$(id -un) groups=$(id -Gn)"
echo "cgroup=$(cat /proc/self/cgroup)"
echo "path=$PATH"
echo "home=$HOME"
env | sed 's/^/env: /'
echo "metadata=$(curl --silent --max-time 5 --output /dev/null --write-out '%{exitcode}' http://169.254.169.254/latest/meta-data/)"
echo left >/tmp/left
echo left >~/left
setsid sleep 4711 </dev/null >/dev/null 2>&1 &
echo waiting
while [ ! -e /tmp/go ]; do sleep 1; done
"#;

/// curl's exit code for a refused connection.
const REFUSED: &str = "metadata=7";
/// How much memory an agent may take. An unoptimised build takes some 60 MB.
const MEMORY_KIB: u64 = 200_000;
/// How large the journal may get by one run.
const JOURNAL_BYTES: u64 = 32 << 20;

/// Checks what a job has told about its surroundings.
pub(super) fn first_job(log: &str) -> Result<(), String> {
    let line = |start: &str| log.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    for (start, wanted) in [
        ("user=", "user=runner groups=runner"),
        ("cgroup=", "cgroup=0::/system.slice/ondeck-agent.service/jobs"),
        ("metadata=", REFUSED),
    ] {
        if line(start) != wanted {
            return Err(format!("the job sees {:?} instead of {wanted:?}", line(start)));
        }
    }
    // A home of its own, which is emptied after each run.
    if !line("home=").starts_with("home=/var/lib/ondeck/machines/i-") {
        return Err(format!("the job has the home of another: {}", line("home=")));
    }
    for folder in ["/usr/local/bin", "/usr/bin", "/usr/sbin"] {
        if !line("path=").trim_start_matches("path=").split(':').any(|it| it == folder) {
            return Err(format!("a job does not find programs in {folder}: {}", line("path=")));
        }
    }
    let of_agent = ["AWS_", "ONDECK_POOL", "ONDECK_HOME", "INVOCATION_ID", "JOURNAL_STREAM"];
    let leaked: Vec<&str> = log
        .lines()
        .filter_map(|line| line.strip_prefix("env: "))
        .filter(|variable| of_agent.iter().any(|name| variable.starts_with(name)))
        .collect();
    if leaked.is_empty() { Ok(()) } else { Err(format!("a job sees the agent's {leaked:?}")) }
}

/// Checks the machine while a job runs on it.
pub(super) fn during_a_job(
    account: &Account,
    machine: &Machine,
    shell: &mut Shell,
) -> Result<(), String> {
    let digest = shell.run("sha256sum /usr/local/bin/ondeck")?;
    if !digest.starts_with(&account.agent.1) {
        return Err(format!("another agent than the one that was offered: {digest}"));
    }
    let unit = shell.run("systemctl show ondeck-agent -p ActiveState,NRestarts,MainPID,Result")?;
    for wanted in ["ActiveState=active", "NRestarts=0", "Result=success"] {
        if !unit.lines().any(|line| line == wanted) {
            return Err(format!("not {wanted}: {unit}"));
        }
    }
    let pid = unit.lines().find_map(|line| line.strip_prefix("MainPID=")).unwrap_or_default();
    let own = shell.run(&format!("cat /proc/{pid}/cgroup"))?;
    if own != "0::/system.slice/ondeck-agent.service/agent" {
        return Err(format!("the agent is in another cgroup: {own}"));
    }
    let memory = shell.run(&format!("awk '/^VmRSS/ {{print $2}}' /proc/{pid}/status"))?;
    if memory.parse::<u64>().map_or(true, |memory| memory > MEMORY_KIB) {
        return Err(format!("the agent's memory in KiB: {memory}"));
    }
    let failed = shell.run("systemctl list-units --failed --plain --no-legend")?;
    if !failed.is_empty() {
        return Err(format!("units have failed: {failed}"));
    }
    let finished = shell.run("cloud-init status || :")?;
    let rule = shell.run("nft list ruleset")?;
    if !rule.contains("169.254.169.254") {
        return Err(format!("no rule for the metadata service: {rule}"));
    }
    say(&format!(
        "                            agent: {memory} KiB; {}",
        finished.replace('\n', ", ")
    ));
    let processes = shell
        .run("for it in /proc/[0-9]*; do tr '\\0' ' ' <$it/cmdline; echo; done 2>/dev/null")?;
    no_secret(account, "the process list", &processes)?;
    // What a job can read, its own processes included, must hold no secret of the machine or of the
    // forge. The job cannot read the patterns: they come from root.
    for secret in account.secrets() {
        shell.run(&format!("(umask 077; echo '{secret}' >>/run/patterns)"))?;
    }
    let readable = shell.run(
        "runuser -u runner -- grep -rlsF -f - /etc /home /opt /run /tmp /usr/local /var \
         /dev/shm </run/patterns; rm /run/patterns",
    )?;
    if !readable.is_empty() {
        return Err(format!("a job can read secrets in {readable}"));
    }
    console_has_no_secret(account, machine)
}

/// Checks the machine between two runs.
pub(super) fn after_a_run(
    account: &Account,
    machine: &Machine,
    shell: &mut Shell,
) -> Result<(), String> {
    let left =
        shell.run("find / -xdev \\( -name left -o -name go \\) -newer /etc/ondeck/agent.env")?;
    // The listener of a machine that is registered while it is idle is of no run.
    let processes = shell.run("pgrep -u runner -a | grep -v 'bin/Runner.Listener run$' || :")?;
    if !left.is_empty() || !processes.is_empty() {
        return Err(format!("files: {left:?}, processes: {processes:?}"));
    }
    let journal = shell.run("journalctl --no-pager --output cat")?;
    no_secret(account, "the journal", &journal)?;
    let size = shell.run("du -sb /var/log/journal /run/log/journal 2>/dev/null | cut -f 1")?;
    let size: u64 = size.lines().filter_map(|it| it.parse::<u64>().ok()).sum();
    if size > JOURNAL_BYTES {
        return Err(format!("the journal has {size} bytes"));
    }
    let lines = journal.lines().count();
    say(&format!("                            journal: {size} bytes, {lines} lines"));
    console_has_no_secret(account, machine)
}

/// Fails if a secret is on the console, which everyone can read who may describe the machine.
pub(super) fn console_has_no_secret(account: &Account, machine: &Machine) -> Result<(), String> {
    no_secret(account, "the console", &console::read(&machine.log))
}

fn no_secret(account: &Account, place: &str, text: &str) -> Result<(), String> {
    let found = account.secrets().into_iter().find(|secret| text.contains(secret.as_str()));
    let Some(secret) = found else { return Ok(()) };
    let line = text.lines().find(|line| line.contains(&secret)).unwrap_or_default();
    Err(format!("a secret is in {place}: {line}"))
}
