use ondeck_core::model::record::{Record, State, Unreadable};
use serde_json::{Value, json};

use super::*;
use crate::control::report::status::fixture;

const PAUSE: Duration = Duration::from_secs(2);

fn learn(picture: &mut Picture, judgement: &Judgement) -> Value {
    learn_about(picture, judgement, Vec::new())
}

/// As the feed does it, where these are the records of machines that are no longer listed.
fn learn_about(picture: &mut Picture, judgement: &Judgement, records: Vec<Record>) -> Value {
    learn_of(picture, judgement, Listing { records, unreadable: Vec::new() })
}

fn learn_of(picture: &mut Picture, judgement: &Judgement, found: Listing) -> Value {
    let absent = picture.absent(judgement);
    let news = News { judgement, absent: (&absent, found), calls: None, local: true };
    serde_json::to_value(picture.learn(news)).unwrap()
}

fn later(mut judgement: Judgement, seconds: u64) -> Judgement {
    judgement.at = judgement.at + Duration::from_secs(seconds);
    judgement
}

fn ids(update: &Value) -> Vec<&str> {
    update["set"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect()
}

#[test]
fn the_first_reading_is_no_change_and_an_equal_one_sends_nothing() {
    let mut picture = Picture::new(PAUSE);
    let first = learn(&mut picture, &fixture::pool(40));
    assert_eq!(ids(&first).len(), 40);
    assert_eq!(first["changes"], json!([]));
    assert!(first["summary"].is_object());
    let second = learn(&mut picture, &later(fixture::pool(40), 2));
    assert_eq!((ids(&second).len(), &second["changes"]), (0, &json!([])));
    assert_eq!(second["gone"], json!([]));
    let snapshot = serde_json::to_value(picture.snapshot()).unwrap();
    assert_eq!(snapshot["machines"].as_array().unwrap().len(), 40);
    assert_eq!(snapshot["samples"].as_array().unwrap().len(), 2);
    assert_eq!(snapshot["pauseMs"], 2000);
}

#[test]
fn only_what_has_changed_is_sent() {
    let mut picture = Picture::new(PAUSE);
    let mut pool = fixture::pool(40);
    learn(&mut picture, &pool);
    let idle = pool.machines.iter().position(|it| it.group == Group::Idle).unwrap();
    let run = pool.machines.iter().find_map(|it| it.record.run.clone()).unwrap();
    let machine = &mut pool.machines[idle];
    let id = machine.record.id.to_string();
    machine.record.state = State::Claimed;
    machine.record.run = Some(run.clone());
    machine.record.updated_at = pool.at;
    machine.group = Group::Claimed;
    let update = learn(&mut picture, &later(pool.clone(), 2));
    assert_eq!(ids(&update), [&id]);
    let change = &update["changes"][0];
    assert_eq!((&change["from"], &change["to"]), (&json!("idle"), &json!("claimed")));
    assert_eq!((&change["skipped"], &change["run"]), (&json!(false), &json!(run.to_string())));

    // Two steps between two readings: it is back, and was given to a run.
    let machine = &mut pool.machines[idle];
    machine.record.state = State::Idle;
    machine.record.run = None;
    machine.record.counts.runs += 1;
    machine.record.updated_at = pool.at + PAUSE;
    machine.group = Group::Idle;
    let update = learn(&mut picture, &later(pool, 4));
    let change = &update["changes"][0];
    assert_eq!((&change["to"], &change["run"]), (&json!("idle"), &json!(run.to_string())));
}

#[test]
fn steps_that_were_not_seen_are_said_to_be_missing() {
    let machine = |state, run: &str, runs| Machine {
        id: "i-1".to_owned(),
        state,
        run: run.to_owned(),
        class: "large".to_owned(),
        instance_type: "c6i.large".to_owned(),
        usage: "spot",
        since: At(fixture::noon()),
        until: None,
        runs,
        marks: Vec::new(),
    };
    for (before, after, skipped) in [
        (None, machine("created", "1", 0), Some(false)),
        (None, machine("running", "1", 1), Some(true)),
        (Some(machine("created", "1", 0)), machine("running", "1", 1), Some(false)),
        (Some(machine("idle", "", 1)), machine("claimed", "2", 1), Some(false)),
        (Some(machine("idle", "", 1)), machine("running", "2", 2), Some(true)),
        (Some(machine("idle", "", 1)), machine("idle", "", 2), Some(true)),
        (Some(machine("running", "1", 1)), machine("running", "2", 2), Some(true)),
        (Some(machine("running", "1", 1)), machine("idle", "", 1), Some(false)),
        (Some(machine("idle", "", 1)), machine("terminated", "", 1), Some(false)),
        (Some(machine("idle", "", 1)), machine("terminated", "", 2), Some(true)),
        (Some(machine("idle", "", 1)), machine("idle", "", 1), None),
    ] {
        let changes = changes_between(before.as_ref(), &after, fixture::noon());
        let found = changes.first().map(|change| change.skipped);
        assert_eq!(found, skipped, "{before:?} {after:?}");
    }
    let marked = Machine { marks: vec!["silent"], ..machine("running", "1", 1) };
    let changes = changes_between(Some(&machine("running", "1", 1)), &marked, fixture::noon());
    assert_eq!((changes.len(), changes[0].kind, changes[0].to), (1, "mark", "silent"));
}

#[test]
fn a_machine_that_is_not_listed_is_gone_only_if_its_record_says_so() {
    let mut picture = Picture::new(PAUSE);
    let pool = fixture::pool(10);
    learn(&mut picture, &pool);
    let mut fewer = later(pool, 2);
    let gone: Vec<_> = fewer.machines.drain(..3).collect();
    let [ended, lagging, forgotten] = [0, 1, 2].map(|n| gone[n].record.clone());
    let mut record = ended.clone();
    record.state = State::Terminated;
    record.threshold = None;
    record.updated_at = fewer.at;
    let update = learn_about(&mut picture, &fewer, vec![record, lagging.clone()]);
    assert_eq!(ids(&update), [ended.id.as_str()]);
    assert_eq!(update["set"][0]["state"], "terminated");
    assert_eq!(update["gone"], json!([forgotten.id.as_str()]));
    assert_eq!(update["changes"].as_array().unwrap().len(), 2);
    assert_eq!(picture.absent(&fewer), [lagging.id]);

    // Ten minutes later the terminated one is no longer shown.
    let update = learn_about(&mut picture, &later(fewer, 601), vec![gone[1].record.clone()]);
    assert_eq!(update["gone"], json!([ended.id.as_str()]));
}

#[test]
fn a_machine_whose_record_cannot_be_read_stays_where_it_is() {
    let mut picture = Picture::new(PAUSE);
    let pool = fixture::pool(10);
    learn(&mut picture, &pool);
    let mut fewer = later(pool, 2);
    let corrupt = fewer.machines.remove(0).record.id;
    let row = Unreadable { id: corrupt.to_string(), problem: "no state".to_owned() };
    let found = Listing { records: Vec::new(), unreadable: vec![row] };
    let update = learn_of(&mut picture, &fewer, found);
    assert_eq!((&update["gone"], &update["changes"]), (&json!([]), &json!([])));
    assert_eq!(picture.absent(&fewer), [corrupt], "it is looked at again");
}

#[test]
fn a_failure_keeps_what_is_shown_and_says_since_when() {
    let mut picture = Picture::new(PAUSE);
    learn(&mut picture, &fixture::pool(5));
    let at = |seconds| fixture::noon() + Duration::from_secs(seconds);
    let failure = Failure::invalid("the store is out of reach").hint("look at it");
    picture.fail(&failure, at(10), at(14));
    let trouble = serde_json::to_value(picture.fail(&failure, at(14), at(22))).unwrap();
    assert_eq!(trouble["since"], at(10).millis());
    assert_eq!(trouble["next"], at(22).millis());
    let snapshot = serde_json::to_value(picture.snapshot()).unwrap();
    assert_eq!(snapshot["trouble"]["message"], "the store is out of reach");
    assert_eq!(snapshot["machines"].as_array().unwrap().len(), 5);
    learn(&mut picture, &later(fixture::pool(5), 30));
    assert!(serde_json::to_value(picture.snapshot()).unwrap()["trouble"].is_null());
}

#[test]
fn lists_are_bounded() {
    let mut picture = Picture::new(PAUSE);
    let mut pool = fixture::pool(1);
    for seconds in 0..1_000 {
        let machine = &mut pool.machines[0];
        machine.record.counts.runs += 1;
        learn(&mut picture, &later(pool.clone(), seconds));
    }
    let snapshot = serde_json::to_value(picture.snapshot()).unwrap();
    assert_eq!(snapshot["changes"].as_array().unwrap().len(), CHANGES);
    assert_eq!(snapshot["samples"].as_array().unwrap().len(), SAMPLES);
    assert_eq!(snapshot["changes"][CHANGES - 1]["number"], 999);
}
