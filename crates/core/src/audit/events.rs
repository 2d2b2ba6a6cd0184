use std::collections::BTreeMap;

use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{EventRow, State};

/// Replays the events of each instance, which must come in the order of their commits. Each event
/// must start in the state where the one before ended, be a transition of the design, and leave
/// the owner unchanged unless the instance was idle in between.
///
/// Only for logs that know the state before every write: an event without it (see
/// [`EventRow::from`]) counts as a violation unless it is a registration.
pub fn illegal_events(events: &[EventRow]) -> Vec<String> {
    let mut last: BTreeMap<&InstanceId, (Option<State>, Option<&RunId>)> = BTreeMap::new();
    let mut violations = Vec::new();
    for event in events {
        let now = (Some(event.to), event.run.as_ref());
        let (state, owner) = last.insert(&event.instance, now).unwrap_or_default();
        let interrupted = event.from != state || state == Some(State::Terminated);
        let taken_over = owner.is_some() && event.run.is_some() && owner != event.run.as_ref();
        if !is_transition(event) || interrupted || taken_over {
            violations.push(format!(
                "{}, {} of run {}: {} from {} to {} of run {} at {}",
                event.instance,
                named(state.map(State::as_str)),
                named(owner.map(RunId::as_str)),
                event.transition,
                named(event.from.map(State::as_str)),
                event.to,
                named(event.run.as_ref().map(RunId::as_str)),
                event.at,
            ));
        }
    }
    violations
}

/// The instances whose last event does not terminate them.
pub fn not_terminated(events: &[EventRow]) -> Vec<String> {
    let last: BTreeMap<&InstanceId, State> =
        events.iter().map(|event| (&event.instance, event.to)).collect();
    let live = last.into_iter().filter(|(_, state)| state.is_live());
    live.map(|(id, state)| format!("{id} is still {state}")).collect()
}

fn is_transition(event: &EventRow) -> bool {
    use State::{Claimed, Created, Idle, Running, Terminated};
    match (event.transition.as_str(), event.from, event.to) {
        ("register", None, Created)
        | ("activate", Some(Created), Running)
        | ("claim", Some(Idle), Claimed)
        | ("commit", Some(Claimed), Running)
        | ("release", Some(Running), Idle)
        | ("give-back", Some(Claimed), Idle)
        | ("renew", Some(Idle), Idle)
        | ("renew", Some(Running), Running)
        | ("preserve", Some(Running), Running)
        | ("reap", Some(Created | Idle | Claimed | Running), Terminated) => true,
        ("expire", Some(from), to) => from == to && from.is_live(),
        _ => false,
    }
}

fn named(word: Option<&str>) -> &str {
    word.unwrap_or("none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::timestamp::Timestamp;

    fn event(transition: &str, from: Option<State>, to: State, run: Option<&str>) -> EventRow {
        EventRow {
            instance: InstanceId::new("i-1").unwrap(),
            at: Timestamp::from_millis(1),
            transition: transition.to_owned(),
            from,
            to,
            run: run.map(|run| RunId::new(run).unwrap()),
            why: String::new(),
        }
    }

    #[test]
    fn a_legal_history_passes_and_each_violation_is_found() {
        let legal = [
            event("register", None, State::Created, Some("1")),
            event("activate", Some(State::Created), State::Running, Some("1")),
            event("release", Some(State::Running), State::Idle, None),
            event("claim", Some(State::Idle), State::Claimed, Some("2")),
        ];
        assert_eq!(illegal_events(&legal), Vec::<String>::new());
        assert_eq!(not_terminated(&legal), ["i-1 is still claimed"]);
        let reap = event("reap", Some(State::Claimed), State::Terminated, None);
        let whole = [&legal[..], &[reap]].concat();
        assert_eq!(illegal_events(&whole), Vec::<String>::new());
        assert_eq!(not_terminated(&whole), Vec::<String>::new());
        for (violation, what) in [
            (event("claim", Some(State::Claimed), State::Claimed, Some("3")), "claimed twice"),
            (event("commit", Some(State::Claimed), State::Running, Some("3")), "owner changed"),
            (event("commit", Some(State::Idle), State::Running, Some("2")), "gap in the history"),
            (event("promote", Some(State::Claimed), State::Running, Some("2")), "unknown name"),
            (event("expire", Some(State::Claimed), State::Idle, None), "expiry changes the state"),
            (event("renew", Some(State::Claimed), State::Claimed, Some("7")), "renewed claim"),
            (event("reap", None, State::Terminated, None), "unknown state before"),
        ] {
            let found = illegal_events(&[&legal[..], &[violation]].concat());
            assert_eq!(found.len(), 1, "{what}: {found:?}");
        }
        let revived = event("expire", Some(State::Terminated), State::Terminated, None);
        assert_eq!(illegal_events(&[&whole[..], &[revived]].concat()).len(), 1);
    }
}
