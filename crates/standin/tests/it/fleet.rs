//! CreateFleet and TerminateInstances behave as the API's documentation says.

use ondeck_standin::{
    Architecture, AwsFault, AwsFaultRule, Capacity, Gateway, GatewayOptions, Lifecycle,
    MachineState, Occurrence,
};

use crate::harness::{Ec2, SOON, fleet, gateway, options, unique};

async fn with_template(gateway: &Gateway) -> (Ec2, String) {
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let name = unique("template");
    ec2.template(&name).await;
    (ec2, name)
}

#[tokio::test]
async fn machines_are_as_they_were_asked_for() {
    let gateway = gateway();
    let (ec2, template) = with_template(&gateway).await;
    let answer = ec2.ask(&fleet(&template, 3, "spot")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.all("instanceType"), ["c6i.xlarge", "c6i.xlarge"], "one for each subnet");
    assert_eq!(answer.all("availabilityZone"), ["us-east-1a", "us-east-1b"]);
    assert!(answer.all("errorCode").is_empty());
    let machines = gateway.ec2().machines();
    let mut launched = answer.launched();
    launched.sort();
    let mut ids: Vec<String> = machines.iter().map(|machine| machine.id.clone()).collect();
    ids.sort();
    assert_eq!((ids.len(), ids), (3, launched));
    for machine in &machines {
        assert_eq!(machine.lifecycle, Lifecycle::Spot);
        assert_eq!(machine.tags["ondeck:pool"], "p1");
        assert_eq!(machine.tags["managed-by"], "ondeck", "from the template");
    }
    gateway.assert_requests_valid();
}

#[tokio::test]
async fn a_client_token_identifies_one_request() {
    let gateway = gateway();
    let (ec2, template) = with_template(&gateway).await;
    let token = "&ClientToken=once";
    let first = ec2.ask(&(fleet(&template, 2, "spot") + token)).await;
    let again = ec2.ask(&(fleet(&template, 2, "spot") + token)).await;
    assert_eq!(first.launched(), again.launched());
    assert_eq!(gateway.ec2().machines().len(), 2, "nothing was launched twice");
    let other = ec2.ask(&(fleet(&template, 3, "spot") + token)).await;
    assert_eq!(other.code(), Some("IdempotentParameterMismatch"));
    let without = ec2.ask(&fleet(&template, 2, "spot")).await;
    assert_ne!(without.launched(), first.launched());
}

#[tokio::test]
async fn a_client_token_returns_a_lost_answer() {
    let gateway = gateway();
    let (_, template) = with_template(&gateway).await;
    let endpoint = gateway.endpoint("faulty");
    endpoint.inject(
        AwsFaultRule::new(AwsFault::LostAnswer)
            .operation("CreateFleet")
            .occurrence(Occurrence::First(1)),
    );
    let ec2 = Ec2::at(&endpoint);
    let query = fleet(&template, 2, "spot") + "&ClientToken=once";
    ec2.try_ask(&query).await.unwrap_err();
    let machines = gateway.ec2().machines();
    let mut launched = ec2.ask(&query).await.launched();
    let mut ids: Vec<String> = machines.into_iter().map(|machine| machine.id).collect();
    launched.sort();
    ids.sort();
    assert_eq!((launched.len(), launched), (2, ids));
}

#[tokio::test]
async fn missing_capacity_is_an_entry_in_the_answer_and_not_an_error() {
    let capacity = Capacity { total: Some(4), spot: Some(1), ..Capacity::default() };
    let gateway = Gateway::start(GatewayOptions { capacity, ..options() });
    let (ec2, template) = with_template(&gateway).await;
    let partial = ec2.ask(&fleet(&template, 3, "spot")).await;
    assert_eq!((partial.status, partial.launched().len()), (200, 1));
    let codes = partial.all("errorCode");
    assert_eq!(codes, ["InsufficientInstanceCapacity"; 2], "one for each override");
    let none = ec2.ask(&fleet(&template, 3, "spot")).await;
    assert_eq!((none.status, none.launched().len()), (200, 0));
    let rest = ec2.ask(&fleet(&template, 9, "on-demand")).await;
    assert_eq!(rest.launched().len(), 3, "four in all");
    // A terminated machine frees its capacity.
    let id = partial.launched().remove(0);
    gateway.ec2().terminate(&id);
    assert_eq!(ec2.ask(&fleet(&template, 2, "spot")).await.launched().len(), 1);
    gateway.ec2().set_capacity(Capacity::default());
    assert_eq!(ec2.ask(&fleet(&template, 2, "spot")).await.launched().len(), 2);
    let demanding = fleet(&template, 2, "spot") + "&SpotOptions.MinTargetCapacity=2";
    gateway.ec2().set_capacity(Capacity { spot: Some(4), ..Capacity::default() });
    assert_eq!(ec2.ask(&demanding).await.launched().len(), 0, "one is not worth having");
}

