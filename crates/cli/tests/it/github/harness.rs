//! A pool of either backend, and a GitHub whose jobs it serves.

use std::process::Command;
use std::time::Duration;

use ondeck_standin::emulators::Emulators;
use ondeck_standin::runner_package;
use ondeck_standin::{Conclusion, GitHub, GitHubOptions, GitHubRunner, Job, JobId, Permission};

use crate::aws::harness::{AwsHarness, LAUNCH, TIMES};
use crate::harness::{self, Driven, Home};

/// The repository that every test is about.
pub(crate) const REPOSITORY: &str = "acme/web";
/// May administer it, and nothing else.
pub(crate) const TOKEN: &str = "github_pat_11ADMINISTERSonly_acmeweb";
/// A workflow's own, which may read runs.
pub(crate) const JOBS_TOKEN: &str = "ghs_readsrunsandnothingelse";
/// The runner that GitHub offers.
pub(crate) const RUNNER: &str = "2.336.0";

/// As long as anything may take on a busy computer.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Both, gone with the test.
pub(crate) struct GitHubHarness<P> {
    pub(crate) pool: P,
    pub(crate) github: GitHub,
}

impl GitHubHarness<Home> {
    /// On the local backend, set up.
    pub(crate) fn local(inputs: &[&str]) -> GitHubHarness<Home> {
        let harness = GitHubHarness { pool: Home::bare(), github: github() };
        harness.ondeck(&[&["refresh"], &harness::TIMES[..], inputs].concat()).succeeded();
        harness
    }
}

impl GitHubHarness<Home> {
    /// Has the next refresh ask for credentials anew.
    pub(crate) fn renew(&self) {
        let sql = "DELETE FROM settings WHERE name = 'credentials-minted'";
        self.pool.file().execute(sql, []).unwrap();
    }
}

impl GitHubHarness<AwsHarness> {
    /// On the aws backend, set up.
    pub(crate) fn aws(inputs: &[&str]) -> GitHubHarness<AwsHarness> {
        GitHubHarness::aws_with(github(), inputs)
    }

    /// On the aws backend, set up, with another GitHub.
    pub(crate) fn aws_with(github: GitHub, inputs: &[&str]) -> GitHubHarness<AwsHarness> {
        let harness = GitHubHarness { pool: AwsHarness::bare(), github };
        let given = [&["refresh"], &TIMES[..], &LAUNCH[..], inputs].concat();
        harness.ondeck(&given).succeeded();
        harness
    }
}

impl<P: Driven> GitHubHarness<P> {
    /// A job of a run, for machines with its label.
    pub(crate) fn queue(&self, run: &str, script: &str) -> JobId {
        self.github.queue_job(REPOSITORY, run, &[run], script)
    }

    /// Waits until the job has succeeded.
    #[track_caller]
    pub(crate) fn done(&self, job: JobId) -> Job {
        let job = self.github.wait_for_job(job, LIMIT);
        assert_eq!(job.conclusion, Some(Conclusion::Success), "{job:?}");
        job
    }

    /// Waits until the list of runners is so.
    #[track_caller]
    pub(crate) fn until_runners(&self, what: &str, suits: impl Fn(&[GitHubRunner]) -> bool) {
        let listed = self.github.wait_for_runners(LIMIT, suits);
        assert!(listed.is_some(), "not {what}: {:?}", self.github.runners());
    }
}

impl<P: Driven> Driven for GitHubHarness<P> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.pool.command(arguments);
        command
            .env("ONDECK_FORGE", "github")
            .env("ONDECK_GITHUB_URL", self.github.url())
            .env("ONDECK_REPOSITORY", REPOSITORY)
            // Machines are processes of this computer, so they share its users: a user of their
            // own would be one that another machine clears up after.
            .env("ONDECK_RUNNER_USER", own_user());
        // Only refresh needs tokens.
        if arguments.first() == Some(&"refresh") {
            command.env("ONDECK_GITHUB_TOKEN", TOKEN).env("ONDECK_JOBS_TOKEN", JOBS_TOKEN);
        }
        command
    }
}

/// GitHub, with a runner to offer and two tokens that it knows.
pub(crate) fn github() -> GitHub {
    github_that_pauses(Duration::ZERO)
}

/// Such a GitHub, whose runners get no job for so long after another one.
pub(crate) fn github_that_pauses(pause_after_job: Duration) -> GitHub {
    github_with(|options| options.pause_after_job = pause_after_job)
}

/// Such a GitHub, which gives up a job two seconds after its listener is gone, in place of ten minutes.
pub(crate) fn github_that_gives_up() -> GitHub {
    github_with(|options| options.job_lock = Duration::from_secs(2))
}

fn github_with(change: impl FnOnce(&mut GitHubOptions)) -> GitHub {
    let mut options = GitHubOptions {
        runner_groups: vec!["ondeck".to_owned()],
        ..GitHubOptions::on(&Emulators::running())
    };
    change(&mut options);
    let github = GitHub::start(options);
    github.allow(TOKEN, REPOSITORY, &[Permission::Administration]);
    github.allow(JOBS_TOKEN, REPOSITORY, &[Permission::ActionsRead]);
    github.publish_runner(RUNNER, runner_package(RUNNER));
    github
}

pub(crate) fn own_user() -> String {
    let said = Command::new("id").arg("-un").output().unwrap().stdout;
    String::from_utf8(said).unwrap().trim().to_owned()
}
