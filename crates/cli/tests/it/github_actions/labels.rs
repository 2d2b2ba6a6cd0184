//! The labels that provision hands to the jobs of its workflow.

use insta::assert_snapshot;

use super::WorkflowStep;
use crate::harness::{Driven, Home};

/// A job that names an entry of `labels` runs on a machine that the suffix was given for.
#[test]
fn outputs_and_summary_name_the_label_with_its_suffix() {
    let home = Home::with(&[]);
    home.provision("7", 1).succeeded();
    let step = WorkflowStep::of(&home);
    let build = ["provision", "--run-id", "7", "--label-suffix", "build", "--instance-count", "2"];
    let done = step.run(&build).succeeded();
    assert_snapshot!(step.outputs(), @r#"
    label=7-build
    labels=["7-build","7-build"]
    instance-ids=i-# i-#
    warm-count=0
    cold-count=2
    result.status=success
    "#);
    assert!(step.summary().contains("Jobs of this run use `runs-on: 7-build`.\n"));
    assert!(done.stdout.ends_with("its jobs use runs-on: 7-build\n"), "{}", done.stdout);

    let answer = home.ondeck(&[&build[..], &["--json"]].concat()).succeeded();
    assert_eq!(answer.json()["labels"], serde_json::json!(["7-build", "7-build"]), "adopted");
    home.ondeck(&["run", "--run-id", "7-build", "--", "true"]).succeeded();
    let on = home.texts("SELECT instance FROM jobs").concat();
    assert!(answer.ids().contains(&on), "{on} is not one of {:?}", answer.ids());
}

/// GitHub drops an output of a job that holds a masked value.
#[test]
fn labels_of_machines_are_never_masked() {
    let home = Home::with(&["--runner-label=machine"]);
    let step = WorkflowStep::of(&home);
    for count in ["1", "2"] {
        let run = ["provision", "--run-id", count, "--instance-count", count];
        let done = step.run(&run).succeeded();
        let outputs = std::fs::read_to_string(&step.outputs).unwrap();
        let labels = outputs.lines().rev().find_map(|line| line.strip_prefix("labels="));
        let labels: Vec<String> = serde_json::from_str(labels.unwrap()).unwrap();
        assert_eq!(labels.len().to_string(), count);
        assert!(labels.iter().all(|label| label.starts_with('m')), "{labels:?}");
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(!said.contains("add-mask"), "{said}");
    }
}
