//! The metadata service, queried with and without AWS's own client.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ondeck_standin::{Gateway, GatewayOptions, Machine, MachineCommand, MachineState};

use crate::harness::{Ec2, SOON, fleet, options, unique};

async fn machine(kind: &str) -> (Gateway, Machine, aws_config::imds::Client) {
    let command = MachineCommand {
        program: PathBuf::from("/bin/sleep"),
        args: vec!["600".to_owned()],
        env: Vec::new(),
    };
    let gateway = Gateway::start(GatewayOptions { command: Some(command), ..options() });
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let template = unique("template");
    ec2.template(&template).await;
    ec2.ask(&fleet(&template, 1, kind)).await;
    let started = |machines: &[Machine]| machines[0].pid.is_some();
    let machine = tokio::task::block_in_place(|| gateway.ec2().wait(SOON, started));
    let machine = machine.unwrap().remove(0);
    let client = aws_config::imds::Client::builder();
    let client = client.endpoint(machine.metadata.as_ref().unwrap()).unwrap().build();
    (gateway, machine, client)
}

async fn get(client: &aws_config::imds::Client, path: &str) -> Option<String> {
    match client.get(path).await {
        Ok(text) => Some(text.as_ref().to_owned()),
        Err(aws_config::imds::client::error::ImdsError::ErrorResponse(error)) => {
            assert_eq!(error.response().status().as_u16(), 404);
            None
        }
        Err(error) => panic!("{path}: {error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_learns_what_it_is() {
    let (_gateway, machine, client) = machine("spot").await;
    let get = async |path: &str| get(&client, path).await;
    assert_eq!(get("/latest/meta-data/instance-id").await, Some(machine.id.clone()));
    assert_eq!(get("/latest/meta-data/placement/region").await.unwrap(), "us-east-1");
    assert_eq!(get("/latest/meta-data/placement/availability-zone").await, Some(machine.zone));
    assert_eq!(get("/latest/meta-data/instance-life-cycle").await.unwrap(), "spot");
    let keys = get("/latest/meta-data/tags/instance").await.unwrap();
    assert!(keys.lines().any(|key| key == "ondeck:pool"), "{keys}");
    assert_eq!(get("/latest/meta-data/tags/instance/ondeck:pool").await.unwrap(), "p1");
    assert_eq!(get("/latest/meta-data/tags/instance/none").await, None);
    assert_eq!(get("/latest/meta-data/no-such-thing").await, None);
    let key = machine.id.replace('-', "");
    let identity = get("/latest/dynamic/instance-identity/document").await.unwrap();
    let identity: serde_json::Value = serde_json::from_str(&identity).unwrap();
    assert_eq!(
        (&identity["instanceId"], &identity["region"]),
        (&machine.id.into(), &"us-east-1".into())
    );
    let roles = "/latest/meta-data/iam/security-credentials/";
    assert_eq!(get(roles).await.unwrap(), "runner");
    let keys = get("/latest/meta-data/iam/security-credentials/runner").await.unwrap();
    let keys: serde_json::Value = serde_json::from_str(&keys).unwrap();
    assert_eq!(keys["Code"], "Success");
    assert!(keys["AccessKeyId"].as_str().unwrap().starts_with("ASIA"));
    for secret in ["SecretAccessKey", "Token"] {
        let of_this_one = keys[secret].as_str().unwrap().ends_with(&key);
        assert!(of_this_one, "no other machine has the same: {keys}");
    }
    let expires = humantime::parse_rfc3339(keys["Expiration"].as_str().unwrap()).unwrap();
    let lasts = expires.duration_since(std::time::SystemTime::now()).unwrap();
    assert!(lasts > Duration::from_secs(3_000), "{lasts:?}");
    assert_eq!(get("/latest/meta-data/iam/security-credentials/other").await, None);
}

/// How cloud-init reads it: by a version, and from list to list.
#[tokio::test(flavor = "multi_thread")]
async fn lists_lead_to_all_values() {
    let (_gateway, machine, client) = machine("spot").await;
    let get = async |path: &str| get(&client, path).await;
    let all = get("/2021-03-23/meta-data/").await.unwrap();
    assert_eq!(get("/latest/meta-data").await.as_ref(), Some(&all));
    for name in ["instance-id", "iam/", "placement/", "tags/"] {
        assert!(all.lines().any(|line| line == name), "{name}: {all}");
    }
    assert_eq!(get("/2021-03-23/meta-data/placement/").await.unwrap(), "availability-zone\nregion");
    assert_eq!(get("/2009-04-04/meta-data/instance-id").await, Some(machine.id));
    assert_eq!(get("/latest/user-data").await.unwrap(), "#!/bin/sh\n");
    assert_eq!(get("/2021-03-23/dynamic/instance-identity").await.unwrap(), "document");
    for nothing in ["/latest/meta-data/place", "/latest/other/", "/newest/meta-data/", "/latest"] {
        assert_eq!(get(nothing).await, None, "{nothing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_come_when_they_are_given() {
    let (gateway, machine, client) = machine("spot").await;
    let action = "/latest/meta-data/spot/instance-action";
    let rebalance = "/latest/meta-data/events/recommendations/rebalance";
    assert_eq!((get(&client, action).await, get(&client, rebalance).await), (None, None));
    gateway.ec2().recommend_rebalance(&machine.id);
    assert!(get(&client, rebalance).await.unwrap().starts_with(r#"{"noticeTime":""#));
    gateway.ec2().interrupt(&machine.id, Duration::from_millis(500));
    let notice: serde_json::Value =
        serde_json::from_str(&get(&client, action).await.unwrap()).unwrap();
    assert_eq!(notice["action"], "terminate");
    let terminated = |machines: &[Machine]| machines[0].state == MachineState::Terminated;
    let ended = tokio::task::block_in_place(|| gateway.ec2().wait(SOON, terminated)).unwrap();
    assert!(ended[0].reason.starts_with("Server.SpotInstanceTermination"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_token_are_refused() {
    let (_gateway, machine, _) = machine("on-demand").await;
    let http = Client::builder(TokioExecutor::new()).build_http();
    let base = machine.metadata.unwrap();
    let ask = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        let mut request = Request::builder().method(method).uri(format!("{base}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = http.request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    };
    let id = "/latest/meta-data/instance-id";
    let ttl = "x-aws-ec2-metadata-token-ttl-seconds";
    let put = "/latest/api/token";
    assert_eq!(ask("GET", id, &[]).await.0, 401, "version 1");
    assert_eq!(ask("GET", id, &[("x-aws-ec2-metadata-token", "made up")]).await.0, 401);
    assert_eq!(ask("PUT", put, &[]).await.0, 400, "without a time to live");
    assert_eq!(ask("PUT", put, &[(ttl, "21601")]).await.0, 400);
    assert_eq!(ask("PUT", put, &[(ttl, "60"), ("x-forwarded-for", "1.2.3.4")]).await.0, 403);
    let (status, token) = ask("PUT", put, &[(ttl, "60")]).await;
    assert_eq!(status, 200);
    let (status, text) = ask("GET", id, &[("x-aws-ec2-metadata-token", &token)]).await;
    assert_eq!((status, text), (200, machine.id));
    let lifecycle = "/latest/meta-data/instance-life-cycle";
    let (_, text) = ask("GET", lifecycle, &[("x-aws-ec2-metadata-token", &token)]).await;
    assert_eq!(text, "on-demand");
}
