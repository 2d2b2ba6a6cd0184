use ondeck_core::model::ids::{IntentId, ResourceClass, RunId};
use ondeck_core::model::requirements::{ClassSize, Requirements};

use super::*;

fn order(count: u32) -> Order {
    Order {
        intent: IntentId::new("00c0ffee00c0ffee").unwrap(),
        run: RunId::new("4711").unwrap(),
        count,
        requirements: Requirements {
            class: ResourceClass::new("large").unwrap(),
            size: ClassSize { cpu: 2, mem: 4096 },
            usage: UsageClass::Spot,
            types: "c* m6i.*".parse().unwrap(),
        },
    }
}

fn names() -> Names {
    Names::of(&"Acme/Web".parse().unwrap())
}

fn read(count: u32, inner: &str) -> PortResult<Launched> {
    let text = format!(
        "<CreateFleetResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">
         <requestId>1</requestId><fleetId>fleet-1</fleetId>{inner}</CreateFleetResponse>"
    );
    let answer = quick_xml::de::from_str(&text).unwrap();
    reading(&names(), &order(count), &answer, Timestamp::from_millis(1_000))
}

fn error(code: &str, message: &str, kind: &str, zone: &str) -> String {
    format!(
        "<item><launchTemplateAndOverrides><launchTemplateSpecification><version>1</version>
         </launchTemplateSpecification><overrides><instanceType>{kind}</instanceType>
         <subnetId>subnet-1</subnetId><availabilityZone>{zone}</availabilityZone></overrides>
         </launchTemplateAndOverrides><lifecycle>spot</lifecycle><errorCode>{code}</errorCode>
         <errorMessage>{message}</errorMessage></item>"
    )
}

const TWO: &str = "<fleetInstanceSet>
    <item><launchTemplateAndOverrides><overrides><subnetId>subnet-1</subnetId></overrides>
      </launchTemplateAndOverrides><lifecycle>spot</lifecycle>
      <instanceIds><item>i-0123456789abcdef0</item></instanceIds>
      <instanceType>c6i.large</instanceType><availabilityZone>us-east-1a</availabilityZone></item>
    <item><lifecycle>on-demand</lifecycle>
      <instanceIds><item>i-0123456789abcdef1</item></instanceIds>
      <instanceType>m6i.large</instanceType></item>
    </fleetInstanceSet>";

#[test]
fn machines_are_described_by_the_answer() {
    let launched = read(2, &format!("{TWO}<errorSet/>")).unwrap();
    assert!(launched.shortfalls.is_empty(), "{:?}", launched.shortfalls);
    let [first, second] = launched.machines.as_slice() else { panic!("{launched:?}") };
    assert_eq!(
        (first.id.as_str(), first.intent.as_str()),
        ("i-0123456789abcdef0", "00c0ffee00c0ffee")
    );
    assert_eq!(first.spec.instance_type, "c6i.large");
    assert_eq!((first.spec.cpu, first.spec.mem), (2, 4096));
    assert_eq!(first.spec.usage_class, UsageClass::Spot);
    assert_eq!(second.spec.instance_type, "m6i.large");
    assert_eq!(second.spec.usage_class, UsageClass::OnDemand, "as launched, not as ordered");
}

#[test]
fn a_partial_fleet_is_both_machines_and_reasons() {
    let none = "There is no Spot capacity available that matches your request.";
    let errors: String = ["us-east-1a", "us-east-1b", "us-east-1c"]
        .map(|zone| error("UnfulfillableCapacity", none, "c6i.large", zone))
        .concat();
    let other = error("VcpuLimitExceeded", "More than your limit of 8.", "", "");
    let launched = read(5, &format!("{TWO}<errorSet>{errors}{other}</errorSet>")).unwrap();
    assert_eq!(launched.machines.len(), 2);
    assert_eq!(
        launched.shortfalls,
        [
            format!(
                "UnfulfillableCapacity: {none} (c6i.large in us-east-1a, and 2 more): allow more \
                 types by allowed-instance-types or on-demand-price-protection-percent, or more \
                 zones by subnet-ids"
            ),
            "VcpuLimitExceeded: More than your limit of 8. (subnet-1): raise the quota \"Running \
             On-Demand instances\" of EC2 in Service Quotas, or limit machines by max-machines"
                .to_owned(),
        ]
    );
}

