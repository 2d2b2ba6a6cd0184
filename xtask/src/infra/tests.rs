//! The templates and the modules against the policies and each other.

mod additions;
mod comparison;
mod module;
mod mutants;
mod template;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::step::workspace_root;
use module::Module;
use template::Template;

/// The longest template that CloudFormation takes without a bucket, in bytes.
const LONGEST_TEMPLATE: usize = 51_200;

/// A template and the module with the same content.
struct Pair {
    template: &'static str,
    module: &'static str,
    /// The parameters that have no default.
    required: Parameters,
    /// What is deployed, by the parameters of the template. Each condition holds in one of them and
    /// not in another, which a test checks.
    deployed: &'static [Parameters],
    /// Parameters that rules about several of them refuse or admit.
    ruled: &'static [Parameters],
}

type Parameters = &'static [(&'static str, &'static str)];

const POOL: Pair = Pair {
    template: TEMPLATE,
    module: "infra/terraform",
    required: &[
        ("Repository", "Acme/Web"),
        ("Pool", "acme/web"),
        ("PoolName", "ondeck-acme-web-a7a54a76"),
    ],
    deployed: &[
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
            ("ImageParameter", "/images/ci"),
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
        &[("RepositoryWithIds", "acme@1/web@2"), ("OidcProvider", "existing")],
        &[("WorkflowEnvironment", "release"), ("Nat", "true"), ("Connect", "true")],
    ],
    ruled: &[&[], &[("VpcId", "vpc-1")], &[("VpcId", "vpc-1"), ("SubnetIds", "subnet-1")]],
};

const FUNCTION: Pair = Pair {
    template: FUNCTION_TEMPLATE,
    module: "infra/terraform/function",
    required: &[
        ("Repository", "Acme/Web"),
        ("Pool", "acme/web"),
        ("PoolName", "ondeck-acme-web-a7a54a76"),
        ("CodeBucket", "code"),
        ("CodeKey", "function.zip"),
        ("AppId", "12345"),
        ("KeySource", "ssm:/ondeck/key"),
        ("KeyArn", "arn:aws:ssm:us-east-1:123456789012:parameter/ondeck/key"),
    ],
    deployed: &[
        &[],
        &[
            ("TrustLevel", "release"),
            ("Prefix", "ondeck-web"),
            ("MachineRole", "machines"),
            ("Architecture", "x86_64"),
            ("ImageParameter", "/images/ci"),
            ("VolumeKey", "arn:aws:kms:us-east-1:123456789012:key/1"),
            ("WebhookSource", "ssm:/ondeck/webhook"),
            ("WebhookArn", "arn:aws:ssm:us-east-1:123456789012:parameter/ondeck/webhook"),
            ("Ami", "ami-1"),
            ("SubnetIds", "subnet-1 subnet-2"),
            ("SecurityGroupIds", "sg-1"),
            ("IamInstanceProfile", "machines"),
            ("MinIdle", "large=1"),
            ("ReservedConcurrency", "2"),
            ("MachinesAlarm", "7"),
            ("AlarmTopic", "arn:aws:sns:us-east-1:123456789012:alarms"),
            ("MonthlyBudget", "50"),
            ("BudgetEmail", "ops@example.com"),
            ("PermissionsBoundary", "arn:aws:iam::123456789012:policy/boundary"),
        ],
        &[("MachinesAlarm", "7"), ("MonthlyBudget", "50"), ("BudgetEmail", "ops@example.com")],
        &[("MonthlyBudget", "50"), ("AlarmTopic", "arn:aws:sns:us-east-1:123456789012:alarms")],
    ],
    ruled: &[
        &[],
        &[("MonthlyBudget", "50")],
        &[("MonthlyBudget", "50"), ("BudgetEmail", "ops@example.com")],
        &[("MonthlyBudget", "50"), ("AlarmTopic", "arn:aws:sns:us-east-1:123456789012:alarms")],
    ],
};

const PAIRS: [Pair; 2] = [POOL, FUNCTION];

