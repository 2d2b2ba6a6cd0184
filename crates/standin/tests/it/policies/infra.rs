//! The templates in `infra`, deployed to MiniStack: what they create, and which workflows may assume
//! their roles.

mod function;
mod stack;
mod trust;

use std::collections::BTreeSet;

use serde_json::Value;

use stack::Stack;

/// The roles that each stack has.
const ROLES: [&str; 6] = ["refresh", "operator", "steward", "provision", "release", "machine"];

/// A policy of the repository, with the values that the stack was given.
fn policy(stack: &Stack, name: &str, pool: &str, key: &str) -> Value {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies");
    let text = std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap();
    let text = text
        .replace("MACHINE-ROLE", &format!("{}-machine", stack.prefix))
        .replace("VOLUME-KEY", key)
        .replace("LOG-GROUP", "/ondeck/web")
        .replace("IMAGE-PARAMETER", "/images/ci")
        .replace("REGION", "us-east-1")
        .replace("ACCOUNT", "000000000000")
        .replace("NAME", "ondeck-acme-web-a7a54a76")
        .replace("POOL", pool);
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_new_network_and_all_roles_are_deployed_and_deleted() {
    let options = [
        ("VolumeKey", "new"),
        ("LogGroup", "/ondeck/web"),
        ("Connect", "true"),
        ("ImageParameter", "/images/ci"),
    ];
    let stack = Stack::deployed(&options).await;

    let key = stack.output("VolumeKeyArn");
    for (role, optional) in [
        ("refresh", vec!["volume-key", "image-parameter"]),
        ("operator", vec!["operator-connect"]),
        ("steward", vec![]),
        ("provision", vec!["volume-key", "image-parameter"]),
        ("release", vec![]),
        ("machine", vec!["machine-connect", "machine-logs"]),
    ] {
        let mut attached = stack.policies_of(role).await;
        assert_eq!(attached.remove(role), Some(policy(&stack, role, "acme/web", key)), "{role}");
        for name in optional {
            let expected = policy(&stack, &format!("optional/{name}"), "acme/web", key);
            assert_eq!(attached.remove(name), Some(expected), "{role}: {name}");
        }
        assert!(attached.is_empty(), "{role}: {attached:?}");
        let arn = format!("arn:aws:iam::000000000000:role/{}-{role}", stack.prefix);
        let output = format!("{}{}RoleArn", role[..1].to_uppercase(), &role[1..]);
        assert_eq!(stack.output(&output), arn);
    }
    assert_eq!(stack.output("Pool"), "acme/web");
    assert_eq!(stack.output("AwsRegion"), "us-east-1");
    let profile = format!("arn:aws:iam::000000000000:instance-profile/{}-machine", stack.prefix);
    assert_eq!(stack.output("IamInstanceProfile"), profile);

    let subnets: Vec<&str> = stack.output("SubnetIds").split(' ').collect();
    let mut zones = BTreeSet::new();
    for subnet in &subnets {
        let found = stack.ec2(&format!("DescribeSubnets&SubnetId.1={subnet}")).await;
        zones.insert(found.first("availabilityZone").unwrap().to_owned());
        assert_eq!(found.first("vpcId"), Some(stack.output("VpcId")));
        assert_eq!(found.first("mapPublicIpOnLaunch"), Some("true"));
    }
    assert_eq!((subnets.len(), zones.len()), (3, 3), "each in a zone of its own");
    let group = stack.output("SecurityGroupIds");
    let group = stack.ec2(&format!("DescribeSecurityGroups&GroupId.1={group}")).await;
    assert_eq!(group.first("vpcId"), Some(stack.output("VpcId")));
    let ingress = group.text.split_once("<ipPermissions>").map(|(_, it)| it);
    let is_open = ingress.is_some_and(|it| !it.starts_with("</ipPermissions>"));
    assert!(!is_open, "nothing comes in: {}", group.text);
    assert_eq!(stack.endpoints().await, ["com.amazonaws.us-east-1.dynamodb"]);

    let network = stack.output("VpcId").to_owned();
    stack.delete().await;
    for role in ROLES {
        let found = stack.iam(&format!("GetRole&RoleName={}-{role}", stack.prefix)).await;
        assert_eq!(found.code(), Some("NoSuchEntity"), "{role}");
    }
    let found = stack.ec2(&format!("DescribeVpcs&VpcId.1={network}")).await;
    assert_eq!(found.code(), Some("InvalidVpcID.NotFound"), "{}", found.text);
    assert!(stack.endpoints().await.is_empty());
}

#[tokio::test]
async fn the_options_of_a_pool_are_optional() {
    let stack = Stack::deployed(&[("TrustLevel", "release"), ("Zones", "2")]).await;
    for role in ROLES {
        let attached = stack.policies_of(role).await;
        assert_eq!(attached.keys().collect::<Vec<_>>(), [role]);
        assert_eq!(attached[role], policy(&stack, role, "acme/web@release", ""), "{role}");
    }
    assert_eq!(stack.output("Pool"), "acme/web@release");
    assert_eq!(stack.output("SubnetIds").split(' ').count(), 2);
    stack.delete().await;
}

#[tokio::test]
async fn an_existing_network_is_used_and_stays() {
    let other = Stack::deployed(&[]).await;
    let network = other.output("VpcId");
    let subnets = other.output("SubnetIds").replace(' ', ",");
    let existing = [("VpcId", network), ("SubnetIds", subnets.as_str())];

    let stack = Stack::deployed(&existing).await;
    assert_eq!(stack.output("SubnetIds"), other.output("SubnetIds"));
    let group = stack.output("SecurityGroupIds");
    let found = stack.ec2(&format!("DescribeSecurityGroups&GroupId.1={group}")).await;
    assert_eq!(found.first("vpcId"), Some(network));
    assert_eq!(stack.endpoints().await.len(), 1, "that of the network's own stack");
    stack.delete().await;

    let with_routes = [existing[0], existing[1], ("RouteTableIds", "rtb-1,rtb-2")];
    let stack = Stack::deployed(&with_routes).await;
    assert_eq!(stack.endpoints().await.len(), 2);
    stack.delete().await;
    let found = stack.ec2(&format!("DescribeVpcs&VpcId.1={network}")).await;
    assert_eq!(found.status, 200, "the network of another stack stays");
    other.delete().await;
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_anything_is_created() {
    for (parameter, value, complaint) in [
        ("VpcId", "vpc-1", "an existing network is given with SubnetIds"),
        ("Repository", "acme/*", "Repository"),
        ("RepositoryWithIds", "acme@*/web@2", "RepositoryWithIds"),
        ("Pool", "Acme/Web", "Pool"),
        ("WorkflowRefs", "*", "WorkflowRefs"),
        ("WorkflowRefs", "refs/heads/main,refs/pull/*", "WorkflowRefs"),
        ("MaintenanceEnvironment", "*", "MaintenanceEnvironment"),
        ("WorkflowEnvironment", "*", "WorkflowEnvironment"),
        ("DefaultBranch", "*", "DefaultBranch"),
        ("PoolName", "*", "PoolName"),
    ] {
        let refused = Stack::attempted(&[(parameter, value)]).await.unwrap_err();
        assert!(refused.contains(complaint), "{parameter}={value}: {refused}");
    }
}

/// These resources are behind conditions, and cfn-lint alone has looked at them.
#[tokio::test]
async fn the_emulator_does_not_know_four_types() {
    for (parameter, value, types) in [
        ("OidcProvider", "new", "[AWS::IAM::OIDCProvider]"),
        ("SpotRole", "new", "[AWS::IAM::ServiceLinkedRole]"),
        ("Nat", "true", "[AWS::EC2::EIP, AWS::EC2::NatGateway]"),
    ] {
        let refused = Stack::attempted(&[(parameter, value)]).await.unwrap_err();
        assert!(refused.contains(&format!("Unrecognized resource types: {types}")), "{refused}");
    }
}
