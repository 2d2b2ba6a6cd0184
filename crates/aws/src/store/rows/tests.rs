//! Corrupt items: each is named, and the others are still read.

use aws_sdk_dynamodb::primitives::Blob;
use ondeck_core::model::departure::Departure;
use ondeck_core::model::ids::{InstanceId, IntentId};
use ondeck_core::model::label::LabelSuffix;
use ondeck_core::model::machine_label::{MachineLabel, RequestedLabel};
use ondeck_core::model::record::State;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::settings::SettingsVersion;
use proptest::prelude::*;

use super::super::agent_status::{heartbeat, signal};
use super::*;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "(?s).{0,20}", 1 => "(?s).{300,900}", 1 => "[0-9.eE+-]{0,25}"]
}

/// Any value that DynamoDB can hold.
fn value() -> impl Strategy<Value = AttributeValue> {
    let leaf = prop_oneof![
        any_text().prop_map(AttributeValue::S),
        any_text().prop_map(AttributeValue::N),
        any::<bool>().prop_map(AttributeValue::Bool),
        Just(AttributeValue::Null(true)),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(|b| AttributeValue::B(Blob::new(b))),
        prop::collection::vec(any_text(), 0..3).prop_map(AttributeValue::Ss),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(AttributeValue::L),
            prop::collection::hash_map("signal|runId|[a-z]{1,5}", inner, 0..3)
                .prop_map(AttributeValue::M),
        ]
    })
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0_u64..253_402_300_800_000).prop_map(Timestamp::from_millis)
}

fn run() -> impl Strategy<Value = RunId> {
    "[a-z0-9]{1,20}".prop_map(|name| RunId::new(name).unwrap())
}

fn suffix() -> impl Strategy<Value = Option<LabelSuffix>> {
    proptest::option::of("[a-z0-9-]{1,32}".prop_map(|text| LabelSuffix::new(text).unwrap()))
}

/// A label of a machine.
fn own() -> MachineLabel {
    MachineLabel::new(format!("m{}", "3".repeat(32))).unwrap()
}

fn instance(n: usize) -> InstanceId {
    InstanceId::new(format!("i-{n}")).unwrap()
}

fn any_record() -> impl Strategy<Value = Record> {
    let when = (time(), time(), time(), proptest::option::of(time()));
    let what = (any_text(), any::<u32>(), any::<u32>(), any::<bool>());
    (proptest::sample::select(&State::ALL[..]), (run(), suffix()), when, what).prop_map(
        |(state, (run, suffix), (threshold, created_at, updated_at, ticketed_at), what)| Record {
            id: instance(0),
            state,
            run: Some(run).filter(|_| state.is_owned()),
            suffix: suffix.filter(|_| state.is_owned()),
            requested: [
                RequestedLabel::OfRun,
                RequestedLabel::OfMachine,
                RequestedLabel::Named(own()),
            ][if state.is_owned() { what.1 as usize % 3 } else { 0 }]
            .clone(),
            threshold: Some(threshold).filter(|_| state.is_live()),
            spec: ondeck_core::model::record::MachineSpec {
                resource_class: "large".parse().unwrap(),
                instance_type: what.0.clone(),
                usage_class: if what.3 { UsageClass::Spot } else { UsageClass::OnDemand },
                cpu: what.1,
                mem: what.2,
            },
            created_at,
            updated_at,
            ticketed_at,
            settings_version: SettingsVersion::parse(&what.0),
            counts: ondeck_core::model::record::Counts {
                generation: what.1,
                runs: what.2,
                missed_registrations: what.1,
            },
            reuse: if what.3 { Reuse::Never } else { Reuse::Always },
            departure: [Departure::None, Departure::Retired, Departure::Drained]
                [what.1 as usize % 3],
        },
    )
}

fn written(record: &Record) -> Item {
    let mut item = Key::record(&record.id).attributes();
    item.extend(attributes(record).into_iter().map(|(name, value)| (name.to_owned(), value)));
    item
}

