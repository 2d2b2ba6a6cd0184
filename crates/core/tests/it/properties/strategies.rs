//! What is fed in: things that are sound, texts that are nearly so, and anything at all.

use std::time::Duration;

use ondeck_core::model::ids::{InstanceId, ResourceClass, RunId};
use ondeck_core::model::label::LabelSuffix;
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::requirements::{TypePatterns, UsageClass};
use ondeck_core::model::timestamp::Timestamp;
use proptest::prelude::*;
use serde_json::Value;

/// Failures are printed with their input, which then becomes a test of its own; no file of them
/// is kept beside the code.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// One line, of a readable length: what every message must be.
#[track_caller]
pub(crate) fn assert_readable(message: &str) {
    assert!(!message.contains(char::is_control), "more than a line: {message:?}");
    assert!(message.chars().count() < 1_500, "too long to read: {message}");
}

/// Any text, line breaks and all; now and then a long one.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "(?s).{0,40}",
        2 => r"[\x00-\x20::#%\[\]{},0-9e.+-]{0,12}",
        1 => "(?s).{200,3000}",
    ]
}

/// Texts that are often right, and sometimes anything.
pub(crate) fn nearly(right: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        8 => proptest::sample::select(right).prop_map(str::to_owned),
        1 => Just(String::new()),
        1 => text(),
    ]
}

/// A sound text with a part of it cut out and something else put there.
pub(crate) fn corrupted(sound: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let place = (any::<prop::sample::Index>(), 0..12_usize, "(?s).{0,6}");
    (sound, prop::collection::vec(place, 1..4)).prop_map(|(mut text, places)| {
        for (at, length, instead) in places {
            let ends: Vec<usize> =
                text.char_indices().map(|(n, _)| n).chain([text.len()]).collect();
            let from = at.index(ends.len());
            let to = (from + length).min(ends.len() - 1);
            text.replace_range(ends[from]..ends[to], &instead);
        }
        text
    })
}

/// Any JSON at all, with our own names in it.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    const NAMES: &[&str] = &["instanceId", "cpu", "mem", "mmem", "run", "count", "times", "at"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(nearly(NAMES), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn name(longest: usize) -> impl Strategy<Value = String> {
    let letters = format!("[A-Za-z0-9_][A-Za-z0-9._-]{{0,{}}}", longest - 1);
    prop_oneof![
        "[a-z][a-z0-9-]{0,8}".boxed(),
        proptest::string::string_regex(&letters).unwrap().boxed()
    ]
}

pub(crate) fn instance_id() -> impl Strategy<Value = InstanceId> {
    name(64).prop_map(|name| InstanceId::new(name).unwrap())
}

pub(crate) fn run_id() -> impl Strategy<Value = RunId> {
    name(128).prop_map(|name| RunId::new(name).unwrap())
}

pub(crate) fn class() -> impl Strategy<Value = ResourceClass> {
    name(64).prop_map(|name| ResourceClass::new(name).unwrap())
}

/// Any moment that can be written.
pub(crate) fn time() -> impl Strategy<Value = Timestamp> {
    (0_u64..253_402_300_800_000).prop_map(Timestamp::from_millis)
}

pub(crate) fn usage() -> impl Strategy<Value = UsageClass> {
    prop_oneof![Just(UsageClass::Spot), Just(UsageClass::OnDemand)]
}

pub(crate) fn patterns() -> impl Strategy<Value = TypePatterns> {
    prop::collection::vec("[a-z0-9.*-]{1,30}", 1..6)
        .prop_map(|words| words.join(" ").parse().unwrap())
}

pub(crate) fn spec() -> impl Strategy<Value = MachineSpec> {
    (class(), text(), usage(), any::<u32>(), any::<u32>()).prop_map(
        |(resource_class, instance_type, usage_class, cpu, mem)| MachineSpec {
            resource_class,
            instance_type,
            usage_class,
            cpu,
            mem,
        },
    )
}

pub(crate) fn suffix() -> impl Strategy<Value = Option<LabelSuffix>> {
    proptest::option::of("[a-z0-9-]{1,32}".prop_map(|text| LabelSuffix::new(text).unwrap()))
}

/// A record that makes sense, in any state.
pub(crate) fn record() -> impl Strategy<Value = Record> {
    let state = proptest::sample::select(&State::ALL[..]);
    let what = (instance_id(), state, (run_id(), suffix()), spec());
    let when = (time(), time(), time(), proptest::option::of(time()));
    (what, when).prop_map(
        |((id, state, (run, suffix), spec), (threshold, created_at, updated_at, ticket))| Record {
            requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
            id,
            state,
            run: Some(run).filter(|_| state.is_owned()),
            threshold: Some(threshold).filter(|_| state.is_live()),
            spec,
            created_at,
            updated_at,
            ticketed_at: ticket,
            settings_version: None,
            reuse: ondeck_core::model::reuse::Reuse::Always,
            departure: ondeck_core::model::departure::Departure::None,
            suffix: suffix.filter(|_| state.is_owned()),
            counts: Counts::default(),
        },
    )
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
