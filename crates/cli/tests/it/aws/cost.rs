//! `ondeck cost` on AWS, with the operator's role: the harness fails a test whose calls the policies deny.

use ondeck_standin::{AwsFault, AwsFaultRule, Service};
use serde_json::json;

use super::harness::AwsHarness;
use crate::cost::account;
use crate::harness::Driven;

#[test]
fn what_a_machine_cost_is_read_from_dynamodb_alone() {
    let harness = AwsHarness::with(&[]);
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    harness.provision("2", 1).succeeded();
    harness.control.reset();
    let account = account(&harness, &[]);
    let calls = harness.control.calls();
    assert!(calls.keys().all(|(service, _)| *service == Service::DynamoDb), "{calls:?}");
    assert!(harness.control.total() <= 30, "{calls:?}");
    assert_eq!(account["machines"][0]["instanceId"], json!(machine));
    assert_eq!(account["total"]["isApproximate"], json!(false), "{account:#}");
    let runs = account["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| &run["runId"]).collect::<Vec<_>>(), ["2", "warm-up"]);
    assert_eq!(account["alwaysCold"]["warm"], json!(1));
    assert!(account["total"]["totalDollars"].as_f64().unwrap() > 0.0, "{account:#}");
}

#[test]
fn events_that_were_lost_make_it_approximate() {
    let harness = AwsHarness::with(&[]);
    harness.provision("1", 1).succeeded();
    let lost = AwsFaultRule::new(AwsFault::Refusal(400, "ValidationException"));
    harness.control.inject(lost.service(Service::DynamoDb).operation("BatchWriteItem"));
    harness.release("1").succeeded();
    harness.control.clear_faults();
    let account = account(&harness, &[]);
    assert_eq!(account["total"]["isApproximate"], json!(true), "{account:#}");
    assert!(account["total"]["uncertainSeconds"].as_f64().unwrap() > 0.0, "{account:#}");
}
