//! The count of machines: one item, so that each change is one conditional write. Reservations are
//! entries of a map in it.
//!
//! Items of their own would need a transaction for each reservation, and concurrent transactions on
//! one item cancel each other.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure as OnRefusal};
use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Reserved, Settlement,
};
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass};
use ondeck_core::model::money::Money;
use ondeck_core::model::spend::{ReservedSpend, Spend, SpendSettlement};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;

use super::keys::{Item, Key, item, names_in, number, read_number, read_text, text};
use super::table::Table;

/// Makes a reservation, or finds the count that refuses it: one call either way.
pub(super) async fn reserve(
    table: &Table,
    reservation: &Reservation,
    limits: &Limits,
) -> PortResult<ReservationVerdict> {
    const EFFECT: &str = "SET #total = #total + :count, \
         #classes.#class = if_not_exists(#classes.#class, :zero) + :count, \
         #reservations.#intent = :reserved, #version = #version + :one";
    const MONEY: &str = ", #spend.#committed = #spend.#committed + :cost";
    let condition = condition(reservation, limits);
    let Reservation { intent, class, count, deadline, spend } = reservation.clone();
    let (settled_at, machines) = (None, Vec::new());
    let reserved = Reserved { class: class.clone(), count, deadline, settled_at, machines, spend };
    let mut values = condition.values;
    let mut effect = EFFECT.to_owned();
    if let (Some(limit), Some(asked)) = (&limits.spend, &spend) {
        effect.push_str(MONEY);
        values.push((":cost", number(asked.on(limit.day, limit.day).nanos())));
    }
    values.extend([
        (":count", number(count)),
        (":zero", number(0)),
        (":one", number(1)),
        (":reserved", reserved_value(&reserved)),
    ]);
    let update = table
        .client
        .update_item()
        .table_name(&table.name)
        .set_key(Some(Key::machine_count().attributes()))
        .set_expression_attribute_names(Some(names(&[&effect, &condition.text], &class, &intent)))
        .set_expression_attribute_values(Some(owned(values)))
        .update_expression(effect)
        .condition_expression(condition.text)
        .return_values_on_condition_check_failure(OnRefusal::AllOld);
    match table.ask(update.send()).await {
        Ok(_) => Ok(ReservationVerdict::Granted),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(refusal)) => {
                Ok(ReservationVerdict::Refused(refusal.item().and_then(count_of)))
            }
            _ => Err(table.port_error("UpdateItem", &error)),
        },
    }
}

