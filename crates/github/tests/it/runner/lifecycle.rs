use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use ondeck_core::ports::Runner;
use ondeck_github::Timeouts;
use ondeck_processes::Process;

use crate::runner::harness::{RunnerHarness, appears, exit_after, holds, label};

#[tokio::test]
async fn successive_runs_use_the_same_machine() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    for (n, name) in [(1, "4711"), (2, "4712")] {
        let run = label(name);
        runner.register(&run).await.unwrap();
        let listed = format!("{}-{n}-a1b2c3", harness.id);
        assert_eq!(harness.list(), [listed.as_str()]);
        let label = fs::read_to_string(harness.github.join("list").join(&listed)).unwrap();
        assert_eq!(label.trim(), name);
        let done = harness.queue(&run, 1, "echo hello; touch made; ls -A ~ \"$TMPDIR\"");
        appears(&done).await;
        assert_eq!(fs::read_to_string(&done).unwrap(), "Succeeded\n");
        runner.stop().await.unwrap();
        assert!(harness.log().ends_with("gone\n"), "the listener got SIGINT");
        runner.deregister().await.unwrap();
        assert_eq!(harness.list(), [""; 0]);
        let account = runner.account().await;
        assert!(account.starts_with("1 job, ") && account.ends_with(" s busy"), "{account}");
        runner.clean().await.unwrap();
        assert_eq!(runner.account().await, "", "the account of the next run is empty");
        assert!(!harness.root().join("_work").exists());
        assert!(!harness.root().join(".runner").exists());
    }
}

#[tokio::test]
async fn what_a_job_leaves_is_removed_before_the_next_run() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let first = label("1");
    runner.register(&first).await.unwrap();
    let pids = harness.github.join("pids");
    let script = format!(
        "mkdir -p ~/.cache/locked; echo x >~/.cache/locked/file; chmod -R a-w ~/.cache
         echo x >\"$TMPDIR/file\"; echo x >\"$RUNNER_TEMP/file\"; ln -s /etc link
         setsid sleep 300 >/dev/null 2>&1 & echo $! >>{pids}
         env -i sleep 300 >/dev/null 2>&1 & echo $! >>{pids}",
        pids = pids.display()
    );
    appears(&harness.queue(&first, 1, &script)).await;
    let left: Vec<Process> = fs::read_to_string(&pids)
        .unwrap()
        .lines()
        .map(|pid| Process::of(pid.parse().unwrap()).unwrap())
        .collect();
    assert_eq!(left.len(), 2);
    runner.stop().await.unwrap();
    assert!(left.iter().all(|process| !process.is_alive()));
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();
    for folder in ["home", "tmp"] {
        assert_eq!(fs::read_dir(harness.folder.join(folder)).unwrap().count(), 0, "{folder}");
    }
    let mut names: Vec<_> =
        fs::read_dir(harness.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["bin", "config.sh"]);
    let logs = fs::read_dir(harness.folder.join("diagnostics")).unwrap();
    assert_eq!(logs.count(), 1, "the runner's own log is archived");
}

#[tokio::test]
async fn a_failed_cleanup_is_reported() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let docker = harness.folder.with_file_name("docker");
    fs::write(&docker, "#!/bin/sh\necho one\n").unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    let timeouts = Timeouts { docker_patience: Duration::ZERO, ..Timeouts::default() };
    let runner = harness.runner().with_docker(&docker).with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    fs::write(&docker, "#!/bin/sh\nexit 1\n").unwrap();
    let error = runner.clean().await.unwrap_err();
    assert_eq!(error, "docker has stopped answering: exit status: 1");
}

#[tokio::test]
async fn only_containers_of_the_run_are_removed() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let docker = harness.folder.with_file_name("docker");
    let there = harness.folder.with_file_name("there");
    let script = format!(
        "#!/bin/sh
         case $* in
         *rm*) echo \"$*\" >>{there}.removed; echo operators >{there} ;;
         *) cat {there} ;;
         esac",
        there = there.display()
    );
    fs::write(&docker, script).unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&there, "operators\n").unwrap();
    let runner = harness.runner().with_docker(&docker);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    fs::write(&there, "operators\nruns\n").unwrap();
    // A restarted agent still knows which containers were there before.
    let runner = harness.runner().with_docker(&docker);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();
    let removed = fs::read_to_string(there.with_extension("removed")).unwrap();
    assert_eq!(removed, "rm --force --volumes runs\nnetwork rm runs\nvolume rm --force runs\n");
}

