use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::ids::RunId;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{Clock, Forge, Host, RequestBudget, Runner, Store};
use ondeck_local::{Db, Job, JobId, JobState, LocalForge, LocalHost, LocalRunner, Stream};

use crate::harness::{
    LocalHarness, RealClock, UNMARKED, child_arguments, eventually, is_running, label,
    processes_of, run, spawn, unique,
};

fn runner(harness: &LocalHarness, name: &str) -> LocalRunner {
    let (db, home) = (harness.db.clone(), harness.home.clone());
    LocalRunner::new(db, home, Arc::new(RealClock), unique(name))
}

async fn queue(forge: &LocalForge, label: &str, argv: &[&str]) -> JobId {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    forge.queue(&run(label), &argv).await.unwrap()
}

async fn over(forge: &LocalForge, id: JobId) -> Job {
    eventually("the end of the job", || async {
        forge.job(id).await.unwrap().filter(|job| job.state.is_over())
    })
    .await
}

async fn text(forge: &LocalForge, id: JobId, stream: Stream) -> String {
    let chunks = forge.output(id, 0).await.unwrap();
    let of_stream = chunks.into_iter().filter(|chunk| chunk.stream == stream);
    String::from_utf8(of_stream.flat_map(|chunk| chunk.bytes).collect()).unwrap()
}

/// Runs `work` until another future completes, as an agent does.
async fn working<T>(runner: &LocalRunner, run: &str, until: impl Future<Output = T>) -> T {
    let label = label(run);
    tokio::select! {
        why = runner.work(&label) => panic!("the runner died: {why}"),
        done = until => done,
    }
}

/// The runs with waiting jobs.
async fn waiting(forge: &LocalForge) -> Vec<RunId> {
    let open = forge.open_runs(0, &RequestBudget::new(0)).await.unwrap();
    open.runs.into_iter().map(|open| open.run).collect()
}

#[tokio::test]
async fn jobs_are_assigned_by_label() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "labels");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let other = queue(&forge, "8", &["true"]).await;
    let similar = queue(&forge, "77", &["true"]).await;
    let first = queue(&forge, "7", &["true"]).await;
    let second = queue(&forge, "7", &["true"]).await;
    assert_eq!(waiting(&forge).await, [run("7"), run("77"), run("8")]);
    let (first, second) =
        working(&runner, "7", async { (over(&forge, first).await, over(&forge, second).await) })
            .await;
    assert_eq!(first.instance, Some(unique("labels")));
    assert_eq!(first.runner, Some(format!("{}-1", unique("labels"))));
    assert!(first.finished_at <= second.started_at, "one at a time, oldest first");
    for id in [other, similar] {
        assert_eq!(forge.job(id).await.unwrap().unwrap().state, JobState::Queued);
    }
    assert_eq!(waiting(&forge).await, [run("77"), run("8")]);
    assert_eq!(forge.jobs().await.unwrap().len(), 4);
}

