use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::Runner;
use ondeck_processes::{FoundBy, MachineProcesses, Process};
use ondeck_standin::not_applicable;

use crate::runner::harness::{RunnerHarness, appears, kill_now, label};

/// An unused user name. The user that a test creates with it is deleted on drop.
pub(crate) struct TemporaryUser(pub(crate) String);

impl TemporaryUser {
    /// Returns `None`, and says so, without root.
    pub(crate) fn new(purpose: &str) -> Option<TemporaryUser> {
        if rustix::process::geteuid().is_root() {
            return Some(TemporaryUser(format!("ondeck-{purpose}-{}", std::process::id())));
        }
        not_applicable(&format!("root: a runner with a user of its own ({purpose})"));
        None
    }

    /// The user's id. `None` before the user exists.
    fn uid(&self) -> Option<u32> {
        let said = Command::new("id").args(["-u", &self.0]).output().unwrap().stdout;
        String::from_utf8(said).unwrap().trim().parse().ok()
    }
}

impl Drop for TemporaryUser {
    /// Kills the user's processes and deletes the user, also if the test failed.
    fn drop(&mut self) {
        if let Some(uid) = self.uid() {
            let id = InstanceId::new("i-temporary-user").unwrap();
            kill_now(MachineProcesses {
                found_by: FoundBy::User(uid),
                ..MachineProcesses::of(&id)
            });
        }
        Command::new("userdel").args(["-f", &self.0]).output().unwrap();
    }
}

/// A cgroup of version 2 for jobs, removed on drop.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None`, with a word, without cgroup v2.
    fn new() -> Option<Cgroup> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let is_v2 = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let mounted = mounts.lines().find(is_v2).and_then(|line| line.split(' ').nth(1));
        let name = format!("ondeck-test-{}", std::process::id());
        let made = mounted.map(|mounted| Path::new(mounted).join(name));
        let made = made.filter(|folder| fs::create_dir(folder).is_ok());
        if made.is_none() {
            not_applicable("cgroup v2: orphans of a job that became root");
        }
        made.map(Cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel lets go of the processes a little after they are gone.
        let since = Instant::now();
        while fs::remove_dir(&self.0).is_err() && since.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
    }
}