#[tokio::test]
async fn a_running_job_is_stopped() {
    for stubborn in [false, true] {
        let harness = RunnerHarness::with_image("2.336.0").await;
        let mut timeouts = Timeouts::default();
        if stubborn {
            harness.inject("stubborn", "");
            timeouts.stop_busy = Duration::from_millis(500);
        }
        let runner = harness.runner().with_timeouts(timeouts);
        runner.prepare().await.unwrap();
        let run = label("1");
        runner.register(&run).await.unwrap();
        let pid = harness.github.join("pid");
        let done = harness.queue(
            &run,
            1,
            &format!("echo $$ >{0}.new; mv {0}.new {0}; sleep 300", pid.display()),
        );
        appears(&pid).await;
        let job = Process::of(fs::read_to_string(&pid).unwrap().trim().parse().unwrap()).unwrap();
        let since = Instant::now();
        runner.stop().await.unwrap();
        assert!(since.elapsed() < Duration::from_secs(30));
        assert!(!job.is_alive() && !done.exists());
        assert_eq!(harness.log().ends_with("gone\n"), !stubborn);
        let account = runner.account().await;
        assert!(account.starts_with("1 job, "), "{account}");
    }
}

/// A shell without job control starts programs in the background with `SIGINT` ignored, and bash does
/// not handle a signal that it was started to ignore, like the real listener.
#[test]
fn a_listener_gets_sigint_from_an_agent_that_ignores_it() {
    let ended = Command::new("sh")
        .args(["-c", "trap '' INT; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "runner::lifecycle::successive_runs_use_the_same_machine"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn a_listener_that_exits_is_restarted() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let why = exit_after(&runner, &run, || harness.inject("crash", "")).await;
    assert!(why.starts_with("the listener met an error that may pass: "), "{why}");
    let done = harness.queue(&run, 1, "true");
    tokio::select! {
        why = runner.work(&run) => panic!("{why}"),
        () = appears(&done) => {}
    }
    runner.stop().await.unwrap();
    let end = runner.deregister().await;
    end.unwrap();
}

#[tokio::test]
async fn a_dropped_work_future_leaves_the_listener_running() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let soon = Duration::from_millis(50);
    tokio::time::timeout(soon, runner.work(&run)).await.unwrap_err();
    appears(&harness.queue(&run, 1, "true")).await;
    runner.stop().await.unwrap();
    holds("the listener's farewell", || harness.log().ends_with("gone\n")).await;
}

#[tokio::test]
async fn a_restarted_agent_cleans_up_after_the_first() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let first = harness.runner();
    first.prepare().await.unwrap();
    first.register(&label("1")).await.unwrap();
    let pid = harness.github.join("pid");
    let script = format!("echo $$ >{0}.new; mv {0}.new {0}; sleep 300", pid.display());
    let done = harness.queue(&label("1"), 1, &script);
    appears(&pid).await;
    let job = Process::of(fs::read_to_string(&pid).unwrap().trim().parse().unwrap()).unwrap();
    let second = harness.runner();
    second.prepare().await.unwrap();
    assert!(!job.is_alive() && !done.exists());
    second.register(&label("1")).await.unwrap();
    assert_eq!(harness.list(), [format!("{}-2-a1b2c3", harness.id)]);
    assert!(harness.log().contains(&format!("remove {}-1-a1b2c3", harness.id)));
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_registration_leaves_no_runner() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    harness.inject("wait", "");
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let (run, half_way) = (label("1"), harness.github.join("waiting"));
    tokio::select! {
        registered = runner.register(&run) => panic!("{registered:?}"),
        () = appears(&half_way) => {}
    }
    runner.stop().await.unwrap();
    fs::write(harness.github.join("go"), "").unwrap();
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();
    assert_eq!(harness.list(), [""; 0], "no process is left to register it");
    runner.register(&run).await.unwrap();
    assert_eq!(harness.list(), [format!("{}-2-a1b2c3", harness.id)]);
    runner.stop().await.unwrap();
}