#[tokio::test]
async fn exit_codes_and_output_are_kept() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "codes");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let say = "echo $ONDECK_RUN_ID $ONDECK_INSTANCE_ID; pwd >&2; exit 3";
    let said = queue(&forge, "7", &["sh", "-c", say]).await;
    let killed = queue(&forge, "7", &["sh", "-c", "kill -9 $$"]).await;
    let missing = queue(&forge, "7", &["/no/such/command"]).await;
    let empty = queue(&forge, "7", &[]).await;
    let long = queue(&forge, "7", &["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]).await;
    // A background process holds the output open and must not delay the end of the job.
    let left = queue(&forge, "7", &["sh", "-c", "sleep 60 & echo started"]).await;
    working(&runner, "7", async {
        for (id, code) in [(said, 3), (killed, 137), (missing, 127), (empty, 127), (long, 0)] {
            assert_eq!(over(&forge, id).await.exit_code, Some(code), "job {id}");
        }
        assert_eq!(over(&forge, left).await.exit_code, Some(0));
    })
    .await;
    assert_eq!(text(&forge, said, Stream::Stdout).await, format!("7 {}\n", unique("codes")));
    let work = harness.home.machine(&unique("codes")).join("work");
    assert_eq!(text(&forge, said, Stream::Stderr).await, format!("{}\n", work.display()));
    assert!(text(&forge, missing, Stream::Stderr).await.contains("/no/such/command"));
    assert_eq!(text(&forge, long, Stream::Stdout).await.len(), 300_000);
    assert_eq!(text(&forge, left, Stream::Stdout).await, "started\n");
    let chunks = forge.output(long, 1).await.unwrap();
    assert!(chunks.iter().all(|chunk| chunk.seq > 1 && chunk.bytes.len() <= 65_536));
    runner.clean().await.unwrap();
}

#[tokio::test]
async fn stop_kills_the_job_with_its_children_and_records_its_end() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "stop");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let script = "echo begun; setsid sleep 61 & sleep 62 & wait";
    let job = queue(&forge, "7", &["sh", "-c", script]).await;
    let id = unique("stop");
    working(&runner, "7", async {
        eventually("the children", || async { (processes_of(&id) == 3).then_some(()) }).await;
    })
    .await;
    runner.stop().await.unwrap();
    assert_eq!(processes_of(&id), 0);
    let job = forge.job(job).await.unwrap().unwrap();
    assert_eq!((job.state, job.exit_code), (JobState::Done, Some(143)));
    assert!(text(&forge, job.id, Stream::Stderr).await.contains(&format!("taken away: {id}")));
    runner.stop().await.unwrap();
}

#[tokio::test]
async fn a_job_can_be_cancelled_before_and_while_it_runs() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "cancel");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let queued = queue(&forge, "7", &["true"]).await;
    forge.cancel(queued).await.unwrap();
    let running = queue(&forge, "7", &["sleep", "60"]).await;
    let job = working(&runner, "7", async {
        eventually("the start", || async {
            let job = forge.job(running).await.unwrap().unwrap();
            (job.state == JobState::Running).then_some(())
        })
        .await;
        forge.cancel(running).await.unwrap();
        over(&forge, running).await
    })
    .await;
    assert_eq!(job.state, JobState::Cancelled);
    let queued = forge.job(queued).await.unwrap().unwrap();
    assert_eq!((queued.state, queued.started_at), (JobState::Cancelled, None));
}

#[tokio::test]
async fn clean_leaves_neither_files_nor_processes() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "clean");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let script = "mkdir -p deep/er && touch deep/er/file $TMPDIR/t $HOME/.h && chmod 500 deep/er \
                  && setsid sleep 61 >/dev/null 2>&1 &";
    let job = queue(&forge, "7", &["sh", "-c", script]).await;
    working(&runner, "7", over(&forge, job)).await;
    let id = unique("clean");
    eventually("the process that the job left behind", || async {
        (processes_of(&id) > 0).then_some(())
    })
    .await;
    runner.clean().await.unwrap();
    assert_eq!(processes_of(&id), 0);
    for folder in ["work", "tmp", "home"] {
        let folder = harness.home.machine(&id).join(folder);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{}", folder.display());
    }
}

