//! What GitHub shows of a command: annotations, step outputs and job summaries. Snapshots have ids
//! and durations replaced.

mod first_refresh;
mod inputs;
mod labels;
mod outcomes;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use insta::assert_snapshot;
use regex_lite::Regex;
use rustix::process::Signal;

use crate::harness::{Background, Done, Driven, Home, signal};

/// A step of a workflow: the program, with the files that GitHub gives it.
struct WorkflowStep<'a> {
    home: &'a Home,
    outputs: PathBuf,
    summary: PathBuf,
}

impl<'a> WorkflowStep<'a> {
    fn of(home: &'a Home) -> WorkflowStep<'a> {
        static STEPS: AtomicU32 = AtomicU32::new(0);
        let n = STEPS.fetch_add(1, Ordering::Relaxed);
        let file = |what: &str| home.outside().join(format!("{what}-{n}"));
        WorkflowStep { home, outputs: file("outputs"), summary: file("summary") }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(arguments);
        command
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_OUTPUT", &self.outputs)
            .env("GITHUB_STEP_SUMMARY", &self.summary);
        command
    }

    fn run(&self, arguments: &[&str]) -> Done {
        Background::start(&mut self.command(arguments)).finish()
    }

    fn summary(&self) -> String {
        shown(&std::fs::read_to_string(&self.summary).unwrap())
    }

    /// All outputs but `result`, of which only the status is shown.
    fn outputs(&self) -> String {
        let text = std::fs::read_to_string(&self.outputs).unwrap();
        let (result, others): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("result={"));
        let object: serde_json::Value =
            serde_json::from_str(result.concat().strip_prefix("result=").unwrap()).unwrap();
        let status = object["status"].as_str().unwrap();
        masked(&format!("{}\nresult.status={status}", others.join("\n"))).trim().to_owned()
    }
}

/// The log, without the lines that name a stage because it takes long.
fn log(done: &Done) -> String {
    let told = Regex::new(r"^(provision|release|refresh): (.*) \([0-9]+ s\)$").unwrap();
    let mut lines: Vec<String> = Vec::new();
    let mut open = String::new();
    for line in done.stderr.lines() {
        if let Some(words) = told.captures(line) {
            let doing = words[2].to_owned();
            if doing != open && lines.last() != Some(&doing) {
                lines.push(doing);
            }
            continue;
        }
        if let Some(title) = line.strip_prefix("::group::") {
            title.clone_into(&mut open);
            lines.pop_if(|last| last == title);
        }
        lines.push(line.to_owned());
    }
    masked(&lines.join("\n"))
}

/// A summary without what depends on the speed of the computer: no phases, and of a chart only the
/// labels.
fn shown(summary: &str) -> String {
    let mut chart = false;
    let mut phases = false;
    let mut lines: Vec<String> = Vec::new();
    for line in summary.lines() {
        let fence = line.starts_with("```");
        chart ^= fence;
        phases = line.starts_with("| phase") || (phases && line.starts_with('|'));
        if phases || (chart && !fence && !line.contains("after")) {
            continue;
        }
        if line.is_empty() && lines.last().is_some_and(String::is_empty) {
            continue;
        }
        let label = Regex::new(" :.*").unwrap();
        lines.push(if chart { label.replace(line, "").into_owned() } else { line.to_owned() });
    }
    masked(&lines.join("\n")).trim_end().to_owned()
}

fn masked(text: &str) -> String {
    let ids = Regex::new("i-0[0-9a-f]+").unwrap().replace_all(text, "i-#").into_owned();
    let spans = Regex::new(r"\b[0-9]+(\.[0-9]+)?( |&nbsp;)(ms|s|min( |&nbsp;)[0-9]+( |&nbsp;)s)\b")
        .unwrap();
    spans.replace_all(&ids, "# s").into_owned()
}

