//! A Docker daemon for one test, with a folder, a network and processes of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ondeck_processes::folder;
use ondeck_standin::not_applicable;

use crate::runner::harness::holds;

pub(crate) struct Daemon {
    dir: tempfile::TempDir,
    running: Option<Child>,
}

impl Daemon {
    /// A daemon that is not running yet. Returns `None`, and says so, without root or Docker. As root
    /// under `CI=true`, Docker must be there.
    pub(crate) fn new() -> Option<Daemon> {
        let root = rustix::process::geteuid().is_root();
        let answers = |program: &str| {
            let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        };
        let missing = ["dockerd", "docker"].into_iter().find(|program| !answers(program));
        let busybox = PathBuf::from("/bin/busybox").exists();
        if root && missing.is_none() && busybox {
            let dir = tempfile::tempdir().unwrap();
            let daemon = Daemon { dir, running: None };
            daemon.write_client("");
            return Some(daemon);
        }
        not_applicable("root, docker.io and busybox-static: a Docker daemon");
        None
    }

    /// The folder that it keeps everything in.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The program that talks to this daemon.
    pub(crate) fn client(&self) -> PathBuf {
        self.dir.path().join("docker")
    }

    /// Writes the client, with some lines before it is executed.
    fn write_client(&self, before: &str) {
        let new = self.dir.path().join("docker.new");
        let socket = self.dir.path().join("socket");
        let call = format!("exec docker --host unix://{} \"$@\"", socket.display());
        fs::write(&new, format!("#!/bin/sh\n{before}\n{call}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, self.client()).unwrap();
    }

    /// Makes the first `times` removals of containers fail in these words.
    pub(crate) fn refuse_removals(&self, times: u32, words: &str) {
        let dir = self.dir.path().display();
        self.write_client(&format!(
            "if [ \"$1\" = rm ] && [ $(ls {dir}/refused | wc -l) -lt {times} ]; then
                 mktemp -p {dir}/refused >/dev/null
                 echo '{words}' >&2
                 exit 1
             fi"
        ));
        fs::create_dir(self.dir.path().join("refused")).unwrap();
    }

    /// How many removals were refused.
    pub(crate) fn refused(&self) -> usize {
        fs::read_dir(self.dir.path().join("refused")).unwrap().count()
    }

    /// Starts the daemon with what it held before, and waits until it answers.
    pub(crate) async fn start(&mut self) {
        let path = |name: &str| self.dir.path().join(name);
        let log = fs::File::create(path("log")).unwrap();
        // The first process of the namespace takes all others with it, containers included.
        let daemon = Command::new("unshare")
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "dockerd",
            ])
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
            .args(["--shutdown-timeout=1", "--containerd-namespace=ondeck-test"])
            .arg("--data-root")
            .arg(path("data"))
            .arg("--exec-root")
            .arg(path("exec"))
            .arg("--pidfile")
            .arg(path("pid"))
            .arg("--host")
            .arg(format!("unix://{}", path("socket").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.running = Some(daemon.unwrap());
        let client = self.client();
        let answers = || Command::new(&client).arg("ps").output().unwrap().status.success();
        let since = std::time::Instant::now();
        holds("the daemon answers", || {
            let log = || fs::read_to_string(path("log")).unwrap();
            assert!(since.elapsed().as_secs() < 50, "{}", log());
            answers()
        })
        .await;
    }

    /// Kills the daemon and its containers.
    pub(crate) fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
        for name in ["pid", "socket", "exec"] {
            // The next daemon would take one of its own processes for the containerd of this one.
            folder::remove_any(&self.dir.path().join(name)).unwrap();
        }
    }

    /// Runs docker with the words of a line. Returns what it prints.
    #[track_caller]
    pub(crate) fn docker(&self, line: &str) -> String {
        self.shell(&format!("docker {line}"))
    }

    /// Runs a script in which `docker` is the one of this daemon.
    #[track_caller]
    pub(crate) fn shell(&self, script: &str) -> String {
        let host = format!("unix://{}", self.dir.path().join("socket").display());
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.dir.path());
        let output = command.env("DOCKER_HOST", host).env("DOCKER_BUILDKIT", "0").output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {words}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Makes an image that differs by `mark`, with these tags. Returns its id.
    #[track_caller]
    pub(crate) fn import(&self, mark: &str, tag: &str) -> String {
        self.shell(&format!(
            "mkdir -p {mark}; cp /bin/busybox {mark}; echo {mark} >{mark}/mark
             tar -C {mark} -c . | docker import - {tag}"
        ))
    }

    /// Everything that a run could leave, one object a line.
    #[track_caller]
    pub(crate) fn everything(&self) -> Vec<String> {
        let listed = self.shell(
            "docker ps --all --no-trunc --format 'container {{.ID}}'
             docker network ls --no-trunc --format 'network {{.ID}}'
             docker volume ls --format 'volume {{.Name}}'
             docker image ls --all --no-trunc --format 'image {{.ID}} {{.Repository}}:{{.Tag}}'
             docker system df --format '{{.Type}} {{.TotalCount}}' | grep Build",
        );
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}
