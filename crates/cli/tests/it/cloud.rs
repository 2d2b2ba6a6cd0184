//! What `cargo xtask cloud --github` starts: AWS and GitHub by hand, with the variables that it prints.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ondeck_standin::emulators::Emulators;

use crate::harness::{Background, Driven, ondeck};

/// The program of the stand-ins, until the test ends, and what it has printed.
pub(crate) struct Cloud {
    process: Child,
    variables: Vec<(String, String)>,
}

impl Cloud {
    fn start(folder: &Path) -> Cloud {
        Cloud::start_with(folder, &[])
    }

    /// The same, with more arguments for the program.
    pub(crate) fn start_with(folder: &Path, more: &[&str]) -> Cloud {
        let emulators = Emulators::running();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_ondeck"));
        let mut process = Command::new(program.with_file_name("ondeck-standin"))
            .args(["--github", "--port", "0", "--dynamodb", &emulators.dynamodb])
            .args(["--sqs", &emulators.ministack, "--models"])
            .arg(&emulators.models)
            .arg("--policies")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies"))
            .arg("--agent-program")
            .arg(&program)
            .arg("--logs")
            .arg(folder)
            .args(more)
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo build -p ondeck-standin --bins builds it");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut variables = Vec::new();
        // The last one.
        while variables.last().is_none_or(|(name, _)| name != "ONDECK_DOWNLOAD_URL") {
            let line = lines.next().unwrap().unwrap();
            let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
            let value = value.strip_prefix('\'').unwrap().strip_suffix('\'').unwrap();
            variables.push((name.to_owned(), value.to_owned()));
        }
        Cloud { process, variables }
    }

    /// What it has printed.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn variable(&self, wanted: &str) -> &str {
        &self.variables.iter().find(|(name, _)| name == wanted).unwrap().1
    }

    fn curl(&self, arguments: &[&str], url: &str) -> String {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "60"]);
        curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let done = Background::start(curl.args(arguments).arg(url)).finish();
        done.succeeded().stdout
    }
}

impl Driven for Cloud {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ondeck(arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        // Its warden ends the machines.
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn the_printed_variables_are_all_that_a_run_needs() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = Cloud::start(folder.path());
    cloud.refresh(&[]);
    let machines = cloud.provision("1", 1).succeeded().ids();
    let url = format!("{}/_standin/queue/acme/web/1", cloud.variable("ONDECK_GITHUB_URL"));
    let log = cloud.curl(&["--data", "echo served run $GITHUB_RUN_ID"], &url);
    assert!(log.lines().any(|line| line == "served run 1"), "{log}");
    cloud.release("1").succeeded();
    assert_eq!(cloud.standings(), ["idle"]);
    // The machine is warm for the next run.
    assert_eq!(cloud.provision("2", 1).succeeded().ids(), machines);
    cloud.release("2").succeeded();
}

/// What the Action's installation asks for.
#[test]
fn the_action_finds_its_release() {
    let folder = tempfile::tempdir().unwrap();
    let cloud = Cloud::start(folder.path());
    let page = format!("{}/v{}", cloud.variable("ONDECK_DOWNLOAD_URL"), env!("CARGO_PKG_VERSION"));
    let sums = cloud.curl(&[], &format!("{page}/SHA256SUMS"));
    let names: Vec<&str> = sums.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    for name in ["ondeck", "ondeck-agent"] {
        let file = format!("{name}-{}-x86_64-unknown-linux-musl", env!("CARGO_PKG_VERSION"));
        assert!(names.contains(&file.as_str()), "{sums}");
    }
    let program = folder.path().join("ondeck");
    let first = format!("{page}/{}", names[0]);
    cloud.curl(&["--output", program.to_str().unwrap()], &first);
    let built = std::fs::read(env!("CARGO_BIN_EXE_ondeck")).unwrap();
    assert!(std::fs::read(&program).unwrap() == built, "another program");
}
