//! Where each item is in the one table, which lists find it, and how expressions name attributes.
//!
//! The first part of a partition key says what kind of item it is, so that a policy can name kinds
//! by `dynamodb:LeadingKeys`. The rest is the id of one machine, run or launch, so that no key
//! carries more load than that one causes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use ondeck_core::model::credentials::TokenPurpose;
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::{InstanceId, IntentId, RunId};
use ondeck_core::model::timestamp::Timestamp;

use crate::names::digest;

/// No time is later. Times are texts of one form, which sort like times.
pub(super) const LAST_TIME: &str = "9999-12-31T23:59:59.999Z";

pub(super) const SETTINGS: &str = "SETTING";
const INSTANCE: &str = "INSTANCE#";
const AGENT: &str = "AGENT#";
const INTENT: &str = "INTENT#";
const RUN: &str = "RUN#";
const DEMAND: &str = "DEMAND#";
const EVENT: &str = "EVENT#";
const SUMMARY: &str = "SUMMARY#";
const CREDENTIALS: &str = "CREDENTIALS#";
const CEILING: &str = "CEILING";

/// One item, as the SDK has it.
pub(super) type Item = HashMap<String, AttributeValue>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) pk: String,
    pub(super) sk: String,
}

impl Key {
    fn new(pk: String, sk: &str) -> Key {
        Key { pk, sk: sk.to_owned() }
    }

    /// The record of a machine.
    pub(super) fn record(id: impl std::fmt::Display) -> Key {
        Key::new(format!("{INSTANCE}{id}"), "RECORD")
    }

    /// What the agent of one machine writes. `identity` is what IAM knows the machine by.
    pub(super) fn agent(identity: &str) -> Key {
        Key::new(format!("{AGENT}{identity}"), "STATUS")
    }

    pub(super) fn setting(name: &str) -> Key {
        Key::new(SETTINGS.to_owned(), name)
    }

    pub(super) fn intent(id: &IntentId) -> Key {
        Key::new(format!("{INTENT}{id}"), "INTENT")
    }

    /// The set of machines that may be a run's.
    pub(super) fn run(run: &RunId) -> Key {
        Key::new(format!("{RUN}{run}"), "INSTANCES")
    }

    pub(super) fn demand(run: &RunId) -> Key {
        Key::new(format!("{DEMAND}{run}"), "DEMAND")
    }

    /// An event of a machine; `sort` tells the events of one machine apart.
    pub(super) fn event(id: &InstanceId, sort: &str) -> Key {
        Key::new(event_pk(id), sort)
    }

    /// A summary of a call of provision; `sort` tells those of one run apart.
    pub(super) fn summary(run: &RunId, sort: &str) -> Key {
        Key::new(format!("{SUMMARY}{run}"), sort)
    }

    /// A token for runners. Each has a key of its own, which no other kind of item shares.
    pub(super) fn token(purpose: TokenPurpose) -> Key {
        Key::new(format!("{CREDENTIALS}{}", purpose.as_str().to_ascii_uppercase()), "TOKEN")
    }

    /// The count of machines.
    pub(super) fn machine_count() -> Key {
        Key::new(CEILING.to_owned(), "COUNT")
    }

    /// As attributes: what finds the item, and what a new one begins with.
    pub(super) fn attributes(&self) -> Item {
        item([("PK", text(&self.pk)), ("SK", text(&self.sk))])
    }

    /// The key of an item that was read, also of one from an index.
    pub(super) fn of(item: &Item) -> Option<Key> {
        Some(Key {
            pk: read_text(item, "PK").ok()?.to_owned(),
            sk: read_text(item, "SK").ok()?.to_owned(),
        })
    }
}

/// The partition key of a machine's events.
pub(super) fn event_pk(id: &InstanceId) -> String {
    format!("{EVENT}{id}")
}

/// What the partition key names, without the kind of the item.
pub(super) fn id_of(item: &Item) -> Option<&str> {
    Some(item.get("PK")?.as_s().ok()?.split_once('#')?.1)
}

/// A list that the index `lists` keeps. Each list is spread over shards, so that no partition of the
/// index takes all writes of a large fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// Live records, by threshold.
    Live,
    /// Terminated records, by the time of their termination.
    Terminated,
    /// Intents without an outcome, by deadline.
    OpenIntents,
    /// What runs asked for, by time.
    Demands,
    /// The events of the day that a time is in, by time.
    Events(Timestamp),
    /// The summaries of calls that began on the day that a time is in, by time.
    Summaries(Timestamp),
}