#[tokio::test]
async fn every_run_finds_the_home_that_the_script_has_prepared() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "prepared");
    let host = LocalHost::new(
        harness.db.clone(),
        harness.home.clone(),
        unique("prepared"),
        Arc::new(RealClock),
    );
    let script =
        "mkdir \"$HOME/.tool\"; echo mine > \"$HOME/.tool/config\"; ln -s .tool \"$HOME/t\"
                  chmod 500 \"$HOME/.tool\"";
    host.run_script(script).await.unwrap();
    runner.prepare().await.unwrap();
    // Each job prints what it finds in the home and then changes it.
    let job = "cat \"$HOME/t/config\"; LC_ALL=C ls -A \"$HOME\"
               echo other > \"$HOME/t/config\"; touch \"$HOME/more\"; rm \"$HOME/t\"";
    for round in ["1", "2", "3"] {
        runner.register(&label(round)).await.unwrap();
        let job = queue(&forge, round, &["sh", "-c", job]).await;
        working(&runner, round, over(&forge, job)).await;
        assert_eq!(text(&forge, job, Stream::Stderr).await, "", "run {round}");
        assert_eq!(text(&forge, job, Stream::Stdout).await, "mine\n.tool\nt\n", "run {round}");
        runner.stop().await.unwrap();
        runner.clean().await.unwrap();
    }
}

#[tokio::test]
async fn clean_finds_processes_without_the_marker() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "unmarked");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let first = queue(&forge, "7", &["sh", "-c", UNMARKED]).await;
    let second = queue(&forge, "7", &["sh", "-c", UNMARKED]).await;
    working(&runner, "7", async { (over(&forge, first).await, over(&forge, second).await) }).await;
    let mut left = Vec::new();
    for job in [first, second] {
        left.push(text(&forge, job, Stream::Stdout).await);
    }
    assert!(left.iter().all(|pid| is_running(pid)), "{left:?}");
    runner.clean().await.unwrap();
    assert!(!left.iter().any(|pid| is_running(pid)), "{left:?}");
}

/// A child process that queues a job and waits to be killed.
#[tokio::test]
async fn caller() {
    let Some((home, label)) = child_arguments() else { return };
    let db = Db::open(&home).unwrap();
    queue(&LocalForge::new(db, Arc::new(RealClock)), &label, &["true"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
}

/// Queues a job whose caller is killed before a runner takes it.
async fn orphan(harness: &LocalHarness, label: &str) -> JobId {
    let forge = harness.forge();
    let before = forge.jobs().await.unwrap().len();
    let mut caller = spawn("runner::caller", &harness.home, label);
    let job = eventually("the job", || async {
        let jobs = forge.jobs().await.unwrap();
        jobs.get(before).map(|job| job.id)
    })
    .await;
    assert_eq!(waiting(&forge).await, [run(label)], "while its caller lives");
    caller.kill().unwrap();
    caller.wait().unwrap();
    job
}

#[tokio::test]
async fn a_job_whose_caller_was_killed_is_cancelled_at_the_next_listing() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "orphan");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();

    let refreshed = orphan(&harness, "7").await;
    assert_eq!(waiting(&forge).await, []);
    let taken = orphan(&harness, "7").await;
    let wanted = queue(&forge, "7", &["true"]).await;
    assert_eq!(working(&runner, "7", over(&forge, wanted)).await.exit_code, Some(0));
    let forgotten = orphan(&harness, "7").await;
    harness.store().forget(RealClock.now().before(Duration::from_secs(60))).await.unwrap();
    for id in [refreshed, taken, forgotten] {
        let job = forge.job(id).await.unwrap().unwrap();
        assert_eq!((job.state, job.started_at), (JobState::Cancelled, None), "job {id}");
        assert!(job.finished_at.is_some());
    }
    harness.store().forget(RealClock.now()).await.unwrap();
    assert_eq!(forge.jobs().await.unwrap(), []);
}

#[tokio::test]
async fn a_group_is_recorded_as_long_as_one_of_its_processes_runs() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "noted");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let noted = || {
        let sql = "SELECT count(*) FROM process_groups";
        harness.db.call(move |conn| conn.query_row(sql, [], |row| row.get::<_, u32>(0)))
    };
    for (command, rows) in [("true", 0), (UNMARKED, 1), ("true", 1)] {
        let job = queue(&forge, "7", &["sh", "-c", command]).await;
        working(&runner, "7", over(&forge, job)).await;
        assert_eq!(noted().await, Ok(rows), "{command}");
    }
    runner.clean().await.unwrap();
    assert_eq!(noted().await, Ok(0));
}

