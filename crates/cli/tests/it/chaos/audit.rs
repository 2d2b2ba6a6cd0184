//! What must hold after the storm, from the events, the jobs' own proofs, and what is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::kills::Cycle;
use crate::harness::{Home, say};

/// Where jobs write down where they ran.
pub(super) fn proofs(home: &Home) -> PathBuf {
    home.outside().join("proofs")
}

/// Fails with everything that does not hold.
pub(super) fn audit(home: &Home, cycles: &[Cycle]) {
    let histories = histories(home);
    let mut problems = left_behind(home);
    problems.extend(histories.iter().flat_map(|(id, events)| illegal(id, events)));
    problems.extend(misplaced(home, &histories, cycles));
    problems.extend(mistreated(&histories, cycles));
    problems.extend(said_by_agents(home, &["database is locked", "panicked"]));
    assert!(problems.is_empty(), "{problems:#?}");
}

/// What the events tell that may not be, and what agents had to say that nobody should ever read,
/// however the file was disturbed.
pub(super) fn breaches(home: &Home) -> Vec<String> {
    let histories = histories(home);
    let mut problems: Vec<String> =
        histories.iter().flat_map(|(id, events)| illegal(id, events)).collect();
    problems.extend(said_by_agents(home, &["panicked"]));
    problems
}

/// The last events, for a person.
pub(super) fn tail(home: &Home) -> String {
    let lines = "SELECT at || ' ' || instance || ' ' || transition || ': ' || from_state || ' -> '
        || to_state || ' ' || run || ' ' || why FROM events ORDER BY seq DESC LIMIT 60";
    let mut lines = home.texts(lines);
    lines.reverse();
    lines.join("\n")
}

/// A committed transition. Times are texts whose order is their order in time.
struct Event {
    at: String,
    transition: String,
    from: String,
    to: String,
    run: String,
}

type Histories = BTreeMap<String, Vec<Event>>;

/// What happened to each instance, in the order of the commits.
fn histories(home: &Home) -> Histories {
    let file = home.file();
    let sql = "SELECT instance, at, transition, from_state, to_state, run FROM events ORDER BY seq";
    let mut statement = file.prepare(sql).unwrap();
    let mut rows = statement.query([]).unwrap();
    let mut histories = Histories::new();
    while let Some(row) = rows.next().unwrap() {
        let text = |column| row.get::<_, String>(column).unwrap();
        let event =
            Event { at: text(1), transition: text(2), from: text(3), to: text(4), run: text(5) };
        histories.entry(text(0)).or_default().push(event);
    }
    histories
}

/// Nothing is left behind.
pub(super) fn left_behind(home: &Home) -> Vec<String> {
    let rows = |what: &str, sql: &str| {
        home.texts(sql).into_iter().map(|row| format!("{what} left: {row}")).collect::<Vec<_>>()
    };
    let processes = home.processes().into_iter().map(|pid| format!("process left: {pid}"));
    let folders = fs::read_dir(home.dir().join("machines")).unwrap();
    let folders = folders.map(|entry| format!("folder left: {:?}", entry.unwrap().path()));
    [
        processes.collect(),
        folders.collect(),
        rows("record", "SELECT id || ' ' || state FROM instances WHERE state <> 'terminated'"),
        rows("machine", "SELECT id FROM machines WHERE ended_at = ''"),
        rows("runner", "SELECT name || ' ' || label FROM runners"),
        rows("intent", "SELECT id || ' ' || run FROM intents WHERE outcome = ''"),
        rows("job", "SELECT label || ' ' || state FROM jobs WHERE state IN ('queued', 'running')"),
        // One of a claim that was killed before it could delete it may stay: it says itself that
        // it has expired, and whoever meets it drops it.
        rows(
            "unexpired ticket",
            "SELECT body FROM tickets
             WHERE json_extract(body, '$.threshold') > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
        ),
    ]
    .concat()
}

