//! The environment that holds the administrative token: the step that init prints creates it, and only
//! the default branch can use it.

use std::collections::BTreeMap;
use std::fs;

use ondeck_standin::emulators::Emulators;
use ondeck_standin::{GitHub, GitHubOptions, Permission};
use serde_yaml_ng::Value;

use super::REGION;
use super::checkout::Checkout;
use super::steps::{run, steps};
use crate::harness::Done;

const REPOSITORY: &str = "Acme/web";
const ENVIRONMENT: &str = "ondeck-refresh";
const ADMINISTRATOR: &str = "ghp_administrator";
const SECRET: &str = "ONDECK_GITHUB_TOKEN";
/// A token, and how the played gh seals it.
const FIRST: (&str, &str) = ("github_pat_1", "Z2l0aHViX3BhdF8x");
const SECOND: (&str, &str) = ("github_pat_2", "Z2l0aHViX3BhdF8y");
/// Refs that a person who cannot push to the default branch can start workflows on.
const OTHER_REFS: [&str; 5] = [
    "refs/heads/topic",
    "refs/heads/feature/trunk",
    "refs/heads/trunk-2",
    "refs/tags/trunk",
    "refs/pull/7/merge",
];

/// A repository on the stand-in, whose files init has written.
struct SetUp {
    github: GitHub,
    checkout: Checkout,
    /// The step that sets the repository up.
    step: String,
}

impl SetUp {
    fn new(refresh: &str) -> SetUp {
        let github = GitHub::start(GitHubOptions::on(&Emulators::running()));
        github.allow(ADMINISTRATOR, REPOSITORY, &[Permission::Administration]);
        let checkout = Checkout::new();
        let options = [REGION, "--default-branch=trunk", &format!("--refresh={refresh}")];
        let said = checkout.init(&options).succeeded().stdout;
        let step = steps(&said).into_iter().find(|step| step.starts_with("gh ")).unwrap();
        SetUp { github, checkout, step }
    }

    /// Runs the lines of the step, with this token typed in.
    fn run(&self, step: &str, token: &str) -> Done {
        let python = Emulators::running().shellcheck.parent().unwrap().join("python");
        let script = self.checkout.folder.path().join("gh.py");
        fs::write(&script, include_str!("gh.py")).unwrap();
        let gh = format!(
            "GITHUB_API={} GITHUB_ADMIN={ADMINISTRATOR} GITHUB_SECRET={token} exec {} {} \"$@\"\n",
            self.github.api_url(),
            python.display(),
            script.display(),
        );
        self.checkout.add_program("gh", &gh);
        run(&self.checkout, &["-c", step])
    }

    /// The sealed token that a job of the environment gets in a run on a ref.
    fn token(&self, reference: &str) -> Result<Option<String>, String> {
        let secrets = self.github.start_in_environment(REPOSITORY, ENVIRONMENT, reference)?;
        Ok(secrets.get(SECRET).cloned())
    }

    /// The jobs of the workflows that init has written, by file and name.
    fn jobs(&self) -> BTreeMap<String, Value> {
        let mut jobs = BTreeMap::new();
        for file in ["ondeck.yml", "ci.yml"] {
            let text = self.checkout.text(&format!(".github/workflows/{file}"));
            let workflow: Value = serde_yaml_ng::from_str(&text).unwrap();
            for (name, job) in workflow["jobs"].as_mapping().unwrap() {
                jobs.insert(format!("{file} {}", name.as_str().unwrap()), job.clone());
            }
        }
        jobs
    }
}

#[test]
fn a_workflow_of_another_branch_cannot_use_the_environment_with_the_token() {
    let set_up = SetUp::new("workflow");
    // A pushed branch can create the environment first. It has no secret then.
    assert_eq!(set_up.token("refs/heads/topic"), Ok(None));
    set_up.run(&set_up.step, FIRST.0).succeeded();
    assert_eq!(set_up.token("refs/heads/trunk"), Ok(Some(FIRST.1.to_owned())));
    for reference in OTHER_REFS {
        let refused = set_up.token(reference).unwrap_err();
        assert!(refused.contains("is not allowed to deploy to ondeck-refresh"), "{refused}");
    }

    // Outside of the environment there is no secret to read.
    let requests = set_up.github.requests();
    let stored = requests.iter().filter(|it| it.method == "PUT" && it.path.contains("/secrets/"));
    let stored: Vec<&str> = stored.map(|it| it.path.as_str()).collect();
    assert_eq!(stored, ["/repos/Acme/web/environments/ondeck-refresh/secrets/ONDECK_GITHUB_TOKEN"]);
    assert_eq!(set_up.github.violations(), []);
}

#[test]
fn jobs_read_secrets_in_the_limited_environment_only() {
    for (refresh, expected) in [("workflow", true), ("function", false)] {
        let set_up = SetUp::new(refresh);
        set_up.run(&set_up.step, FIRST.0).succeeded();
        let mut reading = Vec::new();
        for (name, job) in set_up.jobs() {
            let text = serde_yaml_ng::to_string(&job).unwrap();
            let is_limited = job["environment"].as_str() == Some(ENVIRONMENT);
            let maintains = text.contains("ONDECK_REFRESH_ROLE");
            assert!(is_limited || !text.contains("secrets.") && !maintains, "{name}: {text}");
            assert!(is_limited || job.get("environment").is_none(), "{name}");
            reading.extend(text.contains(SECRET).then_some(name));
        }
        assert_eq!(!reading.is_empty(), expected, "{refresh}: {reading:?}");
        // The role of refresh trusts the environment, so it is limited without a secret, too.
        assert!(set_up.token("refs/heads/topic").is_err(), "{refresh}");
        assert_eq!(set_up.token("refs/heads/trunk").map(|token| token.is_some()), Ok(expected));
    }
}

#[test]
fn no_branch_has_the_token_before_the_limit_is_complete() {
    let set_up = SetUp::new("workflow");
    let lines: Vec<&str> = set_up.step.lines().map(|line| line.trim_end_matches(" &&")).collect();
    for (number, line) in lines.iter().enumerate() {
        set_up.run(line, FIRST.0).succeeded();
        for reference in OTHER_REFS {
            let token = set_up.token(reference);
            assert!(!matches!(token, Ok(Some(_))), "{reference} after line {number}: {token:?}");
        }
    }
    // Once more, with a new token: GitHub says in the last line that the branch is allowed already.
    set_up.run(&set_up.step, SECOND.0).exited(1);
    assert_eq!(set_up.token("refs/heads/trunk"), Ok(Some(SECOND.1.to_owned())));
    assert!(set_up.token("refs/heads/topic").is_err());
}

#[test]
fn without_the_limit_a_branch_would_get_the_token() {
    let set_up = SetUp::new("workflow");
    assert_eq!(set_up.token("refs/heads/topic"), Ok(None), "creates the environment");
    let without: Vec<&str> = set_up.step.lines().filter(|line| !line.contains("gh api")).collect();
    set_up.run(without.join("\n").trim_end_matches(" &&"), FIRST.0).succeeded();
    assert_eq!(set_up.token("refs/heads/topic"), Ok(Some(FIRST.1.to_owned())));
}