#[tokio::test]
async fn an_unknown_subnet_fails_its_override_and_an_impossible_type_the_request() {
    let gateway = gateway();
    let (ec2, template) = with_template(&gateway).await;
    let query = fleet(&template, 2, "on-demand").replace("subnet-0b", "subnet-gone");
    let answer = ec2.ask(&query).await;
    assert_eq!(answer.all("errorCode"), ["InvalidSubnetID.NotFound"]);
    assert_eq!(answer.launched().len(), 2);
    let answer = ec2.ask(&fleet(&template, 2, "on-demand").replace("c6i.*", "x9z.*")).await;
    assert_eq!((answer.status, answer.code()), (400, Some("InvalidParameterValue")));
    let message = answer.first("Message").unwrap();
    assert!(message.contains("find any instance pools that match"), "{message}");
    assert_eq!(gateway.ec2().machines().len(), 2, "those of before");
    let mixed = fleet(&template, 2, "on-demand").replacen("c6i.*", "x9z.*", 1);
    let answer = ec2.ask(&mixed).await;
    assert_eq!(answer.all("errorCode"), ["UnfulfillableCapacity"], "the other can be served");
    assert_eq!(answer.launched().len(), 2);
}

#[tokio::test]
async fn a_throttled_fleet_is_an_answer_and_the_answer_of_its_token() {
    let gateway = gateway();
    let (ec2, template) = with_template(&gateway).await;
    gateway.ec2().throttle_fleets(1);
    let query = fleet(&template, 2, "spot");
    for _ in 0..2 {
        let answer = ec2.ask(&format!("{query}&ClientToken=busy")).await;
        assert_eq!((answer.status, answer.launched().len()), (200, 0));
        assert_eq!(answer.all("errorCode"), ["RequestLimitExceeded"; 2], "one for each override");
    }
    assert_eq!(ec2.ask(&format!("{query}&ClientToken=next")).await.launched().len(), 2);
    gateway.assert_requests_valid();
}

#[tokio::test]
async fn what_ec2_refuses_is_refused() {
    let gateway = gateway();
    let (ec2, template) = with_template(&gateway).await;
    let valid = fleet(&template, 1, "spot");
    let place = "LaunchTemplateConfigs.1.Overrides.1";
    let specification = "LaunchTemplateConfigs.1.LaunchTemplateSpecification";
    let cases = [
        (
            valid.replace(&format!("&{place}.InstanceRequirements.VCpuCount.Min=4"), ""),
            "MissingParameter",
        ),
        (
            valid.replace(&format!("&{place}.InstanceRequirements.MemoryMiB.Min=8192"), ""),
            "MissingParameter",
        ),
        (format!("{valid}&{place}.InstanceType=c6i.large"), "InvalidParameterCombination"),
        (
            valid.replace(&template, "no-such-template"),
            "InvalidLaunchTemplateName.NotFoundException",
        ),
        (valid.replace("%24Default", "7"), "InvalidLaunchTemplateId.VersionNotFound"),
        (valid.replace(&format!("&{specification}.Version=%24Default"), ""), "MissingParameter"),
        (valid.replace("Type=instant", "Type=maintain"), "InvalidParameterValue"),
        (valid.replace("TotalTargetCapacity=1", "TotalTargetCapacity=0"), "InvalidParameterValue"),
        (valid.replace("ondeck:pool", "aws:pool"), "InvalidParameterValue"),
        (valid.replace("ondeck:pool", "on/deck"), "InvalidParameterValue"),
        (format!("{valid}&ClientToken={}", "x".repeat(65)), "InvalidParameterValue"),
        (format!("{valid}&DryRun=true"), "DryRunOperation"),
        (valid.replace("subnet-0b", "subnet-0a"), "InvalidFleetConfig"),
        (valid.clone() + &more_overrides(&valid, 3), "InvalidParameterValue"),
    ];
    for (query, code) in cases {
        let answer = ec2.ask(&query).await;
        assert_eq!(answer.code(), Some(code), "{query}");
        assert!(answer.status >= 400);
    }
    assert!(gateway.ec2().machines().is_empty());
}