#[tokio::test]
async fn a_user_is_created_and_cannot_affect_the_next_run() {
    let Some(user) = TemporaryUser::new("a") else { return };
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner_as(Some(&user.0));
    runner.prepare().await.unwrap();
    let uid = user.uid().unwrap();
    let pid = harness.github.join("pid");
    let shared = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let tmp = shared.path().join("left");
    let script = format!(
        "id -un; id -un >~/me
         root=$(cd ../.. && pwd)
         for path in bin bin/Runner.Listener config.sh .env ../../ondeck/hooks/started.sh; do
             mv \"$root/$path\" \"$root/$path.away\" 2>/dev/null && echo \"moved $path\"
             (echo evil >>\"$root/$path\") 2>/dev/null && echo \"changed $path\"
         done
         (echo 666 >{hooks}/run) 2>/dev/null && echo 'changed the run'
         cat {state}/registrations 2>/dev/null && echo 'read the state'
         mkdir {tmp}; echo x >{tmp}/file
         env -i setsid sleep 300 >/dev/null 2>&1 & echo $! >{pid}",
        hooks = harness.folder.join("hooks").display(),
        state = harness.folder.join("state").display(),
        tmp = tmp.display(),
        pid = pid.display(),
    );
    runner.register(&label("1")).await.unwrap();
    let done = harness.queue(&label("1"), 1, &script);
    appears(&done).await;
    let said = fs::read_to_string(done.with_extension("log")).unwrap();
    assert_eq!(said, format!("{}\n", user.0));
    assert_eq!(fs::metadata(harness.folder.join("home/me")).unwrap().uid(), uid);
    // Files that a container creates belong to root.
    fs::create_dir(harness.root().join("_work/repo/roots")).unwrap();
    fs::write(harness.root().join("_work/repo/roots/file"), "").unwrap();
    let left = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let left = Process::of(left).unwrap();
    assert!(left.is_alive() && tmp.exists());
    runner.stop().await.unwrap();
    assert!(!left.is_alive());
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();
    assert!(!tmp.exists());
    assert!(!harness.root().join("_work").exists());
    assert_eq!(fs::read_dir(harness.folder.join("home")).unwrap().count(), 0);
    let account = harness.folder.join("state/registrations");
    assert_eq!(fs::metadata(account).unwrap().uid(), 0);
    // The next run works too.
    runner.register(&label("2")).await.unwrap();
    let done = harness.queue(&label("2"), 2, "test -O ~ && test -w \"$TMPDIR\" && echo mine");
    appears(&done).await;
    assert_eq!(fs::read_to_string(done.with_extension("log")).unwrap(), "mine\n");
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
}

#[tokio::test]
async fn a_runner_in_the_users_home_is_copied_out_of_it() {
    let Some(user) = TemporaryUser::new("b") else { return };
    let harness = RunnerHarness::new().await;
    let home = harness.folder.with_file_name("user");
    let made = Command::new("useradd").args(["-m", "-d"]).arg(&home).arg(&user.0).status();
    assert!(made.unwrap().success());
    let image = home.join("actions-runner");
    harness.lay_out(&image, "2.336.0");
    let given = Command::new("chown").args(["-R", &user.0]).arg(&home).status();
    assert!(given.unwrap().success());
    let runner = harness.runner_with(Some(&user.0), vec![image.clone()]);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    assert!(harness.folder.join("actions-runner/.runner").exists());
    assert!(!image.join(".runner").exists());
    let script = format!("echo x >{0}/left; echo evil >>{0}/.bashrc", home.display());
    fs::write(home.join(".keep"), "").unwrap();
    appears(&harness.queue(&label("1"), 1, &script)).await;
    assert!(home.join("left").exists());
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    let error = runner.clean().await.unwrap_err();
    let bashrc = home.join(".bashrc");
    let why = "it came with the machine and was changed by the run";
    assert_eq!(error, format!("cannot clean {}: {why}", bashrc.display()));
    fs::remove_file(bashrc).unwrap();
    runner.clean().await.unwrap();
    assert!(!home.join("left").exists());
    assert!(home.join(".keep").exists() && image.exists());
}

/// A group that only a test uses, deleted on drop.
struct TemporaryGroup(String);

impl TemporaryGroup {
    fn new(purpose: &str) -> TemporaryGroup {
        let name = format!("ondeck-{purpose}-{}", std::process::id());
        assert!(Command::new("groupadd").arg(&name).status().unwrap().success());
        TemporaryGroup(name)
    }
}

impl Drop for TemporaryGroup {
    fn drop(&mut self) {
        Command::new("groupdel").arg(&self.0).output().unwrap();
    }
}

#[tokio::test]
async fn a_folder_that_the_user_cannot_list_is_named() {
    let Some(user) = TemporaryUser::new("l") else { return };
    let mut harness = RunnerHarness::with_image("2.336.0").await;
    let closed = harness.folder.with_file_name("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    harness.folder = closed.join("ondeck");
    let error = harness.runner_as(Some(&user.0)).prepare().await.unwrap_err();
    let said = format!("the user {} cannot list a folder above the runner: ", user.0);
    assert_eq!(error, format!("{said}{}", closed.display()));
}

#[tokio::test]
async fn jobs_are_in_the_groups_that_the_operator_names_and_in_no_other() {
    let Some(user) = TemporaryUser::new("d") else { return };
    let [docker, other] = ["docker", "other"].map(TemporaryGroup::new);
    // The image has put the user into a group that would make its jobs root.
    let made = Command::new("useradd").args(["-M", "-G", &docker.0]).arg(&user.0).status();
    assert!(made.unwrap().success());
    let harness = RunnerHarness::with_image("2.336.0").await;
    let named = format!("{}, {}", other.0, docker.0);
    for (number, setting, groups) in
        [(1, "", vec![]), (2, &*other.0, vec![&other.0]), (3, &*named, vec![&docker.0, &other.0])]
    {
        harness.set("runner-groups", setting).await;
        let runner = harness.runner_as(Some(&user.0));
        runner.prepare().await.unwrap();
        let run = label(&number.to_string());
        runner.register(&run).await.unwrap();
        let script = format!("id -Gn; sg {} -c 'echo taken up' </dev/null 2>/dev/null", docker.0);
        let done = harness.queue(&run, number, &script);
        appears(&done).await;
        let said = fs::read_to_string(done.with_extension("log")).unwrap();
        let mut lines = said.lines();
        let mut found: Vec<&str> = lines.next().unwrap().split(' ').collect();
        found.sort_unstable();
        let mut expected = [vec![&user.0], groups.clone()].concat();
        expected.sort_unstable();
        assert_eq!(found, expected, "{setting}");
        let taken_up = lines.next() == Some("taken up");
        assert_eq!(taken_up, groups.contains(&&docker.0), "{setting}: {said}");
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
    }
    harness.set("runner-groups", "no-such-group").await;
    let error = harness.runner_as(Some(&user.0)).prepare().await.unwrap_err();
    let start = format!("cannot set the groups of the user {}: ", user.0);
    assert!(error.starts_with(&start) && error.contains("no-such-group"), "{error}");
    let error = harness.runner().prepare().await.unwrap_err();
    assert_eq!(error, "jobs run as the agent's own user, whose groups stay: no-such-group");
}

#[tokio::test]
async fn a_user_that_cannot_be_created_is_named() {
    let Some(_) = TemporaryUser::new("c") else { return };
    let harness = RunnerHarness::with_image("2.336.0").await;
    let error = harness.runner_as(Some("not a name")).prepare().await.unwrap_err();
    assert!(error.starts_with("cannot create the user not a name: "), "{error}");
}

/// A job that becomes root as `sudo` does: with all of its user ids.
#[tokio::test]
async fn processes_of_a_job_that_became_root_are_killed() {
    let Some(user) = TemporaryUser::new("root") else { return };
    let harness = RunnerHarness::with_image("2.336.0").await;
    let become_root = harness.folder.with_file_name("become-root");
    fs::copy("/usr/bin/setpriv", &become_root).unwrap();
    fs::set_permissions(&become_root, fs::Permissions::from_mode(0o4755)).unwrap();
    let cgroup = Cgroup::new();
    let mut runner = harness.runner_as(Some(&user.0));
    if let Some(Cgroup(folder)) = &cgroup {
        let script = "echo 0 >\"$0\" && exec \"$@\"";
        let members = folder.join("cgroup.procs").into_os_string();
        let words: [OsString; 4] = ["/bin/sh".into(), "-c".into(), script.into(), members];
        runner = runner.with_wrapper(words.to_vec()).with_cgroup(Some(folder.clone()));
    }
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let pid = |name: &str| harness.github.join(name);
    let root = format!("{} --reuid=0 --regid=0 --clear-groups env -i", become_root.display());
    let sleep = |name| {
        let path = pid(name).display().to_string();
        format!(
            "sh -c 'echo $$ >{path}.new; mv {path}.new {path}; exec sleep 300' </dev/null >/dev/null 2>&1"
        )
    };
    // The first loses its parent, the second keeps it for as long as the job runs.
    let script = format!("{root} setsid -f {}\n{root} setsid {}", sleep("orphan"), sleep("child"));
    harness.queue(&label("1"), 1, &script);
    let mut left = Vec::new();
    for name in ["orphan", "child"] {
        appears(&pid(name)).await;
        let number = fs::read_to_string(pid(name)).unwrap().trim().parse().unwrap();
        assert_eq!(fs::metadata(format!("/proc/{number}")).unwrap().uid(), 0, "{name}");
        left.push(Process::of(number).unwrap());
    }
    assert!(left.iter().all(|process| process.is_alive()));
    runner.stop().await.unwrap();
    let alive: Vec<bool> = left.iter().map(|process| process.is_alive()).collect();
    left.iter().for_each(|process| process.kill());
    assert_eq!(alive, [cgroup.is_none(), false]);
    runner.deregister().await.unwrap();
}

#[tokio::test]
async fn a_machine_of_the_pool_alone_is_clean_or_retired() {
    let Some(user) = TemporaryUser::new("own") else { return };
    let harness = RunnerHarness::with_image("2.336.0").await;
    let root = harness.machine();
    harness.set("clean-ignore", "/etc/motd").await;
    let agent = || harness.runner_as(Some(&user.0)).with_own_machine(&root);
    let mut runner = agent();
    runner.prepare().await.unwrap();
    fs::write(root.join("etc/late"), "of a service that starts with the machine").unwrap();
    // A file of another user, as a container leaves it, and one that the operator ignores.
    let traces = ["tmp/left", "etc/motd"].map(|path| root.join(path));
    for run in ["1", "2", "3"] {
        runner.register(&label(run)).await.unwrap();
        traces.iter().for_each(|path| fs::write(path, run).unwrap());
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
        runner.clean().await.unwrap();
        assert_eq!(traces.each_ref().map(|path| path.exists()), [false, true]);
        // A restarted agent goes by the same moment.
        runner = agent();
        runner.prepare().await.unwrap();
    }
    runner.register(&label("4")).await.unwrap();
    let sudoers = root.join("etc/sudoers");
    fs::write(&sudoers, "evil").unwrap();
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    let error = runner.clean().await.unwrap_err();
    assert_eq!(error, format!("a run has changed {}", sudoers.display()));
    let baseline = fs::metadata(harness.folder.join("state/baseline")).unwrap();
    assert_eq!((baseline.uid(), baseline.mode() & 0o777), (0, 0o600));
}