/// Replays a life: every event starts where the last one ended, is one of the transitions that
/// there are, and gives nobody what somebody else has.
fn illegal(id: &str, events: &[Event]) -> Vec<String> {
    let (mut state, mut owner) = ("", "");
    let mut problems = Vec::new();
    for event in events {
        let moves: &[(&str, &str)] = match event.transition.as_str() {
            "register" => &[("", "created")],
            "activate" => &[("created", "running")],
            "claim" => &[("idle", "claimed")],
            "commit" => &[("claimed", "running")],
            "release" => &[("running", "idle")],
            "give-back" => &[("claimed", "idle")],
            "expire" if event.from == event.to => &[(state, state)],
            "reap" => &[(state, "terminated")],
            _ => &[],
        };
        let known = moves.contains(&(event.from.as_str(), event.to.as_str()));
        let torn = event.from != state || state == "terminated";
        let taken_over = !owner.is_empty() && !event.run.is_empty() && owner != event.run;
        if !known || torn || taken_over {
            problems.push(format!(
                "{id}, {state} of run {owner:?}: {} from {} to {} of run {:?} at {}",
                event.transition, event.from, event.to, event.run, event.at
            ));
        }
        (state, owner) = (&event.to, &event.run);
    }
    if state != "terminated" {
        problems.push(format!("{id} is still {state}"));
    }
    problems
}

/// Every job ran on a machine that its run had, from its first to its last moment.
fn misplaced(home: &Home, histories: &Histories, cycles: &[Cycle]) -> Vec<String> {
    let text = fs::read_to_string(proofs(home)).unwrap();
    let mut ends = BTreeMap::<&str, usize>::new();
    let mut problems = Vec::new();
    for line in text.lines() {
        let [what, run, id, at] = line.split(' ').collect::<Vec<_>>()[..] else {
            problems.push(format!("not a proof: {line}"));
            continue;
        };
        if !histories.get(id).is_some_and(|events| had(events, run, at)) {
            problems.push(format!("the run did not have the machine: {line}"));
        }
        if what == "ended" {
            *ends.entry(run).or_default() += 1;
        }
    }
    for cycle in cycles {
        let ended = ends.remove(cycle.run.as_str()).unwrap_or(0);
        if ended != usize::from(cycle.job.is_some()) {
            problems.push(format!("the job of {} was done {ended} times", cycle.run));
        }
    }
    problems
}

/// Whether the run owned the machine at this moment.
fn had(events: &[Event], run: &str, at: &str) -> bool {
    let until = events.iter().skip(1).map(|next| next.at.as_str()).chain(["9"]);
    let mut spans = events.iter().zip(until);
    spans.any(|(event, until)| event.run == run && event.at.as_str() <= at && at <= until)
}

/// What a run was told that it has, it was really given; and enough runs got through.
fn mistreated(histories: &Histories, cycles: &[Cycle]) -> Vec<String> {
    let given = |id: &String, run: &str| {
        let running = |event: &Event| event.to == "running" && event.run == run;
        histories.get(id).is_some_and(|events| events.iter().any(running))
    };
    let mut problems = Vec::new();
    for cycle in cycles {
        for id in cycle.machines.iter().filter(|id| !given(id, &cycle.run)) {
            problems.push(format!("{} was never given {id}", cycle.run));
        }
    }
    let good = cycles.iter().filter(|cycle| cycle.codes.iter().all(|code| *code == 0)).count();
    say(&format!("{good} of {} undisturbed cycles succeeded", cycles.len()));
    // Those that found no room are over soon, and may be many.
    if good < 10 {
        let codes: Vec<_> = cycles.iter().map(|cycle| &cycle.codes).collect();
        problems.push(format!("hardly any cycle succeeded: {codes:?}"));
    }
    problems
}

/// What agents had to say with one of these words in it.
fn said_by_agents(home: &Home, words: &[&str]) -> Vec<String> {
    said_in(&home.dir().join("logs"), words)
}

/// Lines with one of these words in it, in any log of a folder.
pub(super) fn said_in(logs: &Path, words: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for entry in fs::read_dir(logs).unwrap() {
        let path = entry.unwrap().path();
        let log = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let bad = |line: &&str| words.iter().any(|word| line.contains(word));
        problems.extend(log.lines().filter(bad).map(|line| format!("{path:?}: {line}")));
    }
    problems
}

/// The runners that the local forge lists in a home.
pub(super) fn runners(home: &Path) -> Vec<String> {
    let file = rusqlite::Connection::open(home.join("ondeck.db")).unwrap();
    let mut statement = file.prepare("SELECT name FROM runners").unwrap();
    let names = statement.query_map([], |row| row.get(0)).unwrap();
    names.collect::<Result<_, _>>().unwrap()
}
