//! `ondeck init` in a repository of its own, with git and, where a test says so, an AWS CLI and a GitHub
//! CLI.

mod checkout;
mod environment;
mod function;
mod ids;
mod steps;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use insta::assert_snapshot;
use regex_lite::Regex;
use serde_json::Value;

use crate::act::harness::root;
use crate::act::lint::assert_sound;
use crate::harness::{AtTerminal, Background};
use checkout::Checkout;

const REGION: &str = "--aws-region=eu-central-1";

/// What an existing network adds to a command line.
const NETWORK: [&str; 2] = ["--vpc=vpc-1a", "--subnets=subnet-1a,subnet-2b"];

/// The outputs of a stack, as CloudFormation prints them.
fn outputs() -> String {
    let role = |name: &str| format!("arn:aws:iam::123456789012:role/ondeck-{name}");
    let outputs = [
        ("SubnetIds", "subnet-1a subnet-2b".to_owned()),
        ("SecurityGroupIds", "sg-3c".to_owned()),
        (
            "IamInstanceProfile",
            "arn:aws:iam::123456789012:instance-profile/ondeck-machine".to_owned(),
        ),
        ("RefreshRoleArn", role("refresh")),
        ("ProvisionRoleArn", role("provision")),
        ("ReleaseRoleArn", role("release")),
    ];
    let entry = |(key, value)| serde_json::json!({"OutputKey": key, "OutputValue": value});
    serde_json::json!({"Stacks": [{"Outputs": outputs.map(entry)}]}).to_string()
}

#[test]
fn a_new_repository_gets_all_files() {
    let checkout = Checkout::new();
    checkout.add_gh();
    let done = checkout.init(&[REGION]).succeeded();
    assert_eq!(done.stderr, "");
    assert_snapshot!("said_at_first", done.stdout);
    let files = checkout.files();
    let (template, rest): (Vec<_>, Vec<_>) =
        files.iter().partition(|(path, _)| path == "infra/ondeck.yaml");
    let ours = fs::read_to_string(root().join("infra/cloudformation.yaml")).unwrap();
    assert!(template[0].1 == ours, "the template is the one that tests deploy");
    let rest: String =
        rest.iter().map(|(path, text)| format!("==> {path} <==\n{text}\n")).collect();
    assert_snapshot!("files_at_first", rest);
    assert!(!rest.contains("s3cret") && !done.stdout.contains("s3cret"));
}

#[test]
fn workflows_are_sound_and_parameters_fit_the_template() {
    let checkout = Checkout::new();
    checkout.add_gh();
    for arguments in
        [&[REGION][..], &[REGION, "--usage-class=spot", NETWORK[0], NETWORK[1], "--yes"]]
    {
        checkout.init(arguments).succeeded();
        let workflow = |name: &str| checkout.dir().join(".github/workflows").join(name);
        assert_sound(&[workflow("ci.yml"), workflow("ondeck.yml")]);
        let template: serde_yaml_ng::Value =
            serde_yaml_ng::from_str(&checkout.text("infra/ondeck.yaml")).unwrap();
        let parameters: Vec<Value> =
            serde_json::from_str(&checkout.text("infra/ondeck.json")).unwrap();
        assert!(parameters.len() > 4);
        for parameter in parameters {
            let (key, value) = (&parameter["ParameterKey"], parameter["ParameterValue"].as_str());
            let declared = &template["Parameters"][key.as_str().unwrap()];
            assert!(declared.is_mapping(), "{key}");
            let pattern = declared["AllowedPattern"].as_str().unwrap_or(".*");
            assert!(Regex::new(pattern).unwrap().is_match(value.unwrap()), "{parameter}");
        }
    }
}

#[test]
fn what_is_printed_is_what_would_be_written() {
    let checkout = Checkout::new();
    let printed = checkout.init(&[REGION, "--print"]).succeeded().stdout;
    assert_eq!(checkout.files(), [], "nothing is written");
    checkout.init(&[REGION]).succeeded();
    for (path, text) in checkout.files() {
        assert!(printed.contains(&format!("==> {path} <==\n{text}\n")), "{path}");
    }
}

