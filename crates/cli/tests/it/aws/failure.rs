//! What can go wrong on AWS, and what is said and left then.

use std::time::Duration;

use ondeck_standin::{AwsFault, AwsFaultRule, Capacity, Service};

use super::harness::AwsHarness;
use crate::harness::{Background, Driven};

#[test]
fn before_refresh_nothing_is_set_up() {
    let harness = AwsHarness::bare();
    for mode in [&["provision", "--run-id=1"][..], &["release", "--run-id=1"], &["status"]] {
        let done = harness.ondeck(mode).exited(3);
        assert!(done.stderr.contains("run ondeck refresh first"), "{done:?}");
    }
}

#[test]
fn the_first_provision_of_a_workflow_waits_for_the_first_refresh() {
    let harness = AwsHarness::bare();
    let provision = |patience: &str| {
        let mut command = harness.command(&["provision", "--run-id=1", patience]);
        Background::start(command.env("GITHUB_ACTIONS", "true"))
    };
    let done = provision("--registration-token-patience-sec=1").finish().exited(3);
    assert!(done.stderr.contains("and no refresh has run within 1 s"), "{done:?}");
    let waiting = provision("--registration-token-patience-sec=60");
    waiting.until_it_says("waiting for the first refresh to set up the pool");
    harness.set_up(&[]);
    waiting.finish().succeeded();
    assert_eq!(harness.standings(), ["running 1"]);
}

#[test]
fn a_release_reports_the_machine_whose_record_cannot_be_written() {
    let harness = AwsHarness::with(&[]);
    let ids = harness.provision("1", 3).succeeded().ids();
    // Together with the others, and by itself.
    for operation in ["BatchExecuteStatement", "UpdateItem"] {
        let rule = AwsFaultRule::new(AwsFault::Status(500)).service(Service::DynamoDb);
        harness.control.inject(rule.operation(operation).body_contains(&ids[1]));
    }
    let answer = harness.release("1").exited(6).json();
    for one in answer["instances"].as_array().unwrap() {
        let expected = if one["instanceId"] == ids[1] { "not-reached" } else { "pooled" };
        assert_eq!(one["outcome"], expected, "{answer}");
    }
    assert_eq!(answer["instances"].as_array().unwrap().len(), 3, "{answer}");
    assert_eq!(harness.standings(), ["idle", "idle", "running 1"]);
    harness.control.clear_faults();
    assert_eq!(harness.release("1").ids(), [ids[1].clone()], "the one that is left");
}

#[test]
fn a_key_pair_that_was_taken_back_is_gone_from_new_machines() {
    let harness = AwsHarness::with(&[]);
    let (operation, no_delay) = ("CreateLaunchTemplateVersion", AwsFault::Delay(Duration::ZERO));
    let rule = AwsFaultRule::new(no_delay).service(Service::Ec2).operation(operation);
    let with_key = harness.control.inject(rule.body_contains("operators"));
    // How many versions there are after the first, and how many of them have the key pair.
    let versions = || (harness.control.count(Service::Ec2, operation), with_key.matched());
    harness.refresh(&["--key-name=operators"]);
    harness.refresh(&[]);
    assert_eq!(versions(), (1, 1), "what is not given stays");
    harness.refresh(&["--reset=key-name"]);
    assert_eq!(versions(), (2, 1));
    // Without an image there would be no machines: refused, and nothing is changed.
    let done = harness.ondeck(&["refresh", "--reset=ami"]).exited(2);
    assert!(done.stderr.contains("ami"), "{done:?}");
    harness.provision("1", 1).succeeded();
}

#[test]
fn what_refresh_must_be_told_is_named() {
    let harness = AwsHarness::bare();
    let done = harness.ondeck(&["refresh"]).exited(2);
    assert!(done.stderr.contains("ami"), "{done:?}");
    let done = harness.ondeck(&["refresh", "--ami=ami-0123456789abcdef0"]).exited(2);
    assert!(done.stderr.contains("subnet-ids"), "{done:?}");
}

#[test]
fn no_pool_and_no_region_and_no_credentials_are_said_so() {
    let harness = AwsHarness::bare();
    let without = |names: &[&str]| {
        let mut command = harness.command(&["provision", "--run-id=1"]);
        for name in names {
            command.env_remove(name);
        }
        Background::start(&mut command).finish()
    };
    let done = without(&["ONDECK_POOL"]).exited(2);
    assert!(done.stderr.contains("no pool given"), "{done:?}");
    let done = without(&["AWS_REGION"]).exited(6);
    assert!(done.stderr.contains("no region is set"), "{done:?}");
    let done = without(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]).exited(6);
    assert!(done.stderr.contains("AWS_ACCESS_KEY_ID"), "{done:?}");
}

