//! The transcript of "Getting started", word for word: from a folder with a remote to a warm run and
//! back to an empty account, on emulated AWS and the stand-in for GitHub.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ondeck_aws::PoolName;
use ondeck_standin::emulators::Emulators;
use serde_json::Value;

use crate::cloud::Cloud;
use crate::harness::{Background, Done, program};

const PAGE: &str = include_str!("../../../../docs/getting-started.md");
/// Stands above the block that this test runs.
const MARK: &str = "<!-- not run: it needs what cargo xtask cloud --github prints; the test getting_started runs it -->\n```sh\n";
/// The first line of the transcript that removes something.
const LEAVING: &str = "ondeck teardown --yes\n";
const CLI: &str = include_str!("getting_started/aws.py");
/// Plays the GitHub CLI: one that is signed in knows the ids of the repository.
const GH: &str = "#!/bin/sh
test \"$*\" = 'api --hostname github.com repos/acme/web' || exit 1
echo '{\"id\": 2, \"name\": \"web\", \"owner\": {\"id\": 1, \"login\": \"acme\"}}'
";
/// Lists what there is of the pool and its stack.
const LEFT: &str = include_str!("getting_started/left.py");

/// The commands of the book.
fn transcript() -> &'static str {
    let (_, block) = PAGE.split_once(MARK).expect("the page marks its transcript");
    block.split_once("```").unwrap().0
}

/// The same, with a list of what there is before anything is removed, and one at the end.
fn observed(name: &str) -> String {
    let (before, after) = transcript().split_once(LEAVING).expect("the transcript tears down");
    format!("{before}left {name} >../before.json\n{LEAVING}{after}left {name} >../after.json\n")
}

/// A folder of programs for the path: the built one, what plays the AWS CLI and the GitHub CLI, and the
/// list.
fn programs(folder: &Path) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ondeck"), bin.join("ondeck")).unwrap();
    let python = Emulators::running().shellcheck.parent().unwrap().join("python");
    let script = |text: &str| format!("#!{}\n{text}", python.display());
    for (name, text) in [("aws", script(CLI)), ("left", script(LEFT)), ("gh", GH.to_owned())] {
        let program = bin.join(name);
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin
}

/// Runs a script in a folder and returns what it came to.
fn run(script: &str, folder: &Path, bin: &Path, cloud: &Cloud) -> Done {
    let mut shell = program(Path::new("sh"), &["-eu", "-c", script]);
    let path = std::env::var("PATH").unwrap();
    shell.current_dir(folder).env("PATH", format!("{}:{path}", bin.display()));
    shell.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap());
    shell.envs(cloud.variables()).stdin(Stdio::null());
    Background::start(&mut shell).finish()
}

#[test]
fn from_an_empty_folder_to_a_warm_run_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let pool = format!("acme/start-{:08x}", fastrand::u32(..));
    let cloud = Cloud::start_with(folder.path(), &["--pool", &pool]);
    let bin = programs(folder.path());
    let web = folder.path().join("web");
    fs::create_dir(&web).unwrap();
    let git = Command::new("git").args(["init", "--quiet"]).current_dir(&web).status();
    assert!(git.unwrap().success());
    let name = pool.parse::<PoolName>().unwrap().resource_name();
    let done = run(&observed(&name), &web, &bin, &cloud).succeeded();
    let said = [done.stdout.as_str(), done.stderr.as_str()].concat();
    for words in [
        "created   ondeck.toml",
        "updated   ondeck.toml",
        "0 warm, 1 cold, 0 adopted",
        "hello from run 1",
        "1 warm, 0 cold, 0 adopted",
        "run 2 released",
    ] {
        assert!(said.contains(words), "not said: {words}\n{said}");
    }
    let parameters = fs::read_to_string(web.join("infra/ondeck.json")).unwrap();
    assert!(parameters.contains("\"acme@1/web@2\""), "the stack trusts ids: {parameters}");
    let list = |file: &str| -> BTreeMap<String, Vec<Value>> {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let (before, after) = (list("before.json"), list("after.json"));
    assert_eq!(before.len(), 8, "{before:?}");
    // Runners of idle machines are not registered, so only their end is certain.
    let missing = before.iter().find(|(kind, found)| *kind != "runners" && found.is_empty());
    assert_eq!(missing, None, "{before:?}");
    assert!(after.values().all(Vec::is_empty), "{after:?}\n{said}");
}
