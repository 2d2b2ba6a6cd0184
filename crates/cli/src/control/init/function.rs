//! The function that refreshes: its files, and the commands that deploy it.

use super::answers::{Answers, Infrastructure};
use super::files::{GeneratedFile, image_parameter, module_block, quoted};

/// The template, beside that of roles and network.
pub(super) const TEMPLATE: &str = "infra/ondeck.function.yaml";
const TERRAFORM_FILE: &str = "infra/ondeck.function.tf";

const CLOUDFORMATION_TEMPLATE: &str = include_str!("../../../../../infra/function.yaml");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How the shell and Terraform name the number of the account.
const IN_SHELL: &str = "$account";
const IN_TERRAFORM: &str = "${data.aws_caller_identity.current.account_id}";

/// The file that creates the function.
pub(super) fn file(answers: &Answers) -> GeneratedFile {
    match answers.infrastructure {
        Infrastructure::CloudFormation => {
            GeneratedFile::new(TEMPLATE, CLOUDFORMATION_TEMPLATE.to_owned())
        }
        Infrastructure::Terraform => GeneratedFile::new(TERRAFORM_FILE, module(answers)),
    }
}

/// The parameters of the function, by their names in the template, without the number of the App.
fn parameters(answers: &Answers, account: &str) -> Vec<(&'static str, String)> {
    let pool = answers.pool.to_string();
    let (pool, trust) = pool.split_once('@').unwrap_or((&pool, ""));
    let region = &answers.region;
    let key = key_name(answers);
    let arn = format!("arn:{}:ssm:{region}:{account}:parameter{key}", partition(region));
    let all = [
        ("Repository", answers.repository.clone()),
        ("Pool", pool.to_ascii_lowercase()),
        ("TrustLevel", trust.to_owned()),
        ("PoolName", answers.pool.resource_name()),
        ("CodeBucket", bucket(answers, account)),
        ("CodeKey", package()),
        ("KeySource", format!("ssm:{key}")),
        ("KeyArn", arn),
        ("ImageParameter", image_parameter(&answers.ami).to_owned()),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// The package of this version, for the architecture that is the template's default.
fn package() -> String {
    format!("ondeck-function-{VERSION}-aarch64.zip")
}

fn bucket(answers: &Answers, account: &str) -> String {
    format!("ondeck-code-{account}-{}", answers.region)
}

/// The parameter of Systems Manager that holds the key of the App.
fn key_name(answers: &Answers) -> String {
    format!("/ondeck/{}/app-key", answers.pool.to_string().replace(['/', '@'], "-"))
}

/// The partition of AWS that a region belongs to.
fn partition(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("cn") => "aws-cn",
        Some("us") if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    }
}

fn module(answers: &Answers) -> String {
    let mut values: Vec<(&str, String)> = parameters(answers, IN_TERRAFORM)
        .into_iter()
        .map(|(name, value)| (name, quoted(&value)))
        .collect();
    values.push(("AppId", "var.app_id".to_owned()));
    format!(
        "# The function that refreshes the pool. Terraform asks for the number of the GitHub App.\n\
         variable \"app_id\" {{\n  type        = string\n  description = \"Number of the GitHub App\"\n}}\n\n\
         data \"aws_caller_identity\" \"current\" {{}}\n\n{}",
        module_block("ondeck_function", "infra/terraform/function", &values),
    )
}

/// The page on which the App is created, with what to choose there.
pub(super) fn app_page(answers: &Answers) -> String {
    let Answers { repository, .. } = answers;
    let owner = repository.split('/').next().unwrap_or_default();
    format!(
        "open https://github.com/settings/apps/new (for an organisation \
         https://github.com/organizations/{owner}/settings/apps/new), choose \"Administration: read and \
         write\" and \"Actions: read\", install the App on {repository}, and save a private key of it as \
         app.private-key.pem"
    )
}

/// Stores the key, and removes its file.
pub(super) fn store_key(answers: &Answers) -> Vec<String> {
    let (region, name) = (&answers.region, key_name(answers));
    vec![
        format!(
            "aws ssm put-parameter --region {region} --name {name} --type SecureString --value \
             file://app.private-key.pem &&"
        ),
        "rm app.private-key.pem".to_owned(),
    ]
}

const FIND_ACCOUNT: &str =
    "account=$(aws sts get-caller-identity --query Account --output text) &&";

/// Downloads the package, compares its digest, and uploads it. The bucket is created if it is not there.
pub(super) fn upload(answers: &Answers) -> Vec<String> {
    let (region, package) = (&answers.region, package());
    let release = format!("https://github.com/ondeck-ci/ondeck/releases/download/v{VERSION}");
    let bucket = format!("s3://{}", bucket(answers, IN_SHELL));
    vec![
        format!("curl -fsSLO {release}/{package} && curl -fsSLO {release}/SHA256SUMS &&"),
        format!("grep ' {package}$' SHA256SUMS | sha256sum -c &&"),
        FIND_ACCOUNT.to_owned(),
        format!("(aws s3 ls {bucket} >/dev/null 2>&1 || aws s3 mb {bucket} --region {region}) &&"),
        format!("aws s3 cp {package} {bucket}/ --region {region}"),
    ]
}

/// Deploys the template after `first`, the command that deploys roles and network.
pub(super) fn deploy(answers: &Answers, first: &str) -> Vec<String> {
    let parameters: Vec<String> = parameters(answers, IN_SHELL)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    vec![
        format!("{first} &&"),
        "printf 'App ID: ' && read -r app &&".to_owned(),
        FIND_ACCOUNT.to_owned(),
        format!(
            "aws cloudformation deploy --region {} --stack-name ondeck-function --template-file {TEMPLATE} \
             --capabilities CAPABILITY_NAMED_IAM --parameter-overrides {} AppId=$app",
            answers.region,
            parameters.join(" "),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::partition;

    #[test]
    fn a_region_is_in_the_partition_of_its_name() {
        for (region, expected) in [
            ("us-east-1", "aws"),
            ("eu-central-1", "aws"),
            ("cn-north-1", "aws-cn"),
            ("us-gov-west-1", "aws-us-gov"),
        ] {
            assert_eq!(partition(region), expected, "{region}");
        }
    }
}
