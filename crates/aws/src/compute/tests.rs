//! The adapter against fixed answers. Each of its requests is checked against the API's model.

mod image;
mod termination;

use std::collections::BTreeSet;

use ondeck_core::model::ids::{IntentId, ResourceClass, RunId};
use ondeck_core::model::requirements::{ClassSize, Requirements, UsageClass};

use super::*;
use crate::ec2::loopback::{Loopback, Reply, error};
use crate::ec2::models;

fn settings(more: &[(&str, &str)]) -> Settings {
    let least = [("ami", "ami-0123456789abcdef0"), ("subnet-ids", "subnet-1 subnet-2")];
    let backend = least.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into()));
    Settings { backend: backend.collect(), ..Settings::default() }
}

fn compute(server: &Loopback) -> Ec2Compute {
    Ec2Compute::new(&server.cloud())
}

fn id(n: u32) -> InstanceId {
    InstanceId::new(format!("i-{n:017x}")).unwrap()
}

fn version(number: u64, description: &str, default: bool) -> String {
    format!(
        "<item><launchTemplateId>lt-1</launchTemplateId><versionNumber>{number}</versionNumber>\
         <versionDescription>{description}</versionDescription>\
         <defaultVersion>{default}</defaultVersion></item>"
    )
}

fn versions(items: &[String]) -> Reply {
    let items = items.concat();
    let body = format!(
        "<DescribeLaunchTemplateVersionsResponse><launchTemplateVersionSet>{items}\
         </launchTemplateVersionSet></DescribeLaunchTemplateVersionsResponse>"
    );
    Reply::Say(200, body)
}

fn template(action: &str, default: u64) -> Reply {
    let body = format!(
        "<{action}Response><launchTemplate><launchTemplateId>lt-1</launchTemplateId>\
         <defaultVersionNumber>{default}</defaultVersionNumber></launchTemplate></{action}Response>"
    );
    Reply::Say(200, body)
}

fn no_template() -> Reply {
    Reply::Say(400, error("InvalidLaunchTemplateName.NotFoundException", "Does not exist."))
}

fn image() -> Reply {
    image_for("x86_64")
}

fn image_for(architecture: &str) -> Reply {
    let body = format!(
        "<DescribeImagesResponse><imagesSet><item><imageId>ami-1</imageId>\
         <architecture>{architecture}</architecture>\
         <rootDeviceName>/dev/xvda</rootDeviceName></item></imagesSet></DescribeImagesResponse>"
    );
    Reply::Say(200, body)
}

/// Sets up where there is nothing, and gives what the new version describes itself as.
async fn described(settings: &Settings) -> String {
    let replies = [no_template(), image(), template("CreateLaunchTemplate", 1)];
    let server = Loopback::replying(replies).await;
    compute(&server).set_up(settings).await.unwrap();
    models::check(&server.asked());
    server.asked().last().unwrap().param("VersionDescription")
}

#[tokio::test]
async fn a_template_is_created_once() {
    let settings = settings(&[]);
    let description = described(&settings).await;
    assert!(description.starts_with("ondeck ") && description.len() == 71, "{description}");
    let server = Loopback::replying([versions(&[version(1, &description, true)])]).await;
    compute(&server).set_up(&settings).await.unwrap();
    assert_eq!(server.actions(), ["DescribeLaunchTemplateVersions"]);
}

#[tokio::test]
async fn each_setting_makes_another_version() {
    let sha = "a".repeat(64);
    let other = "b".repeat(64);
    let url = ("agent-url", "https://example.com/ondeck");
    let arm64_url = ("agent-url-arm64", "https://example.com/arm64");
    let mut seen = BTreeSet::new();
    for more in [
        vec![],
        vec![("ami", "ami-2")],
        vec![("security-group-ids", "sg-1 sg-2")],
        vec![("security-group-ids", "sg-1")],
        vec![("iam-instance-profile", "ondeck")],
        vec![("iam-instance-profile", "arn:aws:iam::1:instance-profile/ondeck")],
        vec![("key-name", "mine")],
        vec![("volume-size-gb", "40")],
        vec![("volume-size-gb", "41")],
        vec![url, ("agent-sha256", &sha)],
        vec![url, ("agent-sha256", &other)],
        vec![url, ("agent-sha256", &sha), arm64_url, ("agent-sha256-arm64", &sha)],
        vec![("https-proxy", "http://proxy:3128")],
    ] {
        assert!(seen.insert(described(&settings(&more)).await), "{more:?}");
    }
    let moved = settings(&[("subnet-ids", "subnet-9")]);
    assert!(!seen.insert(described(&moved).await), "subnets are no part of it");
}

fn added(number: u64) -> Reply {
    let version = version(number, "ondeck new", false);
    let version = version.replace("item>", "launchTemplateVersion>");
    let action = "CreateLaunchTemplateVersionResponse";
    Reply::Say(200, format!("<{action}>{version}</{action}>"))
}

