use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use ondeck_standin::emulators::Emulators;
use tempfile::TempDir;

use super::*;

/// What user data may hold, before it is encoded.
const LIMIT: usize = 16 * 1024;

fn names() -> Names {
    Names::of(&"Acme/Web".parse().unwrap())
}

/// An agent, and its digest.
const AGENT: &str = "#!/bin/sh\n";
const AGENT_SHA256: &str = "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf";

fn source(url: &str, sha256: &str) -> AgentSource {
    AgentSource { url: url.to_owned(), sha256: sha256.to_owned() }
}

fn with_agent() -> String {
    let source = source("https://example.com/ondeck", AGENT_SHA256);
    render(&names(), "us-east-1", Some(&source))
}

#[test]
fn the_script_is_as_it_was_reviewed() {
    insta::assert_snapshot!("user_data", with_agent());
}

#[test]
fn the_script_is_small_and_sound() {
    let s3 = render(&names(), "us-east-1", Some(&source("s3://bucket/ondeck", AGENT_SHA256)));
    for script in [with_agent(), render(&names(), "us-east-1", None), s3] {
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
    let script = render(&names(), "us-east-1", Some(&agent));
    assert!(script.contains(r"url='https://x/'\''; touch /tmp/owned; '\'''"), "{script}");
    assert!(script.contains("sha256='$(id)'"), "{script}");
}

/// A machine made of a folder: the script's paths lead there, and so do the programs it calls.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { dir: TempDir::new().unwrap() };
        fs::create_dir_all(machine.path("etc/systemd/system")).unwrap();
        fs::create_dir_all(machine.path("bin")).unwrap();
        for program in ["systemctl", "shutdown", "sleep", "sync", "aws"] {
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

    fn start(&self, script: &str) -> Output {
        let root = self.dir.path().display().to_string();
        let script = script
            .replace("/usr/local/bin/", &format!("{root}/usr/"))
            .replace("/etc/", &format!("{root}/etc/"))
            .replace("/dev/console", &format!("{root}/console"));
        let path = format!("{root}/bin:{}", std::env::var("PATH").unwrap());
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
        "ONDECK_POOL=acme/web\nONDECK_AWS_REGION=us-east-1\nONDECK_HOME=/var/lib/ondeck\n"
    );
    let unit = machine.read("etc/systemd/system/ondeck-agent.service");
    assert!(unit.contains("usr/ondeck agent --backend aws\nRestart=always\n"), "{unit}");
    let calls = machine.read("calls");
    assert!(calls.contains("systemctl enable --now ondeck-agent.service\n"), "{calls}");
    assert!(!calls.contains("shutdown"), "{calls}");
}

#[test]
fn an_agent_on_the_image_is_used_as_it_is() {
    for (on_image, script) in [(AGENT, with_agent()), ("any", render(&names(), "eu-west-1", None))]
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
    let s3 = render(&names(), "us-east-1", Some(&source("s3://bucket/x", AGENT_SHA256)));
    for (machine, script, why) in [
        (Machine::new().serving("something else"), with_agent(), "not the one that was asked for"),
        (unreachable, with_agent(), "could not be fetched: https://example.com/ondeck"),
        (from_s3, s3, "could not be fetched: s3://bucket/x"),
        (Machine::new(), render(&names(), "us-east-1", None), "no agent-url to get one from"),
        (broken, with_agent(), "the agent's service does not start"),
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
