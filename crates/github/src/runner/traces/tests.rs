use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use ondeck_standin::not_applicable;

/// A folder that plays the root of a machine, with one file in each place.
struct Tree {
    dir: tempfile::TempDir,
    machine: Machine,
    before: Baseline,
    since: SystemTime,
}

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        for (place, _) in PLACES {
            fs::create_dir_all(root.join(place)).unwrap();
            fs::write(root.join(place).join("old"), "old").unwrap();
        }
        fs::create_dir_all(root.join("home/runner/.config")).unwrap();
        fs::write(root.join("home/runner/.bashrc"), "old").unwrap();
        fs::create_dir_all(root.join("etc/sudoers.d")).unwrap();
        fs::write(root.join("etc/sudoers.d/operators"), "old").unwrap();
        fs::create_dir_all(root.join("opt/actions-runner/bin")).unwrap();
        fs::write(root.join("opt/actions-runner/bin/Runner.Listener"), "old").unwrap();
        fs::create_dir_all(root.join("tmp/ours")).unwrap();
        let machine = Machine {
            cleaned_elsewhere: vec![root.join("tmp/ours")],
            software: root.join("opt/actions-runner"),
            home: "/home/runner".into(),
            ignored: vec!["/opt/cache".into()],
            root,
        };
        let before = machine.baseline().unwrap();
        let since = later(dir.path());
        Tree { dir, machine, before, since }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "new").unwrap();
        path
    }

    fn clean(&self) -> Result<(), String> {
        self.machine.remove_traces(&self.before, self.since)
    }

    /// The paths that cleaning names, below the root.
    #[track_caller]
    fn retired(&self) -> String {
        let root = format!("{}/", self.dir.path().display());
        self.clean().unwrap_err().replace(&root, "")
    }
}

/// Returns a moment after every change so far and before every later one.
fn later(folder: &Path) -> SystemTime {
    let path = folder.join("clock");
    let time = || {
        fs::write(&path, "").unwrap();
        let found = fs::symlink_metadata(&path).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    // The kernel's clock for files moves in steps of some milliseconds.
    let next = |than| loop {
        let now = time();
        if now > than {
            return now;
        }
    };
    let moment = next(time());
    next(moment);
    fs::remove_file(&path).unwrap();
    let (seconds, nanos) = (moment.0.try_into().unwrap(), moment.1.try_into().unwrap());
    SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, nanos)
}

#[test]
fn new_files_in_shared_folders_are_removed_whoever_owns_them() {
    let tree = Tree::new();
    for place in [
        "tmp/left",
        "tmp/deep/er/left",
        "var/tmp/left",
        "dev/shm/left",
        "dev/mqueue/left",
        "run/lock/left",
        "var/spool/cron/crontabs/runner",
        "var/spool/at/job",
        "var/lib/systemd/linger/runner",
        "home/runner/.config/systemd/user/evil.service",
        "home/runner/left",
    ] {
        let path = tree.write(place);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&path, Some(54_321), None).unwrap();
        }
        tree.clean().unwrap();
        assert!(!path.exists(), "{place}");
    }
    symlink("/etc", tree.path("tmp/link")).unwrap();
    tree.clean().unwrap();
    assert!(!tree.path("tmp/link").is_symlink() && Path::new("/etc").exists());
    for place in ["tmp/old", "dev/shm/old", "home/runner/.bashrc", "tmp/ours"] {
        assert!(tree.path(place).exists(), "{place}");
    }
}

