//! Docker between two runs, with a real daemon.

use std::time::Duration;

use ondeck_core::ports::Runner;
use ondeck_github::{GitHubRunner, Timeouts};

use crate::runner::daemon::Daemon;
use crate::runner::harness::{RunnerHarness, label};
use crate::runner::user::TemporaryUser;

/// A machine with a daemon that is not running yet.
pub(crate) struct DockerHarness {
    pub(crate) runner: RunnerHarness,
    pub(crate) daemon: Daemon,
    user: TemporaryUser,
}

impl DockerHarness {
    /// `None` where no daemon can be started.
    pub(crate) async fn new(purpose: &str) -> Option<DockerHarness> {
        let (daemon, user) = (Daemon::new()?, TemporaryUser::new(purpose)?);
        Some(DockerHarness { runner: RunnerHarness::with_image("2.336.0").await, daemon, user })
    }

    /// A new agent on the machine, prepared.
    pub(crate) async fn agent(&self) -> GitHubRunner {
        let timeouts = Timeouts { docker_patience: Duration::from_secs(5), ..Timeouts::default() };
        let runner = self.runner.runner_as(Some(&self.user.0)).with_timeouts(timeouts);
        let runner =
            runner.with_docker(self.daemon.client()).with_own_machine(self.runner.machine());
        runner.prepare().await.unwrap();
        runner
    }

    /// The daemon, running, with an image.
    pub(crate) async fn start(&mut self) -> &Daemon {
        self.daemon.start().await;
        self.daemon.import("base", "base:1");
        &self.daemon
    }
}

/// Serves a run in which `script` is executed beside the job. Returns the result of cleaning.
pub(crate) async fn serve(
    agent: &GitHubRunner,
    run: &str,
    during: impl FnOnce(),
) -> Result<(), String> {
    agent.register(&label(run)).await.unwrap();
    during();
    agent.stop().await.unwrap();
    agent.deregister().await.unwrap();
    agent.clean().await
}

/// What a run leaves, but for images and build cache.
const OBJECTS: &str = "
    docker run --detach --restart=always --network none base:1 /busybox sleep 1000
    docker network create left
    docker run --detach --network left base:1 /busybox sleep 1000
    docker volume create left
    docker run --detach --network none --volume left:/left base:1 /busybox sleep 1000
    docker run --network none --volume /anonymous base:1 /busybox true
";

#[tokio::test]
async fn docker_is_what_it_was_after_each_run() {
    let Some(mut harness) = DockerHarness::new("docker-a").await else { return };
    let daemon = harness.start().await;
    let node = daemon.import("node", "node:20");
    daemon.docker(&format!("tag {node} other:1"));
    daemon.docker(&format!("tag {node} third:1"));
    let dangling = daemon.import("dangling", "");
    daemon.shell(
        "docker create --name operators --network none base:1 /busybox true
         docker network create operators; docker volume create operators",
    );
    let before = daemon.everything();
    let agent = harness.agent().await;
    let daemon = &harness.daemon;
    serve(&agent, "1", || {
        daemon.shell(OBJECTS);
        let evil = daemon.import("evil", "evil:1");
        daemon.docker(&format!("tag {evil} node:20"));
        daemon.docker("rmi other:1");
        daemon.docker(&format!("tag {dangling} named:1"));
        daemon.docker("tag base:1 base:2");
        daemon.import("untagged", "");
        daemon.shell(
            r#"printf 'FROM base:1\nRUN ["/busybox","touch","/x"]\nRUN ["/busybox","touch","/y"]\n' \
                 >base/Dockerfile
             docker build --quiet --network none --tag built:1 base
             docker tag built:1 again:1; docker rmi built:1"#,
        );
        assert_ne!(daemon.everything(), before);
    })
    .await
    .unwrap();
    assert_eq!(daemon.everything(), before);
    assert_eq!(daemon.docker("run --rm --network none node:20 /busybox cat /mark"), "node");
    // What appears between two runs belongs to no run, and an agent that was restarted knows that.
    daemon.shell(OBJECTS);
    daemon.import("later", "node:20");
    let agent = harness.agent().await;
    serve(&agent, "2", || ()).await.unwrap();
    assert_eq!(daemon.everything(), before);
}

#[tokio::test]
async fn the_build_cache_is_emptied() {
    let Some(mut harness) = DockerHarness::new("docker-b").await else { return };
    let daemon = harness.start().await;
    let before = daemon.everything();
    let build = "printf 'FROM base:1\\nRUN [\"/busybox\",\"touch\",\"/x\"]\\n' >base/Dockerfile
        DOCKER_BUILDKIT=1 /usr/bin/docker build --quiet --network none base";
    let agent = harness.agent().await;
    let daemon = &harness.daemon;
    serve(&agent, "1", || {
        daemon.shell(build);
        assert!(!daemon.everything().contains(&"Build Cache 0".to_owned()));
    })
    .await
    .unwrap();
    assert_eq!(daemon.everything(), before);
}

