//! What a person who can push a branch gets from our workflows: a pushed branch may change every
//! workflow file that its own events run, so no such file may lead to the token, the environment or
//! the role of refresh.

use std::fs;

use serde_yaml_ng::Value;

use super::harness::root;

/// The environment that has the administrative token, and that the role of refresh trusts.
const ENVIRONMENT: &str = "ondeck-refresh";

/// A workflow that uses the action: its name as a file, its text, and what it says.
struct Workflow {
    file: String,
    text: String,
    value: Value,
}

impl Workflow {
    fn parsed(file: String, text: String) -> Workflow {
        let value = serde_yaml_ng::from_str(&text).unwrap();
        Workflow { file, text, value }
    }

    /// All that users are given: the examples, and the workflow that they call.
    fn all() -> Vec<Workflow> {
        let examples = fs::read_dir(root().join("examples/workflows")).unwrap();
        let mut paths: Vec<_> = examples.map(|entry| entry.unwrap().path()).collect();
        paths.push(root().join(".github/workflows/warm.yml"));
        let read = |path: std::path::PathBuf| {
            let text = fs::read_to_string(&path).unwrap();
            Workflow::parsed(path.file_name().unwrap().to_string_lossy().into_owned(), text)
        };
        paths.into_iter().map(read).collect()
    }

    /// Whether a pushed branch or a pull request can start it. One of the default branch cannot be
    /// changed without a push to that branch.
    fn starts_for_branches(&self) -> bool {
        let on = &self.value["on"];
        let is_default =
            |branches: &Value| branches.as_sequence().is_some_and(|all| all == &["main"]);
        let by_push = on.get("push").is_some_and(|push| !is_default(&push["branches"]));
        let others = ["pull_request", "pull_request_target", "workflow_call", "merge_group"];
        by_push || others.iter().any(|event| on.get(event).is_some())
    }

    fn jobs(&self) -> impl Iterator<Item = (&str, &Value)> {
        let jobs = self.value["jobs"].as_mapping().unwrap();
        jobs.iter().map(|(name, job)| (name.as_str().unwrap(), job))
    }

    /// What is wrong with it.
    fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.starts_for_branches() {
            let forbidden = [ENVIRONMENT, "secrets.", "ONDECK_REFRESH_ROLE"];
            found.extend(forbidden.into_iter().filter(|words| self.text.contains(words)));
        }
        let mut found: Vec<String> =
            found.into_iter().map(|words| format!("names {words}")).collect();
        for (name, job) in self.jobs() {
            let text = serde_yaml_ng::to_string(job).unwrap();
            let maintains = ["mode: refresh", "mode: apply", "secrets.", "ONDECK_REFRESH_ROLE"]
                .iter()
                .any(|words| text.contains(words));
            if maintains && job["environment"].as_str() != Some(ENVIRONMENT) {
                found.push(format!("maintains outside of the environment: {name}"));
            }
        }
        found
    }
}

#[test]
fn a_pushed_branch_reaches_neither_token_nor_environment_nor_role_of_refresh() {
    let workflows = Workflow::all();
    for workflow in &workflows {
        assert_eq!(workflow.problems(), [""; 0], "{}", workflow.file);
    }
    let of_branches = workflows.iter().filter(|workflow| workflow.starts_for_branches()).count();
    assert!(of_branches > 5 && of_branches < workflows.len(), "{of_branches}");
}

#[test]
fn a_workflow_that_gives_the_token_away_is_found() {
    let cases = [
        ("on: { pull_request: , push: { branches: [main] } }", true),
        ("on: { push: }", true),
        ("on: { push: { branches: ['**'] } }", true),
        ("on: { push: { branches: [main, topic] } }", true),
        ("on: { workflow_call: }", true),
        ("on: { push: { branches: [main] }, schedule: [], workflow_run: }", false),
    ];
    for (on, found) in cases {
        let steps = "steps: [{ uses: o/a@v0, with: { mode: refresh } }]";
        let text =
            format!("{on}\njobs: {{ refresh: {{ environment: ondeck-refresh, {steps} }} }}\n");
        let workflow = Workflow::parsed("case".into(), text.clone());
        assert_eq!(!workflow.problems().is_empty(), found, "{on}");
        let outside = text.replace("environment: ondeck-refresh, ", "");
        let workflow = Workflow::parsed("case".into(), outside);
        assert!(!workflow.problems().is_empty(), "{on}, without the environment");
    }
}
