//! The template and the module against the policies and each other.

mod module;
mod template;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::step::workspace_root;
use module::Module;
use template::Template;

/// The longest template that CloudFormation takes without a bucket, in bytes.
const LONGEST_TEMPLATE: usize = 51_200;

/// A type of resources: CloudFormation's and Terraform's name, and the names of its properties.
type Type = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const TYPES: [Type; 17] = [
    (
        "AWS::IAM::OIDCProvider",
        "aws_iam_openid_connect_provider",
        &[("Url", "url"), ("ClientIdList", "client_id_list")],
    ),
    (
        "AWS::IAM::ServiceLinkedRole",
        "aws_iam_service_linked_role",
        &[("AWSServiceName", "aws_service_name")],
    ),
    (
        "AWS::IAM::Role",
        "aws_iam_role",
        &[
            ("RoleName", "name"),
            ("Description", "description"),
            ("PermissionsBoundary", "permissions_boundary"),
            ("AssumeRolePolicyDocument", "assume_role_policy"),
        ],
    ),
    (
        "AWS::IAM::Policy",
        "aws_iam_role_policy",
        &[("PolicyName", "name"), ("Roles", "role"), ("PolicyDocument", "policy")],
    ),
    (
        "AWS::IAM::InstanceProfile",
        "aws_iam_instance_profile",
        &[("InstanceProfileName", "name"), ("Roles", "role")],
    ),
    (
        "AWS::KMS::Key",
        "aws_kms_key",
        &[
            ("Description", "description"),
            ("EnableKeyRotation", "enable_key_rotation"),
            ("KeyPolicy", "policy"),
        ],
    ),
    (
        "AWS::EC2::SecurityGroup",
        "aws_security_group",
        &[
            ("GroupName", "name"),
            ("GroupDescription", "description"),
            ("VpcId", "vpc_id"),
            ("SecurityGroupEgress", "egress"),
        ],
    ),
    (
        "AWS::EC2::VPC",
        "aws_vpc",
        &[
            ("CidrBlock", "cidr_block"),
            ("EnableDnsSupport", "enable_dns_support"),
            ("EnableDnsHostnames", "enable_dns_hostnames"),
            ("Tags", "tags"),
        ],
    ),
    ("AWS::EC2::InternetGateway", "aws_internet_gateway", &[("Tags", "tags")]),
    (
        "AWS::EC2::VPCGatewayAttachment",
        "aws_internet_gateway_attachment",
        &[("VpcId", "vpc_id"), ("InternetGatewayId", "internet_gateway_id")],
    ),
    ("AWS::EC2::RouteTable", "aws_route_table", &[("VpcId", "vpc_id"), ("Tags", "tags")]),
    (
        "AWS::EC2::Route",
        "aws_route",
        &[
            ("RouteTableId", "route_table_id"),
            ("DestinationCidrBlock", "destination_cidr_block"),
            ("GatewayId", "gateway_id"),
            ("NatGatewayId", "nat_gateway_id"),
        ],
    ),
    (
        "AWS::EC2::Subnet",
        "aws_subnet",
        &[
            ("VpcId", "vpc_id"),
            ("AvailabilityZone", "availability_zone"),
            ("CidrBlock", "cidr_block"),
            ("MapPublicIpOnLaunch", "map_public_ip_on_launch"),
            ("Tags", "tags"),
        ],
    ),
    (
        "AWS::EC2::SubnetRouteTableAssociation",
        "aws_route_table_association",
        &[("SubnetId", "subnet_id"), ("RouteTableId", "route_table_id")],
    ),
    ("AWS::EC2::EIP", "aws_eip", &[("Domain", "domain")]),
    (
        "AWS::EC2::NatGateway",
        "aws_nat_gateway",
        &[("SubnetId", "subnet_id"), ("AllocationId", "allocation_id")],
    ),
    (
        "AWS::EC2::VPCEndpoint",
        "aws_vpc_endpoint",
        &[
            ("VpcEndpointType", "vpc_endpoint_type"),
            ("ServiceName", "service_name"),
            ("VpcId", "vpc_id"),
            ("RouteTableIds", "route_table_ids"),
        ],
    ),
];

