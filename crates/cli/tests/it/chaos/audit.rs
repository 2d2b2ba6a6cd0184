//! What must hold after the storm, from the events, the jobs' own proofs, and what is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ondeck_core::audit::{
    JobSighting, Ownership, RecordedState, illegal_events, jobs_outside_ownership, never_given,
    not_terminated,
};
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{EventRow, State};
use ondeck_core::model::timestamp::Timestamp;

use super::kills::Cycle;
use crate::harness::{Home, say};

/// Where jobs write down where they ran.
pub(super) fn proofs(home: &Home) -> PathBuf {
    home.outside().join("proofs")
}

/// Fails with everything that does not hold.
pub(super) fn audit(home: &Home, cycles: &[Cycle]) {
    let ownership = Ownership::from_events(&events(home));
    let mut problems = left_behind(home);
    problems.extend(broken_by_events(home));
    problems.extend(misplaced(home, &ownership, cycles));
    problems.extend(mistreated(&ownership, cycles));
    problems.extend(said_by_agents(home, &["database is locked", "panicked"]));
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Invariants that the events break, and messages that no agent may log, whichever faults were
/// injected into the file.
pub(super) fn breaches(home: &Home) -> Vec<String> {
    let mut problems = broken_by_events(home);
    problems.extend(said_by_agents(home, &["panicked"]));
    problems
}

/// Illegal events, and instances that no event terminates.
fn broken_by_events(home: &Home) -> Vec<String> {
    let events = events(home);
    [illegal_events(&events), not_terminated(&events)].concat()
}

/// The last events, for a person.
pub(super) fn tail(home: &Home) -> String {
    let lines = "SELECT at || ' ' || instance || ' ' || transition || ': ' || from_state || ' -> '
        || to_state || ' ' || run || ' ' || why FROM events ORDER BY seq DESC LIMIT 60";
    let mut lines = home.texts(lines);
    lines.reverse();
    lines.join("\n")
}

/// The event log, in the order of the commits.
fn events(home: &Home) -> Vec<EventRow> {
    let file = home.file();
    let sql = "SELECT instance, at, transition, from_state, to_state, run FROM events ORDER BY seq";
    let mut statement = file.prepare(sql).unwrap();
    let event = |row: &rusqlite::Row<'_>| {
        let text = |column| row.get::<_, String>(column).unwrap();
        let from = text(3);
        Ok(EventRow {
            instance: InstanceId::new(text(0)).unwrap(),
            at: Timestamp::parse(&text(1)).unwrap(),
            transition: text(2),
            from: (!from.is_empty()).then(|| State::parse(&from).unwrap()),
            to: State::parse(&text(4)).unwrap(),
            run: run(&text(5)),
            why: String::new(),
        })
    };
    statement.query_map([], event).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Reads the texts of a stored record. Panics if one of them is invalid.
pub(super) fn recorded_state(
    state: &str,
    owner: &str,
    threshold: &str,
    updated_at: &str,
) -> RecordedState {
    RecordedState {
        state: State::parse(state).unwrap(),
        run: run(owner),
        threshold: (!threshold.is_empty()).then(|| Timestamp::parse(threshold).unwrap()),
        updated_at: Timestamp::parse(updated_at).unwrap(),
    }
}

/// A run id, as stores write it: empty for none.
fn run(text: &str) -> Option<RunId> {
    (!text.is_empty()).then(|| RunId::new(text).unwrap())
}

/// Pairs of a run and a machine that a successful provision reported to it.
pub(super) fn reported(reports: &[(String, Vec<String>)]) -> Vec<(RunId, InstanceId)> {
    let pair = |run: &String, id: &String| {
        (RunId::new(run.as_str()).unwrap(), InstanceId::new(id.as_str()).unwrap())
    };
    reports.iter().flat_map(|(run, ids)| ids.iter().map(move |id| pair(run, id))).collect()
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
        // it has expired, and the run that receives it drops it.
        rows(
            "unexpired ticket",
            "SELECT body FROM tickets
             WHERE json_extract(body, '$.threshold') > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
        ),
    ]
    .concat()
}

/// Every job ran on a machine that its run had, from its first to its last moment.
fn misplaced(home: &Home, ownership: &Ownership, cycles: &[Cycle]) -> Vec<String> {
    let text = fs::read_to_string(proofs(home)).unwrap();
    let mut ends = BTreeMap::<String, usize>::new();
    let (mut sightings, mut problems) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let Some(sighting) = JobSighting::parse(line) else {
            problems.push(format!("not a proof: {line}"));
            continue;
        };
        if sighting.job == "ended" {
            *ends.entry(sighting.run.to_string()).or_default() += 1;
        }
        sightings.push(sighting);
    }
    problems.extend(jobs_outside_ownership(ownership, &sightings));
    for cycle in cycles {
        let ended = ends.remove(cycle.run.as_str()).unwrap_or(0);
        if ended != usize::from(cycle.job.is_some()) {
            problems.push(format!("the job of {} was done {ended} times", cycle.run));
        }
    }
    problems
}

/// What a run was told that it has, it was really given; and enough runs got through.
fn mistreated(ownership: &Ownership, cycles: &[Cycle]) -> Vec<String> {
    let reports = cycles.iter().map(|cycle| (cycle.run.clone(), cycle.machines.clone()));
    let reports = reported(&reports.collect::<Vec<_>>());
    let mut problems = never_given(ownership, reports.iter().map(|(run, id)| (run, id)));
    let good = cycles.iter().filter(|cycle| cycle.codes.iter().all(|code| *code == 0)).count();
    say(&format!("{good} of {} uninterrupted cycles succeeded", cycles.len()));
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
