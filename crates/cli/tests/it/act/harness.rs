//! A scratch repository whose workflows act runs on this computer, with the Action as it is here
//! and a release page of its own. Nothing leaves loopback: actions are folders, and there are no
//! images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ondeck_standin::emulators::Emulators;
use serde_json::json;

use super::page::Page;
use crate::harness::{Background, Done, Home};

/// What stands in for the actions of others, and what it stands in for.
const STAND_INS: [(&str, &str); 2] = [
    ("checkout", "actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd"),
    (
        "configure-aws-credentials",
        "aws-actions/configure-aws-credentials@8df5847569e6427dd6c4fb1cf565c83acfa8afa7",
    ),
];

/// The run that every workflow is part of, unless its environment says otherwise.
pub(crate) const RUN: &str = "4711";

/// Where the environment of a workflow says what has set it off, unless that is a push.
pub(crate) const EVENT: &str = "GITHUB_EVENT_NAME";

/// Where it names the repository that a pull request comes from.
pub(crate) const PULL_REQUEST_FROM: &str = "TEST_PULL_REQUEST_FROM";

/// How often a workflow is run whose words are lost.
const HEARINGS: usize = 4;

/// Gone with the test, and every process of it.
pub(crate) struct ActHarness {
    /// Of the local backend, for workflows that use it.
    pub(crate) home: Home,
    pub(crate) page: Page,
}

impl ActHarness {
    /// With the built program as the release that the Action gets.
    pub(crate) fn new() -> ActHarness {
        ActHarness::with_program(&fs::read(env!("CARGO_BIN_EXE_ondeck")).unwrap())
    }

    /// With something else in its place.
    pub(crate) fn with_program(program: &[u8]) -> ActHarness {
        let harness = ActHarness { home: Home::bare(), page: Page::with_release(program) };
        let (repository, action) = (harness.repository(), harness.action());
        fs::create_dir_all(repository.join(".github/workflows")).unwrap();
        fs::create_dir_all(action.join("action")).unwrap();
        fs::create_dir_all(action.join(".github/workflows")).unwrap();
        for file in ["action.yml", "action/install.sh", "Cargo.toml", ".github/workflows/warm.yml"]
        {
            fs::copy(root().join(file), action.join(file)).unwrap();
        }
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(&repository).args([
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@t.invalid",
            ]);
            let done = git.args(arguments).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        git(&["init", "--quiet", "--initial-branch", "main"]);
        git(&["remote", "add", "origin", "https://github.com/acme/web"]);
        git(&["commit", "--quiet", "--allow-empty", "--message", "Begin"]);
        harness
    }

    /// Runs a workflow, or one of its jobs, to its end.
    pub(crate) fn run(
        &self,
        workflow: &str,
        job: Option<&str>,
        env: &[(&str, &str)],
        secrets: &[(&str, &str)],
    ) -> Done {
        Background::start(&mut self.command(workflow, job, env, secrets)).finish()
    }

    /// Runs a workflow with steps that fail, again if not all of the words were heard: act ends
    /// such a step with its process, and does not wait for what it has yet to read from it.
    pub(crate) fn hear(&self, workflow: &str, words: &[&str]) -> Done {
        let run = || self.run(workflow, None, &[], &[]);
        let all = |done: &Done| words.iter().all(|words| done.stdout.contains(words));
        (1..HEARINGS).map(|_| run()).find(all).unwrap_or_else(run)
    }

    /// What runs a workflow, given as its text.
    pub(crate) fn command(
        &self,
        workflow: &str,
        job: Option<&str>,
        env: &[(&str, &str)],
        secrets: &[(&str, &str)],
    ) -> Command {
        let file = self.repository().join(".github/workflows/workflow.yml");
        fs::write(&file, workflow).unwrap();
        let mut act = Command::new(Emulators::running().act);
        act.current_dir(self.repository()).stdin(Stdio::null());
        act.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Neither what is set up for the user, nor what the test itself was started with.
        for (name, _) in std::env::vars_os() {
            let is = |prefix: &&str| name.to_string_lossy().starts_with(*prefix);
            if ["ONDECK_", "GITHUB_", "RUNNER_", "ACT", "XDG_"].iter().any(is) {
                act.env_remove(name);
            }
        }
        act.env("HOME", self.home.outside());
        // GitHub's events say more. The program asks them for the default branch only, and workflows
        // for the repository that a pull request comes from.
        let payload = self.home.outside().join("event.json");
        let mut event = json!({ "repository": { "default_branch": "main" } });
        if let Some((_, from)) = env.iter().find(|(name, _)| *name == PULL_REQUEST_FROM) {
            event["pull_request"] = json!({ "head": { "repo": { "full_name": from } } });
        }
        fs::write(&payload, event.to_string()).unwrap();
        act.arg("--eventpath").arg(&payload);
        // Without images and without a network, and with an answer to each of its questions.
        let event = env.iter().find(|(name, _)| *name == EVENT).map_or("push", |(_, event)| event);
        act.args([event, "--pull=false", "--action-offline-mode", "--no-cache-server"]);
        act.arg("--workflows").arg(&file).arg("--action-cache-path").arg(self.cache());
        act.args(["--platform", "ubuntu-latest=-self-hosted"]);
        let run = env.iter().find(|(name, _)| *name == "GITHUB_RUN_ID").map_or(RUN, |(_, id)| id);
        act.args(["--platform", &format!("{run}=-self-hosted")]);
        act.args(["--env", &format!("GITHUB_RUN_ID={run}")]);
        act.args(["--env", &format!("ONDECK_HOME={}", self.home.dir().display())]);
        act.args(["--env", &format!("ONDECK_DOWNLOAD_URL={}", self.page.url())]);
        let replaced = |act: &mut Command, action: &str, folder: &Path| {
            act.args(["--local-repository", &format!("{action}={}", folder.display())]);
        };
        replaced(&mut act, "ondeck-ci/ondeck@v0", &self.action());
        for (folder, action) in STAND_INS {
            let folder = root().join("crates/cli/tests/it/act/actions").join(folder);
            replaced(&mut act, action, &folder);
        }
        for (name, value) in env {
            act.args(["--env", &format!("{name}={value}")]);
        }
        // A value on the command line is visible to every process.
        for (name, value) in secrets {
            act.args(["--secret", name]).env(name, value);
        }
        act.args(job.map(|job| ["--job", job]).iter().flatten());
        act
    }

    /// Where the Action keeps the program from one run to the next.
    pub(crate) fn tool_cache(&self) -> PathBuf {
        self.cache().join("tool_cache")
    }

    /// The Action, as a workflow gets it.
    pub(crate) fn action(&self) -> PathBuf {
        self.home.outside().join("action")
    }

    pub(crate) fn repository(&self) -> PathBuf {
        self.home.outside().join("repository")
    }

    fn cache(&self) -> PathBuf {
        self.home.outside().join("cache")
    }
}

/// The project's own folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
