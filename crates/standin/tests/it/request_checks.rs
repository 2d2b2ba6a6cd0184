//! Requests and our own answers are checked against the API's models.

use ondeck_standin::{Gateway, GatewayOptions, Service};
use quick_xml::events::Event;
use serde_json::Value;

use crate::harness::{Ec2, fleet, gateway, options, unique};

/// Sends a request in the JSON protocol, and returns its violations.
async fn json(target: &str, body: &str) -> Vec<String> {
    let gateway = gateway();
    send(&gateway, target, body).await;
    gateway.violations().iter().map(ToString::to_string).collect()
}

async fn send(gateway: &Gateway, target: &str, body: &str) -> u16 {
    let request = hyper::Request::post(gateway.endpoint("control").url())
        .header("x-amz-target", target)
        .header("content-type", "application/x-amz-json-1.0")
        .header(
            "authorization",
            "AWS4-HMAC-SHA256 Credential=test/20261115/us-east-1/x/aws4_request",
        )
        .body(http_body_util::Full::new(bytes::Bytes::from(body.to_owned())))
        .unwrap();
    let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http();
    http.request(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn violations_are_refused_if_the_options_say_so() {
    for (refuse_unknown, calls) in [(false, 1), (true, 0)] {
        let gateway = Gateway::start(GatewayOptions { refuse_unknown, ..options() });
        let (limit, tables) = (r#"{"Limit":0}"#, "DynamoDB_20120810.ListTables");
        assert_eq!(send(&gateway, tables, limit).await, 400, "the emulator refuses it as well");
        let endpoint = gateway.endpoint("control");
        assert_eq!((endpoint.total(), gateway.violations().len()), (calls, 1), "{refuse_unknown}");
        assert_eq!(send(&gateway, tables, "{}").await, 200);
    }
}

#[tokio::test]
async fn violations_in_json_are_reported() {
    let dynamodb = |operation: &str| format!("DynamoDB_20120810.{operation}");
    let cases: [(&str, &str, &[&str]); 9] = [
        ("PutItem", r#"{"TableName":"abc","Item":{"PK":{"S":"x"}}}"#, &[]),
        ("PutThing", "{}", &["DynamoDB PutThing: no such operation"]),
        ("PutItem", "{", &["DynamoDB PutItem: the body cannot be read"]),
        ("PutItem", r#"{"TableName":"abc"}"#, &["DynamoDB PutItem: Item: missing"]),
        (
            "PutItem",
            r#"{"TableName":"abc","Item":{"PK":{"Text":"x"}},"Bogus":1}"#,
            &[
                "DynamoDB PutItem: Bogus: no such member",
                "DynamoDB PutItem: Item.PK.Text: no such member",
            ],
        ),
        (
            "PutItem",
            r#"{"TableName":"abc","Item":{"PK":{"S":1}},"ReturnValues":"SOME"}"#,
            &[
                "DynamoDB PutItem: Item.PK.S: should be of type string: 1",
                "DynamoDB PutItem: ReturnValues: not among its values: SOME",
            ],
        ),
        (
            "Query",
            r#"{"TableName":"abc","Limit":0,"ConsistentRead":"yes"}"#,
            &[
                "DynamoDB Query: ConsistentRead: should be of type boolean: \"yes\"",
                "DynamoDB Query: Limit: out of range: 0",
            ],
        ),
        (
            "BatchGetItem",
            r#"{"RequestItems":{"abc":{"Keys":[]}}}"#,
            &["DynamoDB BatchGetItem: RequestItems.abc.Keys: too few entries: 0"],
        ),
        (
            "TransactWriteItems",
            r#"{"TransactItems":[{"Put":{"TableName":"abc","Item":{"PK":{"B":"%"}}}}]}"#,
            &["DynamoDB TransactWriteItems: TransactItems.0.Put.Item.PK.B: not base64"],
        ),
    ];
    for (operation, body, expected) in cases {
        let mut found = json(&dynamodb(operation), body).await;
        found.sort();
        assert_eq!(found, expected, "{operation} {body}");
    }
    let found = json("AmazonSQS.CreateQueue", r#"{"QueueName":"q","Attributes":{"Speed":"1"}}"#);
    assert_eq!(found.await, ["SQS CreateQueue: Attributes.Speed: not among its values: Speed"]);
}

#[tokio::test]
async fn violations_in_queries_are_reported() {
    let cases: [(&str, &[&str]); 6] = [
        ("Action=DescribeInstances&InstanceId.1=i-12345678&MaxResults=5", &[]),
        ("Action=DescribeInstances&Bogus=1", &["Bogus: no such member"]),
        ("Action=DescribeInstances&MaxResults=many", &["MaxResults: not an integer: many"]),
        (
            "Action=DescribeInstances&Filter.1.Name=a&Filter.3.Name=b",
            &["Filter.2: missing from the list"],
        ),
        (
            "Action=CreateFleet&Type=often&LaunchTemplateConfigs.1.Overrides.1.SubnetId=s",
            &["TargetCapacitySpecification: missing", "Type: not among its values: often"],
        ),
        (
            "Action=CreateLaunchTemplateVersion&LaunchTemplateName=a%20b\
             &LaunchTemplateData.UserData.X=1",
            &[
                "LaunchTemplateData.UserData.X: no such member",
                "LaunchTemplateName: does not match [a-zA-Z0-9\\(\\)\\.\\-/_]+: a b",
            ],
        ),
    ];
    for (query, expected) in cases {
        let gateway = gateway();
        Ec2::at(&gateway.endpoint("control")).ask(query).await;
        let mut found: Vec<String> = gateway
            .violations()
            .iter()
            .inspect(|violation| assert_eq!(violation.service, Service::Ec2))
            .map(|violation| format!("{}: {}", violation.place, violation.problem))
            .collect();
        found.sort();
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
#[should_panic(expected = "EC2 DescribeInstances: Bogus: no such member")]
async fn an_invalid_request_fails_the_assertion() {
    let gateway = gateway();
    Ec2::at(&gateway.endpoint("control")).ask("Action=DescribeInstances&Bogus=1").await;
    gateway.assert_requests_valid();
}

#[tokio::test]
async fn our_own_answers_follow_the_model() {
    let models = options().models.unwrap();
    let model: Value =
        serde_json::from_slice(&std::fs::read(models.join("ec2.json")).unwrap()).unwrap();
    let gateway = gateway();
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let name = unique("template");
    ec2.template(&name).await;
    let mut launch = fleet(&name, 3, "spot");
    launch.push_str("&LaunchTemplateConfigs.1.Overrides.3.SubnetId=subnet-none");
    launch.push_str("&LaunchTemplateConfigs.1.Overrides.3.InstanceType=c6i.large");
    let launched = ec2.ask(&launch).await;
    check(&model, "CreateFleet", &launched.text);
    let id = launched.launched().remove(0);
    let named = format!("LaunchTemplateName={name}");
    for query in [
        "Action=DescribeInstances&MaxResults=5".to_owned(),
        "Action=DescribeImages&ImageId.1=ami-0123456789abcdef0".to_owned(),
        format!("Action=TerminateInstances&InstanceId.1={id}"),
        format!("Action=CreateLaunchTemplateVersion&{named}&LaunchTemplateData.ImageId=ami-2"),
        format!("Action=DescribeLaunchTemplateVersions&{named}&MaxResults=1"),
        format!("Action=ModifyLaunchTemplate&{named}&SetDefaultVersion=2"),
        format!(
            "Action=DeleteLaunchTemplateVersions&{named}&LaunchTemplateVersion.1=1&LaunchTemplateVersion.2=9"
        ),
        "Action=DescribeLaunchTemplates".to_owned(),
        format!("Action=DeleteLaunchTemplate&{named}"),
    ] {
        let action = query.split(['=', '&']).nth(1).unwrap();
        let answer = ec2.ask(&query).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        check(&model, action, &answer.text);
    }
    gateway.assert_requests_valid();
}

/// Checks that every element of an answer exists in the shape of its operation.
fn check(model: &Value, action: &str, xml: &str) {
    let shape = model["operations"][action]["output"]["shape"].as_str().unwrap();
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut path: Vec<(String, &str)> = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(element) => {
                let name = element.name().as_ref().to_owned();
                let inner = match path.last() {
                    None => shape,
                    // Every answer has this element, but no shape has it.
                    Some(_) if name == "requestId" => "String",
                    Some((_, outer)) => member(&model["shapes"][outer], &name)
                        .unwrap_or_else(|| panic!("{action}: {path:?} has no element {name}")),
                };
                path.push((name, inner));
            }
            Event::End(_) => drop(path.pop()),
            Event::Eof => return,
            _ => {}
        }
    }
}

fn member<'a>(shape: &'a Value, name: &str) -> Option<&'a str> {
    let member = if shape["type"] == "list" {
        let member = &shape["member"];
        (member["locationName"].as_str().unwrap_or("member") == name).then_some(member)?
    } else {
        shape["members"].as_object()?.values().find(|it| it["locationName"] == name)?
    };
    member["shape"].as_str()
}
