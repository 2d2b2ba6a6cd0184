//! What the Action hands to the program, and what it hands on from it.

use std::fs;

use rustix::process::Signal;

use super::harness::{ActHarness, RUN};
use crate::harness::{Background, Driven, signal, until};

/// Writes down what it was given, and tells what provision tells.
const CLERK: &[u8] = br#"#!/bin/sh
{ echo "called with $*"; env | grep ^ONDECK_; } > "$NOTES"
echo "label=$GITHUB_RUN_ID" >> "$GITHUB_OUTPUT"
echo "labels=[\"$GITHUB_RUN_ID\",\"other\"]" >> "$GITHUB_OUTPUT"
echo "instance-ids=i-1 i-2" >> "$GITHUB_OUTPUT"
echo "warm-count=1" >> "$GITHUB_OUTPUT"
echo "cold-count=1" >> "$GITHUB_OUTPUT"
echo 'result={"status":"success"}' >> "$GITHUB_OUTPUT"
exit "${EXIT:-0}"
"#;

fn notes(harness: &ActHarness) -> String {
    harness.home.outside().join("notes").display().to_string()
}

#[test]
fn inputs_arrive_as_variables_and_nothing_else() {
    let harness = ActHarness::with_program(CLERK);
    let notes = notes(&harness);
    let workflow = "
on: push
jobs:
  one:
    runs-on: ubuntu-latest
    steps:
      - uses: ondeck-ci/ondeck@v0
        with:
          mode: provision
          resource-class: $(touch $NOTES.1) `touch $NOTES.2`; ${{ secrets.KEY }}
          capacity-fallback: true
";
    let env = [("NOTES", notes.as_str()), ("ONDECK_POOL", "acme")];
    let secrets = [("KEY", "'\"; touch $NOTES.3; echo \"")];
    harness.run(workflow, None, &env, &secrets).succeeded();
    let given = fs::read_to_string(&notes).unwrap();
    for line in [
        "called with provision",
        "ONDECK_RESOURCE_CLASS=$(touch $NOTES.1) `touch $NOTES.2`; '\"; touch $NOTES.3; echo \"",
        "ONDECK_CAPACITY_FALLBACK=true",
        "ONDECK_INSTANCE_COUNT=1",
        "ONDECK_POOL=acme",
        "ONDECK_BACKEND=aws",
        "ONDECK_ACTION=true",
        "ONDECK_AMI=",
        "ONDECK_AGENT_URL=",
    ] {
        assert!(given.lines().any(|given| given == line), "{line}\n{given}");
    }
    for run in 1..=3 {
        assert!(!fs::exists(format!("{notes}.{run}")).unwrap(), "an input was run: {run}");
    }
}

#[test]
fn an_agent_on_the_image_takes_the_download_back() {
    let harness = ActHarness::with_program(CLERK);
    let notes = notes(&harness);
    let workflow = "
on: push
jobs:
  one:
    runs-on: ubuntu-latest
    steps:
      - uses: ondeck-ci/ondeck@v0
        with:
          mode: MODE
          agent-url: image
";
    let env = [("NOTES", notes.as_str())];
    for mode in ["refresh", "apply"] {
        let workflow = workflow.replace("MODE", mode);
        harness.run(&workflow, None, &env, &[]).succeeded();
        let given = fs::read_to_string(&notes).unwrap();
        let emptied = "--agent-url= --agent-sha256= --agent-url-arm64= --agent-sha256-arm64=";
        assert!(given.starts_with(&format!("called with {mode} {emptied}\n")), "{given}");
        harness.run(&workflow.replace("agent-url: image", ""), None, &env, &[]).succeeded();
        let given = fs::read_to_string(&notes).unwrap();
        assert!(given.starts_with(&format!("called with {mode}\n")), "{given}");
        let url = format!("ONDECK_AGENT_URL={}/v", harness.page.url());
        assert!(given.contains(&url) && !given.contains("ONDECK_AGENT_SHA256=\n"), "{given}");
    }
}

#[test]
fn outputs_reach_later_steps_and_a_failure_fails_the_step() {
    let harness = ActHarness::with_program(CLERK);
    let notes = notes(&harness);
    let workflow = "
on: push
jobs:
  one:
    runs-on: ubuntu-latest
    steps:
      - id: provision
        uses: ondeck-ci/ondeck@v0
        with:
          mode: provision
      - if: always()
        env:
          SAID: ${{ steps.provision.outcome }} ${{ join(steps.provision.outputs.*, ' ') }}
          LABEL: ${{ steps.provision.outputs.label }}
          SECOND: ${{ fromJSON(steps.provision.outputs.labels)[1] }}
          COUNTS: ${{ steps.provision.outputs.warm-count }}+${{ steps.provision.outputs.cold-count }}
          IDS: ${{ steps.provision.outputs.instance-ids }}
          STATUS: ${{ fromJSON(steps.provision.outputs.result).status }}
        run: echo \"<$LABEL|$SECOND|$COUNTS|$IDS|$STATUS|${SAID%% *}>\"
";
    for (exit, outcome) in [("0", "success"), ("4", "failure")] {
        let env = [("NOTES", notes.as_str()), ("EXIT", exit)];
        let done = harness.run(workflow, None, &env, &[]);
        assert_eq!(done.code, i32::from(exit != "0"), "{}", done.stdout);
        let line = format!("<{RUN}|other|1+1|i-1 i-2|success|{outcome}>");
        assert!(done.stdout.contains(&line), "{line}\n{}", done.stdout);
    }
}