/// A condition expression and the values that it names.
struct Condition {
    text: String,
    values: Vec<(&'static str, AttributeValue)>,
}

/// The meaning of [`MachineCount::admits`] as a condition.
fn condition(reservation: &Reservation, limits: &Limits) -> Condition {
    let mut text = "#since = :since AND attribute_not_exists(#reservations.#intent)".to_owned();
    let mut values = vec![(":since", self::text(limits.since))];
    // The most machines that there may be before; negative if the launch alone is too large.
    let room = |limit: u32| i64::from(limit) - i64::from(reservation.count);
    if let Some(limit) = limits.pool {
        text.push_str(" AND #total <= :pool");
        values.push((":pool", number(room(limit))));
    }
    if let Some(limit) = limits.class {
        // A class without a number has no machines.
        text.push_str(match room(limit) >= 0 {
            true => " AND (attribute_not_exists(#classes.#class) OR #classes.#class <= :class)",
            false => " AND #classes.#class <= :class",
        });
        values.push((":class", number(room(limit))));
    }
    if let Some(limit) = &limits.spend {
        let cost = reservation.spend.map(|asked| asked.on(limit.day, limit.day));
        text.push_str(match cost {
            Some(_) => {
                " AND #spend.#since = :cap AND #spend.#day = :day AND #spend.#committed <= :money"
            }
            // Without a cost, core admits nothing below a cap.
            None => " AND #spend.#since = :cap AND #spend.#since <> :cap",
        });
        values.push((":cap", self::text(limit.since)));
        if let Some(cost) = cost {
            values.push((":day", self::text(limit.day)));
            values.push((":money", number((limit.cap - cost).nanos())));
        }
    }
    Condition { text, values }
}

/// Settles a reservation, unless it has another number of places or another price. Of one whose money was
/// reserved on another day, only the places are given back.
pub(super) async fn settle(table: &Table, settlement: &Settlement) -> PortResult<()> {
    match &settlement.spend {
        None => settle_as(table, settlement, Refund::None).await.map(drop),
        Some(money) => {
            if !settle_as(table, settlement, Refund::OfDay(money)).await? {
                settle_as(table, settlement, Refund::OfAnotherDay(money)).await?;
            }
            Ok(())
        }
    }
}

/// What becomes of the money of a settlement.
enum Refund<'a> {
    None,
    /// It is given back, if the count is of its day.
    OfDay(&'a SpendSettlement),
    /// It stays reserved, if the count is of another day or has no cap.
    OfAnotherDay(&'a SpendSettlement),
}

/// Returns whether the condition held.
async fn settle_as(table: &Table, settlement: &Settlement, refund: Refund<'_>) -> PortResult<bool> {
    const EFFECT: &str = "SET #reservations.#intent.#count = :to, \
         #reservations.#intent.#settledAt = :at, #reservations.#intent.#machines = :machines, \
         #version = #version + :one, \
         #total = #total - :back, #classes.#class = #classes.#class - :back";
    const CONDITION: &str = "#reservations.#intent.#count = :from";
    const MONEY: &str = ", #reservations.#intent.#hourly = :hourly, \
         #spend.#committed = #spend.#committed - :money";
    const OF_DAY: &str = " AND #spend.#day = :day AND #reservations.#intent.#hourly = :reserved";
    const OF_ANOTHER_DAY: &str = " AND (attribute_not_exists(#spend.#day) OR #spend.#day <> :day)";
    let Settlement { intent, class, from, to, machines, at, spend: _ } = settlement;
    let Some(back) = from.checked_sub(*to) else { return Ok(true) };
    let (mut effect, mut condition) = (EFFECT.to_owned(), CONDITION.to_owned());
    let mut values = vec![
        (":from", number(from)),
        (":to", number(to)),
        (":back", number(back)),
        (":at", text(at)),
        (":machines", machines_value(machines)),
        (":one", number(1)),
    ];
    match refund {
        Refund::None => {}
        Refund::OfDay(money) => {
            effect.push_str(MONEY);
            condition.push_str(OF_DAY);
            values.extend([
                (":reserved", number(money.reserved.nanos())),
                (":hourly", number(money.hourly.nanos())),
                (":money", number(money.back.nanos())),
                (":day", text(money.day)),
            ]);
        }
        Refund::OfAnotherDay(money) => {
            condition.push_str(OF_ANOTHER_DAY);
            values.push((":day", text(money.day)));
        }
    }
    let update = table
        .client
        .update_item()
        .table_name(&table.name)
        .set_key(Some(Key::machine_count().attributes()))
        .set_expression_attribute_names(Some(names(&[&effect, &condition], class, intent)))
        .set_expression_attribute_values(Some(owned(values)))
        .update_expression(effect)
        .condition_expression(condition);
    match table.ask(update.send()).await {
        Ok(_) => Ok(true),
        Err(error) => match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
            _ => Err(table.port_error("UpdateItem", &error)),
        },
    }
}

pub(super) async fn read(table: &Table) -> PortResult<Option<MachineCount>> {
    Ok(table.get(&Key::machine_count(), true).await?.as_ref().and_then(count_of))
}

/// Replaces the count, if it has this version.
pub(super) async fn replace(
    table: &Table,
    version: Option<u64>,
    count: &MachineCount,
) -> PortResult<bool> {
    let mut put = table.client.put_item().table_name(&table.name);
    put = match version {
        Some(version) => put
            .condition_expression("#version = :version")
            .expression_attribute_values(":version", number(version)),
        // An item without a version is one that `read` cannot read.
        None => put
            .condition_expression("NOT attribute_type(#version, :number)")
            .expression_attribute_values(":number", text("N")),
    };
    let put = put.expression_attribute_names("#version", "version");
    match table.ask(put.set_item(Some(count_item(count))).send()).await {
        Ok(_) => Ok(true),
        Err(error) => match error.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(_)) => Ok(false),
            _ => Err(table.port_error("PutItem", &error)),
        },
    }
}

/// What the names in expressions stand for; `#class` and `#intent` are keys of maps.
fn names(
    expressions: &[&str],
    class: &ResourceClass,
    intent: &IntentId,
) -> HashMap<String, String> {
    let mut names = names_in(expressions);
    for (name, key) in [("#class", class.as_str()), ("#intent", intent.as_str())] {
        if let Some(value) = names.get_mut(name) {
            key.clone_into(value);
        }
    }
    names
}