/// What is deployed, by the parameters of the template. Each condition holds in one of them and not
/// in another, which a test checks.
const DEPLOYED: [&[(&str, &str)]; 4] = [
    &[],
    &[
        ("RepositoryWithIds", "acme@1/web@2"),
        ("TrustLevel", "release"),
        ("Prefix", "ondeck-web"),
        ("DefaultBranch", "trunk"),
        ("MaintenanceEnvironment", "maintenance"),
        ("WorkflowEnvironment", "release"),
        ("WorkflowRefs", "refs/heads/main,refs/tags/v*"),
        ("OidcProvider", "existing"),
        ("SpotRole", "new"),
        ("Zones", "2"),
        ("Nat", "true"),
        ("VolumeKey", "new"),
        ("LogGroup", "/ondeck/web"),
        ("Connect", "true"),
        ("PermissionsBoundary", "arn:aws:iam::123456789012:policy/boundary"),
    ],
    &[
        ("VpcId", "vpc-1"),
        ("SubnetIds", "subnet-1,subnet-2"),
        ("RouteTableIds", "rtb-1,rtb-2"),
        ("VolumeKey", "arn:aws:kms:us-east-1:123456789012:key/1"),
        ("PullRequests", "false"),
    ],
    &[("VpcId", "vpc-1"), ("SubnetIds", "subnet-1"), ("VpcCidr", "10.1.0.0/16")],
];

/// The parameters that have no default.
const REQUIRED: [(&str, &str); 3] =
    [("Repository", "Acme/Web"), ("Pool", "acme/web"), ("PoolName", "ondeck-acme-web-a7a54a76")];

fn both() -> (Template, Module) {
    let root = workspace_root();
    (Template::read(&root.join(TEMPLATE)), Module::read(&root.join("infra/terraform")))
}

/// Terraform's form of a name of CloudFormation.
fn snake(name: &str) -> String {
    let mut made = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !made.is_empty() {
            made.push('_');
        }
        made.push(c.to_ascii_lowercase());
    }
    made
}

/// A property of the template as the module writes it.
fn translated(property: &str, value: &Value) -> Value {
    match (property, value) {
        ("Tags", Value::Array(tags)) => {
            let pair =
                |tag: &Value| (tag["Key"].as_str().unwrap().to_owned(), tag["Value"].clone());
            Value::Object(tags.iter().map(pair).collect())
        }
        ("Roles", Value::Array(roles)) if roles.len() == 1 => roles[0].clone(),
        ("SecurityGroupEgress", Value::Array(rules)) => {
            let rule = |rule: &Value| {
                json!({ "protocol": rule["IpProtocol"], "from_port": 0, "to_port": 0,
                        "cidr_blocks": [rule["CidrIp"]] })
            };
            rules.iter().map(rule).collect()
        }
        _ => value.clone(),
    }
}

#[test]
fn what_is_committed_is_current() {
    assert_eq!(compare(&workspace_root()), Ok(()));
}

#[test]
fn a_part_that_differs_from_its_source_is_out_of_date() {
    let text = format!("a:\n  {BEGIN}x.yaml{BY}  old: 1\n  {END}b: 2\n");
    let made = super::template(&text, |_| Ok("new: 1\nmore: 2\n".to_owned())).unwrap();
    assert_eq!(made, format!("a:\n  {BEGIN}x.yaml{BY}  new: 1\n  more: 2\n  {END}b: 2\n"));
    let unfinished = format!("a:\n  {BEGIN}x.yaml{BY}  old: 1\n");
    assert!(super::template(&unfinished, |_| Ok(String::new())).is_err());
}

#[test]
fn the_template_can_be_sent_without_a_bucket() {
    let text = fs::read_to_string(workspace_root().join(TEMPLATE)).unwrap();
    assert!(text.len() <= LONGEST_TEMPLATE, "{}", text.len());
}

