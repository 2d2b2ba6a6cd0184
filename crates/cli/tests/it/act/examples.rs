//! The examples that teams paste, as they stand: act runs them with emulated AWS and a GitHub on
//! loopback. What act cannot do is to run a job on a machine of the pool; there the runner's
//! stand-in does, and act's own job waits for it, as its `make test`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use ondeck_standin::{APP_PRIVATE_KEY, APP_PUBLIC_KEY, GitHub, JobId, JobState, Permission};

use super::harness::{ActHarness, EVENT, PULL_REQUEST_FROM, root};
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
    /// Whether the repository has the variables with the roles. A fork has none.
    has_roles: bool,
    /// The repository that pull requests come from.
    head: &'static str,
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
        Team {
            act,
            aws: AwsHarness::bare(),
            github: github(),
            bridge,
            has_roles: true,
            head: REPOSITORY,
        }
    }

    /// The file of the pool, if the team has one.
    fn file(&self) -> PathBuf {
        self.act.repository().join("ondeck.toml")
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
            (PULL_REQUEST_FROM, self.head),
            ("GITHUB_RUN_ID", run),
            ("BRIDGE", &bridge),
            ("ONDECK_GITHUB_URL", self.github.url()),
            // Machines are processes of this computer, with its user and the program as it is.
            ("ONDECK_AGENT_URL", "image"),
        ]);
        // A pool with a file takes its settings from there only.
        if !self.file().exists() {
            env.push(("ONDECK_RUNNER_USER", &user));
        }
        let all = [("ONDECK_GITHUB_TOKEN", TOKEN), ("ONDECK_APP_PRIVATE_KEY", APP_PRIVATE_KEY)];
        let mut secrets = vec![("GITHUB_TOKEN", JOBS_TOKEN)];
        secrets.extend(all.into_iter().filter(|(name, _)| workflow.contains(name)));
        let mut command = self.act.command(workflow, None, &env, &secrets);
        for mode in ["provision", "release", "refresh"].iter().filter(|_| self.has_roles) {
            let name = format!("ONDECK_{}_ROLE", mode.to_uppercase());
            let role = format!("arn:aws:iam::123456789012:role/ondeck-{mode}");
            command.args(["--var", &format!("{name}={role}")]);
        }
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

/// Lets the maintenance workflow with this name set the pool up.
fn refreshed(team: &Team, name: &str, run: &str) -> Played {
    let played = team.play(&Team::example(name), "workflow_dispatch", run);
    says(&played, "set up");
    assert!(team.aws.machines().is_empty(), "a refresh launches no machines");
    for secret in [TOKEN, JOBS_TOKEN] {
        assert!(!played.done.stdout.contains(secret), "{}", played.done.stdout);
    }
    played
}

/// A pool whose settings are in a file. The agent that the action offers does not contradict it.
const SETTINGS: &str = r#"
[image]
ami = "ami-0123456789abcdef0"
agent-url = ""
[network]
subnet-ids = ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]
security-group-ids = ["sg-0123456789abcdef0"]
[machines]
iam-instance-profile = "ondeck-machine"
runner-user = "OWN"
"#;

/// The two workflows of the quick start: the one that maintains the pool applies its file and enforces
/// it, and the one that uses it gets machines.
#[test]
fn quick_start() {
    let (team, quickstart) = (Team::new(), Team::example("quickstart.yml"));
    fs::write(team.file(), SETTINGS.replace("OWN", &own_user())).unwrap();
    let first = refreshed(&team, "ondeck.yml", "40");
    says(&first, "applied 6 settings, digest ");
    says(&first, "newly enforced");

    let cold = team.play(&quickstart, "push", "41");
    says(&cold, "0 warm, 1 cold, 0 adopted");
    says(&cold, "run 41 released");
    team.assert_tidy();

    let again = team.play(&Team::example("ondeck.yml"), "workflow_dispatch", "42");
    says(&again, "already applied: 6 settings");
    says(&again, "in force");

    let warm = team.play(&quickstart, "push", "43");
    says(&warm, "1 warm, 0 cold, 0 adopted");
    says(&warm, "run 43 released");
    assert_eq!(warm.machines, cold.machines, "the same machine");
    team.assert_tidy();
}

