//! What is said about a file that is wrong, and where.

use super::*;

/// All problems, as people see them.
fn shown(text: &str) -> String {
    let problems = read(text).map(drop).unwrap_err();
    let one = |problem: &FileProblem| {
        let FileProblem { line, column, message, hint, excerpt } = problem;
        let hint = if hint.is_empty() { String::new() } else { format!("\nhint: {hint}") };
        format!("ondeck.toml:{line}:{column}: {message}\n{excerpt}{hint}")
    };
    problems.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn all_errors_are_reported_at_once() {
    insta::assert_snapshot!(shown(r#"
poool = "acme/web"
instance-count = 3
idle-time-sec = 900

[image]
amii = "ami-1"
subnet-ids = ["subnet-1"]

[network]
subnet-ids = "subnet-1"

[times]
idle-time-sec = "soon"
claim-timeout-sec = -1

[[min-idle]]
class = "large"
window = "Mon-Fri 08:00-18:00 Europe/Berlin"
"#), @r##"
    ondeck.toml:2:1: unknown key: "poool"
    2 | poool = "acme/web"
      | ^^^^^
    hint: did you mean pool?
    ondeck.toml:3:1: not a setting of the pool, but an option of a command: instance-count
    3 | instance-count = 3
      | ^^^^^^^^^^^^^^
    hint: give it as --instance-count, or as ONDECK_INSTANCE_COUNT
    ondeck.toml:4:1: a setting at the wrong place: idle-time-sec
    4 | idle-time-sec = 900
      | ^^^^^^^^^^^^^
    hint: write it as idle-time-sec in [times]
    ondeck.toml:7:1: unknown key in [image]: "amii"
    7 | amii = "ami-1"
      | ^^^^
    hint: did you mean ami?
    ondeck.toml:8:1: a setting at the wrong place: subnet-ids
    8 | subnet-ids = ["subnet-1"]
      | ^^^^^^^^^^
    hint: write it as subnet-ids in [network]
    ondeck.toml:11:14: subnet-ids must be a list of strings, and is a string
    11 | subnet-ids = "subnet-1"
       |              ^^^^^^^^^^
    ondeck.toml:14:17: idle-time-sec must be a number, and is a string
    14 | idle-time-sec = "soon"
       |                 ^^^^^^
    ondeck.toml:15:21: claim-timeout-sec must be from 0 to 30 days: -1
    15 | claim-timeout-sec = -1
       |                     ^^
    ondeck.toml:17:1: a key is missing: count
    17 | [[min-idle]]
       | ^^^^^^^^^^^^
    ondeck.toml:19:10: window must be days, a time span, or both
    19 | window = "Mon-Fri 08:00-18:00 Europe/Berlin"
       |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: such as "Mon-Fri 08:00-18:00"; the time zone has a key of its own, time-zone
    "##);
}

#[test]
fn text_that_is_no_toml_is_reported_with_the_errors_of_other_lines() {
    insta::assert_snapshot!(shown("[image\nami = \"ami-1\"\n[times]\nidle-time-sec = = 1\nidle = 1\n"), @r##"
    ondeck.toml:1:7: not valid TOML: unclosed table, expected `]`
    1 | [image
      |       ^
    ondeck.toml:4:17: not valid TOML: extra `=`, expected nothing
    4 | idle-time-sec = = 1
      |                 ^
    ondeck.toml:4:19: not valid TOML: unexpected key or value, expected newline, `#`
    4 | idle-time-sec = = 1
      |                   ^
    ondeck.toml:5:1: unknown key in [times]: "idle"
    5 | idle = 1
      | ^^^^
    hint: docs/reference/ondeck-toml.md lists every key
    "##);
    insta::assert_snapshot!(shown("[times]\nidle-time-sec = 1\nidle-time-sec = 2\n"), @"
    ondeck.toml:3:1: not valid TOML: duplicate key
    3 | idle-time-sec = 2
      | ^^^^^^^^^^^^^
    ");
}

#[test]
fn settings_that_contradict_each_other_are_reported_at_their_place() {
    insta::assert_snapshot!(shown(r#"
[times]
validation-timeout-sec = 700

[classes.small]
cpu = 1
mem = 512

[[min-idle]]
class = "small"
count = 1

[[min-idle]]
class = "large"
count = 1

[max-machines]
pool = 3
large = 1

[trust.release.times]
heartbeat-period-sec = 4000
"#), @"
    ondeck.toml:3:1: created-timeout-sec (600) must be more than validation-timeout-sec (700), or new machines would expire while their run waits for them
    3 | validation-timeout-sec = 700
      | ^^^^^^^^^^^^^^^^^^^^^^
    hint: give created-timeout-sec more than 700 seconds, or a lower validation-timeout-sec
    ondeck.toml:3:1: claim-timeout-sec (300) must be more than claim-registration-timeout-sec (60) plus validation-timeout-sec (700), or claimed machines would expire while their run waits for new ones
    3 | validation-timeout-sec = 700
      | ^^^^^^^^^^^^^^^^^^^^^^
    hint: give claim-timeout-sec more than 760 seconds, or a lower claim-registration-timeout-sec or validation-timeout-sec
    ondeck.toml:13:1: min-idle names an unknown class: large
    13 | [[min-idle]]
       | ^^^^^^^^^^^^
    hint: configured classes are small
    ondeck.toml:19:1: max-machines names an unknown class: large
    19 | large = 1
       | ^^^^^
    hint: configured classes are small
    ondeck.toml:22:1: heartbeat-period-sec (4000) must be at most 60, or healthy machines would count as unhealthy
    22 | heartbeat-period-sec = 4000
       | ^^^^^^^^^^^^^^^^^^^^
    hint: give heartbeat-period-sec from 1 to 60
    ");
    insta::assert_snapshot!(shown("[[min-idle]]\nclass = \"large\"\ncount = 1\n[[min-idle]]\nclass = \"large\"\ncount = 2\n"), @r##"
    ondeck.toml:1:3: min-idle gives a second number for the same: "large=2"
    1 | [[min-idle]]
      |   ^^^^^^^^
    hint: state each class and each minimum once
    "##);
    insta::assert_snapshot!(shown("backend = \"aws\"\n[network]\nsubnet-ids = [\"subnet-1\"]\n"), @r##"
    ondeck.toml:1:1: ami is not set
    1 | backend = "aws"
      | ^^^^^^^
    "##);
    insta::assert_snapshot!(shown("backend = \"aws\"\n[image]\nami = \"image\"\n"), @r##"
    ondeck.toml:3:1: ami is neither an image's id nor resolve:ssm:NAME: "image"
    3 | ami = "image"
      | ^^^
    "##);
}

#[test]
fn a_secret_is_refused_and_not_shown() {
    for text in [
        "[github]\ngithub-token = \"ghp_verysecret\"\namii = 1\n",
        "github-token = ghp_verysecret\n",
        "github-app-private-key = '''\nghp_verysecret\n",
        "[trust.release.github]\njobs-token = [\"ghp_verysecret\"]\n",
    ] {
        let shown = shown(text);
        assert!(!shown.contains("verysecret"), "{shown}");
    }
    insta::assert_snapshot!(shown("[github]\ngithub-token = \"ghp_verysecret\"\n"), @"
    ondeck.toml:2:1: a secret must not be in the file: github-token

    hint: remove it, replace the secret, and give the new one to refresh as ONDECK_GITHUB_TOKEN
    ");
}