#[test]
fn a_fleet_that_comes_in_part_is_ended_and_the_claimed_go_back() {
    let harness = AwsHarness::with(&[]);
    let idle = harness.warm_up(1);
    harness.gateway.ec2().set_capacity(Capacity { total: Some(2), ..Capacity::default() });
    let done = harness.provision("2", 3).exited(4);
    assert!(done.stdout.contains("InsufficientInstanceCapacity"), "{done:?}");
    harness.until_machines(1);
    assert_eq!(harness.standings(), ["idle"]);
    assert_eq!(harness.provision("3", 1).succeeded().ids(), idle);
}

#[test]
fn spot_falls_back_to_on_demand_where_it_is_allowed_to() {
    let harness = AwsHarness::with(&[]);
    harness.gateway.ec2().set_capacity(Capacity { spot: Some(1), ..Capacity::default() });
    let spot = ["provision", "--json", "--run-id=1", "--instance-count=2", "--usage-class=spot"];
    let done = harness.ondeck(&spot).exited(4);
    assert!(done.json()["error"]["hint"].as_str().unwrap().contains("--capacity-fallback"));
    harness.until_machines(0);
    let done = harness.ondeck(&[&spot[..], &["--capacity-fallback"]].concat()).succeeded();
    let mut usage: Vec<String> = done.json()["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|instance| instance["usageClass"].as_str().unwrap().to_owned())
        .collect();
    usage.sort();
    assert_eq!(usage, ["on-demand", "spot"]);
    harness.gateway.assert_requests_valid();
}

#[test]
fn spot_that_ec2_was_too_busy_for_stays_spot() {
    let harness = AwsHarness::with(&[]);
    harness.gateway.ec2().throttle_fleets(2);
    let spot = ["provision", "--json", "--run-id=1", "--usage-class=spot", "--capacity-fallback"];
    let done = harness.ondeck(&spot).succeeded();
    assert_eq!(done.json()["instances"][0]["usageClass"], "spot");
    harness.gateway.assert_requests_valid();
}

#[test]
fn ec2_that_stays_too_busy_is_said_to_be_and_the_claimed_go_back() {
    let harness = AwsHarness::with(&[]);
    let idle = harness.warm_up(1);
    harness.gateway.ec2().throttle_fleets(1_000);
    let done = harness.provision("2", 2).exited(6);
    assert_eq!(done.json()["error"]["kind"], "busy");
    assert!(done.stdout.contains("RequestLimitExceeded"), "{done:?}");
    assert_eq!(harness.standings(), ["idle"]);
    assert_eq!(harness.provision("3", 1).succeeded().ids(), idle);
    harness.gateway.assert_requests_valid();
}

/// What a whole launch can fail with, as opposed to single machines of it.
const REFUSED_LAUNCHES: [AwsFault; 9] = [
    AwsFault::Throttle,
    AwsFault::Status(500),
    AwsFault::Status(503),
    AwsFault::Refusal(403, "UnauthorizedOperation"),
    AwsFault::Refusal(400, "InvalidLaunchTemplateId.NotFound"),
    AwsFault::Refusal(400, "InvalidLaunchTemplateName.NotFoundException"),
    AwsFault::Refusal(400, "InvalidSubnetID.NotFound"),
    AwsFault::Refusal(400, "InvalidAMIID.NotFound"),
    AwsFault::Refusal(400, "SomethingThatNoListHas"),
];

#[test]
fn a_launch_that_fails_as_a_whole_returns_what_was_claimed() {
    let harness = AwsHarness::with(&[]);
    let idle = harness.warm_up(2);
    for (n, what) in REFUSED_LAUNCHES.into_iter().enumerate() {
        let rule = AwsFaultRule::new(what).service(Service::Ec2).operation("CreateFleet");
        let fault = harness.control.inject(rule);
        let done = harness.provision(&format!("failed-{n}"), 3);
        assert_ne!(done.code, 0, "{what:?}: {done:?}");
        assert!(fault.fired() > 0, "{what:?}");
        assert_returned_and_reusable(&harness, &format!("{what:?}"), &done.json(), &idle);
    }
}

#[test]
fn ec2_that_is_out_of_reach_costs_no_warm_machine() {
    let harness = AwsHarness::with(&[]);
    let idle = harness.warm_up(2);
    for what in [AwsFault::Reset, AwsFault::Status(503)] {
        harness.control.inject(AwsFaultRule::new(what).service(Service::Ec2));
        let done = harness.provision("failed", 3).exited(6);
        assert_returned_and_reusable(&harness, &format!("{what:?}"), &done.json(), &idle);
    }
    let mut command =
        harness.command(&["provision", "--json", "--run-id=failed", "--instance-count=3"]);
    // No program listens there.
    command.env("AWS_ENDPOINT_URL_EC2", "http://127.0.0.1:1");
    let done = Background::start(&mut command).finish().exited(6);
    assert_returned_and_reusable(&harness, "connection refused", &done.json(), &idle);
}

/// A launch that succeeded without an answer: its machines are terminated, and the claimed ones go
/// back.
#[test]
fn a_launch_whose_answers_are_all_lost_costs_no_warm_machine() {
    let harness = AwsHarness::with(&[]);
    let idle = harness.warm_up(2);
    let lost = AwsFaultRule::new(AwsFault::LostAnswer).service(Service::Ec2);
    harness.control.inject(lost.operation("CreateFleet"));
    let done = harness.provision("failed", 3).exited(6);
    assert_eq!(done.json()["terminated"].as_array().unwrap().len(), 1, "{done:?}");
    assert_returned_and_reusable(&harness, "lost", &done.json(), &idle);
}

/// Removes the faults, and checks that the pool has these machines and gives them to the next run.
#[track_caller]
fn assert_returned_and_reusable(
    harness: &AwsHarness,
    case: &str,
    failed: &serde_json::Value,
    idle: &[String],
) {
    harness.control.clear_faults();
    let mut returned: Vec<&str> =
        failed["returned"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    returned.sort_unstable();
    assert_eq!(returned, idle, "{case}: {failed}");
    harness.until_machines(idle.len());
    assert_eq!(harness.standings(), vec!["idle"; idle.len()], "{case}");
    let next = harness.provision("next", u32::try_from(idle.len()).unwrap()).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned(); idle.len()], idle.to_vec()));
    harness.release("next").succeeded();
}