fn any_report() -> impl Strategy<Value = Report> {
    let signal = proptest::sample::select(&Signal::ALL[..]);
    let generation = proptest::option::of(any::<u32>());
    let about = proptest::option::of((run(), suffix()));
    (signal, about, any_text(), time(), generation).prop_map(
        |(signal, about, detail, at, generation)| {
            let (run, suffix) = about.map_or((None, None), |(run, suffix)| (Some(run), suffix));
            let machine_label = generation.filter(|_| run.is_some()).map(|_| own());
            Report { machine_label, signal, run, suffix, detail, at, generation }
        },
    )
}

/// What is done to an item: an attribute is put there, or goes.
fn corruptions() -> impl Strategy<Value = Vec<(String, Option<AttributeValue>)>> {
    const NAMES: [&str; 24] = [
        "PK",
        "instanceId",
        "state",
        "runId",
        "threshold",
        "resourceClass",
        "instanceType",
        "usageClass",
        "cpu",
        "mem",
        "createdAt",
        "updatedAt",
        "ticketedAt",
        "label",
        "reuse",
        "heartbeatAt",
        "signal",
        "signalRun",
        "signalLabel",
        "signalAt",
        "signalGeneration",
        "readiness",
        "readinessAt",
        "more",
    ];
    let name = proptest::sample::select(&NAMES[..]).prop_map(str::to_owned);
    prop::collection::vec((name, proptest::option::of(value())), 1..4)
}