#[tokio::test]
async fn a_runner_that_was_removed_from_the_list_stops() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "removed");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    runner.register(&label("8")).await.unwrap();
    let name = format!("{}-2", unique("removed"));
    let listed = forge.runners().await.unwrap();
    assert_eq!(listed.len(), 1, "one runner at a time");
    assert_eq!((listed[0].name.as_str(), listed[0].online), (name.as_str(), false));
    forge.remove_runner(&name).await.unwrap();
    forge.remove_runner(&name).await.unwrap();
    assert!(runner.work(&label("8")).await.contains("removed"));
    runner.register(&label("8")).await.unwrap();
    runner.deregister().await.unwrap();
    runner.deregister().await.unwrap();
    assert_eq!(forge.runners().await.unwrap(), []);
}

#[tokio::test]
async fn a_restarted_runner_records_its_interrupted_job_as_failed() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "again");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let left = queue(&forge, "7", &["sleep", "60"]).await;
    let id = unique("again");
    working(&runner, "7", async {
        eventually("the job", || async { (processes_of(&id) == 1).then_some(()) }).await;
    })
    .await;
    let next = queue(&forge, "7", &["true"]).await;
    working(&runner, "7", async {
        assert_eq!(over(&forge, left).await.exit_code, Some(143));
        assert_eq!(over(&forge, next).await.exit_code, Some(0));
    })
    .await;
    assert_eq!(processes_of(&id), 0);
}

#[tokio::test]
async fn a_drained_runner_finishes_its_job_and_takes_no_other() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "drained");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let script = "until [ -e go ]; do sleep 0.05; done; exit 3";
    let first = queue(&forge, "7", &["sh", "-c", script]).await;
    let second = queue(&forge, "7", &["true"]).await;
    let go = harness.home.machine(&unique("drained")).join("work/go");
    let label = label("7");
    let drained = async {
        eventually("the first job", || async { runner.is_busy().then_some(()) }).await;
        let finish = async {
            tokio::task::yield_now().await;
            std::fs::write(&go, "").unwrap();
        };
        tokio::join!(runner.drain("past its threshold"), finish);
    };
    let (why, ()) = tokio::join!(runner.work(&label), drained);
    assert_eq!(why, "the runner takes no further job");
    assert_eq!(over(&forge, first).await.exit_code, Some(3));
    assert_eq!(forge.job(second).await.unwrap().unwrap().state, JobState::Queued);

    working(&runner, "7", over(&forge, second)).await;
    assert_eq!(forge.job(second).await.unwrap().unwrap().state, JobState::Done);
}

/// The agent of such a machine may have been stopped, so that its runner was not drained.
#[tokio::test]
async fn a_machine_past_its_threshold_is_given_no_job() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "expired");
    runner.prepare().await.unwrap();
    runner.register(&label("7")).await.unwrap();
    let job = queue(&forge, "7", &["true"]).await;
    let set = |state: &str, threshold: &str| {
        harness.sql(&format!(
            "INSERT OR REPLACE INTO instances (id, state, run, threshold)
             VALUES ('{}', '{state}', '7', '{threshold}')",
            unique("expired")
        ));
    };
    let is_queued = async || forge.job(job).await.unwrap().unwrap().state == JobState::Queued;
    for (state, threshold) in [("running", "2025-05-31T12:00:00.000Z"), ("terminated", "")] {
        set(state, threshold);
        let soon = Duration::from_millis(500);
        drop(tokio::time::timeout(soon, working(&runner, "7", std::future::pending::<()>())).await);
        assert!(is_queued().await, "{state}");
    }
    set("running", "2125-05-31T12:00:00.000Z");
    working(&runner, "7", over(&forge, job)).await;
    assert!(!is_queued().await);
}

fn own(digit: &str) -> MachineLabel {
    MachineLabel::new(format!("m{}", digit.repeat(32))).unwrap()
}