fn owned(values: Vec<(&'static str, AttributeValue)>) -> HashMap<String, AttributeValue> {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn count_item(count: &MachineCount) -> Item {
    let MachineCount { since, version, recounts, total, classes, reservations, spend } = count;
    let classes = classes.iter().map(|(class, count)| (class.to_string(), number(count)));
    let reservations =
        reservations.iter().map(|(id, reserved)| (id.to_string(), reserved_value(reserved)));
    let mut written = Key::machine_count().attributes();
    written.extend(item([
        ("since", text(since)),
        ("version", number(version)),
        ("recounts", number(recounts)),
        ("total", number(total)),
        ("classes", AttributeValue::M(classes.collect())),
        ("reservations", AttributeValue::M(reservations.collect())),
    ]));
    written.extend(spend.as_ref().map(|spend| ("spend".to_owned(), spend_value(spend))));
    written
}

/// Amounts are numbers of billionths of a dollar.
fn spend_value(spend: &Spend) -> AttributeValue {
    let Spend { since, day, as_of, spent, hourly, committed } = spend;
    AttributeValue::M(item([
        ("since", text(since)),
        ("day", text(day)),
        ("asOf", text(as_of)),
        ("spent", number(spent.nanos())),
        ("hourly", number(hourly.nanos())),
        ("committed", number(committed.nanos())),
    ]))
}

fn spend_of(item: &Item) -> Result<Option<Spend>, String> {
    let Some(value) = item.get("spend") else { return Ok(None) };
    let value = value.as_m().map_err(|_| "spend is no map".to_owned())?;
    Ok(Some(Spend {
        since: time(value, "since")?,
        day: time(value, "day")?,
        as_of: time(value, "asOf")?,
        spent: money(value, "spent")?,
        hourly: money(value, "hourly")?,
        committed: money(value, "committed")?,
    }))
}

fn money(item: &Item, name: &str) -> Result<Money, String> {
    read_number(item, name).map(Money::from_nanos)
}

fn reserved_value(reserved: &Reserved) -> AttributeValue {
    let Reserved { class, count, deadline, settled_at, machines, spend } = reserved;
    let mut value =
        item([("class", text(class)), ("count", number(count)), ("deadline", text(deadline))]);
    if let Some(at) = settled_at {
        value.insert("settledAt".to_owned(), text(at));
        value.insert("machines".to_owned(), machines_value(machines));
    }
    if let Some(ReservedSpend { hourly, from, until }) = spend {
        value.extend(item([
            ("hourly", number(hourly.nanos())),
            ("from", text(from)),
            ("until", text(until)),
        ]));
    }
    AttributeValue::M(value)
}

fn machines_value(machines: &[InstanceId]) -> AttributeValue {
    AttributeValue::L(machines.iter().map(text).collect())
}

/// Reads the count. One that is corrupt but has a version is read as a count for no ceiling: it
/// admits no launch, and refresh replaces it.
fn count_of(item: &Item) -> Option<MachineCount> {
    let warn = |problem: &String| {
        tracing::warn!("unreadable count of machines: {problem}; refresh replaces it");
    };
    let version = whole(item, "version").inspect_err(warn).ok()?;
    let void = MachineCount { version, ..MachineCount::empty(Timestamp::from_millis(0)) };
    Some(counted(item, version).inspect_err(warn).unwrap_or(void))
}

fn counted(item: &Item, version: u64) -> Result<MachineCount, String> {
    let map = |name: &str| match item.get(name) {
        Some(AttributeValue::M(map)) => Ok(map),
        _ => Err(format!("{name} is no map")),
    };
    let class = |(name, value): (&String, &AttributeValue)| {
        let single = HashMap::from([("count".to_owned(), value.clone())]);
        let class: ResourceClass = name.parse().map_err(|error| format!("{error}"))?;
        Ok((class, whole(&single, "count")?))
    };
    let reservation = |(name, value): (&String, &AttributeValue)| {
        let intent: IntentId = name.parse().map_err(|error| format!("{error}"))?;
        let AttributeValue::M(value) = value else { return Err(format!("{name} is no map")) };
        Ok((intent, reserved(value)?))
    };
    Ok(MachineCount {
        since: time(item, "since")?,
        version,
        // A version of ondeck without this attribute does not write it.
        recounts: if item.contains_key("recounts") { whole(item, "recounts")? } else { 0 },
        total: whole(item, "total")?,
        classes: map("classes")?.iter().map(class).collect::<Result<BTreeMap<_, _>, String>>()?,
        reservations: map("reservations")?
            .iter()
            .map(reservation)
            .collect::<Result<BTreeMap<_, _>, String>>()?,
        spend: spend_of(item)?,
    })
}

fn reserved(item: &Item) -> Result<Reserved, String> {
    let settled = item.contains_key("settledAt").then(|| time(item, "settledAt"));
    Ok(Reserved {
        class: read_text(item, "class")?.parse().map_err(|error| format!("{error}"))?,
        count: whole(item, "count")?,
        deadline: time(item, "deadline")?,
        settled_at: settled.transpose()?,
        machines: machines(item)?,
        spend: match item.contains_key("hourly") {
            false => None,
            true => Some(ReservedSpend {
                hourly: money(item, "hourly")?,
                from: time(item, "from")?,
                until: time(item, "until")?,
            }),
        },
    })
}

fn machines(item: &Item) -> Result<Vec<InstanceId>, String> {
    let Some(listed) = item.get("machines") else { return Ok(Vec::new()) };
    let listed = listed.as_l().map_err(|_| "machines is no list".to_owned())?;
    let id = |value: &AttributeValue| {
        let text = value.as_s().map_err(|_| "a machine is not text".to_owned())?;
        text.parse().map_err(|error| format!("{error}"))
    };
    listed.iter().map(id).collect()
}

fn whole<T: TryFrom<i64>>(item: &Item, name: &str) -> Result<T, String> {
    let number = read_number(item, name)?;
    number.try_into().map_err(|_| format!("{name} is out of range: {number}"))
}

fn time(item: &Item, name: &str) -> Result<Timestamp, String> {
    Timestamp::parse(read_text(item, name)?).map_err(|error| error.to_string())
}
