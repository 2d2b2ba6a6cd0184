//! The scenes of the sweep: each has one process under test, and one ending that it comes to when
//! no fault is injected.

use std::collections::BTreeMap;

use crate::faults::Rates;
use crate::history::{History, play};
use crate::plan::{Action, Plan, SECOND};
use crate::policy::{Aim, CallFault, Script};
use crate::process::Ending;

/// A history with one process under test, and the ending that is expected of it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// How its process ends unharmed.
    pub ending: Ending,
    plan: Plan,
}

impl Scenario {
    /// Returns all scenarios of the sweep.
    pub fn all() -> Vec<Scenario> {
        let mut all = provisions();
        all.extend(releases());
        all.push(refresh());
        all.push(agent());
        all
    }

    /// Plays it, with or without a harm to one call of its process.
    pub fn play(&self, harm: Option<(u32, CallFault)>, journal: bool) -> History {
        let mut plan = self.plan.clone();
        let process = plan.watched.clone().unwrap_or_default();
        let script = |(call, harm)| Script { process, aim: Aim::Call(call), harm };
        plan.scripts.extend(harm.map(script));
        play(&plan, journal)
    }
}

/// Cold, a machine is ready 13 seconds after it was asked for; jobs take 31, and 3 later the run
/// is released. So who asks at 10 has left at 57.
fn provisions() -> Vec<Scenario> {
    let one_idle = provision(10, "1", 1);
    let partly_warm = vec![one_idle.clone(), provision(80, "2", 3)];
    let short = Plan { capacity: Some(2), ..plan("provision 2#4", partly_warm.clone()) };
    vec![
        Scenario {
            name: "provision-cold",
            ending: Ending::Succeeded,
            plan: plan("provision 1#2", vec![provision(10, "1", 2)]),
        },
        Scenario {
            name: "provision-warm",
            ending: Ending::Succeeded,
            plan: plan("provision 2#4", vec![provision(10, "1", 2), provision(80, "2", 2)]),
        },
        Scenario {
            name: "provision-adopting",
            ending: Ending::Succeeded,
            plan: plan("provision 1#3", vec![one_idle, provision(30, "1", 2)]),
        },
        Scenario { name: "provision-no-capacity", ending: Ending::GaveUp, plan: short.clone() },
        Scenario {
            name: "provision-never-ready",
            ending: Ending::GaveUp,
            plan: Plan { stillborn: [3].into(), ..plan("provision 2#4", partly_warm.clone()) },
        },
        Scenario {
            name: "provision-stopped",
            ending: Ending::Failed,
            plan: plan("provision 2#4", [partly_warm, vec![stop(85_000, "2")]].concat()),
        },
        Scenario {
            name: "provision-stopped-in-rollback",
            ending: Ending::GaveUp,
            plan: Plan { deeds: [short.deeds.clone(), vec![stop(82_300, "2")]].concat(), ..short },
        },
    ]
}

fn releases() -> Vec<Scenario> {
    let hang = (50 * SECOND, Action::Hang(0, 120 * SECOND));
    let killed = Script {
        process: "provision 2".to_owned(),
        aim: Aim::First("write register"),
        harm: CallFault::DieAfter,
    };
    vec![
        Scenario {
            name: "release",
            ending: Ending::Succeeded,
            plan: plan("release 1#3", vec![provision(10, "1", 2)]),
        },
        Scenario {
            name: "release-silent-agent",
            ending: Ending::GaveUp,
            plan: plan("release 1#3", vec![provision(10, "1", 2), hang]),
        },
        Scenario {
            name: "release-leftovers",
            ending: Ending::Succeeded,
            plan: Plan {
                scripts: vec![killed],
                ..plan("release 2#5", vec![provision(10, "1", 1), provision(80, "2", 2)])
            },
        },
    ]
}