#[test]
fn requirements_that_no_machine_meets_are_a_want_of_capacity() {
    let harness = AwsHarness::with(&[]);
    let idle = harness.warm_up(1);
    // What is in the pool is not of such a type, and what is not in EC2 is not of any.
    let none = ["provision", "--json", "--run-id=2", "--allowed-instance-types=x9z.*"];
    let done = harness.ondeck(&none).exited(4);
    assert_eq!(done.json()["error"]["kind"], "no-capacity");
    assert!(done.stdout.contains("find any instance pools that match"), "{done:?}");
    assert_eq!(harness.standings(), ["idle"]);
    assert_eq!(harness.provision("3", 1).succeeded().ids(), idle);
    harness.gateway.assert_requests_valid();
}

#[test]
fn machines_have_a_volume_as_large_as_refresh_was_told() {
    let harness = AwsHarness::with(&["--volume-size-gb=40"]);
    harness.provision("1", 1).succeeded();
    let [machine] = &harness.gateway.ec2().machines()[..] else { panic!("one machine") };
    assert_eq!(machine.volumes, [("/dev/xvda".to_owned(), 40)].into());
    harness.gateway.assert_requests_valid();
}

#[test]
fn a_subnet_that_does_not_exist_is_named() {
    let harness = AwsHarness::with(&["--subnet-ids=subnet-0dead"]);
    let done = harness.provision("1", 1);
    assert_ne!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("subnet-0dead"), "{done:?}");
    harness.until_empty();
}

#[test]
fn machines_whose_script_fails_are_ended_with_its_last_words() {
    let harness = AwsHarness::with(&["--pre-runner-script=echo the disk is on fire; exit 3"]);
    let done = harness.provision("1", 2).exited(5);
    assert!(done.stdout.contains("the disk is on fire"), "{done:?}");
    harness.until_machines(0);
    assert_eq!(harness.standings(), Vec::<String>::new());
}

#[test]
fn an_idle_machine_whose_agent_has_died_is_replaced() {
    let harness = AwsHarness::with(&[]);
    let [idle] = &harness.warm_up(1)[..] else { panic!("one machine") };
    assert!(harness.gateway.ec2().kill_agent(idle));
    let done = harness.provision("2", 1).succeeded();
    assert_eq!(done.sources(), ["cold"]);
    harness.until_machines(1);
    assert_eq!(harness.standings(), ["running 2"]);
}

#[test]
fn a_machine_that_never_answers_its_release_is_never_pooled() {
    let harness = AwsHarness::with(&["--release-timeout-sec=2"]);
    let [machine] = &harness.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    assert!(harness.gateway.ec2().kill_agent(machine));
    harness.release("1").exited(8);
    assert_eq!(harness.tickets(), 0);
    harness.until_empty();
}

#[test]
fn a_machine_ended_behind_our_back_does_not_stop_the_reaping_of_others() {
    let harness = AwsHarness::with(&[]);
    let machines = harness.provision("1", 3).succeeded().ids();
    harness.gateway.ec2().terminate(&machines[1]);
    harness.ondeck(&["release", "--run-id=1", "--release-timeout-sec=3", "--idle-time-sec=1"]);
    harness.until_empty();
}
