use std::collections::{BTreeMap, BTreeSet};

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::modes::provision::{PoolSearch, Timings};
use proptest::prelude::*;

use super::table::{METRICS, Metric};
use super::*;
use crate::control::report::status::fixture::pool as pool_of;

/// One sample of a text.
#[derive(Debug, PartialEq)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads a text as strictly as the format is defined: each metric once, with its help and its type
/// before its samples, each sample once, names and escapes as they must be. Panics where it is not so.
fn read(text: &str) -> Vec<Sample> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is ended");
    let (mut samples, mut seen) = (Vec::<Sample>::new(), BTreeSet::new());
    let mut metric = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            assert_eq!(lines.next(), Some(format!("# TYPE {name} gauge").as_str()), "{line}");
            assert!(seen.insert(name.to_owned()), "twice: {name}");
            name.clone_into(&mut metric);
            continue;
        }
        let sample = sample(line);
        assert_eq!(sample.name, metric, "below its own help: {line}");
        let same = |other: &Sample| other.name == sample.name && other.labels == sample.labels;
        assert!(!samples.iter().any(same), "twice: {line}");
        samples.push(sample);
    }
    samples
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn sample(line: &str) -> Sample {
    let (name, mut rest) = line.split_once('{').expect("a name and labels");
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    loop {
        let (label, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(label) && !label.starts_with("__"), "{line}");
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect("an escaped character").1 {
                    'n' => '\n',
                    same @ ('\\' | '"') => same,
                    other => panic!("no escape: {other}"),
                }),
                (_, plain) => value.push(plain),
            }
        };
        assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ").expect("a value").parse().expect("a number");
    Sample { name: name.to_owned(), labels, value }
}

fn refreshed(pool: &str, outcome: Option<&refresh::Outcome>) -> String {
    let ended = SystemTime::UNIX_EPOCH + Duration::from_millis(1_750_000_000_500);
    let (took, result) = (Duration::from_millis(1_250), CallResult::Refresh(outcome));
    prometheus(&Snapshot { pool, status: None, call: Some(Call { ended, took, result }) })
}

fn busy_refresh() -> refresh::Outcome {
    let run = |name: &str| RunId::new(name).unwrap();
    refresh::Outcome {
        reaped: vec![InstanceId::new("i-1").unwrap()],
        machines: Some(7),
        oldest_orphan: Some(Duration::from_secs(75)),
        warmed: 2,
        stranded: vec![Label::from(&run("17"))],
        rescued: vec![Label::from(&run("18")), Label::from(&run("19"))],
        silent: vec![InstanceId::new("i-2").unwrap()],
        warnings: vec!["one".to_owned()],
        ..refresh::Outcome::default()
    }
}

fn provisioned() -> provision::Outcome {
    let ms = Duration::from_millis;
    provision::Outcome {
        run: RunId::new("17").unwrap(),
        label: Label::from(&RunId::new("17").unwrap()),
        requested: 3,
        usage: UsageClass::Spot,
        instances: Vec::new(),
        timings: Timings {
            adoption: ms(10),
            selection: ms(200),
            creation: ms(3_000),
            validation: ms(40_000),
            post_provision: ms(50),
            total: ms(43_260),
        },
        search: PoolSearch::default(),
        failure: Some(Failure::new(FailureKind::NoCapacity, "no")),
        terminated: Vec::new(),
        returned: Vec::new(),
        kept: Vec::new(),
        clean_up_failures: Vec::new(),
    }
}

#[test]
fn the_text_of_a_refresh() {
    let text = refreshed("acme/shop", Some(&busy_refresh()));
    read(&text);
    insta::assert_snapshot!(text);
}

#[test]
fn the_text_of_a_pool() {
    let judgement = pool_of(40);
    let status = Some(&judgement);
    let text = prometheus(&Snapshot { pool: "acme/shop", status, call: None });
    let samples = read(&text);
    let machines = samples.iter().filter(|sample| sample.name == "ondeck_machines");
    assert_eq!(machines.map(|sample| sample.value).sum::<f64>(), 40.0);
    insta::assert_snapshot!(text);
}

