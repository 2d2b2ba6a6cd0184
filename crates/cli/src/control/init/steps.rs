//! What a person does after init: the commands, with the user's own names in them.

use super::answers::{Answers, Infrastructure};
use super::files::{PARAMETERS, TEMPLATE, VARIABLES};
use super::function;

/// A step: what it is for, and the lines of its one command, or the page to open.
type Step = (&'static str, Vec<String>);

/// The steps before the files have the outputs of the infrastructure.
fn deploy(answers: &Answers) -> Vec<Step> {
    let region = &answers.region;
    let stack = format!("--region {region} --stack-name ondeck");
    let (create, read) = match answers.infrastructure {
        Infrastructure::CloudFormation => (
            format!(
                "aws cloudformation deploy {stack} --template-file {TEMPLATE} --parameter-overrides \
                 file://{PARAMETERS} --capabilities CAPABILITY_NAMED_IAM"
            ),
            format!("aws cloudformation describe-stacks {stack} | ondeck init --outputs - --yes"),
        ),
        Infrastructure::Terraform => (
            "terraform -chdir=infra init && terraform -chdir=infra apply".to_owned(),
            "terraform -chdir=infra output -json ondeck | ondeck init --outputs - --yes".to_owned(),
        ),
    };
    let read = ("Put what was created into ondeck.toml:", vec![read]);
    if !answers.by_function {
        return vec![("Create roles and network:", vec![create]), read];
    }
    let create = match answers.infrastructure {
        Infrastructure::CloudFormation => function::deploy(answers, &create),
        Infrastructure::Terraform => vec![create],
    };
    vec![
        ("Create a GitHub App for refresh:", vec![function::app_page(answers)]),
        ("Store the key of the App:", function::store_key(answers)),
        ("Put the package of the function into a bucket:", function::upload(answers)),
        ("Create roles, network and function; give the number of the App when asked:", create),
        read,
    ]
}

/// The steps after that.
fn connect(answers: &Answers) -> Vec<Step> {
    let Answers { repository, default_branch, .. } = answers;
    let push = (
        "Push. The workflow ondeck applies the settings, and ci gets its first machine:",
        vec![format!(
            "git add ondeck.toml .github infra/ondeck.* && git commit -m \"Use ondeck\" && git push origin \
             HEAD:{default_branch}"
        )],
    );
    if answers.by_function {
        let on_github = "Set the variables of the repository and create the environment:";
        return vec![(on_github, on_github_commands(answers)), push];
    }
    let token = vec![format!(
        "open https://github.com/settings/personal-access-tokens/new and choose {repository} with \
         \"Administration: read and write\""
    )];
    let on_github = "Set the variables of the repository and create the environment; paste the token when asked:";
    vec![
        ("Make a fine-grained token for refresh:", token),
        (on_github, on_github_commands(answers)),
        push,
    ]
}

/// What follows the steps of a set-up whose workflow refreshes.
const RECOMMENDED: &str = "\nRefresh by a function is recommended once people rely on the pool: no workflow has a token then, and\n\
     nothing waits for GitHub's schedule. It takes a GitHub App and two more steps:\n\
     ondeck init --refresh=function --yes\n";

/// The environment that refresh and apply belong to, in the workflows that init writes.
const ENVIRONMENT: &str = "ondeck-refresh";

/// One command for the shell that sets the repository up, line by line. No branch can use the
/// environment before the last line, which GitHub answers with 303 if the branch is allowed already: so
/// a second call still replaces the token. Requests are those of GitHub's REST API, "Create or update an
/// environment" and "Create a deployment branch policy".
fn on_github_commands(answers: &Answers) -> Vec<String> {
    let Answers { repository, default_branch, .. } = answers;
    let environment = format!("repos/{repository}/environments/{ENVIRONMENT}");
    let mut commands = vec![
        format!("gh variable set --repo {repository} --env-file {VARIABLES}"),
        format!(
            "gh api --silent --method PUT {environment} -F \
             'deployment_branch_policy[protected_branches]=false' -F \
             'deployment_branch_policy[custom_branch_policies]=true'"
        ),
    ];
    if !answers.by_function {
        let secret = "gh secret set ONDECK_GITHUB_TOKEN";
        commands.push(format!("{secret} --repo {repository} --env {ENVIRONMENT}"));
    }
    commands.push(format!(
        "gh api --silent {environment}/deployment-branch-policies -f name={default_branch}"
    ));
    let last = commands.len() - 1;
    commands.iter_mut().take(last).for_each(|command| command.push_str(" &&"));
    commands
}

/// What is left to do, one numbered step after the other.
pub(super) fn left(answers: &Answers, is_deployed: bool) -> String {
    let first = if is_deployed { Vec::new() } else { deploy(answers) };
    let mut text = "Next steps:\n".to_owned();
    for (n, (purpose, commands)) in first.iter().chain(&connect(answers)).enumerate() {
        text += &format!("{}. {purpose}\n", n + 1);
        for command in commands {
            text += &format!("   {command}\n");
        }
    }
    if !answers.by_function && !is_deployed {
        text += RECOMMENDED;
    }
    text
}