fn corrupt(item: &mut Item, corruptions: Vec<(String, Option<AttributeValue>)>) {
    for (name, value) in corruptions {
        match value {
            Some(value) => drop(item.insert(name, value)),
            None => drop(item.remove(&name)),
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_record_survives_being_written(record in any_record()) {
        prop_assert_eq!(super::record(&written(&record)), Ok(record));
    }

    #[test]
    fn an_item_that_is_corrupt_is_named_and_affects_no_other(
        records in prop::collection::vec(any_record(), 2..6), corrupted in any::<prop::sample::Index>(),
        corruptions in corruptions(),
    ) {
        let mut records = records;
        records.iter_mut().enumerate().for_each(|(n, record)| record.id = instance(n));
        let mut items: Vec<Item> = records.iter().map(written).collect();
        let at = corrupted.index(items.len());
        corrupt(&mut items[at], corruptions);
        let listing = listing(&items);
        prop_assert_eq!(listing.records.len() + listing.unreadable.len(), items.len());
        let others: Vec<&Record> = records.iter().filter(|r| r.id != records[at].id).collect();
        prop_assert!(others.iter().all(|other| listing.records.contains(other)));
        for unreadable in &listing.unreadable {
            prop_assert_eq!(unreadable.id.as_str(), id_of(&items[at]).unwrap_or("?"));
            let shown = unreadable.to_string();
            prop_assert!(!shown.contains(char::is_control), "{:?}", shown);
            prop_assert!(shown.chars().count() < 3_000, "{}", shown);
        }
    }

    #[test]
    fn an_attribute_of_another_kind_is_named(
        record in any_record(), at in any::<prop::sample::Index>(), gone in any::<bool>()
    ) {
        let names: Vec<&str> = attributes(&record).into_iter().map(|(name, _)| name).collect();
        let name = names[at.index(names.len())];
        let mut item = written(&record);
        let gone = gone && !["label", "reuse", "departure"].contains(&name);
        let other = (!gone).then_some(AttributeValue::Bool(true));
        corrupt(&mut item, vec![(name.to_owned(), other)]);
        let error = super::record(&item).unwrap_err();
        prop_assert_eq!(error.id.as_str(), "i-0");
        prop_assert!(error.problem.starts_with(&format!("{name} is ")), "{}", error);
    }

    #[test]
    fn an_item_without_a_label_is_of_a_version_that_has_none(record in any_record()) {
        let mut item = written(&record);
        item.remove("label");
        item.remove("reuse");
        let (suffix, requested, reuse) = (None, RequestedLabel::OfRun, Reuse::Always);
        prop_assert_eq!(super::record(&item), Ok(Record { suffix, requested, reuse, ..record }));
    }

    #[test]
    fn agent_status_survives_being_written_and_corrupt_parts_are_none(
        said in any_report(), at in time(), period in 0_u64..99_999,
        took in proptest::option::of(0_u64..99_999), ready in proptest::option::of(0_u64..99_999),
        corruptions in corruptions()
    ) {
        let mut item = Key::agent("i-0").attributes();
        item.extend(super::item(signal(&said)));
        let beat = ondeck_core::model::heartbeat::Heartbeat::new(at, Duration::from_millis(period));
        let beat = ondeck_core::model::heartbeat::Heartbeat {
            registration: took.map(Duration::from_millis),
            ready_claim: ready.map(Duration::from_millis),
            busy: period % 2 == 0,
            interrupted: period % 3 == 0,
            ..beat
        };
        item.extend(heartbeat(&beat).into_iter().map(|(name, value)| (name.to_owned(), value)));
        let expected = AgentStatus { readiness: None,  heartbeat: Some(beat), report: Some(said) };
        prop_assert_eq!(&agent_status(&item), &expected);
        corrupt(&mut item, corruptions.clone());
        let touched = |names: &[&str]| {
            corruptions.iter().any(|(name, _)| names.contains(&name.as_str()))
        };
        let read = agent_status(&item);
        if !touched(&["heartbeatAt", "heartbeatPeriodMs", "protocol", "registrationMs", "readyClaimMs", "busy", "interrupted"]) {
            prop_assert_eq!(read.heartbeat, expected.heartbeat);
        }
        if !touched(&["signal", "signalRun", "signalLabel", "signalAt", "signalGeneration"]) {
            prop_assert_eq!(read.report, expected.report);
        }
    }

    #[test]
    fn intents_survive_being_written_and_corrupt_ones_are_skipped(
        run in run(), count in any::<u32>(), deadline in time(), outcome in any_text(),
        class in proptest::option::of("[a-z0-9]{1,9}"),
        name in "intentId|runId|resourceClass|count|usageClass|deadline|outcome",
    ) {
        let id = IntentId::new("a-1").unwrap();
        let class = class.map(|class| class.parse().unwrap());
        let usage = UsageClass::Spot;
        let intent = Intent { id, run, class, count, usage, deadline, outcome };
        let mut item = intent_item(&intent, 1);
        prop_assert_eq!(item.contains_key("listKey"), intent.is_open());
        prop_assert_eq!(item.contains_key("ttl"), !intent.is_open());
        prop_assert_eq!(super::intent(&item), Some(intent.clone()));
        let mut earlier = item.clone();
        earlier.remove("resourceClass");
        prop_assert_eq!(super::intent(&earlier), Some(Intent { class: None, ..intent }));
        corrupt(&mut item, vec![(name, Some(AttributeValue::Bool(true)))]);
        prop_assert_eq!(super::intent(&item), None);
    }

    #[test]
    fn a_setting_is_kept_to_the_letter_or_skipped(name in "[a-z-]{1,20}", text in any_text(), other in value()) {
        let mut item = Key::setting(&name).attributes();
        item.insert("value".to_owned(), AttributeValue::S(text.clone()));
        prop_assert_eq!(setting(&item), Some((name, text)));
        let sound = other.is_s();
        item.insert("value".to_owned(), other);
        prop_assert_eq!(setting(&item).is_some(), sound);
    }

    #[test]
    fn tokens_survive_being_written_and_corrupt_ones_are_none(
        tokens in ("[A-Z0-9]{29}", "[A-Z0-9]{29}"), expires_at in time(), value in value(),
        name in "token|validUntil",
    ) {
        let (registration, removal) = (Secret::new(tokens.0), Secret::new(tokens.1));
        let kept = Credentials { registration, removal, expires_at };
        for purpose in [TokenPurpose::Registration, TokenPurpose::Removal] {
            let mut item = token_item(&kept, purpose);
            prop_assert_eq!(token(&item), Some(kept.token(purpose)));
            corrupt(&mut item, vec![(name.clone(), Some(value.clone()))]);
            let read = token(&item);
            prop_assert!(read.is_none() || read != Some(kept.token(purpose)));
        }
    }
}
