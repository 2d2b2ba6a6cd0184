//! The one conditional write that decides everything.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnRefusal,
    TransactWriteItem, Update,
};
use ondeck_core::lifecycle::{Change, Guard, Next, RunGuard, StateGuard, Verdict};
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::{EventRow, Record, State, Unreadable};
use ondeck_core::ports::PortResult;

use super::events;
use super::guard::{Condition, condition};
use super::keys::{Item, Key, List, names_in, number, text};
use super::rows;
use super::table::{Statement, Table};

/// Makes a change, or finds what stands in its way: one call either way, since the answer brings
/// the record that the condition was judged by. Gives the item of the event that has come about,
/// too.
pub(super) async fn apply(
    table: &Table,
    change: &Change,
    shards: u32,
) -> PortResult<(Verdict, Option<Item>)> {
    let Expressions { effect, condition, names, values } = expressions(change, shards);
    let update = table
        .client
        .update_item()
        .table_name(&table.name)
        .set_key(Some(Key::record(change.id()).attributes()))
        .set_expression_attribute_names(Some(names))
        .set_expression_attribute_values(Some(values))
        .update_expression(effect)
        .condition_expression(condition)
        .return_values(ReturnValue::AllOld)
        .return_values_on_condition_check_failure(OnRefusal::AllOld);
    match table.ask(update.send()).await {
        Ok(answer) => Ok(made(change, answer.attributes, shards)),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(refusal)) => {
                Ok(refused(change, refusal.item(), shards))
            }
            _ => Err(table.port_error("UpdateItem", &error)),
        },
    }
}

/// The part of a transaction that makes a change. If the record is `known` and the guard admits it, the
/// condition is that it still is that one, which is shorter than the guard.
pub(super) fn part(
    table: &Table,
    change: &Change,
    known: Option<&Record>,
    shards: u32,
) -> TransactWriteItem {
    let known = known.filter(|known| change.applied_to(Some(known)).is_some());
    let condition = known.map_or_else(|| condition(change.guard()), still_is);
    let Expressions { effect, condition, names, values } = under(condition, change, shards);
    let update = Update::builder()
        .table_name(&table.name)
        .set_key(Some(Key::record(change.id()).attributes()))
        .set_expression_attribute_names(Some(names))
        .set_expression_attribute_values(Some(values))
        .update_expression(effect)
        .condition_expression(condition)
        .return_values_on_condition_check_failure(OnRefusal::AllOld);
    TransactWriteItem::builder().update(update.build().expect("a table and a key")).build()
}

/// The item of the event of a change that is made, as far as the change tells it.
pub(super) fn event_of(change: &Change, shards: u32) -> Item {
    let (to, run) = change.leaves();
    let row = EventRow {
        instance: change.id().clone(),
        at: change.at(),
        transition: change.transition().as_str().to_owned(),
        from: believed_before(change),
        to,
        run: run.cloned(),
        why: change.why().to_owned(),
    };
    events::item_of(&row, run.or(believed_run(change)), shards)
}

