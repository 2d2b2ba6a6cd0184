//! The files that init writes, made from the answers. Workflows and infrastructure are those of this
//! repository, with the user's values in place of the examples'.

use serde_json::{Value, json};

use super::answers::{Answers, Infrastructure};
use super::outputs::Outputs;
use super::{function, lines};
use crate::inputs::init::PARAMETER;

pub(super) const SETTINGS: &str = "ondeck.toml";
pub(super) const MAINTENANCE: &str = ".github/workflows/ondeck.yml";
pub(super) const WORKFLOW: &str = ".github/workflows/ci.yml";
pub(super) const TEMPLATE: &str = "infra/ondeck.yaml";
pub(super) const PARAMETERS: &str = "infra/ondeck.json";
pub(super) const TERRAFORM_FILE: &str = "infra/ondeck.tf";
/// The repository's variables, in the form that gh reads.
pub(super) const VARIABLES: &str = "infra/ondeck.env";

const MAINTENANCE_EXAMPLE: &str = include_str!("../../../../../examples/workflows/ondeck.yml");
const FUNCTION_EXAMPLE: &str =
    include_str!("../../../../../examples/workflows/ondeck-function.yml");
const WORKFLOW_EXAMPLE: &str = include_str!("../../../../../examples/workflows/quickstart.yml");
const CLOUDFORMATION_TEMPLATE: &str = include_str!("../../../../../infra/cloudformation.yaml");

/// What the examples say in place of the user's region.
const EXAMPLE_REGION: &str = "us-east-1";

/// A file to write.
#[derive(Debug)]
pub(super) struct GeneratedFile {
    /// The path below the repository's root.
    pub(super) path: &'static str,
    pub(super) text: String,
    /// Whether the file stays as it is if it exists: it belongs to the user.
    pub(super) only_if_absent: bool,
}

impl GeneratedFile {
    pub(super) fn new(path: &'static str, text: String) -> GeneratedFile {
        GeneratedFile { path, text, only_if_absent: false }
    }
}

/// All files of a set-up. `present` returns what a file says now.
pub(super) fn all(
    answers: &Answers,
    present: &dyn Fn(&str) -> Option<String>,
) -> Vec<GeneratedFile> {
    let mut files = vec![
        GeneratedFile::new(SETTINGS, settings(answers, present(SETTINGS))),
        GeneratedFile::new(MAINTENANCE, maintenance(answers)),
        GeneratedFile { only_if_absent: true, ..GeneratedFile::new(WORKFLOW, workflow(answers)) },
    ];
    match answers.infrastructure {
        Infrastructure::CloudFormation => {
            files.push(GeneratedFile::new(TEMPLATE, CLOUDFORMATION_TEMPLATE.to_owned()));
            files.push(GeneratedFile::new(PARAMETERS, parameters(answers, present(PARAMETERS))));
        }
        Infrastructure::Terraform => {
            files.push(GeneratedFile::new(TERRAFORM_FILE, module(answers)));
        }
    }
    files.extend(answers.by_function.then(|| function::file(answers)));
    files
}

/// The files that change once the infrastructure is deployed.
pub(super) fn deployed(settings: &str, outputs: &Outputs) -> Vec<GeneratedFile> {
    let mut text = settings.to_owned();
    for (table, key, value) in [
        ("network", "subnet-ids", quoted_list(&outputs.subnet_ids)),
        ("network", "security-group-ids", quoted_list(&outputs.security_group_ids)),
        ("machines", "iam-instance-profile", quoted(outputs.profile_name())),
    ] {
        text = lines::with(&text, table, key, &value);
    }
    let variables = outputs.roles.iter().map(|(name, role)| format!("{name}={role}\n")).collect();
    vec![GeneratedFile::new(SETTINGS, text), GeneratedFile::new(VARIABLES, variables)]
}

/// The settings: the first ones, or those that are there with the answers that differ.
fn settings(answers: &Answers, present: Option<String>) -> String {
    let pool = answers.pool.to_string();
    let first = || {
        format!(
            "# The pool of {pool}. The workflow ondeck applies this file from the branch {}.\n\
             # ondeck config check finds mistakes in it; docs/reference/ondeck-toml.md lists all settings.\n\n\
             [times]\n\
             # Longer than your longest run: machines terminate then, even during a job.\n\
             max-runtime-min = 60\n\n\
             [jobs]\n\
             # Idle machines are online at GitHub, each under a label of its own, so that no run waits for\n\
             # a registration. Jobs name what provision returns as label or labels.\n\
             runner-label = \"machine\"\n",
            answers.default_branch,
        )
    };
    let present = present.filter(|text| !text.trim().is_empty());
    let is_first = present.is_none();
    let mut text = present.unwrap_or_default();
    if is_first {
        text = first_tables(&first(), &pool, answers);
    }
    for (table, key, value) in [
        ("", "pool", pool.as_str()),
        ("", "backend", "aws"),
        ("", "region", &answers.region),
        ("image", "ami", &answers.ami),
    ] {
        if lines::string(&text, table, key).as_deref() != Some(value) {
            text = lines::with(&text, table, key, &quoted(value));
        }
    }
    if let Some((_, subnets)) = &answers.network {
        let subnets = quoted_list(subnets);
        if lines::value(&text, "network", "subnet-ids") != Some(&subnets) {
            text = lines::with(&text, "network", "subnet-ids", &subnets);
        }
    }
    text
}

