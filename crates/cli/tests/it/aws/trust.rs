//! Trust levels: the program with the roles that workflows of GitHub assume.

use std::path::Path;

use ondeck_aws::PoolName;
use ondeck_standin::{PolicyPool, Role};

use super::harness::{AwsHarness, LAUNCH, TIMES};
use crate::harness::{Background, Done, Driven};

/// The levels, their trust policies, and the machine role of each.
const PULL_REQUEST: &str = "pull-request";
const RELEASE: &str = "release";

/// An account with a pool for each trust level, and the roles of both.
struct Levels {
    aws: AwsHarness,
    folder: tempfile::TempDir,
}

/// A job of a workflow: the subject and the ref of its token.
#[derive(Clone, Copy)]
struct Job(&'static str, &'static str);

const OF_PULL_REQUEST: Job = Job("repo:acme/web:pull_request", "refs/pull/7/merge");
const OF_RELEASE: Job = Job("repo:acme/web:environment:release", "refs/heads/main");
/// A pull request whose workflow names the environment of releases.
const PRETENDER: Job = Job("repo:acme/web:environment:release", "refs/pull/7/merge");

impl Levels {
    fn new() -> Levels {
        let mut aws = AwsHarness::bare();
        aws.expect_denials();
        let levels = Levels { aws, folder: tempfile::tempdir().unwrap() };
        for level in [PULL_REQUEST, RELEASE] {
            let pool = levels.policy_pool(level);
            levels.aws.gateway.grant(&format!("refresh-{level}"), &pool, &[Role::Refresh]);
            let trust = levels.trust(level);
            let roles = [Role::Provision, Role::Release];
            levels.aws.gateway.add_role(&format!("ondeck-{level}"), &trust, &pool, &roles);
            let arguments = [&["refresh", "--trust", level], &TIMES[..], &LAUNCH[..4]].concat();
            let mut refresh = levels.aws.command(&arguments);
            refresh.env("AWS_ACCESS_KEY_ID", format!("refresh-{level}"));
            Background::start(&mut refresh).finish().succeeded();
        }
        levels
    }

    fn policy_pool(&self, level: &str) -> PolicyPool {
        let pool = format!("{}@{level}", self.aws.pool());
        let name = pool.parse::<PoolName>().unwrap().resource_name();
        PolicyPool { pool, name, machine_role: "ondeck-machine".to_owned() }
    }

    fn trust(&self, level: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/trust");
        let text = std::fs::read_to_string(folder.join(format!("{level}.json"))).unwrap();
        let text = text.replace("REPOSITORY", "acme/web").replace("ENVIRONMENT", "release");
        text.replace("BRANCH", "main")
    }

    /// Runs a command in a job that assumes the role of one level and names the pool of another.
    fn run(&self, job: Job, role: &str, level: &str, arguments: &[&str]) -> Done {
        let Job(sub, git_ref) = job;
        let claims = [("sub", sub), ("ref", git_ref), ("aud", "sts.amazonaws.com")];
        let file = self.folder.path().join("token");
        std::fs::write(&file, self.aws.gateway.issue_token(&claims)).unwrap();
        let mut command = self.aws.command(&[arguments, &["--trust", level]].concat());
        command
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY")
            .env("AWS_WEB_IDENTITY_TOKEN_FILE", file)
            .env("AWS_ROLE_ARN", format!("arn:aws:iam::000000000000:role/ondeck-{role}"))
            .env("AWS_ROLE_SESSION_NAME", "job");
        Background::start(&mut command).finish()
    }

    fn denied_actions(&self) -> Vec<String> {
        self.aws.denials().into_iter().map(|denial| denial.action).collect()
    }
}

fn provision(run: &str) -> [&str; 4] {
    ["provision", "--json", "--run-id", run]
}

fn release(run: &str) -> [&str; 4] {
    ["release", "--json", "--run-id", run]
}