/// Settings that name the version of the template that belongs to them.
fn of_version(number: &str) -> Settings {
    settings(&[(VERSION_SETTING, number)])
}

/// Sets up, and returns the number that refresh is to store.
async fn set_up(server: &Loopback, settings: &Settings) -> String {
    let stored = compute(server).set_up(settings).await.unwrap();
    models::check(&server.asked());
    stored[VERSION_SETTING].clone()
}

#[tokio::test]
async fn a_change_adds_a_version_and_leaves_the_default_as_it_is() {
    let wanted = described(&settings(&[])).await;
    let mut tokens = Vec::new();
    for latest in [7, 7, 9] {
        let found = versions(&[version(4, "ondeck old", true), version(latest, "by hand", false)]);
        let server = Loopback::replying([found, image(), added(8)]).await;
        assert_eq!(set_up(&server, &settings(&[])).await, "8");
        let [_, _, add] = server.asked().try_into().unwrap();
        assert_eq!(add.param("VersionDescription"), wanted);
        tokens.push(add.param("ClientToken"));
    }
    assert_eq!(tokens[0], tokens[1], "two that find the same make one version");
    assert_ne!(tokens[1], tokens[2], "going back and forth makes new ones");
    assert_eq!(tokens[0].len(), 64);
}

#[tokio::test]
async fn the_default_follows_the_stored_settings() {
    let wanted = described(&settings(&[])).await;
    let found = || {
        versions(&[
            version(4, "ondeck old", true),
            version(7, &wanted, false),
            version(8, "ondeck of a refresh that failed", false),
        ])
    };
    let server = Loopback::replying([found(), template("ModifyLaunchTemplate", 7)]).await;
    assert_eq!(set_up(&server, &of_version("7")).await, "7");
    assert_eq!(server.actions(), ["DescribeLaunchTemplateVersions", "ModifyLaunchTemplate"]);
    let [describe, modify] = server.asked().try_into().unwrap();
    assert_eq!(describe.param("LaunchTemplateVersion.3"), "7");
    assert_eq!(modify.param("SetDefaultVersion"), "7");
}

#[tokio::test]
async fn a_deleted_version_is_created_again() {
    let found = || versions(&[version(4, "ondeck old", true), version(7, "by hand", false)]);
    let code = "InvalidLaunchTemplateId.VersionNotFound";
    let gone = || Reply::Say(400, error(code, "Could not find the specified version 8."));
    let server = Loopback::replying([found(), image(), added(8)]).await;
    assert_eq!(set_up(&server, &settings(&[])).await, "8");
    let first = server.asked()[2].param("ClientToken");
    // The token of the first time would be answered with the version of the first time.
    let server = Loopback::replying([gone(), found(), image(), added(9)]).await;
    assert_eq!(set_up(&server, &of_version("8")).await, "9");
    let second = server.asked()[3].param("ClientToken");
    assert_ne!(first, second);
    assert_eq!(second.len(), 64);
}

#[tokio::test]
async fn a_version_that_a_failed_refresh_has_added_is_not_added_again() {
    let wanted = described(&settings(&[])).await;
    for default in [1, 2] {
        let one = version(1, "ondeck old", default == 1);
        let two = version(2, &wanted, default == 2);
        let server = Loopback::replying([versions(&[two, one])]).await;
        assert_eq!(set_up(&server, &settings(&[])).await, "2");
        assert_eq!(server.actions(), ["DescribeLaunchTemplateVersions"]);
    }
}

#[tokio::test]
async fn machines_are_launched_from_the_version_that_belongs_to_the_settings() {
    for (settings, expected) in [(settings(&[]), "$Default"), (of_version("7"), "7")] {
        let server = Loopback::replying([Reply::Say(503, String::new())]).await;
        compute(&server).launch(&order(), &settings).await.unwrap_err();
        let name = "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version";
        assert_eq!(server.asked()[0].param(name), expected);
    }
}

#[tokio::test]
async fn concurrent_refreshes_agree_on_one_version() {
    let wanted = described(&settings(&[])).await;
    let taken = error("InvalidLaunchTemplateName.AlreadyExistsException", "In use.");
    let server = Loopback::replying([
        no_template(),
        image(),
        Reply::Say(400, taken.clone()),
        versions(&[version(1, &wanted, true)]),
    ])
    .await;
    compute(&server).set_up(&settings(&[])).await.unwrap();
    assert_eq!(server.asked().len(), 4);
    let fickle = [no_template(), Reply::Say(400, taken)];
    let mut replies: Vec<Reply> = std::iter::repeat_n(fickle, 3).flatten().collect();
    replies.insert(1, image());
    let server = Loopback::replying(replies).await;
    let failed = compute(&server).set_up(&settings(&[])).await.unwrap_err();
    assert!(matches!(failed, PortError::Unavailable { .. }), "{failed}");
    assert_eq!(server.asked().len(), 7, "there is an end to it, and the image is asked for once");
}

