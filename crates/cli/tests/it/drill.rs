//! `ondeck drill` on the local backend: a healthy pool passes, and a planted fault is found.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{AtTerminal, Done, Driven, Home, until};
use crate::json::assert_valid;

/// The exit code of a drill that has found something, or has shown nothing.
pub(crate) const NOT_RECOVERED: i32 = 22;

/// The verdict of each scenario.
pub(crate) fn verdicts(answer: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let scenarios = answer["scenarios"].as_array().unwrap().iter();
    scenarios.map(|it| (text(&it["scenario"]), text(&it["verdict"]))).collect()
}

/// The steps of a scenario, each as its expectation and whether it was met.
pub(crate) fn steps(answer: &Value, scenario: &str) -> Vec<(String, bool)> {
    let scenarios = answer["scenarios"].as_array().unwrap().iter();
    let steps = scenarios.filter(|it| it["scenario"] == scenario);
    let steps = steps.flat_map(|it| it["steps"].as_array().unwrap());
    let told =
        |it: &Value| (it["expectation"].as_str().unwrap().to_owned(), it["met"].as_bool().unwrap());
    steps.map(told).collect()
}

/// What a scenario expected and did not see.
pub(crate) fn unmet(answer: &Value, scenario: &str) -> Vec<String> {
    steps(answer, scenario).into_iter().filter(|it| !it.1).map(|it| it.0).collect()
}

fn drill(home: &Home, inputs: &[&str]) -> Done {
    let name = home.dir().display().to_string();
    home.ondeck(&[&["drill", "--json", "--confirm", &name], inputs].concat())
}

#[test]
fn a_healthy_pool_passes_and_runs_keep_their_machines() {
    let home = Home::with(&["--idle-time-sec=600", "--max-runtime-min=30"]);
    let busy = home.provision("7", 1).succeeded().ids();
    home.provision("warm-up", 1).succeeded();
    home.release("warm-up").succeeded();
    let done = drill(&home, &["--launch"]).succeeded();
    assert_valid("drill", &done);
    let answer = done.json();
    let expected = [
        ("cancel-launch", "passed"),
        ("cancel-provision", "passed"),
        ("interrupt-spot", "skipped"),
        ("kill-idle", "passed"),
        ("kill-launch", "passed"),
    ];
    let expected = expected.map(|(name, verdict)| (name.to_owned(), verdict.to_owned()));
    assert_eq!(verdicts(&answer), expected.into(), "{answer}");
    let of_kill = steps(&answer, "kill-idle").into_iter().map(|it| it.0).collect::<Vec<_>>();
    let began = ["claimed", "released", "announced", "silent", "not-handed-out", "refreshed"];
    assert_eq!(of_kill[..6], began);
    // The idle machine is gone, and the run still has its own.
    assert_eq!(home.records(), [(busy[0].clone(), "running 7".to_owned())].into());
    assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), busy);
}

#[test]
fn without_consent_there_is_a_plan_and_nothing_else() {
    let home = Home::with(&[]);
    let warm = home.warm_up(1);
    let events = home.number("SELECT count(*) FROM events");
    let name = home.dir().display().to_string();
    let refused = home.ondeck(&["drill"]).exited(2);
    assert!(refused.stdout.contains("cancel-provision  large"), "{}", refused.stdout);
    assert!(refused.stdout.contains("cost: it ends 1 idle machine, and launches none"));
    let hint = format!("hint: give --confirm {name}, or look with --dry-run");
    assert!(refused.stderr.contains(&hint), "{}", refused.stderr);
    let other = home.ondeck(&["drill", "--confirm=acme/web"]).exited(2);
    assert!(other.stderr.contains("--confirm names another pool"), "{}", other.stderr);
    let refused = home.ondeck(&["drill", "--json"]).exited(2);
    assert_valid("drill", &refused);
    let planned = home.ondeck(&["drill", "--dry-run", "--json"]).succeeded();
    assert_valid("drill", &planned);
    let answer = planned.json();
    assert_eq!((&answer["pool"], answer.get("scenarios")), (&Value::from(name), None));
    assert_eq!(home.number("SELECT count(*) FROM events"), events);
    assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned()], 1));
    assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), warm);
    home.ondeck(&["drill", "--scenario=earthquake"]).exited(2);
}

#[test]
fn a_person_consents_by_the_name_of_the_pool() {
    let home = Home::with(&[]);
    let name = home.dir().display().to_string();
    for (line, words) in [("yes", "the drill was not confirmed"), (&*name, "no scenario could be")]
    {
        let command = home.command(&["drill", "--scenario=interrupt-spot"]);
        let mut asked = AtTerminal::asking(command);
        asked.answer("to go on: ", line);
        let said = asked.finish();
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_drill_that_can_play_nothing_has_not_passed() {
    let home = Home::with(&[]);
    let done = drill(&home, &[]).exited(NOT_RECOVERED);
    assert_valid("drill", &done);
    let answer = done.json();
    assert!(verdicts(&answer).values().all(|verdict| verdict == "skipped"), "{answer}");
    assert_eq!(answer["error"]["kind"], "not-recovered");
    home.assert_empty();
}

/// The signal that its agent sends after a release is lost.
#[test]
fn an_agent_that_ignores_its_release_is_found() {
    let home = Home::with(&["--release-timeout-sec=3"]);
    home.warm_up(1);
    let fault = "CREATE TRIGGER ignore BEFORE INSERT ON signals
        WHEN NEW.signal = 'UD_REMOVE_REG_OK' BEGIN SELECT RAISE(IGNORE); END";
    home.file().execute_batch(fault).unwrap();
    let done = drill(&home, &["--scenario=kill-idle"]).exited(NOT_RECOVERED);
    assert_valid("drill", &done);
    let answer = done.json();
    assert_eq!(unmet(&answer, "kill-idle"), ["released"], "{answer}");
    let error = answer["error"]["message"].as_str().unwrap();
    assert!(error.contains("exit code 8: machines did not return to the pool"), "{error}");
    // The drill has cleaned up after itself.
    until("the machine ends", || {
        home.refresh(&[]);
        home.agents().is_empty()
    });
    assert!(home.standings().is_empty());
}

/// No message reaches the pool's queues.
#[test]
fn a_ticket_that_is_lost_is_found() {
    let home = Home::with(&[]);
    home.warm_up(1);
    let fault = "CREATE TRIGGER lose BEFORE INSERT ON tickets BEGIN SELECT RAISE(IGNORE); END";
    home.file().execute_batch(fault).unwrap();
    let answer = drill(&home, &["--scenario=cancel-provision"]).exited(NOT_RECOVERED).json();
    assert_eq!(unmet(&answer, "cancel-provision"), ["announced"], "{answer}");
}

#[test]
fn an_interrupted_drill_releases_what_it_has() {
    let home = Home::with(&[]);
    let warm = home.warm_up(1);
    let name = home.dir().display().to_string();
    let drill = ["drill", "-vv", "--json", "--scenario=kill-idle", "--confirm", &name];
    let drill = home.start(&drill);
    drill.until_it_says("waiting until the heartbeat of");
    drill.signal(Signal::INT);
    let done = drill.finish().exited(130);
    assert_valid("drill", &done);
    let answer = done.json();
    assert_eq!(
        (&answer["error"]["kind"], &answer["left"]),
        (&"interrupted".into(), &Vec::<String>::new().into())
    );
    // The machine was dead already, and its record does not wait for its threshold.
    assert!(!home.records().contains_key(&warm[0]), "{:?}", home.records());
    assert!(home.standings().is_empty());
}
