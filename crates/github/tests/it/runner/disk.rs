//! Disks that a run leaves full: small file systems, mounted in a namespace of each test.

use std::fs;
use std::path::Path;
use std::process::Command;

use ondeck_core::ports::Runner;

use crate::runner::docker::{DockerHarness, serve};
use crate::runner::harness::RunnerHarness;
use crate::runner::user::TemporaryUser;

/// Whether this process may mount: it runs the test in a mount namespace. Otherwise the test is run in
/// another process that may, unless there is no root.
fn may_mount(test: &str) -> bool {
    const INSIDE: &str = "DISK_TEST";
    if std::env::var_os(INSIDE).is_some() {
        // However full the disks of this computer are.
        mount(&std::env::temp_dir(), "size=2g,mode=1777");
        mount(Path::new("/var/tmp"), "size=2g,mode=1777");
        return true;
    }
    if TemporaryUser::new("disk").is_none() {
        return false;
    }
    let output = Command::new("unshare")
        .args(["--mount", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("runner::disk::{test}"), "--nocapture"])
        .env(INSIDE, "1")
        .env("TMPDIR", "/tmp")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{words}");
    false
}

fn mount(place: &Path, options: &str) {
    fs::create_dir_all(place).unwrap();
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", options, "small"]).arg(place);
    assert!(command.status().unwrap().success());
}

#[tokio::test]
async fn a_machine_with_a_full_disk_is_retired() {
    if !may_mount("a_machine_with_a_full_disk_is_retired") {
        return;
    }
    let Some(user) = TemporaryUser::new("disk-a") else { return };
    let harness = RunnerHarness::with_image("2.336.0").await;
    mount(&harness.folder, "size=20m,nr_inodes=1000,mode=755");
    harness.set("min-free-disk-percent", "10").await;
    let agent = harness.runner_as(Some(&user.0)).with_own_machine(harness.machine());
    agent.prepare().await.unwrap();
    let folder = harness.folder.display().to_string();
    let limit = "and min-free-disk-percent is 10";
    // What cleaning does not remove, such as the runner's logs of many runs.
    let big = harness.folder.join("diagnostics/big");
    let fill = || fs::write(&big, vec![1; 19 << 20]).unwrap();
    let error = serve(&agent, "1", fill).await.unwrap_err();
    assert!(
        error.starts_with("only ") && error.contains(" % of the bytes are free in "),
        "{error}"
    );
    assert!(error.ends_with(&format!("{folder}, {limit}")), "{error}");
    fs::remove_file(&big).unwrap();
    agent.clean().await.unwrap();
    let many = || {
        for n in 0..950 {
            fs::write(harness.folder.join(format!("diagnostics/{n}")), "").unwrap();
        }
    };
    let error = serve(&agent, "2", many).await.unwrap_err();
    assert!(error.contains(" % of the inodes are free in "), "{error}");
    harness.set("min-free-disk-percent", "0").await;
    agent.clean().await.unwrap();
}

#[tokio::test]
async fn kept_images_go_first_and_the_oldest_before_others() {
    if !may_mount("kept_images_go_first_and_the_oldest_before_others") {
        return;
    }
    let Some(mut harness) = DockerHarness::new("disk-b").await else { return };
    mount(&harness.daemon.data(), "size=60m");
    harness.start().await;
    harness.runner.set("keep-docker-cache", "true").await;
    harness.runner.set("min-free-disk-percent", "60").await;
    let agent = harness.agent().await;
    let daemon = &harness.daemon;
    let images = || daemon.docker("image ls --format {{.Repository}}");
    let run = || {
        for name in ["zebra", "monkey", "ant"] {
            daemon.shell(&format!(
                "mkdir {name}; head -c 12000000 /dev/urandom >{name}/big
                 tar -C {name} -c . | docker import - {name}:1; rm -r {name}"
            ));
        }
    };
    serve(&agent, "1", run).await.unwrap();
    let mut left: Vec<String> = images().lines().map(str::to_owned).collect();
    left.sort();
    assert_eq!(left, ["ant", "base"]);
    harness.runner.set("min-free-disk-percent", "99").await;
    let error = serve(&agent, "2", || ()).await.unwrap_err();
    assert!(error.contains(" % of the bytes are free in "), "{error}");
    assert_eq!(images(), "base", "what came with the machine stays");
}

#[tokio::test]
async fn the_build_cache_goes_before_kept_images() {
    if !may_mount("the_build_cache_goes_before_kept_images") {
        return;
    }
    let Some(mut harness) = DockerHarness::new("disk-c").await else { return };
    mount(&harness.daemon.data(), "size=60m");
    harness.start().await;
    harness.runner.set("keep-docker-cache", "true").await;
    harness.runner.set("min-free-disk-percent", "60").await;
    let agent = harness.agent().await;
    let daemon = &harness.daemon;
    let cache = || {
        let found = daemon.everything().into_iter().find(|line| line.starts_with("Build Cache "));
        found.unwrap()
    };
    // The large layer is in the cache alone, because the image is made of the second stage.
    let run = || {
        daemon.import("kept", "kept:1");
        daemon.shell(
            "head -c 12000000 /dev/urandom >base/big
             printf 'FROM base:1 AS large\nCOPY big /\nFROM base:1\nCOPY --from=large /mark /x\n' \
                 >base/Dockerfile
             DOCKER_BUILDKIT=1 /usr/bin/docker build --quiet --network none --tag built:1 base",
        );
        assert_ne!(cache(), "Build Cache 0");
    };
    serve(&agent, "1", run).await.unwrap();
    assert_eq!(cache(), "Build Cache 0");
    let images = daemon.docker("image ls --format {{.Repository}}");
    let mut left: Vec<&str> = images.lines().collect();
    left.sort_unstable();
    assert_eq!(left, ["base", "built", "kept"]);
}