/// The life of a run, with the real program on the local backend. The index of a job is in its matrix,
/// because act does not know `strategy.job-index` where it reads `runs-on`.
const LIFE: &str = "
on: push
jobs:
  refresh:
    runs-on: ubuntu-latest
    steps:
      - uses: ondeck-ci/ondeck@v0
        with:
          mode: refresh
          idle-time-sec: 60
  provision:
    needs: refresh
    runs-on: ubuntu-latest
    outputs:
      labels: ${{ steps.machines.outputs.labels }}
    steps:
      - id: machines
        uses: ondeck-ci/ondeck@v0
        with:
          mode: provision
          instance-count: 2
  test:
    needs: provision
    strategy:
      matrix:
        shard: [0, 1]
    runs-on: ${{ fromJSON(needs.provision.outputs.labels)[matrix.shard] }}
    steps:
      - uses: actions/checkout@de0fac2e4500dabe0009e67214ff5f5447ce83dd # v6.0.2
      - run: echo tested ${{ matrix.shard }}
  release:
    needs: [provision, test]
    if: always()
    runs-on: ubuntu-latest
    steps:
      - uses: ondeck-ci/ondeck@v0
        with:
          mode: release
";

#[test]
fn a_run_gets_its_machines_and_gives_them_back() {
    let harness = ActHarness::new();
    let done = harness.run(LIFE, None, &[("ONDECK_BACKEND", "local")], &[]).succeeded();
    for shard in ["tested 0", "tested 1"] {
        assert!(done.stdout.contains(shard), "{}", done.stdout);
    }
    assert_eq!(harness.home.standings(), ["idle"; 2]);
    assert_eq!(harness.home.tickets(), 2);
}

#[test]
fn reset_takes_settings_back() {
    let harness = ActHarness::new();
    let refresh = |with: &[&str]| {
        let with: String = with.iter().map(|line| format!("          {line}\n")).collect();
        let workflow = format!(
            "on: push
jobs:
  refresh:
    runs-on: ubuntu-latest
    steps:
      - uses: ondeck-ci/ondeck@v0
        with:
          mode: refresh
{with}"
        );
        harness.run(&workflow, None, &[("ONDECK_BACKEND", "local")], &[]).succeeded();
        let names = "('pre-runner-script', 'key-name', 'idle-time-sec')";
        let sql = format!("SELECT name FROM settings WHERE name IN {names} ORDER BY name");
        harness.home.texts(&sql)
    };
    let all = ["idle-time-sec", "key-name", "pre-runner-script"];
    let given = ["pre-runner-script: exit 3", "key-name: ops", "idle-time-sec: 60"];
    assert_eq!(refresh(&given), all);
    harness.home.provision("1", 1).exited(5);
    assert_eq!(refresh(&[]), all, "an input that is left away changes nothing");
    assert_eq!(refresh(&["reset: pre-runner-script, key-name"]), ["idle-time-sec"]);
    harness.home.provision("1", 1).succeeded();
    assert_eq!(refresh(&["reset: all", "key-name: ops"]), ["key-name"]);
}

#[test]
fn a_cancelled_step_is_the_program_itself_and_it_clears_up() {
    let harness = ActHarness::new();
    harness.home.ondeck(&["refresh", "--local-boot-ms=60000"]).succeeded();
    let env = [("ONDECK_BACKEND", "local")];
    let mut act =
        harness.command(&LIFE.replace("    needs: refresh\n", ""), Some("provision"), &env, &[]);
    let act = Background::start(&mut act);
    until("machines are being launched", || {
        harness.home.dir().join("ondeck.db").exists() && harness.home.standings().len() == 2
    });
    // GitHub's runner interrupts the process that it has started for the step, and no other.
    let of_act = |pid: &i32| parent(*pid) == Some(act.pid());
    let steps: Vec<i32> = harness.home.processes().into_iter().filter(of_act).collect();
    let [step] = steps[..] else { panic!("not one: {steps:?}") };
    signal(step, Signal::INT);
    let done = act.finish().exited(1);
    assert!(done.stdout.contains("exit status 130"), "{}", done.stdout);
    harness.home.assert_empty();
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
