//! The examples that teams paste, as they stand: act runs them with emulated AWS and a GitHub on
//! loopback. What act cannot do is to run a job on a machine of the pool; there the runner's
//! stand-in does, and act's own job waits for it, as its `make test`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use ondeck_standin::{APP_PRIVATE_KEY, APP_PUBLIC_KEY, GitHub, JobId, JobState, Permission};

use super::harness::{ActHarness, EVENT, root};
use crate::aws::harness::AwsHarness;
use crate::github::harness::{JOBS_TOKEN, REPOSITORY, TOKEN, github, own_user};
use crate::harness::{Background, Done, within};

/// Asks for the job on a machine, for every make target, and waits for it. The name of the file says
/// which target it was.
const MAKEFILE: &str = "all test test-unit test-integration publish:\n\
    \t@touch $$BRIDGE/asked-$$$$-$@ && for n in $$(seq 600); do \\\n\
    \t  test -e $$BRIDGE/done-$$$$ && exit 0; sleep 0.1; \\\n\
    \tdone; exit 1\n";

/// A team's repository, its account, and its GitHub.
struct Team {
    act: ActHarness,
    aws: AwsHarness,
    github: GitHub,
    bridge: PathBuf,
}

/// A workflow that has ended.
struct Played {
    done: Done,
    /// The machines that its jobs ran on, one for each job.
    machines: Vec<String>,
}

impl Team {
    fn new() -> Team {
        let act = ActHarness::new();
        fs::write(act.repository().join("Makefile"), MAKEFILE).unwrap();
        let bridge = act.home.outside().join("bridge");
        fs::create_dir(&bridge).unwrap();
        Team { act, aws: AwsHarness::bare(), github: github(), bridge }
    }

    /// What an example says.
    fn example(name: &str) -> String {
        fs::read_to_string(root().join("examples/workflows").join(name)).unwrap()
    }

    /// Sets a workflow off, and runs the jobs that are for machines of the pool.
    fn play(&self, workflow: &str, event: &str, run: &str) -> Played {
        self.play_with(workflow, event, run, &|_| run.to_owned())
    }

    /// The same, where `label` tells what a make target's job runs on.
    fn play_with(
        &self,
        workflow: &str,
        event: &str,
        run: &str,
        label: &dyn Fn(&str) -> String,
    ) -> Played {
        let (bridge, user) = (self.bridge.display().to_string(), own_user());
        let account = self.aws.account();
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
        let all = [("ONDECK_GITHUB_TOKEN", TOKEN), ("ONDECK_APP_PRIVATE_KEY", APP_PRIVATE_KEY)];
        let mut secrets = vec![("GITHUB_TOKEN", JOBS_TOKEN)];
        secrets.extend(all.into_iter().filter(|(name, _)| workflow.contains(name)));
        let mut command = self.act.command(workflow, None, &env, &secrets);
        command.args(["--var", "ONDECK_ROLE=arn:aws:iam::123456789012:role/ondeck"]);
        command.args(["--var", "ONDECK_APP_ID=12345"]);
        for target in ["all", "test"] {
            command.args(["--platform", &format!("{}=-self-hosted", label(target))]);
        }
        let mut act = Background::start(&mut command);
        let mut jobs: BTreeMap<String, JobId> = BTreeMap::new();
        let ended = within(super::LIMIT, || {
            self.serve(run, label, &mut jobs);
            act.has_ended()
        });
        assert!(ended, "the workflow does not end, with jobs {jobs:?}");
        for entry in fs::read_dir(&self.bridge).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let machines = jobs.values().map(|job| self.machine_of(*job, run)).collect();
        Played { done: act.finish().succeeded(), machines }
    }

    /// Queues a job for each that asks for one, and says which are done.
    fn serve(&self, run: &str, label: &dyn Fn(&str) -> String, jobs: &mut BTreeMap<String, JobId>) {
        for entry in fs::read_dir(&self.bridge).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let asked = name.strip_prefix("asked-").and_then(|asked| asked.split_once('-'));
            let Some((asker, target)) = asked else { continue };
            let job = *jobs.entry(format!("{run}-{asker}")).or_insert_with(|| {
                let script = "echo tests of $GITHUB_RUN_ID";
                self.github.queue_job(REPOSITORY, run, &[&label(target)], script)
            });
            if self.github.job(job).unwrap().state == JobState::Completed {
                fs::write(self.bridge.join(format!("done-{asker}")), "").unwrap();
            }
        }
    }

    fn machine_of(&self, job: JobId, run: &str) -> String {
        let job = self.github.job(job).unwrap();
        assert!(job.log.contains(&format!("tests of {run}")), "{job:?}");
        job.runner_name.unwrap().rsplitn(3, '-').last().unwrap().to_owned()
    }

    /// All is as it should be between two workflows.
    fn assert_tidy(&self) {
        assert!(self.github.runners().is_empty(), "{:?}", self.github.runners());
        self.github.assert_requests_valid();
        self.aws.gateway.assert_requests_valid();
    }
}

