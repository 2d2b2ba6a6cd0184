//! The example that teams paste, as it stands: act runs its workflow with emulated AWS and a
//! GitHub on loopback. What act cannot do is to run a job on a machine of the pool; there the
//! runner's stand-in does, and act's own job waits for it, as its `make test`.

use std::fs;
use std::path::PathBuf;

use ondeck_standin::GitHub;

use super::workshop::{EVENT, Workshop, root};
use crate::aws::site::Site;
use crate::github::town::{JOBS_TOKEN, LIMIT, REPOSITORY, TOKEN, github, own_user};
use crate::harness::{Background, Done, until};

/// Asks for the job on the machine, and waits for it.
const MAKEFILE: &str = "test:\n\
    \t@touch $$BRIDGE/asked\n\
    \t@for n in $$(seq 600); do test -e $$BRIDGE/done && exit 0; sleep 0.1; done; exit 1\n";

/// A team's repository, its account, and its GitHub.
struct Team {
    workshop: Workshop,
    site: Site,
    github: GitHub,
    bridge: PathBuf,
}

impl Team {
    fn new() -> Team {
        let workshop = Workshop::new();
        fs::write(workshop.repository().join("Makefile"), MAKEFILE).unwrap();
        let bridge = workshop.home.outside().join("bridge");
        fs::create_dir(&bridge).unwrap();
        Team { workshop, site: Site::bare(), github: github(), bridge }
    }

    /// Sets the workflow off.
    fn start(&self, event: &str, run: &str) -> Background {
        let workflow =
            fs::read_to_string(root().join("examples/workflows/quickstart.yml")).unwrap();
        let (bridge, user) = (self.bridge.display().to_string(), own_user());
        let account = self.site.account();
        let mut env: Vec<(&str, &str)> =
            account.iter().map(|(name, value)| (*name, value.as_str())).collect();
        env.extend([
            (EVENT, event),
            ("GITHUB_RUN_ID", run),
            ("BRIDGE", &bridge),
            ("ONDECK_GITHUB_URL", self.github.url()),
            // Machines are processes of this computer, with its user and the program as it is.
            ("ONDECK_RUNNER_USER", &user),
            ("ONDECK_AGENT_URL", "image"),
        ]);
        let secrets = [("ONDECK_GITHUB_TOKEN", TOKEN), ("GITHUB_TOKEN", JOBS_TOKEN)];
        let mut act = self.workshop.command(&workflow, None, &env, &secrets);
        act.args(["--var", "ONDECK_ROLE=arn:aws:iam::123456789012:role/ondeck"]);
        Background::start(&mut act)
    }

    /// One push: provision, the tests on a machine of the run, release. Gives the machine.
    fn push(&self, run: &str) -> (Done, String) {
        let workflow = self.start("push", run);
        let asked = self.bridge.join("asked");
        until("the tests are to run", || asked.exists());
        let job = self.github.queue_job(REPOSITORY, run, &[run], "echo tests of $GITHUB_RUN_ID");
        let job = self.github.wait_for_job(job, LIMIT);
        assert!(job.log.contains(&format!("tests of {run}")), "{job:?}");
        fs::remove_file(asked).unwrap();
        let done = self.bridge.join("done");
        fs::write(&done, "").unwrap();
        let told = workflow.finish().succeeded();
        fs::remove_file(done).unwrap();
        let runner = job.runner_name.unwrap();
        (told, runner.rsplitn(3, '-').last().unwrap().to_owned())
    }
}

#[test]
fn cold_run_released_warm_run_released() {
    let team = Team::new();
    let refreshed = team.start("workflow_dispatch", "40").finish().succeeded();
    assert!(refreshed.stdout.contains("set up"), "{}", refreshed.stdout);
    assert!(team.site.machines().is_empty(), "a refresh gives nobody machines");

    let (told, cold) = team.push("41");
    assert!(told.stdout.contains("0 warm, 1 cold, 0 adopted"), "{}", told.stdout);
    assert!(told.stdout.contains("run 41 released"), "{}", told.stdout);
    assert!(team.github.runners().is_empty(), "{:?}", team.github.runners());

    let (told, warm) = team.push("42");
    assert!(told.stdout.contains("1 warm, 0 cold, 0 adopted"), "{}", told.stdout);
    assert!(told.stdout.contains("run 42 released"), "{}", told.stdout);
    assert_eq!(warm, cold, "the same machine");
    assert!(team.github.runners().is_empty(), "{:?}", team.github.runners());
    for secret in [TOKEN, JOBS_TOKEN] {
        assert!(!refreshed.stdout.contains(secret), "{}", refreshed.stdout);
    }
    team.github.assert_sound();
    team.site.gateway.assert_sound();
}
