//! The ceiling on the local backend: real processes race for the last places.

use rustix::process::Signal;

use crate::harness::{Background, Done, Driven, Home, signal, until};

fn finished(runs: Vec<Background>) -> Vec<Done> {
    runs.into_iter().map(Background::finish).collect()
}

fn start(home: &Home, runs: std::ops::Range<usize>, more: &[&str]) -> Vec<Background> {
    let start = |run: usize| {
        home.start(&[&["provision", "--json", "--run-id", &format!("run-{run}")], more].concat())
    };
    runs.map(start).collect()
}

#[test]
fn concurrent_provisions_never_exceed_the_ceiling() {
    let home = Home::with(&["--max-machines=5"]);
    let done = finished(start(&home, 0..8, &[]));
    let (served, refused): (Vec<Done>, Vec<Done>) = done.into_iter().partition(|it| it.code == 0);
    assert_eq!((served.len(), refused.len()), (5, 3));
    assert_eq!(home.number("SELECT count(*) FROM machines"), 5, "no sixth one was ever launched");
    for done in refused {
        let error = done.exited(4).json()["error"].clone();
        assert_eq!(error["kind"], "at-ceiling");
        let told = error["message"].as_str().unwrap();
        assert_eq!(told, "the pool has 5 of 5 machines, 1 more is needed");
        assert!(error["hint"].as_str().unwrap().contains("--ceiling-patience-sec"));
    }
    let refreshed = home.refresh(&[]);
    assert_eq!(refreshed["ceilings"], serde_json::json!([{"machines": 5, "max": 5}]));
}

#[test]
fn patient_provisions_get_what_is_released_and_what_is_terminated() {
    let home = Home::with(&["--max-machines=3 large=2"]);
    let served = finished(start(&home, 0..2, &[]));
    served.into_iter().for_each(|done| drop(done.succeeded()));
    let waiting = start(&home, 2..4, &["--ceiling-patience-sec=35"]);
    let hint = "waiting for room: class large has 2 of 2 machines, 1 more is needed";
    waiting.iter().for_each(|run| run.until_it_says(hint));
    home.release("run-0").succeeded();
    let machine = home.records().into_iter().find(|(_, standing)| standing == "running run-1");
    signal(home.agents()[&machine.unwrap().0], Signal::KILL);
    until("refresh frees the place of the dead machine", || {
        home.refresh(&[])["ceilings"][1]["machines"] == 1
            || home.number("SELECT count(*) FROM machines") == 3
    });
    let mut sources: Vec<String> =
        finished(waiting).into_iter().flat_map(|done| done.succeeded().sources()).collect();
    sources.sort();
    assert_eq!(sources, ["cold", "warm"]);
    assert_eq!(home.agents().len(), 2);
}

#[test]
fn a_provision_that_is_killed_holds_its_places_until_its_deadline() {
    for call in ["intent", "launch", "settle-reservation"] {
        let home = Home::with(&["--max-machines=2", "--boot-deadline-sec=2"]);
        let short = ["--created-timeout-sec=3", "--validation-timeout-sec=2"];
        let killed = ["provision", "--run-id", "killed", "--instance-count", "2"];
        home.kill_before(call, &[&killed[..], &short].concat());
        home.refresh(&[]);
        let refused = home.provision("1", 1).exited(4).json();
        let told = refused["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(told, "the pool has 2 of 2 machines, 1 more is needed", "killed before {call}");
        until("refresh frees the places", || home.refresh(&[])["ceilings"][0]["machines"] == 0);
        assert_eq!(home.provision("1", 2).succeeded().ids().len(), 2, "killed before {call}");
    }
}

#[test]
fn a_ceiling_that_cannot_be_is_refused_with_a_hint() {
    let home = Home::with(&["--max-machines=2"]);
    for (max, problem) in [
        ("many", "max-machines is not of the form COUNT or CLASS=COUNT: \"many\""),
        ("5 huge=2", "max-machines names an unknown class: huge"),
        ("5 5", "max-machines gives a second number for the same: \"5\""),
    ] {
        let refused = home.ondeck(&["refresh", "--json", &format!("--max-machines={max}")]);
        assert_eq!(refused.code, 2, "{max}: {}", refused.stderr);
        let told = format!("{}{}", refused.stdout, refused.stderr);
        assert!(told.contains(problem) || told.contains(&problem.replace('"', "\\\"")), "{told}");
        assert!(told.contains("hint"), "{told}");
    }
    assert_eq!(home.refresh(&[])["ceilings"][0]["max"], 2, "the ceiling is as it was");
    home.ondeck(&["provision", "--ceiling-patience-sec=-1"]).exited(2);
}