impl Pair {
    fn read(&self) -> (Template, Module) {
        let root = workspace_root();
        (Template::read(&root.join(self.template)), Module::read(&root.join(self.module)))
    }

    /// The parameters of each deployment that differ from their default.
    fn deployments(&self) -> impl Iterator<Item = BTreeMap<&'static str, &'static str>> {
        let all = |parameters: &Parameters| self.required.iter().chain(*parameters).copied();
        self.deployed.iter().map(move |parameters| all(parameters).collect())
    }

    fn ruled(&self) -> impl Iterator<Item = BTreeMap<&'static str, &'static str>> {
        let all = |parameters: &Parameters| self.required.iter().chain(*parameters).copied();
        self.ruled.iter().map(move |parameters| all(parameters).collect())
    }
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

#[test]
fn what_is_committed_is_current() {
    assert_eq!(compare(&workspace_root()), Ok(()));
}

#[test]
fn a_part_that_differs_from_its_source_is_out_of_date() {
    let text = format!("a:\n  {BEGIN}x.yaml{BY}  old: 1\n  {END}b: 2\n");
    let made =
        super::template(&text, Deployment::Pool, |_| Ok("new: 1\nmore: 2\n".to_owned())).unwrap();
    assert_eq!(made, format!("a:\n  {BEGIN}x.yaml{BY}  new: 1\n  more: 2\n  {END}b: 2\n"));
    let unfinished = format!("a:\n  {BEGIN}x.yaml{BY}  old: 1\n");
    assert!(super::template(&unfinished, Deployment::Pool, |_| Ok(String::new())).is_err());
}

#[test]
fn the_templates_can_be_sent_without_a_bucket() {
    for pair in PAIRS {
        let text = fs::read_to_string(workspace_root().join(pair.template)).unwrap();
        assert!(text.len() <= LONGEST_TEMPLATE, "{}: {}", pair.template, text.len());
    }
}

#[test]
fn each_condition_is_tried_both_ways() {
    for pair in PAIRS {
        let (template, _) = pair.read();
        let mut seen: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
        for given in pair.deployments() {
            for (name, holds) in template.deployed(&given).conditions {
                seen.entry(name).or_default().insert(holds);
            }
        }
        let one_way: Vec<&String> =
            seen.iter().filter(|it| it.1.len() < 2).map(|it| it.0).collect();
        assert!(one_way.is_empty(), "{}: {one_way:?}", pair.template);
    }
}

/// Asserts that nothing differs, and shows what does.
fn assert_none(differences: &[String]) {
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_module_has_the_parameters_of_the_template() {
    for pair in PAIRS {
        let (template, module) = pair.read();
        assert_none(&comparison::parameters(&template, &module));
    }
}

#[test]
fn rules_about_several_parameters_refuse_the_same() {
    for (pair, rule, refused) in [
        (POOL, "SubnetsOfNetwork", &[false, true, false][..]),
        (FUNCTION, "ReaderOfBudget", &[false, true, false, false]),
    ] {
        let (template, module) = pair.read();
        let found: Vec<bool> = pair.ruled().map(|given| template.refuses(rule, &given)).collect();
        assert_eq!(found, refused, "{rule}");
        for given in pair.ruled() {
            assert_none(&comparison::rules(&template, &module, &given));
        }
    }
}

#[test]
fn the_module_creates_what_the_template_creates() {
    for pair in PAIRS {
        let (template, module) = pair.read();
        for given in pair.deployments() {
            let stack = template.deployed(&given);
            let state = module.applied(&given, &template.logical_names()).unwrap();
            assert!(!stack.resources.is_empty());
            assert_none(&comparison::resources(&stack, &state));
        }
    }
}

#[test]
fn the_module_has_the_outputs_of_the_template() {
    for pair in PAIRS {
        let (template, module) = pair.read();
        for given in pair.deployments() {
            let stack = template.deployed(&given);
            let state = module.applied(&given, &template.logical_names()).unwrap();
            assert_none(&comparison::outputs(&stack, &state));
        }
    }
}
