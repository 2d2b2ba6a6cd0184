//! Refresh by a function: the files that init writes for it, and the commands that deploy it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use insta::assert_snapshot;
use regex_lite::Regex;
use serde_yaml_ng::Value;

use super::REGION;
use super::checkout::Checkout;
use super::steps::{run, steps};
use crate::act::harness::root;

/// A program that prints the words that it gets.
const PRINTS: &str = "printf '%s' \"${0##*/}\"; printf ' <%s>' \"$@\"; echo\n";
/// The AWS CLI, whose account is 123456789012 and which has no bucket yet.
const AWS: &str = "case \"$1 $2\" in 'sts get-caller-identity') echo 123456789012; exit ;; esac\n";

/// A repository that is set up with the function, and the commands that are left to do.
fn set_up(language: &str) -> (Checkout, Vec<String>) {
    let checkout = Checkout::new();
    let language = format!("--infrastructure={language}");
    let done = checkout.init(&[REGION, "--refresh=function", &language]).succeeded();
    let steps = steps(&done.stdout);
    (checkout, steps)
}

/// The step with these words, done by programs that print what they are called with.
fn played(checkout: &Checkout, steps: &[String], words: &str) -> String {
    for name in ["curl", "grep", "sha256sum", "rm"] {
        checkout.add_program(name, PRINTS);
    }
    checkout.add_program("aws", &format!("{AWS}{PRINTS}test \"$1 $2\" != 's3 ls'\n"));
    let step = steps.iter().find(|step| step.contains(words)).unwrap();
    run(checkout, &["-c", &format!("echo 54321 | {{\n{step}\n}}")]).succeeded().stdout
}

