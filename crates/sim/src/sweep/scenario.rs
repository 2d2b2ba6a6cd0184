//! The scenarios of the sweep. Each has one process under test, and the outcome that this process
//! has when no fault is injected.

use std::collections::BTreeMap;

use crate::faults::Rates;
use crate::history::{History, play};
use crate::plan::{Action, Ask, Plan, SECOND};
use crate::policy::{CallFault, CallSelector, ScriptedFault};
use crate::process::ProcessOutcome;

/// A history with one process under test.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The name by which the command line selects it.
    pub name: &'static str,
    /// The outcome of the process under test when no fault is injected.
    pub outcome: ProcessOutcome,
    plan: Plan,
}

impl Scenario {
    /// Returns all scenarios of the sweep.
    pub fn all() -> Vec<Scenario> {
        let mut all = provisions();
        all.push(race());
        all.extend(releases());
        all.push(refresh());
        all.push(agent());
        all.extend(machine_labels());
        all
    }

    /// Plays the scenario. `fault` is the number of a call of its process and what
    /// is injected into it.
    pub fn play(&self, fault: Option<(u32, CallFault)>, journal: bool) -> History {
        let mut plan = self.plan.clone();
        let process = plan.watched.clone().unwrap_or_default();
        let script =
            |(call, fault)| ScriptedFault { process, selector: CallSelector::Call(call), fault };
        plan.scripts.extend(fault.map(script));
        play(&plan, journal)
    }
}

/// A new machine is ready 13 s after the order, jobs take 31 s, and the run is released 3 s later.
/// So a run that provisions at 10 s has left at 57 s.
fn provisions() -> Vec<Scenario> {
    let one_idle = provision(10, "1", 1);
    let partly_warm = vec![one_idle.clone(), provision(80, "2", 3)];
    let short = Plan { capacity: Some(2), ..plan("provision 2#4", partly_warm.clone()) };
    vec![
        Scenario {
            name: "provision-cold",
            outcome: ProcessOutcome::Succeeded,
            plan: plan("provision 1#2", vec![provision(10, "1", 2)]),
        },
        Scenario {
            name: "provision-warm",
            outcome: ProcessOutcome::Succeeded,
            plan: plan("provision 2#4", vec![provision(10, "1", 2), provision(80, "2", 2)]),
        },
        Scenario {
            name: "provision-adopting",
            outcome: ProcessOutcome::Succeeded,
            plan: plan("provision 1#3", vec![one_idle, provision(30, "1", 2)]),
        },
        Scenario {
            name: "provision-no-capacity",
            outcome: ProcessOutcome::GaveUp,
            plan: short.clone(),
        },
        Scenario {
            name: "provision-never-ready",
            outcome: ProcessOutcome::GaveUp,
            plan: Plan { never_boot: [3].into(), ..plan("provision 2#4", partly_warm.clone()) },
        },
        Scenario {
            name: "provision-stopped",
            outcome: ProcessOutcome::Failed,
            plan: plan("provision 2#4", [partly_warm, vec![stop(85_000, "2")]].concat()),
        },
        Scenario {
            name: "provision-stopped-in-rollback",
            outcome: ProcessOutcome::GaveUp,
            plan: Plan {
                actions: [short.actions.clone(), vec![stop(82_400, "2")]].concat(),
                ..short
            },
        },
    ]
}

/// Two runs find tickets of one machine at the same moment, and each makes its calls when the other
/// does. So the writes of the one differ from those of the other by nothing but the run.
fn race() -> Scenario {
    let actions = vec![provision(10, "1", 1), provision(80, "2", 1), provision(80, "3", 1)];
    let two_tickets = ScriptedFault {
        process: "release 1".to_owned(),
        selector: CallSelector::First("send"),
        fault: CallFault::Repeat,
    };
    Scenario {
        name: "provision-race",
        outcome: ProcessOutcome::Succeeded,
        plan: Plan { scripts: vec![two_tickets], ..plan("provision 2#4", actions) },
    }
}