async fn queue_for(forge: &LocalForge, of: &str, label: &MachineLabel) -> JobId {
    let argv = ["sh", "-c", "echo $ONDECK_RUN_ID"].map(str::to_owned);
    forge.queue_for_machine(&run(of), label, &argv).await.unwrap()
}

#[tokio::test]
async fn a_runner_with_a_label_of_its_machine_takes_jobs_of_its_owner_only() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "own");
    runner.prepare().await.unwrap();
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1));
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1), "it is registered already");
    let foreign = queue_for(&forge, "8", &own("1")).await;
    let first = queue_for(&forge, "7", &own("1")).await;
    let elsewhere = queue_for(&forge, "7", &own("2")).await;
    runner.name_owner(&run("7")).await.unwrap();
    let (foreign, first) =
        working(&runner, "7", async { (over(&forge, foreign).await, over(&forge, first).await) })
            .await;
    assert_eq!((foreign.exit_code, first.exit_code), (Some(1), Some(0)));
    let said = text(&forge, foreign.id, Stream::Stderr).await;
    let refused = "this machine was given to run 7 and takes no job of another: 8";
    assert!(said.contains(refused), "{said}");
    assert_eq!(text(&forge, foreign.id, Stream::Stdout).await, "", "none of it has run");
    assert_eq!(text(&forge, first.id, Stream::Stdout).await, "7\n");
    // What waits for another machine is told by run and label.
    let open = forge.open_runs(0, &RequestBudget::new(0)).await.unwrap();
    let [open] = open.runs.as_slice() else { panic!("{open:?}") };
    assert_eq!(open.run, run("7"));
    let waiting = open.waiting.clone().unwrap();
    assert_eq!(waiting.machine_labels, [(own("2"), 1)].into());
    assert!(waiting.labels.is_empty(), "a label of a machine is no run");
    assert_eq!(forge.job(elsewhere).await.unwrap().unwrap().state, JobState::Queued);
    runner.deregister().await.unwrap();
    assert_eq!(runner.listen_as(&own("1")).await, Ok(2), "it has left the list");
}

#[tokio::test]
async fn a_runner_that_is_removed_from_the_list_is_listed_again_under_its_label() {
    let harness = LocalHarness::new();
    let forge = harness.forge();
    let runner = runner(&harness, "removed");
    runner.prepare().await.unwrap();
    runner.listen_as(&own("1")).await.unwrap();
    let name = |number: u32| format!("{}-{number}", unique("removed"));
    forge.remove_runner(&name(1)).await.unwrap();
    assert_eq!(runner.lapse().await, "the runner was removed from the list");
    assert_eq!(runner.listen_as(&own("1")).await, Ok(2));
    // Also while a run owns the machine.
    runner.name_owner(&run("7")).await.unwrap();
    forge.remove_runner(&name(2)).await.unwrap();
    assert_eq!(runner.work(&label("7")).await, "the runner was removed from the list");
    runner.revive(&label("7")).await.unwrap();
    let job = queue_for(&forge, "7", &own("1")).await;
    let done = working(&runner, "7", over(&forge, job)).await;
    assert_eq!((done.runner, done.exit_code), (Some(name(3)), Some(0)));
    // A run with a label of its own has nothing of that.
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    runner.register(&label("9")).await.unwrap();
    forge.remove_runner(&name(4)).await.unwrap();
    runner.revive(&label("9")).await.unwrap();
    assert_eq!(forge.runners().await.unwrap(), []);
}

#[tokio::test]
async fn a_drained_idle_runner_has_lapsed() {
    let harness = LocalHarness::new();
    let runner = runner(&harness, "lapsed");
    runner.prepare().await.unwrap();
    runner.listen_as(&own("1")).await.unwrap();
    let (why, ()) = tokio::join!(runner.lapse(), runner.drain("the machine expires"));
    assert_eq!(why, "the runner takes no further job");
}
