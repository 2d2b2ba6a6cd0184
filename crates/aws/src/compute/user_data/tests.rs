use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ondeck_standin::emulators::Emulators;
use tempfile::TempDir;

use super::*;
use crate::compute::options::{AgentSource, Agents};

/// What user data may hold, before it is encoded.
const LIMIT: usize = 16 * 1024;

fn names() -> Names {
    Names::of(&"Acme/Web".parse().unwrap())
}

/// An agent, and its digest.
const AGENT: &str = "#!/bin/sh\n";
const AGENT_SHA256: &str = "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf";

/// A program that does not run here, and its digest.
const MISTAKEN: &str = "#!/bin/sh\nexit 126\n";
const MISTAKEN_SHA256: &str = "8b088b86905f0074ee6696c52d8d81dbb0d3a0fbb8b3dec8ce2df2e32f82aa22";

fn source(url: &str, sha256: &str) -> AgentSource {
    AgentSource { url: url.to_owned(), sha256: sha256.to_owned() }
}

/// The script for machines whose agent is at the same place for both architectures.
fn rendered(region: &str, agent: Option<AgentSource>, firewall: bool) -> String {
    with_agents(region, Agents { x86_64: agent.clone(), arm64: agent }, firewall, &[])
}

fn with_agents(region: &str, agents: Agents, firewall: bool, more: &[(&str, &str)]) -> String {
    let settings = [("ami", "ami-1")].iter().chain(more);
    let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let options = MachineOptions::read(&settings.collect()).unwrap();
    render(&names(), region, &MachineOptions { agents, firewall, ..options })
}

fn with_agent() -> String {
    rendered("us-east-1", Some(source("https://example.com/ondeck", AGENT_SHA256)), true)
}

#[test]
fn the_script_is_as_it_was_reviewed() {
    insta::assert_snapshot!("user_data", with_agent());
}

