//! Workflows and examples give the action inputs that it takes, and pin every other action.

use std::path::{Path, PathBuf};

use ondeck_core::inputs::Mode;

use super::action::{OF_THE_ACTION, action_inputs};

/// The repository of the action.
const OURS: &str = "ondeck-ci/ondeck";

#[test]
fn every_step_gives_the_action_what_it_takes() {
    let mut modes = Vec::new();
    for (path, step) in steps().into_iter().filter(|(_, step)| step.action == OURS) {
        let place = format!("{}: {step:?}", path.display());
        let mode = step.with.iter().find(|(key, _)| key == "mode").expect(&place).1.clone();
        let known = Mode::OF_ACTION.into_iter().find(|known| known.name() == mode).expect(&place);
        for (key, _) in step.with.iter().filter(|(key, _)| !OF_THE_ACTION.contains(&key.as_str())) {
            let taken = action_inputs().any(|row| row.name == *key && row.is_of(known));
            assert!(taken, "{mode} takes no {key}: {place}");
        }
        modes.push(mode);
    }
    for mode in Mode::OF_ACTION.map(Mode::name) {
        assert!(modes.iter().any(|shown| shown == mode), "no example of {mode}");
    }
}

#[test]
fn every_other_action_is_pinned() {
    let mut count = 0;
    for (path, step) in steps().into_iter().filter(|(_, step)| !step.action.starts_with(OURS)) {
        let digest =
            step.version.len() == 40 && step.version.chars().all(|c| c.is_ascii_hexdigit());
        assert!(digest, "{}: {step:?}", path.display());
        assert!(
            step.comment.starts_with('v'),
            "the pin names no version: {}: {step:?}",
            path.display()
        );
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn every_workflow_states_its_permissions() {
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        assert!(text.contains("\npermissions:"), "{}", path.display());
        assert!(!text.contains("write-all"), "{}", path.display());
    }
}

/// A step that uses an action.
#[derive(Debug, Default)]
struct Step {
    action: String,
    version: String,
    comment: String,
    with: Vec<(String, String)>,
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [".github/workflows", "examples/workflows"];
    let entries = folders.iter().flat_map(|folder| {
        std::fs::read_dir(root.join(folder)).expect("the folder is there").flatten()
    });
    entries.map(|entry| entry.path()).collect()
}

fn steps() -> Vec<(PathBuf, Step)> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        steps_of(&text).into_iter().map(move |step| (path.clone(), step)).collect::<Vec<_>>()
    };
    files().into_iter().flat_map(read).collect()
}

/// Reads the subset of YAML that these files use: a key on each line, values of more than one line
/// indented further.
fn steps_of(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // The indentation of the keys of the step, and of those below its `with`.
    let (mut of_step, mut of_with) = (0, None);
    for line in text.lines() {
        let bare = line.trim_start_matches([' ', '-']);
        let indent = line.len() - bare.len();
        if bare.is_empty() || bare.starts_with('#') {
            continue;
        }
        if let Some(uses) = bare.strip_prefix("uses: ") {
            let (uses, comment) = uses.split_once(" # ").unwrap_or((uses, ""));
            let (action, version) = uses.split_once('@').unwrap_or((uses, ""));
            (of_step, of_with) = (indent, None);
            let text = |text: &str| text.trim().to_owned();
            let (action, version, comment) = (text(action), text(version), text(comment));
            steps.push(Step { action, version, comment, with: Vec::new() });
        } else if indent < of_step || line.trim_start().starts_with("- ") {
            (of_step, of_with) = (usize::MAX, None);
        } else if indent == of_step {
            of_with = (bare == "with:").then_some(of_step + 2);
        } else if Some(indent) == of_with
            && let (Some(step), Some((key, value))) = (steps.last_mut(), bare.split_once(':'))
        {
            step.with.push((key.to_owned(), value.trim().to_owned()));
        }
    }
    steps
}

#[test]
fn steps_are_read() {
    let steps = steps_of(
        "jobs:\n  a:\n    steps:\n      - name: Provision\n        uses: o/a@v1\n        with:\n          \
         mode: provision\n          script: |\n            x: y\n          count: 2\n        env:\n          \
         Y: 1\n      - uses: o/b@0123 # v2.0.0\n        with:\n          z: 1\n      - run: true\n        \
         with:\n          no: 1\n    outputs:\n      also: no\n",
    );
    let [a, b] = &steps[..] else { panic!("{steps:?}") };
    let keys = |step: &Step| step.with.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!((a.action.as_str(), a.version.as_str()), ("o/a", "v1"));
    assert_eq!(keys(a), ["mode", "script", "count"]);
    assert_eq!((b.version.as_str(), b.comment.as_str()), ("0123", "v2.0.0"));
    assert_eq!(keys(b), ["z"]);
}