#[tokio::test]
async fn the_launch_template_restricts_machines() {
    let more = [("security-group-ids", "sg-1"), ("iam-instance-profile", "ondeck")];
    let server =
        Loopback::replying([no_template(), image(), template("CreateLaunchTemplate", 1)]).await;
    compute(&server).set_up(&settings(&more)).await.unwrap();
    let created = &server.asked()[2];
    let shown: String = created
        .params()
        .iter()
        .filter(|(name, _)| !name.ends_with("UserData") && name != "VersionDescription")
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    insta::assert_snapshot!("launch_template", shown);
    let script = aws_smithy_types::base64::decode(created.param("LaunchTemplateData.UserData"));
    assert!(script.unwrap().starts_with(b"#!/bin/sh\n"));
}

#[tokio::test]
async fn a_missing_setting_is_named_without_a_request() {
    let server = Loopback::replying([]).await;
    for (name, value, problem) in [
        ("ami", "", "ami is not set"),
        ("subnet-ids", " , ", "subnet-ids is not set"),
        ("security-group-ids", "x", "security-group-ids holds something else"),
    ] {
        let failed = compute(&server).set_up(&settings(&[(name, value)])).await.unwrap_err();
        assert!(matches!(failed, PortError::Setting(_)), "{failed}");
        assert!(failed.to_string().starts_with(problem), "{failed}");
    }
    assert!(server.asked().is_empty());
}

fn order() -> Order {
    Order {
        intent: IntentId::new("00c0ffee00c0ffee").unwrap(),
        run: RunId::new("4711").unwrap(),
        count: 1,
        requirements: Requirements {
            class: ResourceClass::new("large").unwrap(),
            size: ClassSize { cpu: 2, mem: 4096 },
            usage: UsageClass::Spot,
            types: "c* m*".parse().unwrap(),
        },
    }
}

#[tokio::test]
async fn a_launch_is_one_request_that_can_be_repeated() {
    let launched = "<CreateFleetResponse><fleetInstanceSet><item><lifecycle>spot</lifecycle>\
                    <instanceIds><item>i-00000000000000001</item></instanceIds>\
                    <instanceType>c6i.large</instanceType></item></fleetInstanceSet>\
                    </CreateFleetResponse>";
    let server = Loopback::saying([launched, launched].map(str::to_owned)).await;
    let compute = Ec2Compute::new(&server.cloud());
    let failed = compute.launch(&order(), &Settings::default()).await.unwrap_err();
    assert!(matches!(failed, PortError::NotSetUp { .. }), "{failed}");
    let settings = settings(&[]);
    for _ in 0..2 {
        let launched = compute.launch(&order(), &settings).await.unwrap();
        assert_eq!(launched.machines[0].id, id(1));
        assert_eq!(launched.machines[0].spec.instance_type, "c6i.large");
    }
    models::check(&server.asked());
    let [first, again] = server.asked().try_into().unwrap();
    assert_eq!(first.body, again.body, "or the client token would not hold");
    assert_eq!(first.param("ClientToken"), "00c0ffee00c0ffee");
    let on_demand = Order {
        requirements: Requirements { usage: UsageClass::OnDemand, ..order().requirements },
        ..order()
    };
    let server = Loopback::saying([launched.to_owned()]).await;
    Ec2Compute::new(&server.cloud()).launch(&on_demand, &settings).await.unwrap();
    models::check(&server.asked());
}

/// A page with one machine, and what it says of others.
fn page(n: u32, more: &str) -> String {
    let id = id(n);
    format!(
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>{id}\
         </instanceId><launchTime>2026-11-01T10:00:00.000Z</launchTime></item></instancesSet>\
         </item></reservationSet>{more}</DescribeInstancesResponse>"
    )
}

#[tokio::test]
async fn machines_are_listed_page_by_page() {
    let (second, third) = ("<nextToken>a+b/c=</nextToken>", "<nextToken>d</nextToken>");
    let pages = [page(1, second), page(2, third), page(3, "<nextToken/>")];
    let server = Loopback::saying(pages).await;
    let machines = compute(&server).machines().await.unwrap();
    let ids: Vec<InstanceId> = machines.into_iter().map(|machine| machine.id).collect();
    assert_eq!(ids, [id(1), id(2), id(3)]);
    models::check(&server.asked());
    let tokens: Vec<String> = server.asked().iter().map(|a| a.param("NextToken")).collect();
    assert_eq!(tokens, ["", "a+b/c=", "d"]);
    let asked = &server.asked()[0];
    assert_eq!(asked.param("Filter.1.Name"), "tag:ondeck:pool");
    assert_eq!(asked.param("Filter.1.Value.1"), "acme/web", "in lower case");
}

#[tokio::test]
async fn a_listing_that_repeats_its_page_fails() {
    let again = page(1, "<nextToken>a</nextToken>");
    let server = Loopback::saying([again.clone(), again.clone(), again]).await;
    let error = compute(&server).machines().await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error}");
    assert_eq!(server.asked().len(), 2);
}
