//! Adds one thing to a template or to its module, and sees that the comparison finds it. Changes and
//! removals are in `mutants`.

use serde_json::{Value, json};

use super::module::Module;
use super::template::Template;
use super::{FUNCTION, comparison};

/// What differs in the deployments of the function.
fn differences(template: &Template, module: &Module) -> Vec<String> {
    let mut found = comparison::parameters(template, module);
    for given in FUNCTION.deployments() {
        let stack = template.deployed(&given);
        match module.applied(&given, &template.logical_names()) {
            Ok(state) => {
                found.extend(comparison::resources(&stack, &state));
                found.extend(comparison::outputs(&stack, &state));
            }
            Err(error) => found.push(error),
        }
    }
    found
}

#[test]
fn what_only_the_template_has_is_found() {
    let (committed, module) = FUNCTION.read();
    assert_eq!(differences(&committed, &module), [""; 0]);
    let queue = json!({ "Arn": "arn:aws:sqs:us-east-1:123456789012:dead" });
    let statement = json!({ "Effect": "Allow", "Action": "s3:*", "Resource": "*" });
    for (pointer, name, value) in [
        ("/Resources/RefreshFunction/Properties", "DeadLetterConfig", queue.clone()),
        ("/Resources/Schedule/Properties/Target", "DeadLetterConfig", queue.clone()),
        ("/Resources/SpotWarnings/Properties/Targets/0", "DeadLetterConfig", queue.clone()),
        ("/Resources/NoRetries/Properties", "DestinationConfig", json!({ "OnFailure": queue })),
        ("/Resources/Schedule/Properties", "State", json!("DISABLED")),
        ("/Resources/RefreshFunction/Properties", "VpcConfig", json!({ "SubnetIds": ["a"] })),
        ("/Resources/RefreshFunction/Properties/Environment/Variables", "ONDECK_X", json!("1")),
        ("/Resources/SpotWarnings/Properties/EventPattern", "region", json!(["us-east-1"])),
        ("/Resources/RefreshOverdue/Properties", "DatapointsToAlarm", json!(1)),
        ("/Resources/FunctionPolicy/Properties/PolicyDocument/Statement", "-", statement),
        ("/Resources", "More", json!({ "Type": "AWS::Logs::LogGroup", "Properties": {} })),
        ("/Outputs", "More", json!({ "Value": "more" })),
        ("/Parameters", "More", json!({ "Type": "String", "Default": "" })),
    ] {
        let mut changed = committed.clone();
        match changed.0.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) {
            Value::Array(values) => values.push(value),
            fields => fields[name] = value,
        }
        assert!(!differences(&changed, &module).is_empty(), "{pointer} {name}");
    }
}

#[test]
fn what_only_the_module_has_is_found() {
    let (template, committed) = FUNCTION.read();
    for (resource, added) in [
        ("refresh_function", "dead_letter_config {\n  target_arn = \"arn\"\n}\n"),
        ("refresh_function", "kms_key_arn = \"arn\"\n"),
        ("no_retries", "destination_config {}\n"),
        ("schedule", "state = \"DISABLED\"\n"),
        ("spot_warnings", "event_bus_name = \"other\"\n"),
        ("spot_warnings_refresh", "dead_letter_config {\n  arn = \"arn\"\n}\n"),
        ("refresh_overdue", "actions_enabled = false\n"),
        ("schedule_role", "max_session_duration = 7200\n"),
    ] {
        let mut changed = committed.clone();
        let mut blocks = changed.resources.iter_mut();
        let block = blocks.find(|it| it.labels()[1].as_str() == resource).unwrap();
        block.body.0.extend(hcl::parse(added).unwrap().0);
        assert!(!differences(&template, &changed).is_empty(), "{resource}: {added}");
    }
    for added in [
        "resource \"aws_cloudwatch_log_group\" \"more\" {\n  name = \"more\"\n}\n",
        "resource \"aws_s3_bucket\" \"more\" {}\n",
        "output \"more\" {\n  value = \"more\"\n}\n",
        "variable \"more\" {\n  type = string\n  default = \"\"\n}\n",
    ] {
        let mut changed = committed.clone();
        for block in hcl::parse(added).unwrap().into_blocks() {
            changed.add(block);
        }
        assert!(!differences(&template, &changed).is_empty(), "{added}");
    }
}
