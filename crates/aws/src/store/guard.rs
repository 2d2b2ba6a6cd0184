//! The translation of a guard into a condition expression. Its meaning is [`Guard::admits`]; the
//! contract suite holds the two against each other over every state, owner and lease.

use aws_sdk_dynamodb::types::AttributeValue;
use ondeck_core::lifecycle::{DepartureGuard, Guard, LeaseGuard, RunGuard, StateGuard, UseGuard};
use ondeck_core::model::departure::Departure;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::State;

use super::keys::{LAST_TIME, number, text};

/// What every guard requires of a record: that it can be read. DynamoDB judges the condition, so a
/// corrupt row has to be refused there. Times are compared as texts, which sort like the moments that they stand for.
const SOUND: &str = "attribute_type(#resourceClass, :isText) \
     AND attribute_type(#instanceType, :isText) \
     AND attribute_type(#usageClass, :isText) \
     AND attribute_type(#cpu, :isNumber) \
     AND attribute_type(#mem, :isNumber) \
     AND attribute_type(#generation, :isNumber) \
     AND attribute_type(#runs, :isNumber) \
     AND attribute_type(#missedRegistrations, :isNumber) \
     AND #createdAt BETWEEN :firstTime AND :lastTime \
     AND #updatedAt BETWEEN :firstTime AND :lastTime \
     AND (#threshold = :nothing OR #threshold BETWEEN :firstTime AND :lastTime) \
     AND (#ticketedAt = :nothing OR #ticketedAt BETWEEN :firstTime AND :lastTime)";

const SOUND_VALUES: [(&str, &str); 5] = [
    (":isText", "S"),
    (":isNumber", "N"),
    (":firstTime", "1970-01-01T00:00:00.000Z"),
    (":lastTime", LAST_TIME),
    (":nothing", ""),
];

/// A condition expression, and the texts that its placeholders stand for.
#[derive(Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) text: String,
    pub(super) values: Vec<(&'static str, AttributeValue)>,
}

/// Translates a guard, and adds that the record makes sense.
pub(super) fn condition(guard: &Guard) -> Condition {
    let mut condition = translation(guard);
    if matches!(guard, Guard::Found { .. }) {
        condition.text = format!("{} AND {SOUND}", condition.text);
        condition.values.extend(SOUND_VALUES.map(|(name, value)| (name, text(value))));
    }
    condition
}