struct Expressions {
    effect: String,
    condition: String,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

fn expressions(change: &Change, shards: u32) -> Expressions {
    under(condition(change.guard()), change, shards)
}

fn under(condition: Condition, change: &Change, shards: u32) -> Expressions {
    let effect = effect(change.next(), change, shards);
    let mut values = effect.values;
    values.extend(condition.values.into_iter().map(|(name, value)| (name.to_owned(), value)));
    let names = names_in(&[&effect.text, &condition.text]);
    Expressions { effect: effect.text, condition: condition.text, names, values }
}

/// The condition that a record still is this one. It names all attributes that a guard looks at, and
/// `updatedAt`, which each change sets. So a record that meets it is the one that a guard has admitted.
fn still_is(known: &Record) -> Condition {
    const TEXT: &str = "#state = :wasState AND #runId = :wasOfRun AND #threshold = :wasUntil \
         AND #generation = :wasGeneration AND #runs = :wasRuns AND #updatedAt = :wasUpdated";
    let threshold = known.threshold.map(|at| at.to_string()).unwrap_or_default();
    let values = vec![
        (":wasState", text(known.state)),
        (":wasOfRun", text(known.run.as_ref().map_or("", RunId::as_str))),
        (":wasUntil", text(threshold)),
        (":wasGeneration", number(known.counts.generation)),
        (":wasRuns", number(known.counts.runs)),
        (":wasUpdated", text(known.updated_at)),
    ];
    Condition { text: TEXT.to_owned(), values }
}

/// The statement that makes a change if the record is still `known`, and what it then leaves, with the
/// item of its event. `None` if the guard does not admit `known`.
///
/// The condition names all attributes that a guard looks at, and `updatedAt`, which each change sets.
/// So a record that meets it is the one that the guard has admitted.
pub(super) fn statement(
    table: &Table,
    change: &Change,
    known: &Record,
    shards: u32,
) -> Option<(Statement, (Verdict, Option<Item>))> {
    let Next::Update { .. } = change.next() else { return None };
    let after = change.applied_to(Some(known))?;
    let Key { pk, sk } = Key::record(change.id());
    let effects = attributes(change.next(), change, shards);
    let sets: Vec<String> = effects.iter().map(|(name, _)| format!(r#"SET "{name}"=?"#)).collect();
    let text_of = format!(
        r#"UPDATE "{}" {} WHERE PK=? AND SK=? AND "state"=? AND runId=? AND threshold=? AND generation=? AND runs=? AND updatedAt=?"#,
        table.name,
        sets.join(" ")
    );
    let threshold = known.threshold.map(|at| at.to_string()).unwrap_or_default();
    let mut values: Vec<AttributeValue> = effects.into_iter().map(|(_, value)| value).collect();
    values.extend([text(pk), text(sk), text(known.state)]);
    values.extend([text(known.run.as_ref().map_or("", RunId::as_str)), text(threshold)]);
    values.extend([number(known.counts.generation), number(known.counts.runs)]);
    values.push(text(known.updated_at));
    let event = event_item(change, Some(known), &after, shards);
    Some(((text_of, values), (Verdict::Agreed(after), Some(event))))
}

/// The run that an instance becomes part of by a change, if it was not before.
pub(super) fn joined_run(change: &Change) -> Option<&RunId> {
    let run = match change.next() {
        Next::Insert(record) => record.run.as_ref(),
        Next::Update { run, .. } => run.as_ref(),
    }?;
    match change.guard() {
        Guard::Found { run: RunGuard::Is(Some(before)), .. } if before == run => None,
        _ => Some(run),
    }
}

struct Effect {
    text: String,
    values: HashMap<String, AttributeValue>,
}

fn effect(next: &Next, change: &Change, shards: u32) -> Effect {
    let attributes = attributes(next, change, shards);
    let assignments: Vec<String> =
        attributes.iter().map(|(name, _)| format!("#{name} = :{name}")).collect();
    Effect {
        text: format!("SET {}", assignments.join(", ")),
        values: attributes.into_iter().map(|(name, value)| (format!(":{name}"), value)).collect(),
    }
}

/// The attributes that a change sets.
fn attributes(next: &Next, change: &Change, shards: u32) -> Vec<(&'static str, AttributeValue)> {
    let (mut attributes, threshold) = match next {
        Next::Insert(record) => (rows::attributes(record), record.threshold),
        Next::Update {
            state,
            run,
            suffix,
            requested,
            threshold,
            counts,
            reuse,
            departure,
            keep_ticketed,
        } => {
            let mut attributes = vec![
                ("state", text(state)),
                ("runId", text(run.as_ref().map_or("", RunId::as_str))),
                ("label", text(requested.stored(run.as_ref(), suffix.as_ref()))),
                ("threshold", text(threshold.map(|at| at.to_string()).unwrap_or_default())),
                ("updatedAt", text(change.at())),
            ];
            if let Some(version) = change.settings_version() {
                attributes.push(("settingsVersion", text(version.as_str())));
            }
            if let Some(counts) = counts {
                attributes.extend(rows::counts(
                    counts.generation,
                    counts.runs,
                    counts.missed_registrations,
                ));
            }
            if let Some(reuse) = reuse {
                attributes.push(("reuse", text(reuse.stored())));
            }
            if let Some(departure) = departure {
                attributes.push(("departure", text(departure.stored())));
            }
            if !keep_ticketed {
                attributes.push(("ticketedAt", text("")));
            }
            (attributes, *threshold)
        }
    };
    let id = change.id().as_str();
    attributes.extend(match threshold {
        Some(threshold) => List::Live.entry(id, threshold, shards),
        None => List::Terminated.entry(id, change.at(), shards),
    });
    attributes
}

/// The write was made. What stands there now follows from what stood there before.
fn made(change: &Change, before: Option<Item>, shards: u32) -> (Verdict, Option<Item>) {
    let before = match before.filter(|item| !item.is_empty()).as_ref().map(rows::record) {
        None => None,
        Some(Ok(record)) => Some(record),
        Some(Err(unreadable)) => return (Verdict::Unreadable(unreadable), None),
    };
    match change.applied_to(before.as_ref()) {
        Some(after) => {
            let event = event_item(change, before.as_ref(), &after, shards);
            (Verdict::Agreed(after), Some(event))
        }
        None => {
            let problem = format!("{} was made against its guard", change.transition());
            (Verdict::Unreadable(Unreadable { id: change.id().to_string(), problem }), None)
        }
    }
}

fn event_item(change: &Change, before: Option<&Record>, after: &Record, shards: u32) -> Item {
    let row = event(change, before.map(|record| record.state), after);
    // A release concerns the run that it takes the machine from.
    let concerns = after.run.as_ref().or(before.and_then(|record| record.run.as_ref()));
    events::item_of(&row, concerns, shards)
}

/// The verdict on a change that was not made because of the record that was found, and the item of its
/// event if it had been made before.
pub(super) fn refused(
    change: &Change,
    found: Option<&Item>,
    shards: u32,
) -> (Verdict, Option<Item>) {
    match found.filter(|item| !item.is_empty()).map(rows::record) {
        None => (Verdict::Refused(None), None),
        Some(Err(unreadable)) => (Verdict::Unreadable(unreadable), None),
        Some(Ok(found)) => {
            // Made already, by a write whose answer was lost, and its event with it. Events of
            // the same change are one, so that this may well be the second.
            let event = change.is_done_in(&found).then(|| {
                let row = event(change, believed_before(change), &found);
                let concerns = found.run.as_ref().or(believed_run(change));
                events::item_of(&row, concerns, shards)
            });
            (Verdict::Refused(Some(found)), event)
        }
    }
}

/// The state that a change was meant for, where that is only one.
fn believed_before(change: &Change) -> Option<State> {
    match change.guard() {
        Guard::Found { state: StateGuard::Is(state), .. } => Some(*state),
        Guard::Found { state: StateGuard::Live, .. } | Guard::Absent => None,
    }
}

/// The run that a change was meant to take the machine from.
fn believed_run(change: &Change) -> Option<&RunId> {
    match change.guard() {
        Guard::Found { run: RunGuard::Is(run), .. } => run.as_ref(),
        Guard::Found { run: RunGuard::Any, .. } | Guard::Absent => None,
    }
}

fn event(change: &Change, from: Option<State>, after: &Record) -> EventRow {
    EventRow {
        instance: after.id.clone(),
        at: change.at(),
        transition: change.transition().as_str().to_owned(),
        from,
        to: after.state,
        run: after.run.clone(),
        why: change.why().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondeck_core::lifecycle::{Claimed, Created, Idle, Instance, Live};
    use ondeck_core::model::record::{Counts, MachineSpec};
    use ondeck_core::model::reuse::Reuse;
    use ondeck_core::model::timestamp::Timestamp;
    use std::time::Duration;

    fn record(state: State, run: Option<&str>) -> Record {
        Record {
            requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
            id: "i-1".parse().unwrap(),
            state,
            run: run.map(|run| run.parse().unwrap()),
            threshold: Some(Timestamp::from_millis(1_000)),
            spec: MachineSpec {
                resource_class: "large".parse().unwrap(),
                instance_type: "c6i.large".into(),
                usage_class: "spot".parse().unwrap(),
                cpu: 2,
                mem: 4_096,
            },
            counts: Counts::default(),
            created_at: Timestamp::from_millis(0),
            updated_at: Timestamp::from_millis(0),
            ticketed_at: None,
            settings_version: None,
            suffix: None,
            reuse: Reuse::Always,
            departure: ondeck_core::model::departure::Departure::None,
        }
    }

    fn effect_of(change: &Change) -> String {
        effect(change.next(), change, 1).text
    }

    #[test]
    fn an_effect_keeps_the_lists_of_live_and_terminated_records() {
        let (now, span) = (Timestamp::from_millis(0), Duration::from_secs(1));
        let idle = Instance::<Idle>::believe(&record(State::Idle, None)).unwrap();
        let claim = idle.claim(&"7".parse::<RunId>().unwrap(), now, span);
        assert_eq!(
            effect_of(claim.change()),
            "SET #state = :state, #runId = :runId, #label = :label, #threshold = :threshold, \
             #updatedAt = :updatedAt, #reuse = :reuse, #ticketedAt = :ticketedAt, \
             #listKey = :listKey, #listSort = :listSort"
        );
        let live = idle.into_live();
        assert_eq!(
            effect_of(live.expire(now).change()),
            "SET #state = :state, #runId = :runId, #label = :label, #threshold = :threshold, \
             #updatedAt = :updatedAt, #listKey = :listKey, #listSort = :listSort"
        );
        assert_eq!(
            effect_of(live.reap(now).change()),
            "SET #state = :state, #runId = :runId, #label = :label, #threshold = :threshold, \
             #updatedAt = :updatedAt, #ticketedAt = :ticketedAt, #listKey = :listKey, \
             #listSort = :listSort"
        );
    }

    #[test]
    fn the_condition_of_a_known_record_is_that_it_has_not_changed() {
        let (now, span) = (Timestamp::from_millis(0), Duration::from_secs(1));
        let claimed = record(State::Claimed, Some("7"));
        let change = Instance::<Claimed>::believe(&claimed).unwrap().commit(now, span);
        let short = still_is(&claimed);
        let Expressions { condition, names, values, .. } = under(short, change.change(), 1);
        assert_eq!(condition.matches(" AND ").count(), 5, "{condition}");
        for attribute in ["state", "runId", "threshold", "generation", "runs", "updatedAt"] {
            assert!(condition.contains(&format!("#{attribute} = :was")), "{condition}");
            assert!(names.contains_key(&format!("#{attribute}")), "{names:?}");
        }
        assert_eq!(values[":wasOfRun"], text("7"));
        assert_eq!(values[":runId"], text("7"), "what is set has other names");
    }

    #[test]
    fn only_what_makes_an_instance_a_run_s_is_noted() {
        let (now, span) = (Timestamp::from_millis(0), Duration::from_secs(1));
        let run: RunId = "7".parse().unwrap();
        let created = record(State::Created, Some("7"));
        let register = Instance::<Created>::register(&created.id, &created.spec, &run, now, span);
        let idle = Instance::<Idle>::believe(&record(State::Idle, None)).unwrap();
        assert_eq!(joined_run(register.change()), Some(&run));
        assert_eq!(joined_run(idle.claim(&run, now, span).change()), Some(&run));
        let created = Instance::<Created>::believe(&created).unwrap();
        assert_eq!(joined_run(created.activate(now, span).change()), None);
        assert_eq!(joined_run(created.expire(now).change()), None);
        let live: Instance<Live> = idle.into_live();
        assert_eq!(joined_run(live.reap(now).change()), None);
    }
}