#[test]
fn an_empty_answer_is_a_shortfall() {
    let short = error("InsufficientInstanceCapacity", "None left.", "c6i.large", "us-east-1a");
    let launched = read(1, &format!("<fleetInstanceSet/><errorSet>{short}</errorSet>")).unwrap();
    assert!(launched.machines.is_empty());
    assert_eq!(
        launched.shortfalls,
        [
            "InsufficientInstanceCapacity: None left. (c6i.large in us-east-1a): allow more types by \
          allowed-instance-types, or more zones by subnet-ids"
        ]
    );
    let launched = read(3, "").unwrap();
    assert_eq!(launched.shortfalls, ["CreateFleet: launched 0 of 3 and gave no reason"]);
}

#[test]
fn transient_errors_are_told_apart_from_missing_capacity() {
    let busy = "Request limit exceeded.";
    let throttled = error("RequestLimitExceeded", busy, "c6i.large", "us-east-1a");
    let launched = read(3, &format!("{TWO}<errorSet>{throttled}{throttled}</errorSet>")).unwrap();
    assert_eq!((launched.machines.len(), launched.shortfalls.len()), (2, 0));
    assert_eq!(
        launched.passing,
        [format!("RequestLimitExceeded: {busy} (c6i.large in us-east-1a, and 1 more)")]
    );
    for code in ["InternalError", "Unavailable", "ServiceUnavailable", "InternalFailure"] {
        let internal = error(code, "An internal error has occurred.", "", "");
        let launched = read(1, &format!("<errorSet>{internal}</errorSet>")).unwrap();
        assert_eq!((launched.passing.len(), launched.shortfalls.len()), (1, 0), "{code}");
    }
    for code in CAPACITY {
        let short = error(code, "None left.", "", "");
        let launched = read(1, &format!("<errorSet>{throttled}{short}</errorSet>")).unwrap();
        assert_eq!((launched.passing.len(), launched.shortfalls.len()), (1, 1), "{code}");
        assert!(launched.shortfalls[0].starts_with(code), "{:?}", launched.shortfalls);
    }
}

#[test]
fn hundreds_of_reasons_are_summarised() {
    let errors: String = (0..30)
        .map(|n| error("Unsupported", &format!("Type {n} is not there."), "x", ""))
        .collect();
    let launched = read(1, &format!("<errorSet>{errors}</errorSet>")).unwrap();
    assert_eq!(launched.shortfalls.len(), REASONS + 1);
    assert_eq!(launched.shortfalls[REASONS], "other reasons that are not shown: 22");
}

#[test]
fn a_missing_resource_is_an_error_unless_machines_were_launched() {
    let gone = error("InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist", "", "");
    let failed = read(1, &format!("<errorSet>{gone}{gone}</errorSet>")).unwrap_err();
    assert!(matches!(&failed, PortError::Unusable { hint, .. } if hint.contains("subnet-ids")));
    let template =
        error("InvalidLaunchTemplateName.NotFoundException", "It does not exist.", "", "");
    let failed = read(1, &format!("<errorSet>{template}</errorSet>")).unwrap_err();
    assert!(matches!(failed, PortError::NotSetUp { .. }), "{failed}");
    let denied = error("UnauthorizedOperation", "You are not authorized: iam:PassRole.", "", "");
    let failed = read(1, &format!("<errorSet>{denied}</errorSet>")).unwrap_err();
    assert!(matches!(&failed, PortError::Unusable { hint, .. } if hint.ends_with("iam:PassRole")));
    let role = "The provided credentials do not have permission to create the service-linked role \
                for EC2 Spot Instances.";
    let role = error("AuthFailure.ServiceLinkedRoleCreationNotPermitted", role, "", "");
    let failed = read(1, &format!("<errorSet>{role}</errorSet>")).unwrap_err();
    assert!(matches!(&failed, PortError::Unusable { hint, .. } if hint.ends_with(
        "create-service-linked-role --aws-service-name spot.amazonaws.com"
    )));
    let launched = read(3, &format!("{TWO}<errorSet>{gone}</errorSet>")).unwrap();
    assert_eq!((launched.machines.len(), launched.shortfalls.len()), (2, 1));
    let short = error("InsufficientInstanceCapacity", "None left.", "", "");
    let launched = read(1, &format!("<errorSet>{gone}{short}</errorSet>")).unwrap();
    assert_eq!(launched.shortfalls.len(), 2, "another subnet was only full");
}