fn translation(guard: &Guard) -> Condition {
    let Guard::Found { state, run, lease, generation, uses, departs } = guard else {
        return Condition { text: "attribute_not_exists(#PK)".to_owned(), values: Vec::new() };
    };
    let mut terms = Vec::new();
    let mut values = Vec::new();
    match state {
        StateGuard::Is(state) => {
            terms.push("#state = :inState");
            values.push((":inState", text(state)));
        }
        StateGuard::Live => {
            // A missing attribute differs from everything; of a missing record nothing is live.
            terms.push("attribute_exists(#state) AND #state <> :inState");
            values.push((":inState", text(State::Terminated)));
        }
    }
    if let RunGuard::Is(run) = run {
        terms.push("#runId = :ofRun");
        values.push((":ofRun", text(run.as_ref().map_or("", RunId::as_str))));
    }
    match lease {
        LeaseGuard::Unexpired(now) => {
            terms.push("#threshold > :now");
            values.push((":now", text(now)));
        }
        LeaseGuard::Expired(now) => {
            // No threshold is the empty text, which sorts before every time.
            terms.push("#threshold <> :never AND #threshold <= :now");
            values.extend([(":never", text("")), (":now", text(now))]);
        }
        LeaseGuard::Within(now, until) => {
            terms.push("#threshold > :now AND #threshold <= :until");
            values.extend([(":now", text(now)), (":until", text(until))]);
        }
        LeaseGuard::Is(at) => {
            terms.push("#threshold = :now");
            values.push((":now", text(at)));
        }
        LeaseGuard::Any => {}
    }
    if let Some(generation) = generation {
        terms.push("#generation = :ofGeneration");
        values.push((":ofGeneration", number(generation)));
    }
    // A version without this attribute does not write it.
    const REUSABLE: &str = "(attribute_not_exists(#reuse) OR #reuse = :reusable)";
    let reusable = (":reusable", text(""));
    match uses {
        UseGuard::Reusable => {
            terms.push(REUSABLE);
            values.push(reusable);
        }
        UseGuard::Unused => {
            terms.extend([REUSABLE, "#runs = :noRuns"]);
            values.extend([reusable, (":noRuns", number(0))]);
        }
        UseGuard::Any => {}
    }
    // A version without this attribute does not write it either.
    let stays = (":stays", text(Departure::None.stored()));
    match departs {
        DepartureGuard::None => {
            terms.push("(attribute_not_exists(#departure) OR #departure = :stays)");
            values.push(stays);
        }
        DepartureGuard::NotDrained => {
            terms.push("(attribute_not_exists(#departure) OR #departure IN (:stays, :retired))");
            values.extend([stays, (":retired", text(Departure::Retired.stored()))]);
        }
        DepartureGuard::Any => {}
    }
    Condition { text: terms.join(" AND "), values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondeck_core::model::timestamp::Timestamp;

    const NOW: &str = "1970-01-01T00:00:00.000Z";

    fn found(state: StateGuard, run: RunGuard, lease: LeaseGuard, of: Option<u32>) -> Guard {
        Guard::Found {
            state,
            run,
            lease,
            generation: of,
            uses: UseGuard::Any,
            departs: DepartureGuard::Any,
        }
    }

    #[test]
    fn every_part_of_a_guard_becomes_a_term() {
        let now = Timestamp::from_millis(0);
        let idle = StateGuard::Is(State::Idle);
        let run = RunGuard::Is(Some("7".parse().unwrap()));
        type Values = &'static [(&'static str, &'static str)];
        let cases: [(Guard, &str, Values); 7] = [
            (Guard::Absent, "attribute_not_exists(#PK)", &[]),
            (
                found(idle, RunGuard::Is(None), LeaseGuard::Unexpired(now), Some(4)),
                "#state = :inState AND #runId = :ofRun AND #threshold > :now \
                 AND #generation = :ofGeneration",
                &[(":inState", "idle"), (":ofRun", ""), (":now", NOW), (":ofGeneration", "4")],
            ),
            (
                found(
                    StateGuard::Is(State::Running),
                    run.clone(),
                    LeaseGuard::Unexpired(now),
                    None,
                ),
                "#state = :inState AND #runId = :ofRun AND #threshold > :now",
                &[(":inState", "running"), (":ofRun", "7"), (":now", NOW)],
            ),
            (
                found(StateGuard::Live, RunGuard::Any, LeaseGuard::Expired(now), None),
                "attribute_exists(#state) AND #state <> :inState \
                 AND #threshold <> :never AND #threshold <= :now",
                &[(":inState", "terminated"), (":never", ""), (":now", NOW)],
            ),
            (
                found(
                    idle,
                    RunGuard::Any,
                    LeaseGuard::Within(now, Timestamp::from_millis(1)),
                    None,
                ),
                "#state = :inState AND #threshold > :now AND #threshold <= :until",
                &[(":inState", "idle"), (":now", NOW), (":until", "1970-01-01T00:00:00.001Z")],
            ),
            (
                found(idle, RunGuard::Is(None), LeaseGuard::Any, Some(0)),
                "#state = :inState AND #runId = :ofRun AND #generation = :ofGeneration",
                &[(":inState", "idle"), (":ofRun", ""), (":ofGeneration", "0")],
            ),
            (
                found(StateGuard::Is(State::Claimed), run, LeaseGuard::Any, None),
                "#state = :inState AND #runId = :ofRun",
                &[(":inState", "claimed"), (":ofRun", "7")],
            ),
        ];
        for (guard, terms, values) in cases {
            let value = |(name, value): &(&'static str, &str)| match *name {
                ":ofGeneration" => (*name, number(value)),
                _ => (*name, text(value)),
            };
            let values = values.iter().map(value).collect();
            assert_eq!(translation(&guard), Condition { text: terms.to_owned(), values });
        }
    }

    #[test]
    fn a_claim_requires_what_its_run_has_asked_for() {
        const REUSABLE: &str = "(attribute_not_exists(#reuse) OR #reuse = :reusable)";
        for (uses, terms, names) in [
            (UseGuard::Any, String::new(), vec![]),
            (UseGuard::Reusable, format!(" AND {REUSABLE}"), vec![":reusable"]),
            (
                UseGuard::Unused,
                format!(" AND {REUSABLE} AND #runs = :noRuns"),
                vec![":reusable", ":noRuns"],
            ),
        ] {
            let guard = Guard::Found {
                state: StateGuard::Is(State::Idle),
                run: RunGuard::Any,
                lease: LeaseGuard::Any,
                generation: None,
                uses,
                departs: DepartureGuard::Any,
            };
            let translated = translation(&guard);
            assert_eq!(translated.text, format!("#state = :inState{terms}"));
            let found: Vec<&str> =
                translated.values.iter().skip(1).map(|(name, _)| *name).collect();
            assert_eq!(found, names);
        }
    }

    #[test]
    fn a_machine_that_operators_have_marked_is_told_apart() {
        const STAYS: &str = "(attribute_not_exists(#departure) OR #departure = :stays)";
        const SERVES: &str =
            "(attribute_not_exists(#departure) OR #departure IN (:stays, :retired))";
        for (departs, term, names) in [
            (DepartureGuard::None, STAYS, vec![(":stays", text(""))]),
            (
                DepartureGuard::NotDrained,
                SERVES,
                vec![(":stays", text("")), (":retired", text("retired"))],
            ),
        ] {
            let guard = Guard::Found {
                state: StateGuard::Is(State::Idle),
                run: RunGuard::Any,
                lease: LeaseGuard::Any,
                generation: None,
                uses: UseGuard::Any,
                departs,
            };
            let translated = translation(&guard);
            assert_eq!(translated.text, format!("#state = :inState AND {term}"));
            assert_eq!(translated.values[1..], names);
        }
    }

    #[test]
    fn nothing_is_built_on_what_makes_no_sense() {
        let reap = found(
            StateGuard::Live,
            RunGuard::Any,
            LeaseGuard::Expired(Timestamp::from_millis(0)),
            None,
        );
        let condition = condition(&reap);
        assert!(condition.text.ends_with(SOUND), "{}", condition.text);
        assert!(condition.values.contains(&(":isNumber", text("N"))));
        assert_eq!(super::condition(&Guard::Absent), translation(&Guard::Absent));
    }
}