#[test]
fn the_key_and_the_package_are_where_the_function_looks_for_them() {
    let (checkout, steps) = set_up("cloudformation");
    let hidden = |text: String| text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    assert_snapshot!(hidden(played(&checkout, &steps, "put-parameter")), @"
    aws <ssm> <put-parameter> <--region> <eu-central-1> <--name> </ondeck/acme-web/app-key> <--type> <SecureString> <--value> <file://app.private-key.pem>
    rm <app.private-key.pem>
    ");
    assert_snapshot!(hidden(played(&checkout, &steps, "SHA256SUMS")), @"
    curl <-fsSLO> <https://github.com/ondeck-ci/ondeck/releases/download/vVERSION/ondeck-function-VERSION-aarch64.zip>
    curl <-fsSLO> <https://github.com/ondeck-ci/ondeck/releases/download/vVERSION/SHA256SUMS>
    sha256sum <-c>
    aws <s3> <mb> <s3://ondeck-code-123456789012-eu-central-1> <--region> <eu-central-1>
    aws <s3> <cp> <ondeck-function-VERSION-aarch64.zip> <s3://ondeck-code-123456789012-eu-central-1/> <--region> <eu-central-1>
    ");
    assert_snapshot!(hidden(played(&checkout, &steps, "--stack-name ondeck-function")), @"
    aws <cloudformation> <deploy> <--region> <eu-central-1> <--stack-name> <ondeck> <--template-file> <infra/ondeck.yaml> <--parameter-overrides> <file://infra/ondeck.json> <--capabilities> <CAPABILITY_NAMED_IAM>
    App ID: aws <cloudformation> <deploy> <--region> <eu-central-1> <--stack-name> <ondeck-function> <--template-file> <infra/ondeck.function.yaml> <--capabilities> <CAPABILITY_NAMED_IAM> <--parameter-overrides> <Repository=Acme/web> <Pool=acme/web> <PoolName=ondeck-acme-web-a7a54a76> <CodeBucket=ondeck-code-123456789012-eu-central-1> <CodeKey=ondeck-function-VERSION-aarch64.zip> <KeySource=ssm:/ondeck/acme-web/app-key> <KeyArn=arn:aws:ssm:eu-central-1:123456789012:parameter/ondeck/acme-web/app-key> <ImageParameter=/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id> <AppId=54321>
    ");
}

/// The words of the last command, behind `--parameter-overrides`.
fn overrides(played: &str) -> BTreeMap<String, String> {
    let (_, words) = played.rsplit_once("<--parameter-overrides> <").unwrap();
    let words = words.trim_end().trim_end_matches('>').split("> <");
    words.map(|word| word.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect()
}

#[test]
fn the_template_of_the_function_gets_parameters_that_fit() {
    let (checkout, steps) = set_up("cloudformation");
    let template = checkout.text("infra/ondeck.function.yaml");
    let ours = fs::read_to_string(root().join("infra/function.yaml")).unwrap();
    assert!(template == ours, "the template is the one that tests deploy");
    let given = overrides(&played(&checkout, &steps, "--stack-name ondeck-function"));
    assert_eq!(given["AppId"], "54321");
    let template: Value = serde_yaml_ng::from_str(&template).unwrap();
    for (name, parameter) in template["Parameters"].as_mapping().unwrap() {
        let value = given.get(name.as_str().unwrap());
        assert!(value.is_some() || parameter.get("Default").is_some(), "not given: {name:?}");
        let pattern = parameter["AllowedPattern"].as_str().unwrap_or(".*");
        let fits = |value: &String| Regex::new(pattern).unwrap().is_match(value);
        assert!(value.is_none_or(fits), "{name:?}: {value:?}");
    }
    assert!(given.keys().all(|name| template["Parameters"].get(name).is_some()), "{given:?}");
}

#[test]
fn the_module_of_the_function_gets_the_same() {
    let (checkout, _) = set_up("terraform");
    let written = checkout.text("infra/ondeck.function.tf");
    assert_snapshot!(written.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r#"
    # The function that refreshes the pool. Terraform asks for the number of the GitHub App.
    variable "app_id" {
      type        = string
      description = "Number of the GitHub App"
    }

    data "aws_caller_identity" "current" {}

    module "ondeck_function" {
      source = "github.com/ondeck-ci/ondeck//infra/terraform/function?ref=vVERSION"

      repository      = "Acme/web"
      pool            = "acme/web"
      pool_name       = "ondeck-acme-web-a7a54a76"
      code_bucket     = "ondeck-code-${data.aws_caller_identity.current.account_id}-eu-central-1"
      code_key        = "ondeck-function-VERSION-aarch64.zip"
      key_source      = "ssm:/ondeck/acme-web/app-key"
      key_arn         = "arn:aws:ssm:eu-central-1:${data.aws_caller_identity.current.account_id}:parameter/ondeck/acme-web/app-key"
      image_parameter = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
      app_id          = var.app_id
    }
    "#);
    assert!(!checkout.dir().join("infra/ondeck.function.yaml").exists());

    // Each argument is a variable, and each variable without a default has an argument.
    let (_, block) = written.split_once("?ref=").unwrap();
    let names = block.lines().filter_map(|line| line.trim().split_once(" = "));
    let given: BTreeSet<&str> = names.map(|(name, _)| name.trim()).collect();
    let file = root().join("infra/terraform/function/variables.tf");
    let variables = fs::read_to_string(file).unwrap();
    let (mut all, mut required) = (BTreeSet::new(), BTreeSet::new());
    for variable in variables.split("variable \"").skip(1) {
        let (name, body) = variable.split_once('"').unwrap();
        all.insert(name);
        if !body.contains("  default ") {
            required.insert(name);
        }
    }
    assert!(required.len() > 5 && given.is_superset(&required), "{required:?}, {given:?}");
    assert!(all.is_superset(&given), "{given:?}");
}

#[test]
fn a_second_call_keeps_the_function() {
    for language in ["cloudformation", "terraform"] {
        let (checkout, _) = set_up(language);
        let before = checkout.files();
        let said = checkout.init(&["--yes"]).succeeded().stdout;
        assert_eq!(checkout.files(), before, "{language}");
        assert!(said.contains("unchanged infra/ondeck.function."), "{said}");
        assert!(!said.contains("recommended"), "{said}");
    }
}