#[test]
fn changes_of_the_system_retire_the_machine() {
    for path in [
        "etc/sudoers.d/evil",
        "etc/cron.d/evil",
        "etc/old",
        "etc/systemd/system/evil.service",
        "etc/systemd/user/evil.service",
        "usr/local/bin/node",
        "opt/old",
        "opt/actions-runner/bin/Runner.Listener",
        "root/.bashrc",
        "home/ubuntu/.ssh/authorized_keys",
        "home/runner/.bashrc",
        "var/spool/old",
        "tmp/old",
        "dev/shm/old",
    ] {
        let tree = Tree::new();
        tree.write(path);
        let named = tree.retired();
        assert_eq!(named, format!("a run has changed {path}"));
        assert_eq!(tree.retired(), named, "a second look finds it, too");
    }
    let tree = Tree::new();
    fs::remove_file(tree.path("etc/sudoers.d/operators")).unwrap();
    assert_eq!(tree.retired(), "a run has changed etc/sudoers.d", "a file was removed");
    let tree = Tree::new();
    fs::set_permissions(tree.path("etc/old"), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(tree.retired(), "a run has changed etc/old", "the mode was changed");
    let tree = Tree::new();
    (0..5).for_each(|n| drop(tree.write(&format!("opt/{n}"))));
    assert!(tree.retired().ends_with(" and others"), "{}", tree.retired());
}

#[test]
fn what_changes_without_a_run_is_no_trace() {
    let tree = Tree::new();
    for path in [
        "etc/resolv.conf",
        "etc/ssh/ssh_host_ed25519_key",
        "tmp/systemd-private-1-x.service/tmp/file",
        "tmp/ours/file",
        "opt/cache/operators",
        "opt/actions-runner/.runner",
        "opt/actions-runner/_diag/log",
        "run/lock/old",
        "var/lib/docker/image",
        "usr/bin/not-looked-at",
    ] {
        let path = tree.write(path);
        tree.clean().unwrap();
        assert!(path.exists(), "{path:?}");
    }
}

#[test]
fn a_machine_stays_clean_for_thirty_runs() {
    let tree = Tree::new();
    for run in 0..30 {
        tree.write(&format!("tmp/run-{run}/file"));
        tree.write("opt/actions-runner/.credentials");
        fs::remove_file(tree.path("opt/actions-runner/.credentials")).unwrap();
        tree.clean().unwrap_or_else(|why| panic!("run {run}: {why}"));
        assert_eq!(fs::read_dir(tree.path("tmp")).unwrap().count(), 2);
    }
}

#[test]
fn what_is_mounted_is_not_removed() {
    let tree = Tree::new();
    let list = |mounts: &[&str]| {
        let line = |path: &&str| format!("none {} tmpfs rw 0 0\n", tree.path(path).display());
        fs::create_dir_all(tree.path("proc/self")).unwrap();
        fs::write(tree.path("proc/self/mounts"), mounts.iter().map(line).collect::<String>())
            .unwrap();
    };
    list(&["tmp", "var"]);
    tree.clean().unwrap();
    let file = tree.write("tmp/mounted/deep/file");
    list(&["tmp", "tmp/mounted/deep"]);
    assert_eq!(
        tree.clean().unwrap_err(),
        format!("a run has mounted something: {}", tree.path("tmp/mounted/deep").display())
    );
    let known = Baseline { mounts: tree.machine.mounts().unwrap(), ..Baseline::default() };
    let error = tree.machine.remove_traces(&known, tree.since).unwrap_err();
    assert!(error.ends_with("tmp/mounted") && file.exists(), "{error}");
    assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
}

#[test]
fn objects_of_system_v_are_removed() {
    /// The other process has its own objects.
    const INSIDE: &str = "SYSV_TEST";
    if std::env::var_os(INSIDE).is_none() {
        if !rustix::process::geteuid().is_root() {
            return not_applicable("root: objects of System V");
        }
        let output = Command::new("unshare")
            .args(["--ipc", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "runner::traces::tests::objects_of_system_v_are_removed"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        return;
    }
    let root = Path::new("/");
    let make =
        |option: &[&str]| assert!(Command::new("ipcmk").args(option).status().unwrap().success());
    make(&["-M", "64"]);
    let before = SysV::read(root).unwrap();
    assert_ne!(before, SysV::default());
    for option in [&["-M", "64"][..], &["-Q"], &["-S", "1"]] {
        make(option);
        assert_ne!(SysV::read(root).unwrap(), before);
        SysV::read(root).unwrap().remove_since(&before).unwrap();
        assert_eq!(SysV::read(root).unwrap(), before, "{option:?}");
    }
}