/// The overrides from the third to the fifth or so, like the first of a request but for the subnet.
fn more_overrides(request: &str, count: usize) -> String {
    let first = "LaunchTemplateConfigs.1.Overrides.1.";
    let pairs = request.split('&').filter(|pair| pair.starts_with(first));
    let pairs: Vec<&str> = pairs.collect();
    let one = |n: usize| {
        let next = format!("LaunchTemplateConfigs.1.Overrides.{}.", n + 3);
        pairs.iter().map(|pair| format!("&{}", pair.replace(first, &next))).collect::<String>()
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn a_quota_limits_each_purchase_option() {
    let capacity = Capacity { vcpus: Some(8), ..Capacity::default() };
    let gateway = Gateway::start(GatewayOptions { capacity, ..options() });
    let (ec2, template) = with_template(&gateway).await;
    for (kind, code) in
        [("on-demand", "VcpuLimitExceeded"), ("spot", "MaxSpotInstanceCountExceeded")]
    {
        let answer = ec2.ask(&fleet(&template, 3, kind)).await;
        assert_eq!(answer.launched().len(), 2, "of four vCPUs each: {answer:?}");
        assert_eq!(answer.all("errorCode"), [code; 2]);
    }
}

#[tokio::test]
async fn types_must_run_the_image() {
    let gateway = gateway();
    let (ec2, template) = with_template(&gateway).await;
    let image = "ami-12345678";
    let query = fleet(&template, 1, "spot");
    gateway.ec2().register_image(image, Architecture::Arm64);
    let refused = ec2.ask(&query).await;
    assert_eq!(refused.code(), Some("InvalidParameterValue"));
    assert!(refused.first("Message").unwrap().contains("find any instance pools that match"));
    let graviton = ec2.ask(&query.replace("c6i.*", "c*")).await;
    assert_eq!(graviton.first("instanceType"), Some("c7g.xlarge"));
    gateway.ec2().deregister_image(image);
    let gone = ec2.ask(&query).await;
    assert_eq!(gone.all("errorCode"), ["InvalidAMIID.NotFound"; 2]);
    assert!(gone.launched().is_empty());
}

#[tokio::test]
async fn one_unknown_id_fails_the_whole_termination() {
    let gateway = gateway();
    let (ec2, template) = with_template(&gateway).await;
    let ids = ec2.ask(&fleet(&template, 2, "spot")).await.launched();
    let unknown = "i-00000000000000000";
    let query = format!("Action=TerminateInstances&InstanceId.1={}&InstanceId.2={unknown}", ids[0]);
    let refused = ec2.ask(&query).await;
    assert_eq!(refused.code(), Some("InvalidInstanceID.NotFound"));
    let message = refused.first("Message").unwrap();
    assert_eq!(message, format!("The instance ID '{unknown}' does not exist"));
    let malformed = ec2.ask(&query.replace(unknown, "local-1")).await;
    assert_eq!(malformed.code(), Some("InvalidInstanceID.Malformed"));
    assert!(gateway.ec2().machines().iter().all(|machine| machine.state.is_up()));
    let query =
        format!("Action=TerminateInstances&InstanceId.1={}&InstanceId.2={}", ids[0], ids[1]);
    assert_eq!(ec2.ask(&query).await.status, 200);
    let ended = gateway.ec2().wait(SOON, |machines| {
        machines.iter().all(|machine| machine.state == MachineState::Terminated)
    });
    ended.unwrap();
    let again = ec2.ask(&query).await;
    assert_eq!((again.status, again.all("name")[0]), (200, "terminated"), "it is idempotent");
}