#[test]
fn a_second_call_changes_nothing() {
    for language in ["cloudformation", "terraform"] {
        let checkout = Checkout::new();
        checkout.add_aws();
        checkout.add_gh();
        let language = format!("--infrastructure={language}");
        let first = ["--usage-class=spot", "--image=ami-0123456789abcdef0", REGION, &language];
        checkout.init(&[&first[..], &NETWORK].concat()).succeeded();
        checkout.check().succeeded();
        let before = checkout.files();
        let done = checkout.init(&[]).succeeded();
        assert_eq!(checkout.files(), before);
        assert_eq!(done.stderr, "");
        let words: Vec<&str> = done
            .stdout
            .lines()
            .map_while(|line| line.split_once(' '))
            .map(|(word, _)| word)
            .collect();
        assert!(!words.contains(&"created") && !words.contains(&"updated"), "{}", done.stdout);
    }
}

#[test]
fn edits_are_shown_and_kept_unless_told_otherwise() {
    let checkout = Checkout::new();
    checkout.add_gh();
    checkout.init(&[REGION]).succeeded();
    let edited = checkout.text("ondeck.toml").replace("= 60\n", "= 90 # nightly\n")
        + "\n[max-machines]\npool = 20\n";
    checkout.write("ondeck.toml", &edited);
    let workflow = checkout.text(".github/workflows/ondeck.yml").replace("[ci]", "[ci, nightly]");
    checkout.write(".github/workflows/ondeck.yml", &workflow);
    checkout.write(".github/workflows/ci.yml", "name: mine\n");

    let other = "--image=ami-0123456789abcdef0";
    let done = checkout.init(&[other]).succeeded();
    assert_snapshot!(done.stderr, @r#"
    --- ondeck.toml
    +++ ondeck.toml
    @@ -5,7 +5,7 @@
     region = "eu-central-1"
     
     [image]
    -ami = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
    +ami = "ami-0123456789abcdef0"
     
     # ondeck init --outputs fills in what the infrastructure has created.
     [network]
    --- .github/workflows/ondeck.yml
    +++ .github/workflows/ondeck.yml
    @@ -10,7 +10,7 @@
       # Beside each run, because machines register with a token that lasts one hour and GitHub's schedules
       # can be hours late.
       workflow_run:
    -    workflows: [ci, nightly]
    +    workflows: [ci]
         types: [requested]
       # Re-runs do not trigger workflow_run/requested: their jobs wait for the schedule.
       schedule:
    --- infra/ondeck.json
    +++ infra/ondeck.json
    @@ -6,5 +6,5 @@
       {"ParameterKey":"DefaultBranch","ParameterValue":"main"},
       {"ParameterKey":"OidcProvider","ParameterValue":"new"},
       {"ParameterKey":"SpotRole","ParameterValue":"existing"},
    -  {"ParameterKey":"ImageParameter","ParameterValue":"/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"}
    +  {"ParameterKey":"ImageParameter","ParameterValue":""}
     ]
    "#);
    assert_eq!(checkout.text("ondeck.toml"), edited);
    assert_eq!(checkout.text(".github/workflows/ondeck.yml"), workflow);
    let (report, _) = done.stdout.split_once("\n\n").unwrap();
    assert_snapshot!(report, @"
    kept      ondeck.toml
              --yes overwrites it
    kept      .github/workflows/ondeck.yml
              --yes overwrites it
    kept      .github/workflows/ci.yml
    unchanged infra/ondeck.yaml
    kept      infra/ondeck.json
              --yes overwrites it
    ");

    checkout.init(&[other, "--yes"]).succeeded();
    let settings = checkout.text("ondeck.toml");
    for line in [r#"ami = "ami-0123456789abcdef0""#, "max-runtime-min = 90 # nightly", "pool = 20"]
    {
        assert!(settings.contains(line), "{settings}");
    }
    assert_eq!(checkout.text(".github/workflows/ci.yml"), "name: mine\n");
}

#[test]
fn outputs_complete_the_settings() {
    let checkout = Checkout::new();
    checkout.add_gh();
    checkout.init(&[REGION]).succeeded();
    let incomplete = checkout.check().exited(2);
    assert!(incomplete.stderr.contains("subnet-ids is not set"), "{}", incomplete.stderr);
    checkout.write("outputs.json", &outputs());
    let done = checkout.init(&["--outputs=../outputs.json", "--yes"]).succeeded();
    assert_snapshot!("said_with_outputs", format!("{}{}", done.stderr, done.stdout));
    assert_snapshot!(checkout.text("infra/ondeck.env"), @"
    ONDECK_PROVISION_ROLE=arn:aws:iam::123456789012:role/ondeck-provision
    ONDECK_RELEASE_ROLE=arn:aws:iam::123456789012:role/ondeck-release
    ONDECK_REFRESH_ROLE=arn:aws:iam::123456789012:role/ondeck-refresh
    ");
    checkout.check().succeeded();
    let complete = checkout.text("ondeck.toml");
    checkout.init(&["--outputs=../outputs.json", "--yes"]).succeeded();
    assert_eq!(checkout.text("ondeck.toml"), complete, "once is enough");
    checkout.init(&["--yes"]).succeeded();
    assert_eq!(checkout.text("ondeck.toml"), complete, "and the next call keeps them");
}

#[test]
fn the_module_has_the_same_answers() {
    let checkout = Checkout::new();
    checkout.add_gh();
    let done = checkout.init(&[&[REGION, "--infrastructure=terraform"], &NETWORK[..]].concat());
    assert_snapshot!(done.succeeded().stdout.lines().skip(4).collect::<Vec<_>>().join("\n"));
    assert_snapshot!("module", checkout.text("infra/ondeck.tf"));
    assert!(!checkout.dir().join("infra/ondeck.yaml").exists());
}

#[test]
fn a_person_answers_the_questions() {
    let checkout = Checkout::new();
    checkout.add_aws();
    let mut terminal = AtTerminal::asking(checkout.command(&[]));
    terminal.answer("Repository on GitHub [Acme/web]: ", "");
    terminal.answer("AWS region [eu-west-1]: ", "");
    terminal.answer("Image of the machines [ubuntu-24.04]: ", "windows");
    terminal.until_it_prints("image is neither ami-…", 1);
    terminal.until_it_prints("Image of the machines", 2);
    terminal.type_line("amazon-linux-2023");
    terminal.until_it_prints("vpc-1a has the subnets subnet-1a subnet-2b", 1);
    terminal.answer("Network: new, or an existing VPC [new]: ", "vpc-1a");
    terminal.answer("Purchase option: spot or on-demand [on-demand]: ", "spot");
    terminal.answer("Resource class of the workflow [large]: ", "");
    terminal.answer("Infrastructure as [cloudformation]: ", "");
    terminal.answer(
        "Refresh by workflow (6 steps) or function (8 steps, recommended) [workflow]: ",
        "function",
    );
    let shown = terminal.finish();
    assert!(shown.contains("Create roles, network and function"), "{shown}");
    let maintenance = checkout.text(".github/workflows/ondeck.yml");
    assert!(maintenance.contains("mode: apply") && !maintenance.contains("secrets."));
    assert_sound(&[checkout.dir().join(".github/workflows/ondeck.yml")]);
    assert_snapshot!(checkout.text("infra/ondeck.json"));
    assert!(checkout.text("ondeck.toml").contains("al2023-ami-kernel-default-x86_64"));

    // The second time, the answers of the first are offered, and a change is asked about.
    let mut terminal = AtTerminal::asking(checkout.command(&["--image=ami-1a"]));
    terminal.answer("Repository on GitHub [Acme/web]: ", "");
    terminal.answer("AWS region [eu-west-1]: ", "");
    terminal.answer("Network: new, or an existing VPC [vpc-1a]: ", "");
    terminal.answer("Purchase option: spot or on-demand", "");
    terminal.answer("Resource class of the workflow", "");
    terminal.answer("Infrastructure as", "");
    terminal.answer(
        "Refresh by workflow (6 steps) or function (8 steps, recommended) [function]: ",
        "",
    );
    terminal.answer("Overwrite ondeck.toml like this? [y/N]: ", "y");
    terminal.answer("Overwrite infra/ondeck.json like this? [y/N]: ", "");
    let shown = terminal.finish();
    for words in ["updated   ondeck.toml", "kept      infra/ondeck.json"] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(checkout.text("ondeck.toml").contains("ami = \"ami-1a\""));
}

#[test]
fn what_cannot_work_is_refused_with_a_hint() {
    let checkout = Checkout::new();
    for (arguments, message, hint) in [
        (
            &["--aws-region=nowhere"][..],
            "aws-region is no region such as us-east-1: \"nowhere\"",
            "--aws-region",
        ),
        (&[], "no aws-region given", "give --aws-region"),
        (&[REGION, "--pool=a/b/c"], "pool is not OWNER/REPOSITORY or OWNER", ""),
        (&[REGION, "--outputs=absent"], "outputs cannot be read: absent", "describe-stacks"),
        (&[REGION, "--json"], "init prints no JSON", "leave --json out"),
    ] {
        let done = checkout.init(arguments).exited(2);
        assert!(done.stderr.contains(message) && done.stderr.contains(hint), "{}", done.stderr);
    }
    for argument in [
        "--repository=acme",
        "--repository=acme/web/x",
        "--image=windows",
        "--vpc=vpc-1",
        "--subnets=subnet-1",
        "--infrastructure=pulumi",
        "--default-branch=a b",
        "--repository-with-ids=Acme/web",
        "--repository-with-ids=Acme@1/other@2",
        "--usage-class=cheap",
        "--resource-class=",
    ] {
        let done = checkout.init(&[REGION, argument]).exited(2);
        let name = argument.split('=').next().unwrap();
        assert!(done.stderr.contains(name), "{argument}: {}", done.stderr);
    }
    assert_eq!(checkout.files(), [], "nothing is written");
}

#[test]
fn a_folder_that_is_no_repository_on_github_is_refused() {
    let nowhere = Checkout::without_remote();
    let done = nowhere.init(&[REGION]).exited(2);
    assert_snapshot!(done.stderr, @"
    error: there is no remote origin
    hint: give --repository OWNER/NAME
    ");
    nowhere.git(&["remote", "add", "origin", "https://u:s3cret@gitlab.com/acme/web"]);
    let done = nowhere.init(&[REGION]).exited(2);
    assert_snapshot!(done.stderr, @r#"
    error: the host of the remote origin is not github.com: "gitlab.com"
    hint: give --repository OWNER/NAME
    "#);
    nowhere.init(&[REGION, "--repository=acme/web", "--print"]).succeeded();
    fs::remove_dir_all(nowhere.dir().join(".git")).unwrap();
    let mut command = nowhere.command(&[REGION]);
    // The temporary folder itself may be inside of a repository.
    command.env("GIT_CEILING_DIRECTORIES", nowhere.folder.path());
    let done = Background::start(&mut command).finish().exited(2);
    assert!(done.stderr.contains("not a folder of a git repository"), "{}", done.stderr);
}

/// A mistake in the file that is there stops the call before it writes anything.
#[test]
fn settings_that_are_wrong_are_not_added_to() {
    let checkout = Checkout::new();
    checkout.write("ondeck.toml", "[times]\nidle-time-sec = \"soon\"\n");
    let before = checkout.files();
    let done = checkout.init(&[REGION, "--yes"]).exited(2);
    assert!(done.stderr.contains("idle-time-sec"), "{}", done.stderr);
    assert_eq!(checkout.files(), before);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let checkout = Checkout::new();
    checkout.write(".github", "a file where a folder should be\n");
    let done = checkout.init(&[REGION]).exited(2);
    assert!(done.stderr.contains(".github/workflows/ondeck.yml: "), "{}", done.stderr);
    assert!(done.stderr.contains("hint: "), "{}", done.stderr);
    let left: Vec<String> = checkout.files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(left, [".github", "ondeck.toml"], "whole files only");
    assert!(is_readable_by_all(&checkout.dir().join("ondeck.toml")));
}

/// Files are made under another name at first, which must not cost them their mode.
#[test]
fn killed_half_way_it_leaves_whole_files_and_the_next_call_finishes() {
    let whole = Checkout::new();
    whole.init(&[REGION]).succeeded();
    let whole = whole.files();
    for (place, _) in &whole {
        let name = place.rsplit('/').next().unwrap();
        let checkout = Checkout::new();
        let mut command = checkout.command(&[REGION]);
        let step = format!("rename {name}");
        let held = Background::start(command.env("ONDECK_HOLD_BEFORE", &step));
        held.until_it_says(&format!("held before {step}"));
        held.kill();
        let left = checkout.files();
        let is_named = |path: &str| !path.rsplit('/').next().unwrap().starts_with(".ondeck-init");
        let (named, unfinished): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(path, _)| is_named(path));
        assert_eq!(unfinished.len(), 1, "{place}: {unfinished:?}");
        assert!(named.iter().all(|file| whole.contains(file)), "{place}: not whole");
        assert!(named.iter().all(|(path, _)| path != place), "{place}");
        checkout.init(&[REGION]).succeeded();
        assert_eq!(checkout.files(), whole, "{place}");
    }
}

fn is_readable_by_all(path: &Path) -> bool {
    fs::metadata(path).unwrap().permissions().mode() & 0o444 == 0o444
}
