//! The template in `infra/function.yaml`, deployed to MiniStack.

use std::collections::BTreeMap;

use super::policy;
use super::stack::{Stack, put_object};

const KEY: &str = "arn:aws:ssm:us-east-1:000000000000:parameter/ondeck/key";

fn parameters(bucket: &str) -> BTreeMap<&'static str, &str> {
    BTreeMap::from([
        ("Repository", "acme/web"),
        ("Pool", "acme/web"),
        ("PoolName", "ondeck-acme-web-a7a54a76"),
        ("CodeBucket", bucket),
        ("CodeKey", "function.zip"),
        ("AppId", "12345"),
        ("KeySource", "ssm:/ondeck/key"),
        ("KeyArn", KEY),
        ("MinIdle", "large=1"),
    ])
}

#[tokio::test]
async fn the_function_is_deployed_with_its_policies_and_deleted() {
    let bucket = format!("code-{:016x}", fastrand::u64(..));
    put_object(&bucket, "function.zip").await;
    let stack = Stack::of("function.yaml", parameters(&bucket)).await.unwrap();
    let name = format!("{}-function", stack.prefix);
    let arn = format!("arn:aws:lambda:us-east-1:000000000000:function:{name}");
    assert_eq!(stack.output("FunctionArn"), arn);

    let mut attached = stack.policies_of("function").await;
    let mut refresh = policy(&stack, "refresh", "acme/web", "").to_string();
    // The machines' role is the other template's, so its name is a parameter.
    refresh = refresh.replace(&format!("{}-machine", stack.prefix), "ondeck-machine");
    assert_eq!(attached.remove("refresh").unwrap().to_string(), refresh);
    let function = policy(&stack, "optional/function", "acme/web", "").to_string();
    let function = function.replace("KEY-ARN", KEY).replace("FUNCTION", &name);
    assert_eq!(attached.remove("function").unwrap().to_string(), function);
    assert!(attached.is_empty(), "{attached:?}");
    let called = stack.policies_of("schedule").await;
    assert_eq!(called["call"]["Statement"][0]["Resource"], arn.as_str(), "{called:?}");
    let trusted = stack.trust_of("schedule").await;
    let account = &trusted["Statement"][0]["Condition"]["StringEquals"]["aws:SourceAccount"];
    assert_eq!(account, "000000000000", "{trusted}");

    stack.delete().await;
    for role in ["function", "schedule"] {
        let found = stack.iam(&format!("GetRole&RoleName={}-{role}", stack.prefix)).await;
        assert_eq!(found.code(), Some("NoSuchEntity"), "{role}");
    }
}

#[tokio::test]
async fn the_role_may_use_the_image_parameter_the_key_for_volumes_and_the_webhook() {
    const WEBHOOK: &str = "arn:aws:ssm:us-east-1:000000000000:parameter/ondeck/webhook";
    const VOLUME_KEY: &str = "arn:aws:kms:us-east-1:000000000000:key/1";
    let bucket = format!("code-{:016x}", fastrand::u64(..));
    put_object(&bucket, "function.zip").await;
    let mut given = parameters(&bucket);
    given.extend([("ImageParameter", "/images/ci"), ("VolumeKey", VOLUME_KEY)]);
    given.extend([("WebhookSource", "ssm:/ondeck/webhook"), ("WebhookArn", WEBHOOK)]);
    let stack = Stack::of("function.yaml", given).await.unwrap();
    let mut attached = stack.policies_of("function").await;
    for name in ["image-parameter", "volume-key"] {
        let expected = policy(&stack, &format!("optional/{name}"), "acme/web", VOLUME_KEY);
        assert_eq!(attached.remove(name), Some(expected), "{name}");
    }
    let webhook = policy(&stack, "optional/notice-webhook", "acme/web", "").to_string();
    let attached_webhook = attached.remove("notice-webhook").unwrap().to_string();
    assert_eq!(attached_webhook, webhook.replace("WEBHOOK-ARN", WEBHOOK));
    assert_eq!(attached.into_keys().collect::<Vec<_>>(), ["function", "refresh"]);
    stack.delete().await;
}

#[tokio::test]
async fn a_key_that_is_none_and_a_wildcard_are_refused() {
    for (parameter, value) in [
        ("KeyArn", "*"),
        ("KeyArn", "arn:aws:s3:::bucket"),
        ("KeySource", "file:/etc/key"),
        ("WebhookSource", "https://hooks.slack.com/services/T0/B0/x"),
        ("WebhookArn", "*"),
        ("AppId", "twelve"),
        ("MachineRole", "*"),
        ("ImageParameter", "/images/*"),
        ("VolumeKey", "*"),
        ("VolumeKey", "new"),
        ("BudgetEmail", "operators"),
    ] {
        let mut given = parameters("none");
        given.insert(parameter, value);
        let refused = Stack::of("function.yaml", given).await.unwrap_err();
        assert!(refused.contains(parameter), "{parameter}={value}: {refused}");
    }
}
