use std::time::Duration;

use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::ids::{InstanceId, ResourceClass, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::secret::Secret;
use ondeck_core::modes::provision::{MachineSource, Milestones, Outcome, PoolSearch, Timings};
use serde_json::{Value, json};

use super::environment::Parent;
use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn trace(parent: Option<Parent>) -> (Trace, Instant) {
    let began = Moment { of_day: SystemTime::UNIX_EPOCH + ms(1_000), steady: Instant::now() };
    let collector = Collector {
        url: Secret::new("http://127.0.0.1:9"),
        headers: Vec::new(),
        service: "ondeck".to_owned(),
        parent,
    };
    let at = |span| began.steady + span;
    let begun = vec![
        ("looking for idle machines in the pool".to_owned(), at(ms(100))),
        ("launching new machines: 1".to_owned(), at(ms(300))),
    ];
    let stages = Stages { begun: Mutex::new(begun), shown_by: Mutex::default() };
    let trace = Trace { collector, mode: "provision", began, stages: Arc::new(stages) };
    (trace, at(ms(3_000)))
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn outcome() -> Outcome {
    let machine = |name: &str, source, [owned, registered, ready]: [u64; 3]| Provisioned {
        id: InstanceId::new(name).unwrap(),
        label: "17".to_owned(),
        source,
        spec: MachineSpec {
            resource_class: ResourceClass::new("large").unwrap(),
            instance_type: "c6i.large".to_owned(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4_096,
        },
        milestones: Milestones {
            found: (source == MachineSource::Warm).then(|| ms(5)),
            owned: ms(owned),
            registered: ms(registered),
            ready: ms(ready),
        },
        why: String::new(),
    };
    Outcome {
        run: RunId::new("17").unwrap(),
        label: Label::from(&RunId::new("17").unwrap()),
        requested: 2,
        usage: UsageClass::Spot,
        instances: vec![
            machine("i-1", MachineSource::Warm, [10, 40, 90]),
            machine("i-2", MachineSource::Cold, [400, 2_500, 2_500]),
        ],
        timings: Timings { total: ms(2_900), ..Timings::default() },
        search: PoolSearch::default(),
        failure: None,
        terminated: Vec::new(),
        returned: Vec::new(),
        kept: Vec::new(),
        clean_up_failures: Vec::new(),
    }
}

/// The spans of a request, after each was compared with what OTLP demands of it.
fn read(body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    let resource = &body["resourceSpans"][0];
    assert_eq!(body["resourceSpans"].as_array().unwrap().len(), 1);
    assert_eq!(
        resource["resource"]["attributes"][0],
        json!({ "key": "service.name", "value": { "stringValue": "ondeck" } })
    );
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    let mut ids = Vec::new();
    for span in &spans {
        check(span);
        let id = span["spanId"].as_str().unwrap().to_owned();
        assert!(!ids.contains(&id), "twice: {id}");
        let parent = span["parentSpanId"].as_str();
        let is_root = ids.is_empty();
        assert!(
            is_root || parent.is_some_and(|parent| ids.iter().any(|id| id == parent)),
            "{span}"
        );
        ids.push(id);
    }
    spans
}

fn check(span: &Value) {
    let known = [
        "traceId",
        "spanId",
        "parentSpanId",
        "name",
        "kind",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "attributes",
        "status",
    ];
    let fields = span.as_object().unwrap();
    assert!(fields.keys().all(|field| known.contains(&field.as_str())), "{span}");
    let is_hex = |field: &str, length: usize| {
        let text = span[field].as_str().unwrap();
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == length && text.bytes().all(hex) && text.bytes().any(|byte| byte != b'0')
    };
    assert!(is_hex("traceId", 32) && is_hex("spanId", 16), "{span}");
    assert!(fields.get("parentSpanId").is_none() || is_hex("parentSpanId", 16), "{span}");
    assert!(!span["name"].as_str().unwrap().is_empty());
    assert_eq!(span["kind"], 1);
    let nanos = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"), "{span}");
    assert!((0..=2).contains(&span["status"]["code"].as_u64().unwrap()), "{span}");
    for attribute in span["attributes"].as_array().unwrap() {
        assert!(!attribute["key"].as_str().unwrap().is_empty());
        let value = attribute["value"].as_object().unwrap();
        assert_eq!(value.len(), 1, "{attribute}");
        let is_number = |it: &Value| it.as_str().is_some_and(|it| it.parse::<i64>().is_ok());
        let is_so = value.get("stringValue").is_some_and(Value::is_string)
            || value.get("intValue").is_some_and(is_number);
        assert!(is_so, "{attribute}");
    }
}

fn ids() -> impl FnMut() -> u64 {
    let mut last = 0;
    move || {
        last += 1;
        last
    }
}

#[test]
fn a_provision_has_its_stages_and_the_way_of_each_machine() {
    let parent = Parent { trace: TRACE.to_owned(), span: "b7ad6b7169203331".to_owned() };
    let (trace, ended) = trace(Some(parent));
    let outcome = outcome();
    let result = CallResult::Provision(Some(&outcome));
    let spans = trace.spans("acme/shop", ended, &result, None, &mut ids());
    let spans = read(&otlp::json("ondeck", &spans));
    let line = |span: &Value| {
        let ms = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap() / 1_000_000;
        let (from, to) = (ms("startTimeUnixNano"), ms("endTimeUnixNano"));
        let parent = span["parentSpanId"].as_str().unwrap_or("-").trim_start_matches('0');
        let id = span["spanId"].as_str().unwrap().trim_start_matches('0');
        format!("{id} of {parent}: {} {from} to {to}", span["name"].as_str().unwrap())
    };
    let lines: Vec<String> = spans.iter().map(line).collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    1 of b7ad6b7169203331: ondeck provision 1000 to 4000
    2 of 1: looking for idle machines in the pool 1100 to 1300
    3 of 1: launching new machines 1300 to 4000
    4 of 1: cold machine 1100 to 3600
    5 of 4: register 1500 to 3600
    6 of 1: warm machine 1105 to 1190
    7 of 6: claim 1105 to 1110
    8 of 6: register 1110 to 1140
    9 of 6: confirm 1140 to 1190
    ");
    assert!(spans.iter().all(|span| span["traceId"] == TRACE));
    assert_eq!(spans[0]["status"], json!({ "code": 1 }));
    let run = json!({ "key": "ondeck.run", "value": { "stringValue": "17" } });
    assert!(spans[0]["attributes"].as_array().unwrap().contains(&run), "{}", spans[0]);
}

#[test]
fn a_failure_is_the_status_and_a_trace_without_a_parent_has_an_id_of_its_own() {
    let (trace, ended) = trace(None);
    let failure = Failure::new(FailureKind::NoCapacity, "no capacity");
    let result = CallResult::Provision(None);
    let spans = trace.spans("acme/shop", ended, &result, Some(&failure), &mut ids());
    let spans = read(&otlp::json("ondeck", &spans));
    let root = &spans[0];
    assert_eq!(root["traceId"], "00000000000000010000000000000002");
    assert!(root.get("parentSpanId").is_none(), "{root}");
    assert_eq!(root["status"], json!({ "code": 2, "message": "no capacity" }));
    assert_eq!(spans.len(), 3);
}

#[test]
fn a_trace_is_bounded() {
    let (trace, ended) = trace(None);
    for n in 0..1_000 {
        trace.stages.stage(&format!("stage {n}"));
    }
    let mut outcome = outcome();
    let machine = outcome.instances[0].clone();
    outcome.instances = vec![machine; 400];
    let result = CallResult::Provision(Some(&outcome));
    let spans = trace.spans("p", ended, &result, None, &mut ids());
    assert_eq!(spans.len(), 1 + STAGES + 4 * MACHINES);
}

#[test]
fn the_name_of_a_stage_has_no_details() {
    for (doing, name) in [
        ("rescuing run 17-build: 2 jobs wait for a machine", "rescuing run"),
        ("launching large machines to keep warm: 2", "launching large machines to keep warm"),
        ("cleaning up: no capacity", "cleaning up"),
        ("setting up", "setting up"),
    ] {
        assert_eq!(name_of(doing), name);
    }
}
