//! Events as a chain. Where an event does not begin in the state in which the one before it ended,
//! events are missing between them, and that is said.

use crate::model::ids::RunId;
use crate::model::record::{EventRow, Record, State};
use crate::model::timestamp::Timestamp;
use crate::ports::Events;

/// One step of a machine's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Event {
        event: EventRow,
        /// The run that owned the machine before, as far as the events tell.
        before: Option<RunId>,
    },
    Gap(Gap),
}

/// Changes that no event tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The state after the last event before the gap, and its time; `None` if there is none.
    pub from: Option<(State, Timestamp)>,
    /// The state in which the next event begins, or that the record has now; `None` if unknown.
    pub to: Option<State>,
    /// When that was, at the latest.
    pub until: Option<Timestamp>,
    /// Whether the missing events may exist, and were only not read.
    pub is_unread: bool,
}

impl Step {
    pub fn event(&self) -> Option<(&EventRow, Option<&RunId>)> {
        match self {
            Step::Event { event, before } => Some((event, before.as_ref())),
            Step::Gap(_) => None,
        }
    }

    pub fn gap(&self) -> Option<&Gap> {
        match self {
            Step::Gap(gap) => Some(gap),
            Step::Event { .. } => None,
        }
    }
}

/// The whole life of a machine, up to its record.
pub(in crate::modes) fn whole_life(events: Events, record: Option<&Record>) -> Vec<Step> {
    let is_unread = events.is_partial;
    let mut steps = Vec::new();
    let mut last: Option<EventRow> = None;
    for event in in_order(events.rows) {
        let is_first = last.is_none() && event.transition == "register";
        let follows = match &last {
            None => is_first,
            Some(last) => follows(last, &event),
        };
        if !follows {
            let unread = is_unread && last.is_none();
            steps.push(gap(last.as_ref(), event.from, Some(event.at), unread));
        }
        last = Some(event.clone());
        push(&mut steps, event);
    }
    steps.extend(gap_before(record, last.as_ref(), is_unread));
    steps
}

/// The events of one machine while a run owned it. `record` is the present one. `is_partial`: earlier
/// events of the run may exist that were not read.
pub(super) fn part_of_run(
    rows: Vec<EventRow>,
    run: &RunId,
    record: Option<&Record>,
    is_partial: bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut last: Option<EventRow> = None;
    for event in in_order(rows) {
        let begins = matches!(event.transition.as_str(), "register" | "claim");
        let follows = match &last {
            // Between two times with the run, the machine's events concern others.
            Some(last) if last.run.is_none() => begins,
            Some(last) => self::follows(last, &event),
            None => begins,
        };
        if !follows {
            let unread = is_partial && last.is_none();
            steps.push(gap(last.as_ref(), event.from, Some(event.at), unread));
        }
        last = Some(event.clone());
        push(&mut steps, event);
    }
    let owns = record.is_some_and(|record| record.run.as_ref() == Some(run));
    match &last {
        Some(last) if last.run.is_none() && !owns => {}
        _ if owns => steps.extend(gap_before(record, last.as_ref(), is_partial)),
        // The run owned it, and does no longer: the event by which it lost it is missing.
        Some(_) => steps.push(gap(last.as_ref(), record.map(|it| it.state), None, false)),
        None => {}
    }
    steps
}

/// What the events do not tell between the last of them and the record. If there is none, some may exist
/// that were not read.
fn gap_before(record: Option<&Record>, last: Option<&EventRow>, is_partial: bool) -> Option<Step> {
    let Some(record) = record else {
        // Records of terminated machines are deleted after a while.
        let is_told = last.is_none_or(|last| last.to == State::Terminated);
        return (!is_told).then(|| gap(last, None, None, false));
    };
    let is_told = last.is_some_and(|last| {
        last.to == record.state && last.run == record.run && last.at >= record.updated_at
    });
    let until = Some(record.updated_at);
    let unread = is_partial && last.is_none();
    (!is_told).then(|| gap(last, Some(record.state), until, unread))
}

fn gap(
    last: Option<&EventRow>,
    to: Option<State>,
    until: Option<Timestamp>,
    is_unread: bool,
) -> Step {
    Step::Gap(Gap { from: last.map(|last| (last.to, last.at)), to, until, is_unread })
}

fn push(steps: &mut Vec<Step>, event: EventRow) {
    let before = match steps.last() {
        Some(Step::Event { event: last, .. }) => last.run.clone(),
        Some(Step::Gap(_)) | None => None,
    };
    steps.push(Step::Event { event, before });
}

/// Whether an event can be the next one after `last`. The state before an event may be unknown.
fn follows(last: &EventRow, event: &EventRow) -> bool {
    let same_state = match event.from {
        Some(from) => from == last.to,
        None => event.transition != "register" && last.to.is_live(),
    };
    let changes_hands = last.run.is_some() && event.run.is_some() && last.run != event.run;
    same_state && !changes_hands
}