/// With a function that refreshes, the workflow applies the file and needs no token.
#[test]
fn a_file_is_applied_without_a_token() {
    let team = Team::new();
    fs::write(team.file(), SETTINGS.replace("OWN", &own_user())).unwrap();
    let applied = team.play(&Team::example("ondeck-function.yml"), "workflow_dispatch", "44");
    says(&applied, "applied 6 settings, digest ");
    assert_eq!(
        team.github.count("POST", "/repos/acme/web/actions/runners/registration-token"),
        0,
        "GitHub is not asked"
    );
}

/// Without roles there are no machines, and the job runs where act runs those of `ubuntu-latest`.
#[test]
fn a_fork_gets_no_machines_and_no_failure() {
    let mut team = Team::new();
    team.has_roles = false;
    fs::write(team.act.repository().join("Makefile"), "test:\n\t@echo tested without machines\n")
        .unwrap();
    for example in ["quickstart.yml", "warm.yml"] {
        let played = team.play(&Team::example(example), "push", "45");
        says(&played, "tested without machines");
        assert!(!played.done.stdout.contains("configure-aws-credentials"), "{example}");
        assert!(played.machines.is_empty());
    }
    assert!(team.aws.machines().is_empty());
}

/// GitHub runs the workflow of a fork's pull request in the repository itself, whose variables it sees.
#[test]
fn a_pull_request_from_a_fork_gets_no_machines_and_one_of_the_repository_does() {
    let mut team = Team::new();
    refreshed(&team, "refresh-with-inputs.yml", "50");
    let own = team.play(&Team::example("quickstart.yml"), "pull_request", "51");
    assert_eq!(own.machines.len(), 1, "{}", own.done.stdout);
    says(&own, "run 51 released");

    team.head = "mallory/web";
    fs::write(team.act.repository().join("Makefile"), "test:\n\t@echo tested without machines\n")
        .unwrap();
    let forked = team.play(&Team::example("quickstart.yml"), "pull_request", "52");
    says(&forked, "tested without machines");
    assert!(!forked.done.stdout.contains("configure-aws-credentials"), "no role is asked for");
    assert!(forked.machines.is_empty());
    team.assert_tidy();
}

/// The workflow that others call provisions, runs the command on each machine, and releases.
#[test]
fn one_command_on_two_machines() {
    let team = Team::new();
    refreshed(&team, "refresh-with-inputs.yml", "46");
    let played = team.play(&Team::example("warm.yml"), "push", "47");
    says(&played, "0 warm, 2 cold, 0 adopted");
    says(&played, "run 47 released");
    assert_eq!(played.machines.len(), 2, "a job for each machine");
    team.assert_tidy();
}

#[test]
fn matrix_and_spot() {
    let team = Team::new();
    refreshed(&team, "refresh-with-inputs.yml", "50");
    // act does not know `strategy.job-index` where it reads `runs-on`. Here, all labels are the run's.
    let example = Team::example("matrix.yml").replace("strategy.job-index", "0");
    let matrix = team.play(&example, "push", "51");
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
    refreshed(&team, "refresh-with-inputs.yml", "55");
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
    // The pool is one of the test's own.
    let pool = team.aws.account()[0].1.clone();
    let of_team =
        |name| Team::example(name).replace("ONDECK_POOL: acme", &format!("ONDECK_POOL: {pool}"));
    team.play(&of_team("organisation-refresh.yml"), "workflow_dispatch", "60");
    let played = team.play(&of_team("organisation.yml"), "push", "61");
    says(&played, "0 warm, 1 cold, 0 adopted");
    let registered = team.github.count("POST", "/orgs/acme/actions/runners/registration-token");
    assert_eq!(registered, 1, "by the App, for the organisation");
    team.assert_tidy();
}