#[tokio::test]
async fn what_cannot_be_restored_retires_the_machine() {
    let Some(mut harness) = DockerHarness::new("docker-c").await else { return };
    let daemon = harness.start().await;
    daemon.import("node", "node:20");
    let agent = harness.agent().await;
    let daemon = &harness.daemon;
    let error = serve(&agent, "1", || {
        daemon.docker("rmi node:20");
        daemon.import("evil", "node:20");
    });
    let gone = "the image that docker had before the first run is gone: node:20";
    assert_eq!(error.await, Err(gone.to_owned()));
}

#[tokio::test]
async fn images_are_kept_if_the_operator_asks_for_it() {
    let Some(mut harness) = DockerHarness::new("docker-d").await else { return };
    harness.start().await;
    harness.runner.set("keep-docker-cache", "true").await;
    let agent = harness.agent().await;
    let daemon = &harness.daemon;
    let before = daemon.everything();
    let mut kept = String::new();
    serve(&agent, "1", || {
        daemon.shell(OBJECTS);
        kept = format!("image {} kept:1", daemon.import("kept", "kept:1"));
    })
    .await
    .unwrap();
    let mut expected = before.clone();
    expected.push(kept);
    expected.sort();
    assert_eq!(daemon.everything(), expected);
    harness.runner.set("keep-docker-cache", "false").await;
    serve(&agent, "2", || ()).await.unwrap();
    assert_eq!(daemon.everything(), before);
}

#[tokio::test]
async fn a_daemon_that_starts_late_does_not_retire_the_machine() {
    let Some(mut harness) = DockerHarness::new("docker-e").await else { return };
    let agent = harness.agent().await;
    agent.register(&label("1")).await.unwrap();
    harness.daemon.start().await;
    agent.stop().await.unwrap();
    agent.deregister().await.unwrap();
    agent.clean().await.unwrap();
    // From here on it is known that docker held nothing.
    let empty = harness.daemon.everything();
    let daemon = harness.start().await;
    daemon.shell(OBJECTS);
    serve(&agent, "2", || ()).await.unwrap();
    assert_eq!(daemon.everything(), empty);
}

#[tokio::test]
async fn what_may_be_the_operators_is_not_removed() {
    let Some(mut harness) = DockerHarness::new("docker-f").await else { return };
    harness.start().await.docker("create --network none base:1 /busybox true");
    let before = harness.daemon.everything();
    let id = harness.daemon.docker("ps --all --quiet --no-trunc");
    harness.daemon.stop();
    // Started between the agent and the first run: it is the operator's.
    let agent = harness.agent().await;
    harness.daemon.start().await;
    serve(&agent, "1", || ()).await.unwrap();
    assert_eq!(harness.daemon.everything(), before);
    harness.daemon.stop();
    // Started during the first run: it may be the run's.
    std::fs::remove_dir_all(harness.runner.folder.join("state")).unwrap();
    let agent = harness.agent().await;
    agent.register(&label("2")).await.unwrap();
    harness.daemon.start().await;
    agent.stop().await.unwrap();
    agent.deregister().await.unwrap();
    let why = "docker has started during a run, and this may be the run's or not";
    assert_eq!(agent.clean().await, Err(format!("{why}: container {id}")));
    assert_eq!(harness.daemon.everything(), before);
}

#[tokio::test]
async fn a_removal_that_is_in_progress_is_waited_for() {
    let Some(mut harness) = DockerHarness::new("docker-g").await else { return };
    harness.start().await;
    let agent = harness.agent().await;
    let daemon = &harness.daemon;
    let before = daemon.everything();
    let words = "Error response from daemon: removal of container c0ffee is already in progress";
    daemon.refuse_removals(3, words);
    let run = "run --detach --rm --network none base:1 /busybox sleep 1000";
    serve(&agent, "1", || drop(daemon.docker(run))).await.unwrap();
    assert_eq!((daemon.everything(), daemon.refused()), (before, 3));
    std::fs::remove_dir_all(daemon.client().with_file_name("refused")).unwrap();
    daemon.refuse_removals(u32::MAX, words);
    let error = serve(&agent, "2", || drop(daemon.docker(run))).await.unwrap_err();
    assert!(
        error.ends_with(&format!("cannot remove containers: exit status: 1: {words}")),
        "{error}"
    );
}