#[test]
fn each_level_has_machines_of_its_own() {
    let levels = Levels::new();
    let released = levels.run(OF_RELEASE, RELEASE, RELEASE, &provision("1")).succeeded();
    levels.run(OF_RELEASE, RELEASE, RELEASE, &release("1")).succeeded();
    let of_pull_request =
        levels.run(OF_PULL_REQUEST, PULL_REQUEST, PULL_REQUEST, &provision("2")).succeeded();
    assert_eq!(of_pull_request.sources(), ["cold"], "the idle machine is one of releases");
    levels.run(OF_PULL_REQUEST, PULL_REQUEST, PULL_REQUEST, &release("2")).succeeded();
    let again = levels.run(OF_RELEASE, RELEASE, RELEASE, &provision("3")).succeeded();
    assert_eq!((again.sources(), again.ids()), (vec!["warm".to_owned()], released.ids()));
    levels.aws.gateway.assert_nothing_denied();
    let tags = |id: &str| levels.aws.gateway.ec2().machine(id).unwrap().tags["ondeck:pool"].clone();
    assert_eq!(tags(&again.ids()[0]), format!("{}@release", levels.aws.pool()));
    assert_eq!(tags(&of_pull_request.ids()[0]), format!("{}@pull-request", levels.aws.pool()));
}

#[test]
fn a_pull_request_can_neither_claim_nor_return_a_machine_of_releases() {
    let levels = Levels::new();
    let busy = levels.run(OF_RELEASE, RELEASE, RELEASE, &provision("1")).succeeded().ids();
    levels.run(OF_RELEASE, RELEASE, RELEASE, &provision("2")).succeeded();
    levels.run(OF_RELEASE, RELEASE, RELEASE, &release("2")).succeeded();
    let machines = levels.aws.machines();

    // The role of releases is denied to it, also if it names their environment.
    for job in [OF_PULL_REQUEST, PRETENDER] {
        for command in [provision("3"), release("1")] {
            levels.run(job, RELEASE, RELEASE, &command).exited(6);
        }
    }
    let denied = levels.denied_actions();
    assert!(!denied.is_empty());
    assert!(denied.iter().all(|it| it == "sts:AssumeRoleWithWebIdentity"), "{denied:?}");

    // With the role that it gets, it cannot even read the settings of that pool.
    let before = denied.len();
    for command in [provision("3"), release("1"), release("2")] {
        levels.run(OF_PULL_REQUEST, PULL_REQUEST, RELEASE, &command).exited(6);
    }
    let denied = levels.denied_actions().split_off(before);
    // Provision asks for the settings and for the queue's address at the same time.
    let reads = |it: &String| it.starts_with("dynamodb:") || it == "sqs:GetQueueUrl";
    assert!(!denied.is_empty() && denied.iter().all(reads), "{denied:?}");

    assert_eq!(levels.aws.machines(), machines, "nothing was launched or terminated");
    let released = levels.run(OF_RELEASE, RELEASE, RELEASE, &release("1")).succeeded();
    assert_eq!(released.ids(), busy, "the run still has its machine");
    let warm = levels.run(OF_RELEASE, RELEASE, RELEASE, &provision("4")).succeeded();
    assert_eq!(warm.sources(), ["warm"]);
}

#[test]
fn a_level_that_cannot_be_one_is_refused() {
    let harness = AwsHarness::bare();
    for (inputs, words) in [
        (&["--trust=Release"][..], "lower-case letters"),
        (&["--trust=release", "--pool=acme/web@pull-request"], "pool is not"),
    ] {
        let done = harness.ondeck(&[&["provision", "--run-id=1"], inputs].concat()).exited(2);
        assert!(done.stderr.contains(words), "{}", done.stderr);
    }
    let local = ["provision", "--run-id=1", "--backend=local", "--trust=release"];
    let done = harness.ondeck(&local).exited(2);
    assert!(done.stderr.contains("trust levels need records on AWS"), "{}", done.stderr);
}
