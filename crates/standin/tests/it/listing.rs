//! DescribeInstances: filters and pages. DescribeImages: by id.

use std::time::Duration;

use ondeck_standin::{Architecture, Gateway, GatewayOptions, MachineState};

use crate::harness::{Ec2, SOON, fleet, options, unique};

async fn launched(options: GatewayOptions, count: usize) -> (Gateway, Ec2, Vec<String>) {
    let gateway = Gateway::start(options);
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let template = unique("template");
    ec2.template(&template).await;
    let mut ids = ec2.ask(&fleet(&template, count, "spot")).await.launched();
    ids.sort();
    (gateway, ec2, ids)
}

#[tokio::test]
async fn pages_give_every_machine_once() {
    let (gateway, ec2, ids) = launched(GatewayOptions { page: 5, ..options() }, 12).await;
    let mut found = Vec::new();
    let mut token = String::new();
    let mut pages = 0;
    loop {
        let answer = ec2.ask(&format!("Action=DescribeInstances&MaxResults=1000{token}")).await;
        found.extend(answer.all("instanceId").into_iter().map(str::to_owned));
        pages += 1;
        match answer.first("nextToken") {
            Some(next) => token = format!("&NextToken={next}"),
            None => break,
        }
    }
    found.sort();
    assert_eq!((found, pages), (ids, 3));
    let unpaged = ec2.ask("Action=DescribeInstances").await;
    assert_eq!(unpaged.all("instanceId").len(), 5, "a page is a page, asked for or not");
    let cases = [
        ("&MaxResults=4", "InvalidParameterValue"),
        ("&NextToken=bogus", "InvalidPaginationToken"),
        ("&InstanceId.1=i-00000000000000000", "InvalidInstanceID.NotFound"),
        ("&Filter.1.Name=colour&Filter.1.Value.1=red", "InvalidParameterValue"),
    ];
    for (more, code) in cases {
        let answer = ec2.ask(&format!("Action=DescribeInstances{more}")).await;
        assert_eq!(answer.code(), Some(code), "{more}");
    }
    drop(gateway);
}

#[tokio::test]
async fn filters_choose_and_combine() {
    let (gateway, ec2, ids) = launched(options(), 3).await;
    gateway.ec2().terminate(&ids[0]);
    let terminated = |machines: &[ondeck_standin::Machine]| {
        machines.iter().any(|machine| machine.state == MachineState::Terminated)
    };
    gateway.ec2().wait(SOON, terminated).unwrap();
    let count = async |filters: &str| {
        let answer = ec2.ask(&format!("Action=DescribeInstances{filters}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.all("instanceId").len()
    };
    let up = "&Filter.1.Name=instance-state-name&Filter.1.Value.1=pending&Filter.1.Value.2=running";
    assert_eq!(count("").await, 3, "what has ended stays listed");
    assert_eq!(count(up).await, 2);
    assert_eq!(count(&format!("{up}&Filter.2.Name=tag:ondeck:pool&Filter.2.Value.1=p1")).await, 2);
    assert_eq!(count(&format!("{up}&Filter.2.Name=tag:ondeck:pool&Filter.2.Value.1=p?x")).await, 0);
    assert_eq!(count("&Filter.1.Name=tag-key&Filter.1.Value.1=ondeck:*").await, 3);
    let one = format!("&Filter.1.Name=instance-id&Filter.1.Value.1={}", ids[1]);
    assert_eq!(count(&one).await, 1);
    let answer = ec2.ask(&format!("Action=DescribeInstances&InstanceId.1={}", ids[1])).await;
    assert_eq!(answer.first("instanceLifecycle"), Some("spot"));
    assert_eq!((answer.first("coreCount"), answer.first("threadsPerCore")), (Some("2"), Some("2")));
    gateway.assert_requests_valid();
}

#[tokio::test]
async fn terminated_machines_are_listed_for_a_while() {
    let stay = Duration::ZERO;
    let (gateway, ec2, ids) =
        launched(GatewayOptions { terminated_stay: stay, ..options() }, 3).await;
    let all = gateway.ec2().machines();
    let middle = &all[1].id;
    gateway.ec2().terminate(middle);
    let terminated = |machines: &[ondeck_standin::Machine]| {
        machines.iter().any(|machine| machine.state == MachineState::Terminated)
    };
    gateway.ec2().wait(SOON, terminated).unwrap();
    let listed = ec2.ask("Action=DescribeInstances").await.all("instanceId").len();
    assert_eq!((listed, ids.len()), (2, 3));
    // The others are found all the same.
    for machine in &all {
        let found = gateway.ec2().machine(&machine.id).map(|machine| machine.id);
        assert_eq!(found.as_ref(), Some(&machine.id).filter(|id| *id != middle));
    }
}

#[tokio::test]
async fn images_are_described_by_their_id() {
    let gateway = Gateway::start(options());
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let both = "Action=DescribeImages&ImageId.1=ami-0123456789abcdef0&ImageId.2=ami-89abcdef";
    let answer = ec2.ask(both).await;
    assert_eq!(answer.all("imageId"), ["ami-0123456789abcdef0", "ami-89abcdef"]);
    assert_eq!(answer.all("rootDeviceName"), ["/dev/xvda"; 2]);
    for (query, code) in [
        ("Action=DescribeImages&ImageId.1=ami-1", "InvalidAMIID.Malformed"),
        ("Action=DescribeImages&ImageId.1=i-89abcdef", "InvalidAMIID.Malformed"),
        ("Action=DescribeImages", "MissingParameter"),
    ] {
        assert_eq!(ec2.ask(query).await.code(), Some(code), "{query}");
    }
    gateway.ec2().register_image("ami-89abcdef", Architecture::Arm64);
    assert_eq!(ec2.ask(both).await.all("architecture"), ["x86_64", "arm64"]);
    gateway.ec2().deregister_image("ami-89abcdef");
    assert_eq!(ec2.ask(both).await.code(), Some("InvalidAMIID.NotFound"));
    gateway.assert_requests_valid();
}

#[tokio::test]
async fn a_listing_may_lag_behind_launches() {
    let gateway = Gateway::start(options());
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let name = unique("template");
    ec2.template(&name).await;
    let listed = async |query: &str| {
        let answer = ec2.ask(&format!("Action=DescribeInstances{query}")).await;
        (answer.code().map(str::to_owned), answer.all("instanceId").len())
    };
    ec2.ask(&fleet(&name, 1, "spot")).await;
    gateway.ec2().lag_listings(true);
    let late = ec2.ask(&fleet(&name, 2, "spot")).await.launched();
    assert_eq!(listed("").await, (None, 1));
    let by_id = format!("&InstanceId.1={}", late[0]);
    assert_eq!(listed(&by_id).await, (Some("InvalidInstanceID.NotFound".to_owned()), 0));
    gateway.ec2().lag_listings(false);
    assert_eq!(listed("").await, (None, 3));
    assert_eq!(listed(&by_id).await, (None, 1));
}
