use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ondeck_core::testkit;
use tempfile::TempDir;

use super::*;

/// A machine's disk, on which agents come and go.
struct Disk(TempDir);

impl Disk {
    fn new() -> Disk {
        Disk(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("machine").join(name)
    }

    /// Runs a script by an agent that has just started, on a machine of this id.
    async fn run_on(&self, id: &str, script: &str) -> Result<(), String> {
        let (plane, _) = testkit::plane();
        let id = InstanceId::new(id).unwrap();
        let folder = self.path("");
        let host = Ec2Host::new(Imds::new(), plane.clock, id, folder, "true".to_owned());
        host.run_script(script).await
    }

    async fn run(&self, script: &str) -> Result<(), String> {
        self.run_on("i-1", script).await
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

#[tokio::test]
async fn a_script_without_an_interpreter_stops_at_its_first_failure() {
    let disk = Disk::new();
    let error = disk.run("echo no luck >&2\nfalse\ntouch unreachable\n").await.unwrap_err();
    assert!(error.ends_with("exit status: 1: no luck"), "{error}");
    assert!(!disk.path("unreachable").exists());
    disk.run("echo \"$ONDECK_INSTANCE_ID\" >told\n").await.unwrap();
    assert_eq!(disk.read("told"), "i-1\n");
}

#[tokio::test]
async fn a_script_is_run_by_its_interpreter() {
    let disk = Disk::new();
    let script = "#!/bin/cat\nno shell would take 'this\n";
    disk.run(script).await.unwrap();
    assert_eq!(disk.read("pre-runner.out"), script);
    disk.run("#!/bin/cat -n\n").await.unwrap();
    assert_eq!(disk.read("pre-runner.out").trim(), "1\t#!/bin/cat -n");
    disk.run("#!/bin/sh\nfalse\ntouch reached\n").await.unwrap();
    assert!(disk.path("reached").exists(), "it is not told how to go about failures");
    let error = disk.run("#!/bin/sh -e\nfalse\ntrue\n").await.unwrap_err();
    assert!(error.starts_with("the script ended with"), "{error}");
    let mode = fs::metadata(disk.path("pre-runner.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0, "the folder need not be one where files can be executed");
    let error = disk.run("#!/nowhere/python\n").await.unwrap_err();
    assert!(error.contains("cannot run the script: \"/nowhere/python\": "), "{error}");
}

#[tokio::test]
async fn a_script_that_has_succeeded_is_not_run_again_on_the_machine() {
    let disk = Disk::new();
    let script = "echo once >>times";
    for (id, script, times) in [
        ("i-1", script, 1),
        ("i-1", script, 1),
        // Made from an image of that one's disk.
        ("i-2", script, 2),
        ("i-2", script, 2),
        ("i-2", "echo another >>times", 3),
        ("i-2", script, 4),
    ] {
        disk.run_on(id, script).await.unwrap();
        assert_eq!(disk.read("times").lines().count(), times, "{id}: {script}");
    }
}

#[tokio::test]
async fn a_script_that_has_not_succeeded_is_run_again() {
    let disk = Disk::new();
    let script = "echo tried >>times\ntest -e mended\n";
    for tries in 1..=2 {
        disk.run(script).await.unwrap_err();
        assert_eq!(disk.read("times").lines().count(), tries);
    }
    fs::write(disk.path("mended"), "").unwrap();
    disk.run(script).await.unwrap();
    assert_eq!(disk.read("times").lines().count(), 3);
    fs::write(disk.path("pre-runner.done"), &disk.read("pre-runner.done")[..9]).unwrap();
    disk.run(script).await.unwrap();
    assert_eq!(disk.read("times").lines().count(), 4, "half a mark is none");
}

#[tokio::test]
async fn a_script_whose_agent_died_meanwhile_is_run_again() {
    let disk = Disk::new();
    let script = "echo begun >>times\ntest -e again || exec sleep 600\n";
    let begun = async {
        while disk.read("times").is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        ended = disk.run(script) => panic!("{ended:?}"),
        () = begun => {}
    }
    fs::write(disk.path("again"), "").unwrap();
    disk.run(script).await.unwrap();
    assert_eq!(disk.read("times").lines().count(), 2);
}