/// When the refresh under test begins, there is a machine without a record (of run a, whose
/// intent is overdue), two past their idle time with their tickets (b), one that waits and was never
/// announced (c), one that never said that it is free (e), a runner without a machine (d), a run
/// with a job and no machine (b, again), and too few machines are warm.
fn refresh() -> Scenario {
    let killed = |process: &str, words, harm| Script {
        process: process.to_owned(),
        aim: Aim::First(words),
        harm,
    };
    let deeds = vec![
        provision(10, "a", 1),
        provision(20, "b", 2),
        provision(25, "d", 1),
        (45 * SECOND, Action::Kill(3)),
        provision(60, "c", 1),
        provision(63, "e", 1),
        (105 * SECOND, Action::Hang(4, 250 * SECOND)),
        (288 * SECOND, Action::Rerun { run: "b".to_owned() }),
        (290 * SECOND, Action::RefreshWith("min-idle", "large=2")),
    ];
    let mut plan = Plan {
        stillborn: [1].into(),
        calm_at: 400 * SECOND,
        scripts: vec![
            killed("provision a", "launch", CallFault::DieAfter),
            killed("release c", "send", CallFault::DieBefore),
            killed("release e", "write release", CallFault::DieAfter),
        ],
        ..plan("refresh#16", deeds)
    };
    plan.settings.insert("idle-time-sec".to_owned(), "200".to_owned());
    Scenario { name: "refresh", ending: Ending::Succeeded, plan }
}

/// Boot, a run, back in the pool, another run, and the end by its own deadline.
fn agent() -> Scenario {
    let mut plan = plan("agent i-0001#1", vec![provision(10, "1", 1), provision(80, "2", 1)]);
    plan.settings.insert("idle-time-sec".to_owned(), "60".to_owned());
    Scenario { name: "agent", ending: Ending::Succeeded, plan }
}

fn plan(watched: &str, deeds: Vec<(u64, Action)>) -> Plan {
    Plan {
        settings: settings(),
        deeds,
        rates: Rates { calls: Vec::new(), latency: 40_000 },
        steady: true,
        watched: Some(watched.to_owned()),
        calm_at: 300 * SECOND,
        ..Plan::default()
    }
}

fn settings() -> BTreeMap<String, String> {
    [
        ("claim-timeout-sec", "120"),
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
    (second * SECOND, Action::Provision { run: run.to_owned(), count })
}

fn stop(millis: u64, run: &str) -> (u64, Action) {
    (millis * 1000, Action::Stop { run: run.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Watched;

    #[test]
    fn unharmed_each_scenario_does_what_it_is_there_for() {
        let cold: &[&str] = &["put intent", "launch", "write register", "write activate"];
        let does: BTreeMap<&str, &[&str]> = [
            ("provision-cold", cold),
            ("provision-warm", &["receive", "write claim", "delete", "write commit"]),
            ("provision-adopting", cold),
            (
                "provision-no-capacity",
                &["write claim", "launch", "write give-back", "send", "write reap", "terminate"],
            ),
            ("provision-never-ready", &["write give-back", "send", "write reap", "terminate"]),
            ("provision-stopped", &["write claim", "machines", "terminate", "remove"]),
            ("provision-stopped-in-rollback", &["write give-back", "machines", "remove"]),
            ("release", &["write release", "send", "mark ticketed"]),
            ("release-silent-agent", &["write release", "send", "write expire"]),
            ("release-leftovers", &["write expire i-0001", "write expire i-0002"]),
            (
                "refresh",
                &[
                    "write reap",
                    "terminate i-0001",
                    "put intent",
                    "write expire",
                    "send",
                    "put back",
                    "remove runner",
                    "write commit",
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
                    "end itself",
                ],
            ),
        ]
        .into();
        for scenario in Scenario::all() {
            let history = scenario.play(None, false);
            assert_eq!(history.violation, None, "{}", scenario.name);
            let Watched { calls, ending } = history.watched;
            assert_eq!(ending, Some(scenario.ending), "{}", scenario.name);
            for words in does[scenario.name] {
                let done = calls.iter().any(|call| call.starts_with(words));
                assert!(done, "{} does not: {words}\n{calls:#?}", scenario.name);
            }
        }
    }
}