#[test]
fn each_condition_is_tried_both_ways() {
    let (template, _) = both();
    let mut seen: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for parameters in DEPLOYED {
        for (name, holds) in template.deployed(&given(parameters)).conditions {
            seen.entry(name).or_default().insert(holds);
        }
    }
    let one_way: Vec<&String> = seen.iter().filter(|it| it.1.len() < 2).map(|it| it.0).collect();
    assert!(one_way.is_empty(), "{one_way:?}");
}

/// All parameters of one deployment that differ from their default.
fn given(parameters: &[(&'static str, &'static str)]) -> BTreeMap<&'static str, &'static str> {
    REQUIRED.into_iter().chain(parameters.iter().copied()).collect()
}

#[test]
fn the_module_has_the_parameters_of_the_template() {
    let (template, module) = both();
    let parameters = template.parameters();
    let names: BTreeSet<String> = parameters.keys().map(|name| snake(name)).collect();
    assert_eq!(names, module.variables.keys().cloned().collect());
    for (name, parameter) in parameters {
        let variable = &module.variables[&snake(name)];
        let default = parameter.get("Default").and_then(Value::as_str);
        let default = default.map(|text| module::value_of(&variable.kind, text));
        assert_eq!(variable.default, default, "{name}");
        let pattern = parameter.get("AllowedPattern").and_then(Value::as_str);
        let values = parameter.get("AllowedValues").and_then(Value::as_array);
        if let Some(pattern) = pattern {
            assert!(variable.validations.contains(&format!("regex(\"{pattern}\"")), "{name}");
        }
        for value in values.into_iter().flatten().filter(|_| variable.kind != "bool") {
            let value = value.as_str().unwrap();
            assert!(variable.validations.contains(value), "{name}: {value}");
        }
    }
}

#[test]
fn the_module_creates_what_the_template_creates() {
    let (template, module) = both();
    for parameters in DEPLOYED {
        let stack = template.deployed(&given(parameters));
        let state = module.applied(&given(parameters), &template.logical_names());
        let mut created = BTreeSet::new();
        for (name, resource) in &stack.resources {
            let found = TYPES.into_iter().find(|it| it.0 == resource.kind);
            let (_, kind, names) = found.unwrap_or_else(|| panic!("not in TYPES: {name}"));
            let address = format!("{kind}.{}", snake(name));
            let other = state.resources.get(&address);
            let other = other.unwrap_or_else(|| panic!("{parameters:?}: no {address}"));
            for property in resource.properties.keys() {
                assert!(names.iter().any(|it| it.0 == property), "{address}: {property}");
            }
            for attribute in other.attributes.keys() {
                assert!(names.iter().any(|it| it.1 == attribute), "{address}: {attribute}");
            }
            for (property, attribute) in names {
                let ours = resource.properties.get(*property).unwrap_or(&Value::Null);
                let theirs = other.attributes.get(*attribute).unwrap_or(&Value::Null);
                let theirs = match theirs.as_str().filter(|_| ours.is_object()) {
                    Some(document) => serde_json::from_str(document).unwrap(),
                    None => theirs.clone(),
                };
                let ours = translated(property, ours);
                assert_eq!(ours, theirs, "{parameters:?}: {address}.{attribute}");
            }
            assert_eq!(resource.depends_on.as_deref().map(snake), other.depends_on, "{address}");
            created.insert(address);
        }
        assert_eq!(created, state.resources.into_keys().collect(), "{parameters:?}");
    }
}

#[test]
fn the_module_has_the_outputs_of_the_template() {
    let (template, module) = both();
    for parameters in DEPLOYED {
        let outputs = template.deployed(&given(parameters)).outputs;
        let outputs: BTreeMap<String, Value> =
            outputs.into_iter().map(|(name, value)| (snake(&name), value)).collect();
        let state = module.applied(&given(parameters), &template.logical_names());
        assert_eq!(outputs, state.outputs, "{parameters:?}");
    }
}