#[test]
fn an_error_instead_of_an_answer_may_still_be_a_shortfall() {
    let refusal = |status, code: &str| {
        let message = "As it says.".to_owned();
        let refusal = Refusal { action: ACTION, status, code: code.to_owned(), message };
        refused(&names(), refusal)
    };
    for code in CAPACITY {
        let launched = refusal(if code.starts_with("Insufficient") { 500 } else { 400 }, code);
        let [shortfall] = launched.unwrap().shortfalls.try_into().unwrap();
        assert!(shortfall.starts_with(&format!("{code}: As it says.: ")), "{shortfall}");
    }
    let mismatch = refusal(400, "IdempotentParameterMismatch").unwrap_err();
    assert!(matches!(&mismatch, PortError::Unusable { hint, .. } if hint.contains("before")));
    let gone = refusal(400, "InvalidLaunchTemplateName.NotFoundException").unwrap_err();
    assert!(matches!(gone, PortError::NotSetUp { .. }), "{gone}");
    let throttled = refusal(503, "RequestLimitExceeded").unwrap_err();
    assert!(matches!(throttled, PortError::Unavailable { .. }), "{throttled}");
    let denied = refusal(403, "UnauthorizedOperation").unwrap_err();
    assert!(matches!(denied, PortError::Unusable { .. }), "{denied}");
}

fn refusal(code: &str, message: &str) -> Refusal {
    let (code, message) = (code.to_owned(), message.to_owned());
    Refusal { action: ACTION, status: 400, code, message }
}

#[test]
fn two_subnets_of_one_zone_are_named_however_ec2_puts_it() {
    for (code, message) in [
        ("InvalidFleetConfig", "The fleet configuration contains duplicate instance pools."),
        (
            "InvalidParameterValue",
            "Two or more of your InstanceRequirements structures include overlapping values. \
             Ensure that there is no overlap, and try again.",
        ),
    ] {
        let crowded = refused(&names(), refusal(code, message)).unwrap_err();
        let hint = "run ondeck refresh with no more than one of subnet-ids in each zone";
        assert!(
            matches!(&crowded, PortError::Unusable { hint: given, .. } if given == hint),
            "{crowded}"
        );
    }
}

#[test]
fn requirements_that_nothing_meets_are_a_shortfall() {
    let code = "InvalidParameterValue";
    let unmatched = "We couldn't find any instance pools that match your instance requirements. \
                     Change your instance requirements, and try again.";
    let launched = refused(&names(), refusal(code, unmatched)).unwrap();
    assert_eq!(
        launched.shortfalls,
        [format!(
            "{code}: {unmatched}: no type that runs the image of ami fits resource-class-config, \
             allowed-instance-types, instance-generations and on-demand-price-protection-percent"
        )]
    );
    assert!(launched.machines.is_empty() && launched.passing.is_empty());
    let other = refused(&names(), refusal(code, "Value (x) for parameter y is invalid."));
    assert!(matches!(other, Err(PortError::Unusable { .. })), "nothing else of that code is");
}

#[test]
fn an_order_says_exactly_what_is_wanted() {
    let options = |generations: &str| {
        let settings = [
            ("subnet-ids", "subnet-1 subnet-2"),
            ("on-demand-price-protection-percent", "70"),
            ("instance-generations", generations),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        LaunchOptions::read(&settings.into()).unwrap()
    };
    let shown = |order: &Order, generations: &str| -> String {
        let params = request::params(&names(), Some(3), &options(generations), order);
        params.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    };
    insta::assert_snapshot!("spot_order", shown(&order(3), "current"));
    let mut order = order(1);
    order.requirements.usage = UsageClass::OnDemand;
    let text = shown(&order, "current");
    assert!(text.contains("OnDemandOptions.AllocationStrategy=lowest-price\n"), "{text}");
    assert!(text.contains("DefaultTargetCapacityType=on-demand\n"), "{text}");
    assert!(!text.contains("SpotOptions"), "{text}");
    assert!(text.contains(".OnDemandMaxPricePercentageOverLowestPrice=70\n"), "{text}");
    assert!(text.contains(".InstanceGeneration.1=current\n"), "{text}");
    assert!(!shown(&order, "any").contains("InstanceGeneration"), "previous ones too");
    order.requirements.types = "c* t3.*".parse().unwrap();
    assert!(shown(&order, "current").contains(".BurstablePerformance=included\n"));
}