/// A new file, in the order in which people read it.
fn first_tables(rest: &str, pool: &str, answers: &Answers) -> String {
    let (comment, rest) = rest.split_once("\n\n").unwrap_or(("", rest));
    let top = [("pool", pool), ("backend", "aws"), ("region", &answers.region)];
    let top: String =
        top.iter().map(|(key, value)| format!("{key} = {}\n", quoted(value))).collect();
    format!(
        "{comment}\n{top}\n[image]\nami = {}\n\n\
         # ondeck init --outputs fills in what the infrastructure has created.\n[network]\n\n\
         [machines]\niam-instance-profile = \"ondeck-machine\"\n\n{rest}",
        quoted(&answers.ami),
    )
}

fn maintenance(answers: &Answers) -> String {
    if answers.by_function {
        let header = "# Applies ondeck.toml, from the default branch only. It uses the variable ONDECK_REFRESH_ROLE; a\n\
                      # function refreshes the pool, so no workflow needs a token.\n";
        return adapted(FUNCTION_EXAMPLE, header, answers);
    }
    let header = "# Applies ondeck.toml and refreshes the pool, from the default branch only. It uses the variable\n\
                  # ONDECK_REFRESH_ROLE, and the secret ONDECK_GITHUB_TOKEN of the environment ondeck-refresh.\n\
                  # List the names of all workflows that provision below workflow_run.\n";
    adapted(MAINTENANCE_EXAMPLE, header, answers)
}

fn workflow(answers: &Answers) -> String {
    let header = "# An example: replace the steps of the job \"test\" by your own. The jobs around it use the variables\n\
                  # ONDECK_PROVISION_ROLE and ONDECK_RELEASE_ROLE.\n";
    let count = "          instance-count: 1\n";
    let size = format!(
        "{count}          resource-class: {}\n          usage-class: {}\n",
        answers.resource_class, answers.usage_class
    );
    adapted(WORKFLOW_EXAMPLE, header, answers).replace(count, &size)
}

/// An example below another header, with the user's region and branch.
fn adapted(example: &str, header: &str, answers: &Answers) -> String {
    let body = example.find("\nname:").map_or(example, |at| &example[at + 1..]);
    let region = format!("aws-region: {}", answers.region);
    let branch = format!("branches: [{}]", quoted(&answers.default_branch));
    let body = body.replace(&format!("aws-region: {EXAMPLE_REGION}"), &region);
    format!("{header}{}", body.replace("branches: [main]", &branch))
}

/// The parameters of the infrastructure, by their names in the template.
fn answered(answers: &Answers) -> Vec<(&'static str, String)> {
    let pool = answers.pool.to_string();
    let (pool, trust) = pool.split_once('@').unwrap_or((&pool, ""));
    let (vpc, subnets) = answers.network.clone().unwrap_or_default();
    let choice = |is_new: bool| if is_new { "new" } else { "existing" }.to_owned();
    vec![
        ("Repository", answers.repository.clone()),
        ("RepositoryWithIds", answers.repository_with_ids.clone().unwrap_or_default()),
        ("Pool", pool.to_ascii_lowercase()),
        ("TrustLevel", trust.to_owned()),
        ("PoolName", answers.pool.resource_name()),
        ("DefaultBranch", answers.default_branch.clone()),
        ("OidcProvider", choice(answers.needs_provider)),
        ("SpotRole", choice(answers.needs_spot_role)),
        ("ImageParameter", image_parameter(&answers.ami).to_owned()),
        ("VpcId", vpc),
        ("SubnetIds", subnets.join(",")),
    ]
}

/// The parameter that an image is looked up in, without its version. Empty if the image has an id.
pub(super) fn image_parameter(ami: &str) -> &str {
    let name = ami.strip_prefix(PARAMETER).unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}

/// The file for `--parameter-overrides`. Parameters that the user has added stay.
fn parameters(answers: &Answers, present: Option<String>) -> String {
    let present: Vec<Value> =
        present.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut list = present.clone();
    for (name, value) in answered(answers) {
        let found = list.iter_mut().find(|entry| entry["ParameterKey"] == name);
        match found {
            Some(entry) => entry["ParameterValue"] = json!(value),
            None if value.is_empty() => {}
            None => list.push(json!({"ParameterKey": name, "ParameterValue": value})),
        }
    }
    let lines: Vec<String> = list.iter().map(|entry| format!("  {entry}")).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

/// A root module with the module of this repository.
fn module(answers: &Answers) -> String {
    let values: Vec<(&str, String)> = answered(answers)
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, argument(name, &value)))
        .collect();
    format!(
        "# Roles and network of the pool. State is kept beside this file unless you configure a backend.\n\
         provider \"aws\" {{\n  region = {}\n}}\n\n{}\noutput \"ondeck\" {{\n  value = module.ondeck\n}}\n",
        quoted(&answers.region),
        module_block("ondeck", "infra/terraform", &values),
    )
}

/// A call of a module of this repository, with these expressions for its parameters.
pub(super) fn module_block(name: &str, folder: &str, values: &[(&str, String)]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "module \"{name}\" {{\n  source = \"github.com/ondeck-ci/ondeck//{folder}?ref=v{version}\"\n\n"
    );
    let width = values.iter().map(|(name, _)| variable(name).len()).max().unwrap_or_default();
    for (name, value) in values {
        text += &format!("  {:width$} = {value}\n", variable(name));
    }
    text + "}\n"
}

/// A parameter as an argument of the module.
fn argument(name: &str, value: &str) -> String {
    match name {
        "SubnetIds" => quoted_list(&value.split(',').map(str::to_owned).collect::<Vec<_>>()),
        _ => quoted(value),
    }
}

/// The name of a parameter in the module: `VpcId` is `vpc_id`.
fn variable(name: &str) -> String {
    let mut variable = String::new();
    for (n, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() && n > 0 {
            variable.push('_');
        }
        variable.push(c.to_ascii_lowercase());
    }
    variable
}

/// A string of JSON, which is also one of TOML, YAML and HCL: a `${` in it is meant as HCL reads it.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn quoted_list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
}