impl List {
    /// The partition key of one shard.
    pub(super) fn key(self, shard: u32) -> String {
        match self {
            List::Live => format!("LIVE#{shard}"),
            List::Terminated => format!("TERMINATED#{shard}"),
            List::OpenIntents => format!("OPEN-INTENT#{shard}"),
            List::Demands => format!("OPEN-DEMAND#{shard}"),
            List::Events(at) => format!("EVENT-DAY#{}#{shard}", &at.to_string()[..10]),
            List::Summaries(at) => format!("SUMMARY-DAY#{}#{shard}", &at.to_string()[..10]),
        }
    }

    /// The attributes that put an item on the list, in the shard of its `id` and sorted by `sort`.
    pub(super) fn entry(
        self,
        id: &str,
        sort: impl ToString,
        shards: u32,
    ) -> [(&'static str, AttributeValue); 2] {
        [("listKey", text(self.key(digest(id) % shards.max(1)))), ("listSort", text(sort))]
    }
}

/// Attributes under their names.
pub(super) fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// When DynamoDB may delete an item, as its attribute `ttl` has it.
pub(super) fn ttl(at: Timestamp) -> (&'static str, AttributeValue) {
    ("ttl", number(at.millis() / 1_000))
}

#[expect(clippy::needless_pass_by_value, reason = "callers have a value as often as a reference")]
pub(super) fn text(text: impl ToString) -> AttributeValue {
    AttributeValue::S(text.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "callers have a value as often as a reference")]
pub(super) fn number(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A text among an item's attributes, or what is wrong with it.
pub(super) fn read_text<'a>(item: &'a Item, name: &str) -> Result<&'a str, String> {
    match item.get(name) {
        None => Err(format!("{name} is missing")),
        Some(AttributeValue::S(text)) => Ok(text),
        Some(_) => Err(format!("{name} is not text")),
    }
}

/// A whole number among an item's attributes, or what is wrong with it.
pub(super) fn read_number(item: &Item, name: &str) -> Result<i64, String> {
    match item.get(name) {
        None => Err(format!("{name} is missing")),
        Some(AttributeValue::N(number)) => {
            number.parse().map_err(|_| format!("{name} is no whole number: {}", quoted(number)))
        }
        Some(_) => Err(format!("{name} is no number")),
    }
}

/// What the `#names` in expressions stand for. Every attribute is written so, since many of ours
/// are words that DynamoDB keeps to itself; and it refuses a name that no expression uses.
pub(super) fn names_in(expressions: &[&str]) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for part in expressions.iter().flat_map(|text| text.split('#').skip(1)) {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        names.insert(format!("#{}", &part[..end]), part[..end].to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_expressions() {
        let names = names_in(&["SET #state = :state, #runId = :run", "(#state<>:x)", "a = :b"]);
        let expected = [("#state", "state"), ("#runId", "runId")];
        assert_eq!(names, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn each_kind_of_item_has_a_partition_key_of_its_own() {
        let (id, run) = ("i-1".parse().unwrap(), "7".parse().unwrap());
        let intent = "7-1".parse().unwrap();
        let keys = [
            Key::record(&id),
            Key::agent("arn:aws:ec2:r:1:instance/i-1"),
            Key::setting("ami"),
            Key::intent(&intent),
            Key::run(&run),
            Key::demand(&run),
            Key::event(&id, "x"),
            Key::token(TokenPurpose::Registration),
            Key::token(TokenPurpose::Removal),
            Key::machine_count(),
        ];
        let pks: Vec<&str> = keys.iter().map(|key| key.pk.as_str()).collect();
        assert_eq!(
            pks,
            [
                "INSTANCE#i-1",
                "AGENT#arn:aws:ec2:r:1:instance/i-1",
                "SETTING",
                "INTENT#7-1",
                "RUN#7",
                "DEMAND#7",
                "EVENT#i-1",
                "CREDENTIALS#REGISTRATION",
                "CREDENTIALS#REMOVAL",
                "CEILING",
            ]
        );
        assert_eq!(id_of(&keys[1].attributes()), Some("arn:aws:ec2:r:1:instance/i-1"));
        assert_eq!(Key::of(&keys[6].attributes()).as_ref(), Some(&keys[6]));
    }

    #[test]
    fn lists_are_spread_over_shards_by_id() {
        let noon = Timestamp::parse("2025-05-31T12:00:00Z").unwrap();
        assert_eq!(List::Events(noon).key(3), "EVENT-DAY#2025-05-31#3");
        let shards = |shards| {
            let mut used: Vec<AttributeValue> = (0..200)
                .map(|n| List::Live.entry(&format!("i-{n:017x}"), noon, shards)[0].1.clone())
                .collect();
            used.sort_by_key(|key| key.as_s().unwrap().clone());
            used.dedup();
            used.len()
        };
        assert_eq!((shards(0), shards(1), shards(8)), (1, 1, 8));
    }
}