#[track_caller]
fn says(played: &Played, words: &str) {
    assert!(played.done.stdout.contains(words), "not said: {words}\n{}", played.done.stdout);
}

#[test]
fn quick_start() {
    let (team, quickstart) = (Team::new(), Team::example("quickstart.yml"));
    let refreshed = team.play(&quickstart, "workflow_dispatch", "40");
    says(&refreshed, "set up");
    assert!(team.aws.machines().is_empty(), "a refresh launches no machines");

    let cold = team.play(&quickstart, "push", "41");
    says(&cold, "0 warm, 1 cold, 0 adopted");
    says(&cold, "run 41 released");
    team.assert_tidy();

    let warm = team.play(&quickstart, "push", "42");
    says(&warm, "1 warm, 0 cold, 0 adopted");
    says(&warm, "run 42 released");
    assert_eq!(warm.machines, cold.machines, "the same machine");
    team.assert_tidy();
    for secret in [TOKEN, JOBS_TOKEN] {
        assert!(!refreshed.done.stdout.contains(secret), "{}", refreshed.done.stdout);
    }
}

#[test]
fn matrix_and_spot() {
    let team = Team::new();
    team.play(&Team::example("quickstart.yml"), "workflow_dispatch", "50");
    let matrix = team.play(&Team::example("matrix.yml"), "push", "51");
    says(&matrix, "0 warm, 4 cold, 0 adopted");
    assert_eq!(matrix.machines.len(), 4, "a job for each shard");
    team.assert_tidy();

    let on_demand = team.aws.machines();
    let spot = team.play(&Team::example("spot-and-on-demand.yml"), "push", "52");
    says(&spot, "2 warm, 0 cold, 0 adopted");
    assert_eq!(spot.machines.len(), 2, "nothing is published but for a tag");
    assert!(spot.machines.iter().all(|id| on_demand.contains(id)), "by the fallback");
    team.assert_tidy();
}

/// One run has machines of two sizes, and each job runs on the size that its label names.
#[test]
fn sizes() {
    let team = Team::new();
    team.play(&Team::example("quickstart.yml"), "workflow_dispatch", "55");
    let label = |target: &str| match target {
        "all" => "56-build".to_owned(),
        _ => "56-test".to_owned(),
    };
    let played = team.play_with(&Team::example("sizes.yml"), "push", "56", &label);
    says(&played, "0 warm, 1 cold, 0 adopted");
    says(&played, "0 warm, 3 cold, 0 adopted");
    says(&played, "run 56 released");
    assert_eq!(played.machines.len(), 1 + 3);
    let jobs = team.github.jobs(REPOSITORY, "56");
    let machines_of = |label: &str| -> BTreeSet<String> {
        let of_label = jobs.iter().filter(|job| job.labels == [label]);
        of_label.map(|job| team.machine_of(job.id, "56")).collect()
    };
    let (build, test) = (machines_of("56-build"), machines_of("56-test"));
    assert_eq!(build.len(), 1);
    assert!(!test.is_empty() && build.is_disjoint(&test), "{build:?} {test:?}");
    team.assert_tidy();
}

#[test]
fn organisation() {
    let team = Team::new();
    let permissions = [Permission::OrganisationRunners, Permission::ActionsRead];
    team.github.add_app("12345", APP_PUBLIC_KEY, "acme", &permissions);
    // The repository of the test is the one whose refresh it is, and the pool one of its own.
    let pool = team.aws.account()[0].1.clone();
    let workflow = Team::example("organisation.yml")
        .replace("acme/runners", REPOSITORY)
        .replace("ONDECK_POOL: acme", &format!("ONDECK_POOL: {pool}"));
    team.play(&workflow, "workflow_dispatch", "60");
    let played = team.play(&workflow, "push", "61");
    says(&played, "0 warm, 1 cold, 0 adopted");
    let registered = team.github.count("POST", "/orgs/acme/actions/runners/registration-token");
    assert_eq!(registered, 1, "by the App, for the organisation");
    team.assert_tidy();
}
