//! The types of resources that both languages have, and how a resource of the template is written in
//! the module.

use serde_json::{Map, Value, json};

use super::snake;
use super::template;

/// How the module writes a property of the template.
#[derive(Clone, Copy)]
enum Form {
    Same,
    /// A list of one value as that value.
    Only,
    /// A list of names and values, below these two keys, as an object.
    Pairs(&'static str, &'static str),
    /// An object as the text of a JSON document.
    Document,
    /// An object as a nested block, with other names.
    Block,
    /// Variables of a function, whose names stay as they are.
    Environment,
    /// A rule of a security group, as a nested block.
    Egress,
    /// A number as its text.
    Text,
    /// Filters of a budget, as a nested block for each.
    Filters,
    /// Who is told of a budget, as a nested block for each threshold.
    Notifications,
}

use Form::{Block, Document, Egress, Environment, Filters, Notifications, Only, Pairs, Same, Text};

const TAGS: Form = Pairs("Key", "Value");

/// A type of resources: CloudFormation's and Terraform's name, and its properties. A property that is
/// not listed is a difference.
type Type = (&'static str, &'static str, &'static [(&'static str, &'static str, Form)]);

/// A target of a rule, which is a property in the template and a resource in the module.
const TARGET: &str = "a target of a rule";

const TYPES: [Type; 26] = [
    (
        "AWS::IAM::OIDCProvider",
        "aws_iam_openid_connect_provider",
        &[("Url", "url", Same), ("ClientIdList", "client_id_list", Same)],
    ),
    (
        "AWS::IAM::ServiceLinkedRole",
        "aws_iam_service_linked_role",
        &[("AWSServiceName", "aws_service_name", Same)],
    ),
    (
        "AWS::IAM::Role",
        "aws_iam_role",
        &[
            ("RoleName", "name", Same),
            ("Description", "description", Same),
            ("PermissionsBoundary", "permissions_boundary", Same),
            ("AssumeRolePolicyDocument", "assume_role_policy", Document),
        ],
    ),
    (
        "AWS::IAM::Policy",
        "aws_iam_role_policy",
        &[
            ("PolicyName", "name", Same),
            ("Roles", "role", Only),
            ("PolicyDocument", "policy", Document),
        ],
    ),
    (
        "AWS::IAM::InstanceProfile",
        "aws_iam_instance_profile",
        &[("InstanceProfileName", "name", Same), ("Roles", "role", Only)],
    ),
    (
        "AWS::KMS::Key",
        "aws_kms_key",
        &[
            ("Description", "description", Same),
            ("EnableKeyRotation", "enable_key_rotation", Same),
            ("KeyPolicy", "policy", Document),
        ],
    ),
    (
        "AWS::EC2::SecurityGroup",
        "aws_security_group",
        &[
            ("GroupName", "name", Same),
            ("GroupDescription", "description", Same),
            ("VpcId", "vpc_id", Same),
            ("SecurityGroupEgress", "egress", Egress),
        ],
    ),
    (
        "AWS::EC2::VPC",
        "aws_vpc",
        &[
            ("CidrBlock", "cidr_block", Same),
            ("EnableDnsSupport", "enable_dns_support", Same),
            ("EnableDnsHostnames", "enable_dns_hostnames", Same),
            ("Tags", "tags", TAGS),
        ],
    ),
    ("AWS::EC2::InternetGateway", "aws_internet_gateway", &[("Tags", "tags", TAGS)]),
    (
        "AWS::EC2::VPCGatewayAttachment",
        "aws_internet_gateway_attachment",
        &[("VpcId", "vpc_id", Same), ("InternetGatewayId", "internet_gateway_id", Same)],
    ),
    (
        "AWS::EC2::RouteTable",
        "aws_route_table",
        &[("VpcId", "vpc_id", Same), ("Tags", "tags", TAGS)],
    ),
    (
        "AWS::EC2::Route",
        "aws_route",
        &[
            ("RouteTableId", "route_table_id", Same),
            ("DestinationCidrBlock", "destination_cidr_block", Same),
            ("GatewayId", "gateway_id", Same),
            ("NatGatewayId", "nat_gateway_id", Same),
        ],
    ),
    (
        "AWS::EC2::Subnet",
        "aws_subnet",
        &[
            ("VpcId", "vpc_id", Same),
            ("AvailabilityZone", "availability_zone", Same),
            ("CidrBlock", "cidr_block", Same),
            ("MapPublicIpOnLaunch", "map_public_ip_on_launch", Same),
            ("Tags", "tags", TAGS),
        ],
    ),
    (
        "AWS::EC2::SubnetRouteTableAssociation",
        "aws_route_table_association",
        &[("SubnetId", "subnet_id", Same), ("RouteTableId", "route_table_id", Same)],
    ),
    ("AWS::EC2::EIP", "aws_eip", &[("Domain", "domain", Same)]),
    (
        "AWS::EC2::NatGateway",
        "aws_nat_gateway",
        &[("SubnetId", "subnet_id", Same), ("AllocationId", "allocation_id", Same)],
    ),
    (
        "AWS::EC2::VPCEndpoint",
        "aws_vpc_endpoint",
        &[
            ("VpcEndpointType", "vpc_endpoint_type", Same),
            ("ServiceName", "service_name", Same),
            ("VpcId", "vpc_id", Same),
            ("RouteTableIds", "route_table_ids", Same),
        ],
    ),
    (
        "AWS::Logs::LogGroup",
        "aws_cloudwatch_log_group",
        &[
            ("LogGroupName", "name", Same),
            ("RetentionInDays", "retention_in_days", Same),
            ("KmsKeyId", "kms_key_id", Same),
        ],
    ),
    (
        "AWS::Lambda::Function",
        "aws_lambda_function",
        &[
            ("FunctionName", "function_name", Same),
            ("Description", "description", Same),
            ("Runtime", "runtime", Same),
            ("Handler", "handler", Same),
            ("Architectures", "architectures", Same),
            ("S3Bucket", "s3_bucket", Same),
            ("S3Key", "s3_key", Same),
            ("Role", "role", Same),
            ("Timeout", "timeout", Same),
            ("MemorySize", "memory_size", Same),
            ("ReservedConcurrentExecutions", "reserved_concurrent_executions", Same),
            ("Environment", "environment", Environment),
            ("DeadLetterConfig", "dead_letter_config", Block),
        ],
    ),
    (
        "AWS::Lambda::EventInvokeConfig",
        "aws_lambda_function_event_invoke_config",
        &[
            ("FunctionName", "function_name", Same),
            ("Qualifier", "qualifier", Same),
            ("MaximumRetryAttempts", "maximum_retry_attempts", Same),
            ("MaximumEventAgeInSeconds", "maximum_event_age_in_seconds", Same),
            ("DestinationConfig", "destination_config", Block),
        ],
    ),
    (
        "AWS::Scheduler::Schedule",
        "aws_scheduler_schedule",
        &[
            ("Name", "name", Same),
            ("Description", "description", Same),
            ("ScheduleExpression", "schedule_expression", Same),
            ("State", "state", Same),
            ("FlexibleTimeWindow", "flexible_time_window", Block),
            ("Target", "target", Block),
        ],
    ),
    (
        "AWS::Events::Rule",
        "aws_cloudwatch_event_rule",
        &[
            ("Name", "name", Same),
            ("Description", "description", Same),
            ("State", "state", Same),
            ("EventPattern", "event_pattern", Document),
        ],
    ),
    (
        TARGET,
        "aws_cloudwatch_event_target",
        &[
            ("Rule", "rule", Same),
            ("Id", "target_id", Same),
            ("Arn", "arn", Same),
            ("RoleArn", "role_arn", Same),
            ("RetryPolicy", "retry_policy", Block),
            ("DeadLetterConfig", "dead_letter_config", Block),
        ],
    ),
    (
        "AWS::Lambda::Permission",
        "aws_lambda_permission",
        &[
            ("FunctionName", "function_name", Same),
            ("Action", "action", Same),
            ("Principal", "principal", Same),
            ("SourceArn", "source_arn", Same),
            ("SourceAccount", "source_account", Same),
        ],
    ),
    (
        "AWS::CloudWatch::Alarm",
        "aws_cloudwatch_metric_alarm",
        &[
            ("AlarmName", "alarm_name", Same),
            ("AlarmDescription", "alarm_description", Same),
            ("Namespace", "namespace", Same),
            ("MetricName", "metric_name", Same),
            ("Dimensions", "dimensions", Pairs("Name", "Value")),
            ("Statistic", "statistic", Same),
            ("Period", "period", Same),
            ("EvaluationPeriods", "evaluation_periods", Same),
            ("DatapointsToAlarm", "datapoints_to_alarm", Same),
            ("ComparisonOperator", "comparison_operator", Same),
            ("Threshold", "threshold", Same),
            ("TreatMissingData", "treat_missing_data", Same),
            ("AlarmActions", "alarm_actions", Same),
        ],
    ),
    (
        "AWS::Budgets::Budget",
        "aws_budgets_budget",
        &[
            ("BudgetName", "name", Same),
            ("BudgetType", "budget_type", Same),
            ("TimeUnit", "time_unit", Same),
            ("Amount", "limit_amount", Text),
            ("Unit", "limit_unit", Same),
            ("CostFilters", "cost_filter", Filters),
            ("NotificationsWithSubscribers", "notification", Notifications),
        ],
    ),
];

/// A resource as the module has to create it.
pub(super) struct Expected {
    pub(super) address: String,
    pub(super) attributes: Map<String, Value>,
    pub(super) depends_on: Vec<String>,
}

/// What the module creates in place of a resource of the template: more than one resource if it
/// writes a part of it as a resource of its own. Fails with the name of what the table does not list.
pub(super) fn in_module(
    name: &str,
    resource: &template::Resource,
) -> Result<Vec<Expected>, String> {
    let mut properties = resource.properties.clone();
    // Terraform writes these fields beside the other properties.
    for nested in ["Code", "Budget", "BudgetLimit"] {
        if let Some(Value::Object(fields)) = properties.remove(nested) {
            properties.extend(fields);
        }
    }
    let mut made = Vec::new();
    if resource.kind == "AWS::Events::Rule" {
        let targets = properties.remove("Targets").unwrap_or_default();
        for target in targets.as_array().into_iter().flatten() {
            let mut target = target.as_object().cloned().unwrap_or_default();
            target.insert("Rule".to_owned(), json!(format!("<{name}>")));
            let id = target["Id"].as_str().unwrap_or_default().to_owned();
            made.push(expected(&format!("{}_{id}", snake(name)), TARGET, &target)?);
        }
    }
    let mut own = expected(&snake(name), &resource.kind, &properties)?;
    own.depends_on = resource.depends_on.iter().map(|name| snake(name)).collect();
    made.push(own);
    Ok(made)
}

fn expected(name: &str, kind: &str, properties: &Map<String, Value>) -> Result<Expected, String> {
    let found = TYPES.into_iter().find(|it| it.0 == kind);
    let (_, kind, names) = found.ok_or_else(|| format!("not in the table: {kind}"))?;
    let address = format!("{kind}.{name}");
    let mut attributes = Map::new();
    for (property, value) in properties {
        let row = names.iter().find(|it| it.0 == property);
        let row = row.ok_or_else(|| format!("not in the table: {address}: {property}"))?;
        attributes.insert(row.1.to_owned(), written(value, row.2));
    }
    Ok(Expected { address, attributes, depends_on: Vec::new() })
}

/// The attributes of a resource of the module, with documents as JSON and without those that are
/// null, which are not set.
pub(super) fn comparable(address: &str, attributes: &Map<String, Value>) -> Map<String, Value> {
    let kind = address.split('.').next();
    let names = TYPES.into_iter().filter(|it| Some(it.1) == kind).flat_map(|it| it.2);
    let documents: Vec<&str> = names.filter(|it| matches!(it.2, Document)).map(|it| it.1).collect();
    let read = |(name, value): (&String, &Value)| {
        let text = value.as_str().filter(|_| documents.contains(&name.as_str()));
        let document = text.and_then(|text| serde_json::from_str(text).ok());
        (name.clone(), document.unwrap_or_else(|| value.clone()))
    };
    attributes.iter().filter(|(_, value)| !value.is_null()).map(read).collect()
}

/// A value of the template as the module writes it.
fn written(value: &Value, form: Form) -> Value {
    match (form, value) {
        (Only, Value::Array(values)) if values.len() == 1 => values[0].clone(),
        (Pairs(name, of), Value::Array(pairs)) => {
            let pair = |it: &Value| Some((it[name].as_str()?.to_owned(), it[of].clone()));
            Value::Object(pairs.iter().filter_map(pair).collect())
        }
        (Block, Value::Object(fields)) => {
            let field = |(name, value): (&String, &Value)| (snake(name), written(value, Block));
            json!([Value::Object(fields.iter().map(field).collect())])
        }
        (Environment, environment) => json!([{ "variables": environment["Variables"] }]),
        (Egress, Value::Array(rules)) => {
            let rule = |rule: &Value| {
                json!({ "protocol": rule["IpProtocol"], "from_port": 0, "to_port": 0,
                        "cidr_blocks": [rule["CidrIp"]] })
            };
            rules.iter().map(rule).collect()
        }
        (Text, Value::Number(number)) => json!(number.to_string()),
        (Filters, Value::Object(filters)) => {
            let filter = |(name, values)| json!({ "name": name, "values": values });
            filters.iter().map(filter).collect()
        }
        (Notifications, Value::Array(all)) => all.iter().map(notification).collect(),
        _ => value.clone(),
    }
}

/// A threshold of a budget, with its subscribers by their kind.
fn notification(value: &Value) -> Value {
    let mut made = written(&value["Notification"], Block)[0].clone();
    for attribute in ["subscriber_email_addresses", "subscriber_sns_topic_arns"] {
        made[attribute] = Value::Null;
    }
    for subscriber in value["Subscribers"].as_array().into_iter().flatten() {
        let attribute = match subscriber["SubscriptionType"].as_str() {
            Some("EMAIL") => "subscriber_email_addresses",
            Some("SNS") => "subscriber_sns_topic_arns",
            _ => "subscriber",
        };
        made[attribute] = json!([subscriber["Address"]]);
    }
    made
}