/// The events by time. Of those of the same millisecond, whose order no store keeps, each comes after
/// one that it can follow, if there is one.
fn in_order(mut rows: Vec<EventRow>) -> Vec<EventRow> {
    rows.sort_by_key(|row| row.at);
    let mut ordered: Vec<EventRow> = Vec::with_capacity(rows.len());
    while !rows.is_empty() {
        let at = rows[0].at;
        let same = rows.iter().take_while(|row| row.at == at).count();
        let next = rows[..same].iter().position(|row| match ordered.last() {
            Some(last) => follows(last, row),
            None => row.transition == "register",
        });
        ordered.push(rows.remove(next.unwrap_or(0)));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::InstanceId;

    fn event(at: u64, transition: &str, from: Option<State>, to: State, run: &str) -> EventRow {
        EventRow {
            instance: InstanceId::new("i-1").unwrap(),
            at: Timestamp::from_millis(at),
            transition: transition.to_owned(),
            from,
            to,
            run: (!run.is_empty()).then(|| RunId::new(run).unwrap()),
            why: String::new(),
        }
    }

    fn life() -> Vec<EventRow> {
        use State::{Claimed, Created, Idle, Running, Terminated};
        vec![
            event(1, "register", None, Created, "1"),
            event(2, "activate", Some(Created), Running, "1"),
            event(3, "release", Some(Running), Idle, ""),
            event(4, "claim", Some(Idle), Claimed, "2"),
            event(5, "commit", Some(Claimed), Running, "2"),
            event(6, "reap", Some(Running), Terminated, ""),
        ]
    }

    fn words(steps: &[Step]) -> Vec<String> {
        let word = |step: &Step| match step {
            Step::Event { event, .. } => event.transition.clone(),
            Step::Gap(gap) => {
                let state = |state: Option<State>| state.map_or("?", State::as_str);
                format!("{}…{}", state(gap.from.map(|from| from.0)), state(gap.to))
            }
        };
        steps.iter().map(word).collect()
    }

    fn told(rows: Vec<EventRow>) -> Vec<String> {
        words(&whole_life(Events { rows, is_partial: false }, None))
    }

    #[test]
    fn a_whole_life_has_no_gap_and_each_lost_event_is_one() {
        let names = ["register", "activate", "release", "claim", "commit", "reap"];
        assert_eq!(told(life()), names);
        for (lost, gap) in [
            (0, "?…created"),
            (1, "created…running"),
            (2, "running…idle"),
            (3, "idle…claimed"),
            (4, "claimed…running"),
        ] {
            let mut rows = life();
            rows.remove(lost);
            let mut expected: Vec<&str> = names.to_vec();
            expected[lost] = gap;
            assert_eq!(told(rows), expected, "without {}", names[lost]);
        }
        let mut rows = life();
        rows.pop();
        assert_eq!(told(rows).last().unwrap(), "running…?", "its record is gone");
    }

    #[test]
    fn a_loss_that_leaves_the_same_state_is_seen_by_the_owner() {
        use State::{Claimed, Idle, Running};
        // The release of run 1 and the claim of run 2 are lost.
        let rows = vec![
            event(1, "register", None, State::Created, "1"),
            event(2, "activate", Some(State::Created), Running, "1"),
            event(5, "renew", Some(Running), Running, "2"),
        ];
        assert_eq!(told(rows)[2], "running…running");
        let rows = vec![
            event(4, "claim", Some(Idle), Claimed, "2"),
            event(5, "give-back", Some(Claimed), Idle, ""),
            event(5, "claim", Some(Idle), Claimed, "3"),
            event(5, "expire", Some(Claimed), Claimed, "3"),
        ];
        let mut shuffled = rows.clone();
        shuffled.swap(1, 3);
        let expected = ["?…idle", "claim", "give-back", "claim", "expire", "claimed…?"];
        assert_eq!(told(rows), expected);
        assert_eq!(told(shuffled), expected, "those of one millisecond are put in order");
    }

    #[test]
    fn the_part_of_a_run_begins_with_a_claim_and_ends_with_a_loss() {
        let (one, two) = (RunId::new("1").unwrap(), RunId::new("2").unwrap());
        let part = |range: std::ops::Range<usize>, run| {
            words(&part_of_run(life()[range].to_vec(), run, None, false))
        };
        assert_eq!(part(0..3, &one), ["register", "activate", "release"]);
        assert_eq!(part(3..6, &two), ["claim", "commit", "reap"]);
        assert_eq!(part(3..5, &two), ["claim", "commit", "running…?"], "how it ended is unknown");
        assert_eq!(part(4..6, &two), ["?…claimed", "commit", "reap"], "the claim is unknown");
    }

    #[test]
    fn the_beginning_of_a_part_may_exist_and_not_have_been_read() {
        let run = RunId::new("2").unwrap();
        let unread = |rows: &[EventRow], is_partial| -> Vec<bool> {
            let steps = part_of_run(rows.to_vec(), &run, None, is_partial);
            steps.iter().filter_map(|step| Some(step.gap()?.is_unread)).collect()
        };
        let (beginning_cut, whole) = (&life()[4..], &life()[3..]);
        assert_eq!(
            (unread(beginning_cut, true), unread(beginning_cut, false)),
            (vec![true], vec![false])
        );
        assert_eq!(unread(whole, true), [true; 0]);
        let end_lost = &life()[4..5];
        assert_eq!(unread(end_lost, true), [true, false], "later events were all read");
    }

    #[test]
    fn the_run_that_lost_the_machine_is_known_from_the_event_before() {
        let steps = whole_life(Events { rows: life(), is_partial: false }, None);
        let (row, before) = steps[2].event().unwrap();
        assert_eq!((row.transition.as_str(), before.unwrap().as_str()), ("release", "1"));
        let mut rows = life();
        rows.remove(1);
        let steps = whole_life(Events { rows, is_partial: false }, None);
        assert_eq!(steps[2].event().unwrap().1, None, "not across a gap");
    }
}
