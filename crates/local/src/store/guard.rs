//! Translates a guard into SQL. Its meaning is [`Guard::admits`]; the contract suite compares the two
//! over every state, owner and lease.

use ondeck_core::lifecycle::{DepartureGuard, Guard, LeaseGuard, RunGuard, StateGuard, UseGuard};
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::State;
use rusqlite::types::Value;

/// A condition on an existing row of `instances`. `values` are the parameters of its `?`, in order.
#[derive(Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) sql: String,
    pub(crate) values: Vec<Value>,
}

/// Returns the condition that admits exactly the rows that the guard admits.
pub(crate) fn condition(guard: &Guard) -> Condition {
    let Guard::Found { state, run, lease, generation, uses, departs } = guard else {
        // The guard admits only an absent row, and this one exists.
        return Condition { sql: "FALSE".to_owned(), values: Vec::new() };
    };
    let mut terms = Vec::new();
    let mut values = Vec::new();
    match state {
        StateGuard::Is(state) => {
            terms.push("state = ?");
            values.push(state.to_string().into());
        }
        StateGuard::Live => {
            terms.push("state <> ?");
            values.push(State::Terminated.to_string().into());
        }
    }
    if let RunGuard::Is(run) = run {
        terms.push("run = ?");
        values.push(run.as_ref().map_or("", RunId::as_str).to_owned().into());
    }
    match lease {
        LeaseGuard::Unexpired(now) => {
            terms.push("threshold > ?");
            values.push(now.to_string().into());
        }
        LeaseGuard::Expired(now) => {
            // No threshold is the empty text, which sorts before every time.
            terms.push("threshold <> '' AND threshold <= ?");
            values.push(now.to_string().into());
        }
        LeaseGuard::Within(now, until) => {
            terms.push("threshold > ? AND threshold <= ?");
            values.extend([now.to_string().into(), until.to_string().into()]);
        }
        LeaseGuard::Is(at) => {
            terms.push("threshold = ?");
            values.push(at.to_string().into());
        }
        LeaseGuard::Any => {}
    }
    if let Some(generation) = generation {
        terms.push("generation = ?");
        values.push((*generation).into());
    }
    match uses {
        UseGuard::Reusable => terms.push("reuse = ''"),
        UseGuard::Unused => terms.push("reuse = '' AND runs = 0"),
        UseGuard::Any => {}
    }
    match departs {
        DepartureGuard::None => terms.push("departure = ''"),
        DepartureGuard::NotDrained => terms.push("departure IN ('', 'retired')"),
        DepartureGuard::Any => {}
    }
    Condition { sql: terms.join(" AND "), values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondeck_core::model::timestamp::Timestamp;

    #[test]
    fn every_part_of_a_guard_becomes_a_term() {
        let now = Timestamp::from_millis(0);
        let claim = Guard::Found {
            state: StateGuard::Is(State::Idle),
            run: RunGuard::Is(None),
            lease: LeaseGuard::Unexpired(now),
            generation: Some(3),
            uses: UseGuard::Unused,
            departs: DepartureGuard::NotDrained,
        };
        assert_eq!(
            condition(&claim),
            Condition {
                sql: "state = ? AND run = ? AND threshold > ? AND generation = ? \
                      AND reuse = '' AND runs = 0 AND departure IN ('', 'retired')"
                    .into(),
                values: vec![
                    "idle".to_owned().into(),
                    String::new().into(),
                    "1970-01-01T00:00:00.000Z".to_owned().into(),
                    3.into(),
                ],
            }
        );
        let reap = Guard::Found {
            state: StateGuard::Live,
            run: RunGuard::Any,
            lease: LeaseGuard::Expired(now),
            generation: None,
            uses: UseGuard::Any,
            departs: DepartureGuard::Any,
        };
        assert_eq!(condition(&reap).sql, "state <> ? AND threshold <> '' AND threshold <= ?");
        assert_eq!(condition(&Guard::Absent).sql, "FALSE");
        let renewal = Guard::Found {
            state: StateGuard::Is(State::Idle),
            run: RunGuard::Any,
            lease: LeaseGuard::Within(now, Timestamp::from_millis(1)),
            generation: None,
            uses: UseGuard::Reusable,
            departs: DepartureGuard::None,
        };
        let texts = ["idle", "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z"];
        assert_eq!(
            condition(&renewal),
            Condition {
                sql: "state = ? AND threshold > ? AND threshold <= ? AND reuse = '' \
                      AND departure = ''"
                    .into(),
                values: texts.map(|text| text.to_owned().into()).into(),
            }
        );
    }
}