#[test]
fn the_text_of_a_provision() {
    let outcome = provisioned();
    let (ended, took) = (SystemTime::UNIX_EPOCH, Duration::from_secs(44));
    let result = CallResult::Provision(Some(&outcome));
    let call = Some(Call { ended, took, result });
    let text = prometheus(&Snapshot { pool: "acme/shop", status: None, call });
    read(&text);
    insta::assert_snapshot!(text);
}

/// Without an outcome there is nothing to tell but that it failed.
#[test]
fn a_call_that_failed_at_once_has_its_failure_only() {
    let names: Vec<String> =
        read(&refreshed("p", None)).into_iter().map(|sample| sample.name).collect();
    assert_eq!(
        names,
        [
            "ondeck_refresh_success",
            "ondeck_refresh_end_timestamp_seconds",
            "ondeck_refresh_duration_seconds",
        ]
    );
    assert_eq!(prometheus(&Snapshot::default()), "");
}

/// Each value of a label is a series that a server keeps, so no run and no machine is one.
#[test]
fn every_sample_is_of_the_table_and_no_label_grows_with_the_pool() {
    let (small, large) = (pool_of(400), pool_of(4_000));
    let text = |judgement| prometheus(&Snapshot { pool: "p", status: Some(judgement), call: None });
    let series = |text: &str| {
        let samples = read(text).into_iter();
        samples.map(|sample| (sample.name, sample.labels)).collect::<Vec<_>>()
    };
    assert_eq!(series(&text(&small)), series(&text(&large)), "ten times as many machines");
    let outcome = provisioned();
    let call = |result| {
        let (ended, took) = (SystemTime::UNIX_EPOCH, Duration::ZERO);
        let call = Some(Call { ended, took, result });
        prometheus(&Snapshot { pool: "p", status: None, call })
    };
    let texts = [
        text(&small),
        call(CallResult::Refresh(Some(&busy_refresh()))),
        call(CallResult::Provision(Some(&outcome))),
    ];
    for (name, labels) in texts.iter().flat_map(|text| series(text)) {
        let metric: &Metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
        let labels = labels.keys().filter(|label| *label != "pool");
        let known = |label: &String| metric.labels.contains(&label.as_str());
        assert!(labels.clone().all(known), "{name}: {:?}", labels.collect::<Vec<_>>());
    }
}

/// Names as Prometheus' conventions have them.
#[test]
fn names_are_unique_and_state_their_unit() {
    let mut names = BTreeSet::new();
    for Metric { name, help, labels, .. } in METRICS.iter().copied() {
        assert!(is_name(name) && name.starts_with("ondeck_") && names.insert(name), "{name}");
        assert!(!name.ends_with("_total"), "not a counter: {name}");
        for unit in ["_ms", "_millis", "_minutes", "_percent", "_time"] {
            assert!(!name.ends_with(unit), "a base unit: {name}");
        }
        assert!(!help.is_empty() && !help.ends_with('.') && !help.contains(['\n', '\\']), "{name}");
        let bounded = [
            "class", "usage", "state", "mark", "source", "kind", "reason", "cause", "result",
            "phase",
        ];
        assert!(labels.iter().all(|label| bounded.contains(label)), "{name}");
    }
}

proptest! {
    /// For any name of a pool, the text can be read, and has that name.
    #[test]
    fn any_name_of_a_pool_comes_back(pool in any::<String>()) {
        let pool = if pool.is_empty() { "p".to_owned() } else { pool };
        for sample in read(&refreshed(&pool, Some(&busy_refresh()))) {
            // A reader of lines would end one here, so that is escaped; every other one stays.
            prop_assert_eq!(&sample.labels["pool"], &pool);
        }
    }
}