fn releases() -> Vec<Scenario> {
    let hang = (50 * SECOND, Action::Hang(0, 120 * SECOND));
    let killed = ScriptedFault {
        process: "provision 2".to_owned(),
        selector: CallSelector::First("write register"),
        fault: CallFault::DieAfter,
    };
    // The second provision of run 2 has claimed the second idle machine, which takes a waiting job, and
    // waits for a machine that never boots.
    let with_job = Plan {
        long_runs: true,
        never_boot: [3].into(),
        ..plan(
            "release 2#6",
            vec![
                provision(10, "1", 2),
                (55 * SECOND, Action::Release { run: "1".to_owned() }),
                provision(80, "2", 1),
                provision(85, "2", 3),
                (95 * SECOND, Action::Release { run: "2".to_owned() }),
            ],
        )
    };
    vec![
        Scenario { name: "release-job", outcome: ProcessOutcome::Succeeded, plan: with_job },
        Scenario {
            name: "release",
            outcome: ProcessOutcome::Succeeded,
            plan: plan("release 1#3", vec![provision(10, "1", 2)]),
        },
        Scenario {
            name: "release-silent-agent",
            outcome: ProcessOutcome::GaveUp,
            plan: plan("release 1#3", vec![provision(10, "1", 2), hang]),
        },
        Scenario {
            name: "release-leftovers",
            outcome: ProcessOutcome::Succeeded,
            plan: Plan {
                scripts: vec![killed],
                ..plan("release 2#5", vec![provision(10, "1", 1), provision(80, "2", 2)])
            },
        },
    ]
}

/// When the refresh under test begins, there are:
/// - a machine without a record, whose intent is overdue (run a);
/// - two machines past their idle time, with their tickets (run b);
/// - an idle machine that was never announced (run c);
/// - an offline runner whose machine is gone (run d);
/// - an idle machine whose agent has not signalled that it left its run (run e);
/// - a re-run job without a machine (run b);
/// - fewer idle machines than `min-idle`.
fn refresh() -> Scenario {
    let killed = |process: &str, words, fault| ScriptedFault {
        process: process.to_owned(),
        selector: CallSelector::First(words),
        fault,
    };
    let actions = vec![
        provision(10, "a", 1),
        provision(20, "b", 2),
        provision(25, "d", 1),
        (45 * SECOND, Action::Kill(3)),
        provision(60, "c", 1),
        provision(63, "e", 1),
        (105 * SECOND, Action::Hang(4, 250 * SECOND)),
        (288 * SECOND, Action::Rerun { run: "b".to_owned() }),
        (290 * SECOND, Action::RefreshWith(vec![("min-idle", "large=2")])),
    ];
    let mut plan = Plan {
        never_boot: [1].into(),
        faults_end_at: 400 * SECOND,
        scripts: vec![
            killed("provision a", "launch", CallFault::DieAfter),
            killed("release c", "send", CallFault::DieBefore),
            killed("release e", "write release", CallFault::DieAfter),
        ],
        ..plan("refresh#16", actions)
    };
    plan.settings.insert("idle-time-sec".to_owned(), "200".to_owned());
    Scenario { name: "refresh", outcome: ProcessOutcome::Succeeded, plan }
}

/// An agent boots, serves a run, returns to the pool, serves another run, and terminates its
/// machine at the deadline.
fn agent() -> Scenario {
    let mut plan = plan("agent i-0001#1", vec![provision(10, "1", 1), provision(80, "2", 1)]);
    plan.settings.insert("idle-time-sec".to_owned(), "60".to_owned());
    Scenario { name: "agent", outcome: ProcessOutcome::Succeeded, plan }
}

/// A provision, a release and an agent of a pool whose machines register while they are idle.
fn machine_labels() -> Vec<Scenario> {
    let labelled = |mut scenario: Scenario, name| {
        let (setting, value) = ("runner-label".to_owned(), "machine".to_owned());
        scenario.plan.settings.insert(setting, value);
        Scenario { name, ..scenario }
    };
    let warm = vec![provision(10, "1", 2), provision(80, "2", 2)];
    let outcome = ProcessOutcome::Succeeded;
    let warm = Scenario { name: "", outcome, plan: plan("provision 2#4", warm) };
    let left = vec![provision(10, "1", 2)];
    let left = Scenario { name: "", outcome, plan: plan("release 1#3", left) };
    vec![
        labelled(warm, "provision-ready"),
        labelled(left, "release-ready"),
        labelled(agent(), "agent-ready"),
    ]
}