#[test]
fn cold_then_mixed_then_adopted_then_warm() {
    let home = Home::with(&[]);
    let step = WorkflowStep::of(&home);
    let done = step.run(&["provision", "--run-id", "7", "--instance-count", "2"]).succeeded();
    assert_snapshot!(step.outputs(), @r#"
    label=7
    labels=["7","7"]
    instance-ids=i-# i-#
    warm-count=0
    cold-count=2
    result.status=success
    "#);
    assert_snapshot!(step.summary(), @"
    ### ondeck provisioned 2 machines in # s: 2 cold

    Jobs of this run use `runs-on: 7`.

    | machine | type | source | reason | owned | registered | ready |
    | --- | --- | --- | --- | ---: | ---: | ---: |
    | `i-#` | c6i.large<br>on‑demand | **cold** | the pool held no ticket | # s | # s | # s |
    | `i-#` | c6i.large<br>on‑demand | **cold** | the pool held no ticket | # s | # s | # s |

    ```mermaid
        cold after # s
        cold after # s
    ```

    <sub>Grey: waiting for a machine. Light: claiming. Dark: runner registering. Light: confirming.</sub>

    The pool had no tickets.

    Cost of these machines per hour: about USD 0.17; GitHub-hosted runners of the same size: about USD 0.72.

    <sub>Local machines are processes and cost nothing; the figures are for the EC2 types that they are named after. Estimated from list prices of 2026-07-20: EC2 Linux on-demand in us-east-1, spot at 40 % of that, GitHub-hosted Linux runners. Disks, traffic and idle time in the pool are not included.</sub>
    ");
    assert_snapshot!(done.stdout.lines().last().unwrap().split(" after").next().unwrap(), @"run 7: 0 warm, 2 cold, 0 adopted");

    let step = WorkflowStep::of(&home);
    step.run(&["release", "--run-id", "7"]).succeeded();
    assert_snapshot!(step.outputs(), @"result.status=success");
    assert_snapshot!(step.summary(), @"
    ### ondeck released 2 machines of run `7` in # s: 2 pooled

    | machine | type | outcome | used for |
    | --- | --- | --- | ---: |
    | `i-#` | c6i.large on‑demand | **pooled** | # s |
    | `i-#` | c6i.large on‑demand | **pooled** | # s |

    The run used its machines for # s in total. Cost: less than a cent; GitHub-hosted runners of the same size, billed by the minute: about USD 0.01.

    <sub>Local machines are processes and cost nothing; the figures are for the EC2 types that they are named after. Estimated from list prices of 2026-07-20: EC2 Linux on-demand in us-east-1, spot at 40 % of that, GitHub-hosted Linux runners. Disks, traffic and idle time in the pool are not included.</sub>
    ");

    let step = WorkflowStep::of(&home);
    step.run(&["provision", "--run-id", "8", "--instance-count", "3"]).succeeded();
    assert_snapshot!(step.outputs(), @r#"
    label=8
    labels=["8","8","8"]
    instance-ids=i-# i-# i-#
    warm-count=2
    cold-count=1
    result.status=success
    "#);
    assert_snapshot!(step.summary(), @r"
    ### ondeck provisioned 3 machines in # s: 2 warm, 1 cold

    Jobs of this run use `runs-on: 8`.

    | machine | type | source | reason | found | owned | registered | ready |
    | --- | --- | --- | --- | ---: | ---: | ---: | ---: |
    | `i-#` | c6i.large<br>on‑demand | **warm** | idle, matches c\* | # s | # s | # s | # s |
    | `i-#` | c6i.large<br>on‑demand | **warm** | idle, matches c\* | # s | # s | # s | # s |
    | `i-#` | c6i.large<br>on‑demand | **cold** | the pool had only 2 |  | # s | # s | # s |

    ```mermaid
        warm after # s
        warm after # s
        cold after # s
    ```

    <sub>Grey: waiting for a machine. Light: claiming. Dark: runner registering. Light: confirming.</sub>

    The search checked 2 tickets: 2 claimed.

    Cost of these machines per hour: about USD 0.26; GitHub-hosted runners of the same size: about USD 1.08. 2 warm starts saved # s of boot time, worth less than a cent, at # s per boot (as measured in this call).

    <sub>Local machines are processes and cost nothing; the figures are for the EC2 types that they are named after. Estimated from list prices of 2026-07-20: EC2 Linux on-demand in us-east-1, spot at 40 % of that, GitHub-hosted Linux runners. Disks, traffic and idle time in the pool are not included.</sub>
    ");

    let step = WorkflowStep::of(&home);
    step.run(&["provision", "--run-id", "8", "--instance-count", "1"]).succeeded();
    assert_snapshot!(step.outputs(), @r#"
    label=8
    labels=["8"]
    instance-ids=i-#
    warm-count=0
    cold-count=0
    result.status=success
    "#);
    assert_snapshot!(step.summary(), @"
    ### ondeck provisioned 1 machine in # s: 1 adopted

    Jobs of this run use `runs-on: 8`.

    | machine | type | source | reason | owned | registered | ready |
    | --- | --- | --- | --- | ---: | ---: | ---: |
    | `i-#` | c6i.large<br>on‑demand | **adopted** | the run had it | # s | # s | # s |

    ```mermaid
        adopted after # s
    ```

    <sub>Grey: waiting for a machine. Light: claiming. Dark: runner registering. Light: confirming.</sub>

    Cost of these machines per hour: about USD 0.09; GitHub-hosted runners of the same size: about USD 0.36.

    <sub>Local machines are processes and cost nothing; the figures are for the EC2 types that they are named after. Estimated from list prices of 2026-07-20: EC2 Linux on-demand in us-east-1, spot at 40 % of that, GitHub-hosted Linux runners. Disks, traffic and idle time in the pool are not included.</sub>
    ");

    home.release("8").succeeded();
    let step = WorkflowStep::of(&home);
    step.run(&["provision", "--run-id", "9"]).succeeded();
    assert_snapshot!(step.outputs(), @r#"
    label=9
    labels=["9"]
    instance-ids=i-#
    warm-count=1
    cold-count=0
    result.status=success
    "#);
    assert_snapshot!(step.summary(), @r"
    ### ondeck provisioned 1 machine in # s: 1 warm

    Jobs of this run use `runs-on: 9`.

    | machine | type | source | reason | found | owned | registered | ready |
    | --- | --- | --- | --- | ---: | ---: | ---: | ---: |
    | `i-#` | c6i.large<br>on‑demand | **warm** | idle, matches c\* | # s | # s | # s | # s |

    ```mermaid
        warm after # s
    ```

    <sub>Grey: waiting for a machine. Light: claiming. Dark: runner registering. Light: confirming.</sub>

    The search checked 1 ticket: 1 claimed.

    Cost of these machines per hour: about USD 0.09; GitHub-hosted runners of the same size: about USD 0.36. 1 warm start saved # s of boot time, worth less than a cent, at # s per boot (usual on EC2).

    <sub>Local machines are processes and cost nothing; the figures are for the EC2 types that they are named after. Estimated from list prices of 2026-07-20: EC2 Linux on-demand in us-east-1, spot at 40 % of that, GitHub-hosted Linux runners. Disks, traffic and idle time in the pool are not included.</sub>
    ");
}

#[test]
fn the_log_is_folded_by_stage() {
    let home = Home::with(&[]);
    let step = WorkflowStep::of(&home);
    assert_snapshot!(log(&step.run(&["provision", "--run-id", "7"]).succeeded()), @r#"
    looking for machines that the run already has
    looking for idle machines in the pool
    ::group::launching new machines: 1
    register instance=i-# state=created run="7" why="c6i.large on-demand of large with 2 vCPU and 4096 MiB"
    ::endgroup::
    waiting for new machines to become ready
    ::group::handing the machines to the run
    activate instance=i-# state=running run="7" why=""
    ::endgroup::
    "#);
    assert_snapshot!(log(&step.run(&["release", "--run-id", "7"]).succeeded()), @r#"
    ::group::waiting for machines to deregister: 1
    release instance=i-# state=idle run="" why=""
    in the pool: i-# count=1
    ::endgroup::
    "#);
    assert_snapshot!(log(&step.run(&["refresh"]).succeeded()), @"
    setting up
    cleaning up
    ");
    let quiet = step.run(&["provision", "--run-id", "8", "--quiet"]).succeeded();
    assert_eq!(quiet.stderr, "");
}

#[test]
fn no_capacity() {
    let home = Home::with(&["--local-capacity=2"]);
    home.warm_up(1);
    let step = WorkflowStep::of(&home);
    let done = step.run(&["provision", "--run-id", "7", "--instance-count", "3"]).exited(4);
    let annotations = done.stderr.lines().filter(|line| line.contains(" title="));
    assert_snapshot!(masked(&annotations.collect::<Vec<_>>().join("\n")), @"
    ::warning title=ondeck::InsufficientInstanceCapacity: 1 of 2 launched, the home's capacity is 2
    ::error title=ondeck provision%3A no-capacity::not enough capacity, 1 of 2 machines launched: InsufficientInstanceCapacity: 1 of 2 launched, the home's capacity is 2%0Ahint: allow more instance types, or use --capacity-fallback
    ");
    assert_snapshot!(step.outputs(), @"
    label=
    labels=[]
    instance-ids=
    warm-count=0
    cold-count=0
    result.status=failed
    ");
    assert_snapshot!(step.summary(), @"
    ### ondeck provision failed for run `7`: no capacity

    > not enough capacity, 1 of 2 machines launched: InsufficientInstanceCapacity: 1 of 2 launched, the home's capacity is 2
    >
    > **hint:** allow more instance types, or use --capacity-fallback

    Exit code 4: no capacity.

    Cleaned up:
    - 1 machine terminated: `i-#`
    - 1 machine returned to the pool: `i-#`

    The search checked 1 ticket: 1 claimed.

    ");
}

#[test]
fn output_of_a_script_becomes_neither_a_command_nor_markup() {
    let script = r"printf '::stop-commands::x\n##[add-mask]y\n<b>|`z`$1$ 100%%' >&2; exit 3";
    let home = Home::with(&["--pre-runner-script", script]);
    let step = WorkflowStep::of(&home);
    let done = step.run(&["provision", "--run-id", "7"]).exited(5);
    let summary = step.summary();
    let lines = done.stderr.lines();
    let commands = lines.filter(|line| line.trim_start().starts_with("::") || line.contains("##["));
    let commands = commands.filter(|line| !line.contains("group::"));
    assert_snapshot!(masked(&commands.collect::<Vec<_>>().join("\n")), @"::error title=ondeck provision%3A not-ready::machine i-# did not become ready: it signalled UD_FAILED: the pre-runner script failed: the script ended with exit status: 3: ::stop-commands::x | ##[add-mask]y | <b>|`z`$1$ 100%25%0Ahint: read the machine's log and check the pre-runner script");
    let json = step.run(&["provision", "--run-id", "7", "--json"]).exited(5);
    assert!(!json.stdout.contains("##["), "{}", json.stdout);
    let message = json.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("::stop-commands::x | ##[add-mask]y | <b>|`z`$1$ 100%"), "{message}");
    assert_snapshot!(summary, @r"
    ### ondeck provision failed for run `7`: machines did not become ready

    > machine i-# did not become ready: it signalled UD\_FAILED: the pre-runner script failed: the script ended with exit status: 3: ::stop-commands::x &#124; \#\#\[add-mask\]y &#124; &lt;b&gt;&#124;\`z\`&#36;1&#36; 100%
    >
    > **hint:** read the machine's log and check the pre-runner script

    Exit code 5: machines did not become ready.

    Cleaned up:
    - 1 machine terminated: `i-#`

    The pool had no tickets.

    ");
}

#[test]
fn refused_before_anything_was_done() {
    let home = Home::bare();
    let step = WorkflowStep::of(&home);
    let at_once = ["provision", "--run-id", "7", "--registration-token-patience-sec", "0"];
    let done = step.run(&at_once).exited(3);
    assert_snapshot!(log(&done).replace(&home.dir().display().to_string(), "HOME"), @"::error title=ondeck provision%3A not-set-up::not set up: there is no store at HOME/ondeck.db%0Ahint: run ondeck refresh first");
    assert_snapshot!(step.outputs(), @"
    label=
    labels=[]
    instance-ids=
    warm-count=0
    cold-count=0
    result.status=failed
    ");
    assert_snapshot!(step.summary().replace(&home.dir().display().to_string(), "HOME"), @"
    ### ondeck provision failed for run `7`: not set up, run refresh first

    > not set up: there is no store at HOME/ondeck.db
    >
    > **hint:** run ondeck refresh first

    Exit code 3: not set up, run refresh first.

    Nothing had to be cleaned up.
    ");

    home.refresh(&[]);
    let step = WorkflowStep::of(&home);
    assert_snapshot!(log(&step.run(&["provision"]).exited(2)), @"::error title=ondeck provision%3A invalid-input::no run id given%0Ahint: give --run-id, or set ONDECK_RUN_ID or GITHUB_RUN_ID");
    assert_snapshot!(step.outputs(), @"result.status=failed");
    let unknown = ["provision", "--run-id", "7", "--resource-class", "huge"];
    assert_snapshot!(log(&step.run(&unknown).exited(2)), @"::error title=ondeck provision%3A invalid-input::resource class not configured: huge%0Ahint: configured classes are large, xlarge, 2xlarge, 4xlarge, 8xlarge, 12xlarge, 16xlarge");
    assert_snapshot!(step.summary(), @r"
    ### ondeck provision failed: invalid input

    > no run id given
    >
    > **hint:** give --run-id, or set ONDECK\_RUN\_ID or GITHUB\_RUN\_ID

    Exit code 2: invalid input.

    ### ondeck provision failed for run `7`: invalid input

    > resource class not configured: huge
    >
    > **hint:** configured classes are large, xlarge, 2xlarge, 4xlarge, 8xlarge, 12xlarge, 16xlarge

    Exit code 2: invalid input.

    Nothing had to be cleaned up.
    ");
}

#[test]
fn terminated_while_it_waits() {
    let home = Home::with(&["--local-boot-ms=60000"]);
    let step = WorkflowStep::of(&home);
    let arguments = ["provision", "--run-id", "7", "--instance-count", "2"];
    let provision = Background::start(&mut step.command(&arguments));
    provision.until_it_says("waiting for new machines to become ready");
    provision.signal(Signal::TERM);
    let done = provision.finish().exited(143);
    assert_snapshot!(done.stderr.lines().last().unwrap(), @"::error title=ondeck provision%3A stopped::told to terminate");
    assert_snapshot!(step.summary(), @"
    ### ondeck provision failed for run `7`: terminated and cleaned up

    > told to terminate

    Exit code 143: terminated and cleaned up.

    Cleaned up:
    - 2 machines terminated: `i-#` `i-#`

    The pool had no tickets.

    ");
}

#[test]
fn a_machine_that_does_not_respond_is_a_warning_only_in_the_action() {
    let home = Home::with(&["--release-timeout-sec=0.5", "--self-termination-grace-sec=60"]);
    let silent = |run: &str, action: &str| {
        home.provision(run, 1).succeeded();
        home.agents().into_values().for_each(|pid| signal(pid, Signal::STOP));
        let step = WorkflowStep::of(&home);
        let mut release = step.command(&["release", "--run-id", run]);
        (Background::start(release.env("ONDECK_ACTION", action)).finish(), step)
    };
    let (done, step) = silent("7", "true");
    assert_eq!(done.code, 0);
    assert_snapshot!(masked(done.stderr.lines().last().unwrap()), @"::warning title=ondeck release::machines did not return to the pool and were expired: i-#%0Ahint: they terminate on their own, or run ondeck refresh to terminate them now");
    assert_snapshot!(step.outputs(), @"result.status=failed");
    assert_snapshot!(step.summary(), @r"
    ### ondeck released 1 machine of run `7` in # s: 1 expired

    > machines did not return to the pool and were expired: i-#
    >
    > **hint:** they terminate on their own, or run ondeck refresh to terminate them now

    | machine | type | outcome | reason | used for |
    | --- | --- | --- | --- | ---: |
    | `i-#` | c6i.large on‑demand | **expired** | no answer within # s: last signal UD\_REG\_OK for run 7 | # s |

    The run used its machines for # s in total. Cost: less than a cent; GitHub-hosted runners of the same size, billed by the minute: less than a cent.

    <sub>Local machines are processes and cost nothing; the figures are for the EC2 types that they are named after. Estimated from list prices of 2026-07-20: EC2 Linux on-demand in us-east-1, spot at 40 % of that, GitHub-hosted Linux runners. Disks, traffic and idle time in the pool are not included.</sub>
    ");
    let (done, _) = silent("8", "");
    assert_eq!(done.code, 8);
    assert_snapshot!(masked(done.stderr.lines().last().unwrap()), @"::error title=ondeck release%3A partly-released::machines did not return to the pool and were expired: i-#%0Ahint: they terminate on their own, or run ondeck refresh to terminate them now");
}

#[test]
fn a_refresh_that_terminates_and_launches() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    home.kill_before("activate", &["provision", "--run-id", "7"]);
    home.release("7").succeeded();
    home.agents().into_values().for_each(|pid| signal(pid, Signal::KILL));
    let step = WorkflowStep::of(&home);
    step.run(&["refresh", "--min-idle=large=1"]).succeeded();
    assert_snapshot!(step.outputs(), @"result.status=success");
    assert_snapshot!(step.summary(), @"
    ### ondeck refreshed the pool

    | action | count | which |
    | --- | ---: | --- |
    | expired machines terminated | 1 | `i-#` |
    | offline runners removed | 1 | `i-#-1` |
    | machines launched to keep the pool warm | 1 |  |

    min-idle costs, in machine-hours a week: large 168
    ");
}