#[test]
fn the_script_is_small_and_sound() {
    let s3 = rendered("us-east-1", Some(source("s3://bucket/ondeck", AGENT_SHA256)), true);
    for script in [with_agent(), rendered("us-east-1", None, true), s3] {
        assert!(script.len() < LIMIT / 2, "{}", script.len());
        assert!(!script.contains(VALUES), "{script}");
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("user-data.sh");
        fs::write(&path, script).unwrap();
        let checked = Command::new(Emulators::running().shellcheck)
            .args(["--severity=style", "--enable=all", "--exclude=SC2250,SC2292,SC2310,SC2312"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn no_value_escapes_its_quotes() {
    let agent = source("https://x/'; touch /tmp/owned; '", "$(id)");
    let script = rendered("us-east-1", Some(agent), true);
    assert!(script.contains(r"url_x86_64='https://x/'\''; touch /tmp/owned; '\'''"), "{script}");
    assert!(script.contains("sha256_x86_64='$(id)'"), "{script}");
}

/// A machine made of a folder: the script's paths lead there, and so do the programs it calls.
struct Machine {
    dir: TempDir,
    /// Where programs are found that are not stood in for.
    path: String,
}

impl Machine {
    fn new() -> Machine {
        let path = std::env::var("PATH").unwrap();
        let machine = Machine { dir: TempDir::new().unwrap(), path };
        fs::create_dir_all(machine.path("etc/systemd/system")).unwrap();
        fs::create_dir_all(machine.path("bin")).unwrap();
        for program in ["systemctl", "shutdown", "sleep", "sync", "aws", "nft", "id", "useradd"] {
            machine.program(program, "");
        }
        machine
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// A program that notes how it was called, before it does anything else.
    fn program(&self, name: &str, rest: &str) {
        let log = self.path("calls");
        let text = format!("#!/bin/sh\necho \"{name} $*\" >>{}\n{rest}\n", log.display());
        let path = self.path("bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What `curl --output FILE URL` finds at the end of the line.
    fn serving(self, content: &str) -> Machine {
        let served = self.path("served");
        fs::write(&served, content).unwrap();
        let copy =
            format!("while [ \"$1\" != --output ]; do shift; done; cp {} \"$2\"", served.display());
        self.program("curl", &copy);
        self
    }

    /// One that has, of all programs, those that every image has.
    fn with_the_least(self) -> Machine {
        let least = self.path("least");
        fs::create_dir(&least).unwrap();
        for program in [
            "cat",
            "chmod",
            "cp",
            "mkdir",
            "mktemp",
            "mv",
            "rm",
            "sh",
            "sha256sum",
            "timeout",
            "uname",
        ] {
            let found = std::env::split_paths(&self.path).map(|folder| folder.join(program));
            let found = found.into_iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(found, least.join(program)).unwrap();
        }
        Machine { path: least.display().to_string(), ..self }
    }

    fn without(self, program: &str) -> Machine {
        fs::remove_file(self.path("bin").join(program)).unwrap();
        self
    }

    fn start(&self, script: &str) -> Output {
        let root = self.dir.path().display().to_string();
        let script = script
            .replace("/usr/local/bin/", &format!("{root}/usr/"))
            .replace("/etc/", &format!("{root}/etc/"))
            .replace("/dev/console", &format!("{root}/console"));
        let path = format!("{root}/bin:{}", self.path);
        Command::new("sh").args(["-c", &script]).env("PATH", path).output().unwrap()
    }

    fn read(&self, name: impl AsRef<Path>) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

#[test]
fn the_agent_is_fetched_checked_and_started() {
    let machine = Machine::new().serving(AGENT);
    let output = machine.start(&with_agent());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(machine.read("usr/ondeck"), AGENT);
    let mode = fs::metadata(machine.path("usr/ondeck")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    let env = machine.read("etc/ondeck/agent.env");
    assert_eq!(
        env,
        "ONDECK_POOL=acme/web\nONDECK_AWS_REGION=us-east-1\nONDECK_HOME=/var/lib/ondeck\n\
         ONDECK_METADATA_FIREWALL=on\nONDECK_MACHINE_LOGS=off\nONDECK_CONNECT=off\n\
         ONDECK_OWN_MACHINE=true\n"
    );
    let unit = machine.read("etc/systemd/system/ondeck-agent.service");
    assert!(unit.contains("usr/ondeck agent --backend aws\nRestart=always\n"), "{unit}");
    let calls = machine.read("calls");
    assert!(calls.ends_with(STARTED), "{calls}");
    assert!(!calls.contains("shutdown"), "{calls}");
}

/// The service is read anew, and started anew if it runs already.
const STARTED: &str = "systemctl daemon-reload\nsystemctl enable ondeck-agent.service\n\
                       systemctl restart ondeck-agent.service\n";

#[test]
fn jobs_are_not_held_back_by_the_service_that_they_are_in() {
    let machine = Machine::new().serving(AGENT);
    machine.start(&with_agent());
    let unit = machine.read("etc/systemd/system/ondeck-agent.service");
    let (_, service) = unit.split_once("[Service]\n").unwrap();
    let (service, _) = service.split_once("\n\n").unwrap();
    for line in [
        // The step whose process was killed fails, and neither the agent nor the rest of the job.
        "OOMPolicy=continue",
        // Systemd gives none to a service without a user, and the operator's script wants one.
        "Environment=HOME=/root",
        "TasksMax=infinity",
        "LimitNOFILE=65536:524288",
        // The agent and its jobs are told apart by cgroups that the agent makes.
        "Delegate=yes",
    ] {
        assert!(service.lines().any(|it| it == line), "{line}: {service}");
    }
    // What a dead agent has left is ended with it, as the next one would do anyway; and a score
    // would be handed on to the jobs, whose own scores the runner sees to.
    for name in ["KillMode", "OOMScoreAdjust"] {
        assert!(!service.contains(name), "{service}");
    }
}

#[test]
fn nftables_is_installed_where_the_image_lacks_it() {
    let without_nft = || Machine::new().serving(AGENT).with_the_least().without("nft");
    let off = {
        let source = source("https://example.com/ondeck", AGENT_SHA256);
        rendered("us-east-1", Some(source), false)
    };
    let apt = "apt-get -qq update\napt-get -qq -o DPkg::Lock::Timeout=60 install --yes \
               --no-install-recommends nftables\n";
    let dnf = "dnf --quiet --assumeyes install nftables\n";
    for (programs, succeed, script, expected) in [
        (&["apt-get", "dnf"][..], true, with_agent(), apt),
        (&["apt-get"], false, with_agent(), apt),
        (&["dnf"], true, with_agent(), dnf),
        (&["dnf"], false, with_agent(), dnf),
        (&[], true, with_agent(), ""),
        (&["apt-get", "dnf"], true, off, ""),
    ] {
        let machine = without_nft();
        for program in programs {
            machine.program(program, if succeed { "" } else { "exit 100" });
        }
        let output = machine.start(&script);
        assert!(output.status.success(), "the agent says what is missing: {output:?}");
        let calls = machine.read("calls");
        let installing = calls.lines().filter(|it| it.starts_with("apt") || it.starts_with("dnf"));
        let installing: String = installing.map(|line| format!("{line}\n")).collect();
        assert_eq!(installing, expected);
        assert!(calls.ends_with(STARTED), "{calls}");
        let failed = String::from_utf8_lossy(&output.stdout).contains("could not be installed");
        assert_eq!(failed, !succeed, "{programs:?}");
    }
    let machine = Machine::new().serving(AGENT);
    machine.program("apt-get", "");
    machine.start(&with_agent());
    assert!(!machine.read("calls").contains("apt-get"), "the image has nft");
}

#[test]
fn an_agent_that_is_running_is_replaced() {
    let machine = Machine::new().serving(AGENT);
    fs::create_dir_all(machine.path("usr")).unwrap();
    // Copied by another process: a file that this one has open for writing may still be open in a
    // child of it, and could not be started.
    let copied = Command::new("cp").arg("/bin/sh").arg(machine.path("usr/ondeck")).status();
    assert!(copied.unwrap().success());
    let mut old = Command::new(machine.path("usr/ondeck"))
        .args(["-c", "read line"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let output = machine.start(&with_agent());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(machine.read("usr/ondeck"), AGENT);
    assert_eq!(fs::read_dir(machine.path("usr")).unwrap().count(), 1, "and nothing beside it");
    let calls = machine.read("calls");
    assert!(calls.ends_with(STARTED), "{calls}");
    assert_eq!(old.try_wait().unwrap(), None, "it ran all the time");
    drop(old.stdin.take());
    old.wait().unwrap();
}

#[test]
fn an_agent_on_the_image_is_used_as_it_is() {
    for (on_image, script) in
        [(AGENT, with_agent()), ("#!/bin/sh\n# any\n", rendered("eu-west-1", None, true))]
    {
        let machine = Machine::new();
        machine.program("curl", "exit 1");
        fs::create_dir_all(machine.path("usr")).unwrap();
        fs::write(machine.path("usr/ondeck"), on_image).unwrap();
        let output = machine.start(&script);
        assert!(output.status.success(), "{output:?}");
        assert!(!machine.read("calls").contains("curl"), "{}", machine.read("calls"));
        assert_eq!(machine.read("usr/ondeck"), on_image);
    }
}

#[test]
fn a_machine_that_cannot_be_used_says_why_and_ends() {
    let unreachable = Machine::new();
    unreachable.program("curl", "exit 22");
    let broken = Machine::new().serving(AGENT);
    broken.program("systemctl", "[ \"$1\" != enable ]");
    let from_s3 = Machine::new();
    from_s3.program("aws", "exit 1");
    let s3 = rendered("us-east-1", Some(source("s3://bucket/x", AGENT_SHA256)), true);
    let foreign = Machine::new().serving(AGENT);
    foreign.program("uname", "echo riscv64");
    let only_x86 = Machine::new().serving(AGENT);
    only_x86.program("uname", "echo aarch64");
    let agent = Some(source("https://example.com/ondeck", AGENT_SHA256));
    let only_x86_agent = with_agents("us-east-1", Agents { x86_64: agent, arm64: None }, true, &[]);
    // A program for another processor cannot be started, which ends with status 126.
    let mistaken = Machine::new().serving(MISTAKEN);
    mistaken.program("uname", "echo x86_64");
    let mistaken_agent = source("https://example.com/ondeck", MISTAKEN_SHA256);
    let mistaken_agent = rendered("us-east-1", Some(mistaken_agent), true);
    let frozen = Machine::new().serving(AGENT);
    frozen.program("systemctl", "[ \"$1\" != restart ]");
    for (machine, script, why) in [
        (Machine::new().serving("something else"), with_agent(), "not the one that was asked for"),
        (unreachable, with_agent(), "could not be fetched: https://example.com/ondeck"),
        (from_s3, s3, "could not be fetched: s3://bucket/x"),
        (Machine::new(), rendered("us-east-1", None, true), "no agent-url to get one from"),
        (foreign, with_agent(), "there is no agent for this processor: riscv64"),
        (only_x86, only_x86_agent, "no agent-url-arm64 to get one from for arm64"),
        (mistaken, mistaken_agent, "the agent does not run on x86-64"),
        (broken, with_agent(), "the agent's service does not start"),
        (frozen, with_agent(), "the agent's service does not start"),
    ] {
        let output = machine.start(&script);
        assert!(!output.status.success(), "{why}");
        let console = machine.read("console");
        assert!(
            console.contains("cannot be used and ends: ") && console.contains(why),
            "{console}"
        );
        let calls = machine.read("calls");
        assert!(calls.contains("shutdown -h now\n"), "{calls}");
        let tries =
            calls.lines().filter(|c| c.starts_with("curl ") || c.starts_with("aws ")).count();
        assert!(tries <= 5, "{calls}");
    }
}

#[test]
fn each_architecture_gets_its_agent() {
    let agents = Agents {
        x86_64: Some(source("https://example.com/x86-64", AGENT_SHA256)),
        arm64: Some(source("https://example.com/arm64", AGENT_SHA256)),
    };
    let script = with_agents("us-east-1", agents, true, &[]);
    for (name, url) in [("x86_64", "x86-64"), ("aarch64", "arm64"), ("arm64", "arm64")] {
        let machine = Machine::new().serving(AGENT);
        machine.program("uname", &format!("echo {name}"));
        let output = machine.start(&script);
        assert!(output.status.success(), "{output:?}");
        let calls = machine.read("calls");
        assert!(calls.contains(&format!(" https://example.com/{url}\n")), "{calls}");
    }
}

#[test]
fn the_user_of_jobs_exists_before_the_agent_runs_the_script() {
    let create = |user: &str| format!("id -u {user}\nuseradd -m -s /bin/bash -- {user}\n");
    for (settings, status, expected) in [
        (&[][..], "exit 1", create("runner")),
        (&[("runner-user", "ci")], "exit 1", create("ci")),
        (&[], "exit 0", "id -u runner\n".to_owned()),
    ] {
        let machine = Machine::new();
        machine.program("id", status);
        // One that fails does not stop the agent, which reports it.
        machine.program("useradd", "exit 4");
        fs::create_dir_all(machine.path("usr")).unwrap();
        fs::write(machine.path("usr/ondeck"), AGENT).unwrap();
        let output = machine.start(&with_agents("us-east-1", Agents::default(), true, settings));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(machine.read("calls"), format!("{expected}{STARTED}"));
    }
}

#[test]
fn proxies_are_used_from_the_first_download_on() {
    let proxies = [("https-proxy", "http://proxy:3128"), ("no-proxy", ".amazonaws.com,*.local")];
    let agent = Some(source("https://example.com/ondeck", AGENT_SHA256));
    let script = with_agents("us-east-1", Agents { x86_64: agent, arm64: None }, true, &proxies);
    let machine = Machine::new().serving(AGENT);
    machine.program("uname", "echo x86_64");
    let served = machine.path("served").display().to_string();
    let note = format!(
        "echo \"$https_proxy $no_proxy ${{http_proxy-none}}\" >{}/seen; \
         while [ \"$1\" != --output ]; do shift; done; cp {served} \"$2\"",
        machine.path("").display()
    );
    machine.program("curl", &note);
    let output = machine.start(&script);
    assert!(output.status.success(), "{output:?}");
    let none = "169.254.169.254,fd00:ec2::254,localhost,127.0.0.1,::1,.amazonaws.com,*.local";
    assert_eq!(machine.read("seen"), format!("http://proxy:3128 {none} none\n"));
    let env = machine.read("etc/ondeck/agent.env");
    let (_, added) = env.split_once("ONDECK_OWN_MACHINE=true\n").unwrap();
    assert_eq!(
        added,
        format!(
            "https_proxy=http://proxy:3128\nHTTPS_PROXY=http://proxy:3128\nno_proxy={none}\n\
             NO_PROXY={none}\n"
        )
    );
}

#[test]
fn an_image_that_cannot_read_s3_says_so_at_once() {
    let s3 = rendered("us-east-1", Some(source("s3://bucket/x", AGENT_SHA256)), true);
    let machine = Machine::new().with_the_least().without("aws");
    let output = machine.start(&s3);
    assert!(!output.status.success());
    let console = machine.read("console");
    assert!(console.contains("has no aws program"), "{console}");
    assert!(console.trim_end().ends_with("s3://bucket/x"), "{console}");
    let calls = machine.read("calls");
    assert!(calls.contains("shutdown -h now\n"), "{calls}");
    assert!(!calls.contains("sleep"), "trying again would not help: {calls}");

    let machine = Machine::new().with_the_least().without("aws");
    fs::create_dir_all(machine.path("usr")).unwrap();
    fs::write(machine.path("usr/ondeck"), AGENT).unwrap();
    let output = machine.start(&s3);
    assert!(output.status.success(), "with the agent on the image it needs none: {output:?}");
}
