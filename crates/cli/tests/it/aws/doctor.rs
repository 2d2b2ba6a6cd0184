//! `ondeck doctor` on emulated AWS, as the operator: the harness fails a test whose calls the policies
//! deny. Each planted fault is named, and nothing else.

use std::time::Duration;

use ondeck_standin::{
    Architecture, AwsFault, AwsFaultRule, Capacity, GroupFault, ProfileFault, Service, SubnetFault,
};
use serde_json::{Value, json};

use super::direct_requests;
use super::harness::AwsHarness;
use super::permissions::policies;
use crate::doctor::{answer, assert_finds, assert_fixed, examined, ids};
use crate::harness::{Background, Driven, until};

const AMI: &str = "ami-0123456789abcdef0";
const GROUP: &str = "sg-0123456789abcdef0";

/// What could not be checked, each with what it needs.
fn unchecked(answer: &Value) -> Vec<(&str, &str)> {
    let all = answer["notChecked"].as_array().unwrap().iter();
    all.map(|it| (it["what"].as_str().unwrap(), it["needs"].as_str().unwrap())).collect()
}

#[test]
fn a_healthy_pool_has_no_findings_and_one_check_that_the_operator_cannot_make() {
    let harness = AwsHarness::with(&["--min-idle=large=1", "--max-machines=9"]);
    harness.provision("1", 2).succeeded();
    let answer = assert_finds(&harness, &[]);
    let needs = "ondeck permissions check --role ROLE with the credentials of each";
    assert_eq!(unchecked(&answer), [("permissions of the other roles", needs)]);
    let caller = answer["caller"].as_str().unwrap();
    assert!(caller.starts_with("arn:aws:"), "{caller}");
    let checked = answer["checked"].as_array().unwrap().iter();
    let checked: Vec<&str> = checked.map(|it| it["what"].as_str().unwrap()).collect();
    for what in [
        "credentials",
        "permissions of these credentials",
        "queues",
        "launch template",
        "image",
        "instance profile",
        "quotas",
        "subnets",
        "routes to GitHub and AWS",
        "security groups",
        "machines against records",
    ] {
        assert!(checked.contains(&what), "{what}: {checked:?}");
    }
    let text = harness.ondeck(&["doctor"]).succeeded().stdout;
    assert!(text.contains("found: nothing wrong\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn each_fault_of_the_network_is_found() {
    let harness = AwsHarness::with(&[]);
    let ec2 = harness.gateway.ec2();
    let zone = SubnetFault::Zone("us-east-1b".to_owned());
    for (fault, expected) in [
        (SubnetFault::Deleted, &["subnet-missing"][..]),
        (zone, &["subnets-share-zone"]),
        (SubnetFault::FreeAddresses(3), &["subnet-full"]),
        (SubnetFault::Private, &["no-public-address"]),
        (SubnetFault::NoDefaultRoute, &["no-route"]),
        (SubnetFault::BlackHole, &["no-route"]),
        (SubnetFault::Nat, &[]),
    ] {
        ec2.break_subnet("subnet-0a", fault.clone());
        let answer = assert_finds(&harness, expected);
        if let [finding] = &answer["findings"].as_array().unwrap()[..] {
            assert!(
                finding["about"].as_array().unwrap().contains(&json!("subnet-0a")),
                "{fault:?}"
            );
        }
        ec2.repair();
    }
    for (fault, expected) in [
        (GroupFault::Deleted, "group-missing"),
        (GroupFault::OtherNetwork, "group-elsewhere"),
        (GroupFault::NoEgress, "egress-blocked"),
        (GroupFault::OpenPort(22), "ingress-open"),
    ] {
        ec2.break_group(GROUP, fault);
        let answer = assert_finds(&harness, &[expected]);
        assert_eq!(answer["findings"][0]["about"], json!([GROUP]), "{fault:?}");
        ec2.repair();
    }
    assert_finds(&harness, &[]);
    // A subnet that is not used any more does no harm.
    for fault in [
        SubnetFault::Deleted,
        SubnetFault::Zone("us-east-1b".to_owned()),
        SubnetFault::FreeAddresses(3),
        SubnetFault::NoDefaultRoute,
    ] {
        ec2.break_subnet("subnet-0a", fault);
        assert_fixed(&harness, &examined(&harness));
        ec2.repair();
        harness.refresh(&["--subnet-ids=subnet-0a subnet-0b"]);
    }
}

#[test]
fn what_leads_elsewhere_than_to_the_internet_is_judged_by_what_machines_use() {
    let harness = AwsHarness::with(&[]);
    let ec2 = harness.gateway.ec2();
    ec2.break_group(GROUP, GroupFault::NoEgress);
    assert_finds(&harness, &["egress-blocked"]);
    harness.refresh(&["--https-proxy=http://proxy.internal:3128"]);
    assert_finds(&harness, &[]);
}

#[test]
fn each_fault_of_what_machines_are_launched_with_is_found() {
    let sha = format!("--agent-sha256={}", "ab".repeat(32));
    let harness = AwsHarness::with(&["--agent-url=https://example.com/ondeck", &sha]);
    let ec2 = harness.gateway.ec2();
    for (fault, expected) in
        [(ProfileFault::Deleted, "profile-missing"), (ProfileFault::WithoutRole, "profile-missing")]
    {
        ec2.break_profile("ondeck-machine", fault);
        assert_finds(&harness, &[expected]);
        ec2.repair();
    }
    ec2.register_image_of_age(AMI, 200, false);
    assert_finds(&harness, &["image-old"]);
    ec2.register_image_of_age(AMI, 10, true);
    assert_finds(&harness, &["image-deprecated"]);
    ec2.register_image(AMI, Architecture::Arm64);
    assert_finds(&harness, &["image-architecture"]);
    ec2.deregister_image(AMI);
    assert_finds(&harness, &["image-missing"]);
    ec2.register_image_of_age(AMI, 10, false);

    ec2.set_capacity(Capacity { vcpus: Some(32), ..Capacity::default() });
    let answer = assert_finds(&harness, &["quota-too-small"]);
    let what = answer["findings"][0]["what"].as_str().unwrap();
    assert!(what.ends_with("is too small for 12xlarge, 16xlarge"), "{what}");
    let fix = answer["findings"][0]["fix"].as_str().unwrap();
    assert!(fix.ends_with("--quota-code L-1216C47A --desired-value 64"), "{fix}");
    ec2.set_capacity(Capacity { vcpus: Some(2), ..Capacity::default() });
    harness.refresh(&["--min-idle=large=2"]);
    let answer = assert_finds(&harness, &["quota-too-small"]);
    let what = answer["findings"][0]["what"].as_str().unwrap();
    assert!(what.starts_with("min-idle needs 4 vCPUs of on-demand machines"), "{what}");
    harness.refresh(&["--reset=min-idle"]);
    ec2.set_capacity(Capacity::default());

    let [template] = &ec2.launch_templates()[..] else { panic!("one template") };
    ec2.delete_launch_template(template);
    assert_finds(&harness, &["template-missing"]);
}

#[test]
fn a_table_or_a_queue_that_is_missing_is_one_finding() {
    let harness = AwsHarness::bare();
    assert_finds(&harness, &["not-set-up"]);
    harness.set_up(&[]);
    let (url, _) = direct_requests::queues(&harness.table())
        .into_iter()
        .find(|(url, _)| url.ends_with("-large"))
        .unwrap();
    direct_requests::ask_sqs("DeleteQueue", &json!({ "QueueUrl": url }));
    let answer = assert_finds(&harness, &["queue-missing"]);
    assert_eq!(answer["findings"][0]["about"], json!(["large"]));
}

#[test]
fn a_machine_without_a_record_is_found() {
    let harness = AwsHarness::with(&["--boot-deadline-sec=10"]);
    harness.kill_before("register", &["provision", "--run-id=1"]);
    let ec2 = harness.gateway.ec2();
    let [machine] = &harness.machines().into_iter().collect::<Vec<_>>()[..] else { panic!("one") };
    until("its agent is killed", || ec2.kill_agent(machine));
    let mut found = Value::Null;
    until("it is found", || {
        found = examined(&harness);
        ids(&found) == ["orphans"]
    });
    assert_eq!(found["findings"][0]["about"], json!([machine]));
    assert!(harness.machines().contains(machine), "doctor terminates nothing");
}

#[test]
fn queues_that_do_not_answer_are_named_and_all_else_is_still_checked() {
    let harness = AwsHarness::with(&["--boot-deadline-sec=10"]);
    harness.kill_before("register", &["provision", "--run-id=1"]);
    let [machine] = &harness.machines().into_iter().collect::<Vec<_>>()[..] else { panic!("one") };
    until("its agent is killed", || harness.gateway.ec2().kill_agent(machine));
    let throttled = AwsFaultRule::new(AwsFault::Reset).service(Service::Sqs);
    harness.control.inject(throttled.operation("GetQueueAttributes"));
    let mut found = Value::Null;
    until("the orphan is found", || {
        found = examined(&harness);
        ids(&found) == ["orphans"]
    });
    assert!(unchecked(&found).iter().any(|(what, _)| *what == "queues"), "{found:#}");
    let checked: Vec<&Value> =
        found["checked"].as_array().unwrap().iter().map(|it| &it["what"]).collect();
    assert!(!checked.contains(&&json!("queues")), "{found:#}");
    for what in ["records", "heartbeats", "refresh", "machines against records"] {
        assert!(checked.contains(&&json!(what)), "{what}: {found:#}");
    }
}

#[test]
fn credentials_that_aws_does_not_accept_are_the_only_finding() {
    let harness = AwsHarness::with(&[]);
    let mut command = harness.command(&["doctor", "--json"]);
    command.env("AWS_ACCESS_KEY_ID", "nobody");
    let refused = answer(Background::start(&mut command).finish());
    assert_eq!(ids(&refused), ["credentials"], "{refused:#}");
    let mut command = harness.command(&["doctor", "--json"]);
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.env("HOME", harness.home());
    let missing = answer(Background::start(&mut command).finish());
    assert_eq!(ids(&missing), ["credentials"], "{missing:#}");
}

#[test]
fn a_clock_that_is_wrong_is_found_and_corrected_for_all_other_checks() {
    let harness = AwsHarness::with(&["--idle-time-sec=600"]);
    for ahead in [-120, 120, 3_600] {
        let skewed = harness.control.inject(AwsFaultRule::new(AwsFault::Skew(ahead)));
        let answer = examined(&harness);
        skewed.stop();
        assert_eq!(ids(&answer), ["clock"], "{ahead}: {answer:#}");
    }
}

/// A pool whose operator has no statement with these ids.
fn without(ids: &[&str]) -> AwsHarness {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |role, mut policy| {
        if role == "operator" {
            let statements = policy["Statement"].as_array_mut().unwrap();
            statements.retain(|it| !ids.contains(&it["Sid"].as_str().unwrap()));
        }
        policy
    });
    // They are read when it starts.
    let harness = AwsHarness::with_policies(folder.path().to_owned());
    harness.set_up(&[]);
    harness
}

#[test]
fn permissions_that_are_missing_are_named_and_so_are_the_checks_that_need_them() {
    let harness = without(&["Diagnose", "SeeProfile"]);
    let answer = assert_finds(&harness, &["permissions"]);
    let what = answer["findings"][0]["what"].as_str().unwrap();
    for (check, permission) in [
        ("launch template", "ec2:DescribeLaunchTemplateVersions"),
        ("image", "ec2:DescribeImages"),
        ("instance profile", "iam:GetInstanceProfile"),
        ("quotas", "servicequotas:GetServiceQuota"),
        ("subnets", "ec2:DescribeSubnets"),
        ("security groups", "ec2:DescribeSecurityGroups"),
        ("machines against records", "ec2:DescribeInstances"),
    ] {
        assert!(unchecked(&answer).contains(&(check, permission)), "{check}: {answer:#}");
        assert!(what.contains(permission), "{permission}: {what}");
    }
}

#[test]
fn a_role_that_may_not_read_the_table_is_one_finding() {
    let harness = without(&["ReadRecords"]);
    assert_finds(&harness, &["store-refused"]);
}

/// Changes an attribute of the item with this key behind the program's back.
fn set(harness: &AwsHarness, key: (&str, &str), attribute: &str, value: &str) {
    let items = direct_requests::items(&harness.table());
    let has_key =
        |item: &&Value| (&item["PK"]["S"], &item["SK"]["S"]) == (&json!(key.0), &json!(key.1));
    let mut item = items.iter().find(has_key).unwrap().clone();
    assert!(item[attribute]["S"].is_string(), "{item:#}");
    item[attribute] = json!({ "S": value });
    direct_requests::put_item(&harness.table(), &item);
}

#[test]
fn settings_that_machines_cannot_be_launched_with_are_found() {
    let mut harness = AwsHarness::with(&[]);
    set(&harness, ("SETTING", "subnet-ids"), "value", "no subnet");
    assert_finds(&harness, &["settings-incomplete"]);
    set(&harness, ("SETTING", "subnet-ids"), "value", "subnet-0a subnet-0b");
    assert_finds(&harness, &[]);
    // The operator may not read public parameters, so the image itself is not checked.
    harness.expect_denials();
    let public = "resolve:ssm:/aws/service/debian/release/12/latest/amd64";
    set(&harness, ("SETTING", "ami"), "value", public);
    assert_finds(&harness, &["agent-missing"]);
}

#[test]
fn machines_that_are_silent_late_or_gone_are_found_and_each_once() {
    let harness =
        AwsHarness::with(&["--heartbeat-period-sec=1", "--self-termination-grace-sec=60"]);
    let machines = harness.provision("1", 2).succeeded().ids();
    let ec2 = harness.gateway.ec2();
    assert!(ec2.kill_agent(&machines[0]));
    let until_found = |expected: &[&str]| {
        let mut found = Value::Null;
        until(expected.join(" and ").as_str(), || {
            found = examined(&harness);
            ids(&found) == expected
        });
        found
    };
    let found = until_found(&["machines-silent"]);
    assert_eq!(found["findings"][0]["about"], json!([machines[0]]));
    ec2.terminate(&machines[0]);
    // EC2's list may lack a machine that is younger.
    let record = format!("INSTANCE#{}", machines[0]);
    set(&harness, (&record, "RECORD"), "createdAt", "2026-01-01T00:00:00.000Z");
    let found = until_found(&["machines-gone"]);
    assert_eq!(found["findings"][0]["about"], json!([machines[0]]), "gone, and not silent too");
    let fix = format!("ondeck terminate {} --force", machines[0]);
    assert_eq!(found["findings"][0]["fix"], fix, "its run owns it");
    assert_fixed(&harness, &found);
    harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=1"]).succeeded();
    let found = until_found(&["machines-overdue"]);
    assert_eq!(found["findings"][0]["about"], json!([machines[1]]));
}

#[test]
fn a_store_that_does_not_answer_is_one_finding() {
    let harness = AwsHarness::with(&[]);
    let reset = AwsFaultRule::new(AwsFault::Reset).service(Service::DynamoDb);
    harness.control.inject(reset);
    assert_finds(&harness, &["store-unreachable"]);
    harness.control.clear_faults();
    let slow = AwsFaultRule::new(AwsFault::Delay(Duration::from_millis(20)));
    harness.control.inject(slow);
    assert_finds(&harness, &[]);
}