fn plan(watched: &str, actions: Vec<(u64, Action)>) -> Plan {
    Plan {
        settings: settings(),
        actions,
        rates: Rates { calls: Vec::new(), latency: 40_000 },
        fixed_durations: true,
        watched: Some(watched.to_owned()),
        faults_end_at: 300 * SECOND,
        ..Plan::default()
    }
}

fn settings() -> BTreeMap<String, String> {
    [
        ("claim-registration-timeout-sec", "10"),
        ("claim-timeout-sec", "200"),
        ("created-timeout-sec", "240"),
        ("validation-timeout-sec", "40"),
        ("idle-time-sec", "100"),
        ("max-runtime-min", "3"),
        ("release-timeout-sec", "40"),
        ("self-termination-grace-sec", "30"),
        ("boot-deadline-sec", "90"),
        ("agent-poll-waiting-sec", "1"),
        ("agent-poll-running-sec", "1.5"),
        ("signal-poll-sec", "0.3"),
        ("retention-min", "10"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn provision(second: u64, run: &str, count: u32) -> (u64, Action) {
    (second * SECOND, Action::Provision { run: run.to_owned(), ask: Ask::of(count) })
}

fn stop(millis: u64, run: &str) -> (u64, Action) {
    (millis * 1000, Action::Stop { run: run.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::WatchedProcess;

    #[test]
    fn each_scenario_makes_its_calls_when_no_fault_is_injected() {
        let cold: &[&str] = &["put intent", "launch", "write register", "write together activate"];
        let does: BTreeMap<&str, &[&str]> = [
            ("provision-cold", cold),
            ("provision-warm", &["receive", "write claim", "delete", "write together commit"]),
            ("provision-adopting", cold),
            (
                "provision-no-capacity",
                &["write claim", "launch", "write give-back", "send", "write reap", "terminate"],
            ),
            ("provision-never-ready", &["write give-back", "send", "write reap", "terminate"]),
            ("provision-stopped", &["write claim", "write give-back", "write reap", "terminate"]),
            ("provision-stopped-in-rollback", &["write give-back", "write reap", "send"]),
            ("provision-race", &["receive", "write claim i-0001"]),
            (
                "release-job",
                &["write give-back i-0002", "write claim i-0002", "write release i-0002", "send"],
            ),
            ("release", &["write release", "send", "mark ticketed"]),
            ("release-silent-agent", &["write release", "send", "write expire"]),
            ("release-leftovers", &["write give-back i-0001", "send", "write expire i-0002"]),
            (
                "refresh",
                &[
                    "write reap",
                    "terminate i-0001",
                    "put intent",
                    "write expire",
                    "send",
                    "remove runner",
                    "write together commit",
                    "launch",
                    "write release",
                ],
            ),
            (
                "agent",
                &[
                    "report UD_OK",
                    "report UD_REG_OK 1",
                    "report UD_REMOVE_REG_OK 1",
                    "report UD_REG_OK 2",
                    "report UD_REMOVE_REG_OK 2",
                    "terminate itself",
                ],
            ),
            ("provision-ready", &["write claim", "replace demand", "write together commit"]),
            ("release-ready", &["write release", "send", "mark ticketed"]),
            (
                "agent-ready",
                &[
                    "report UD_REG_OK 1",
                    "readiness {\"notReady\"",
                    "report UD_REMOVE_REG_OK 1",
                    "readiness {\"ready\"",
                    "report UD_REG_OK 2",
                    "terminate itself",
                ],
            ),
        ]
        .into();
        for scenario in Scenario::all() {
            let history = scenario.play(None, false);
            assert_eq!(history.violation, None, "{}", scenario.name);
            let WatchedProcess { calls, outcome } = history.watched;
            assert_eq!(outcome, Some(scenario.outcome), "{}", scenario.name);
            for words in does[scenario.name] {
                let done = calls.iter().any(|call| call.starts_with(words));
                assert!(done, "{} does not: {words}\n{calls:#?}", scenario.name);
            }
        }
    }
}
