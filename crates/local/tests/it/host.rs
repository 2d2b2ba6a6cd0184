use std::sync::Arc;

use ondeck_core::ports::{Forge, Host, Runner};
use ondeck_local::{JobState, LocalHost, LocalRunner};

use crate::harness::{
    LocalHarness, RealClock, UNMARKED, eventually, is_running, label, processes_of, run, unique,
};

#[tokio::test]
async fn a_script_succeeds_or_says_how_it_failed() {
    let harness = LocalHarness::new();
    let id = unique("script");
    let host =
        LocalHost::new(harness.db.clone(), harness.home.clone(), id.clone(), Arc::new(RealClock));
    host.run_script("touch \"$HOME/made\"\ntest -d \"$ONDECK_HOME_DIR\"\n").await.unwrap();
    assert!(harness.home.machine(&id).join("prepared/made").exists());
    let error = host.run_script("echo no luck >&2\nfalse\necho unreachable >&2").await.unwrap_err();
    assert_eq!(error, "the script ended with exit status: 1: no luck");
    let error = host.run_script("head -c 9000 /dev/zero | tr '\\0' x >&2; exit 7").await;
    let error = error.unwrap_err();
    assert!(error.contains("status: 7") && error.len() < 600, "{error}");
}

#[tokio::test]
async fn a_script_may_leave_something_in_the_background() {
    let harness = LocalHarness::new();
    let id = unique("daemon");
    let host =
        LocalHost::new(harness.db.clone(), harness.home.clone(), id.clone(), Arc::new(RealClock));
    host.run_script("sleep 60 &").await.unwrap();
    assert_eq!(processes_of(&id), 1, "and it stays");
    host.terminate("the test is over").await;
    assert_eq!(processes_of(&id), 0);
}

#[tokio::test]
async fn termination_finds_processes_without_the_marker() {
    let harness = LocalHarness::new();
    let id = unique("unmarked-daemon");
    let host = LocalHost::new(harness.db.clone(), harness.home.clone(), id, Arc::new(RealClock));
    let told = harness.home.dir().join("pid");
    host.run_script(&format!("( {UNMARKED} ) > {}", told.display())).await.unwrap();
    let left = std::fs::read_to_string(told).unwrap();
    assert!(is_running(&left), "{left}");
    host.terminate("the test is over").await;
    assert!(!is_running(&left), "{left}");
}

#[tokio::test]
async fn termination_leaves_no_files_and_no_processes() {
    let harness = LocalHarness::new();
    let id = unique("end");
    let clock = std::sync::Arc::new(RealClock);
    let runner = LocalRunner::new(harness.db.clone(), harness.home.clone(), clock, id.clone());
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let forge = harness.forge();
    let argv = ["sleep".to_owned(), "60".to_owned()];
    let job = forge.queue(&run("7"), &argv).await.unwrap();
    let label = label("7");
    tokio::select! {
        why = runner.work(&label) => panic!("the runner died: {why}"),
        () = eventually("the job", || async { (processes_of(&id) == 1).then_some(()) }) => {}
    }
    LocalHost::new(harness.db.clone(), harness.home.clone(), id.clone(), Arc::new(RealClock))
        .terminate("its time is up")
        .await;
    assert_eq!(processes_of(&id), 0);
    assert_eq!(forge.runners().await.unwrap(), []);
    let job = forge.job(job).await.unwrap().unwrap();
    assert_eq!((job.state, job.exit_code), (JobState::Done, Some(143)));
    assert!(!harness.home.machine(&id).exists());
}
