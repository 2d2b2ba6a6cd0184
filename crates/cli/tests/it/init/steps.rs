//! The steps that init leaves to a person, as a shell takes them.

use std::process::{Command, Stdio};

use insta::assert_snapshot;

use super::REGION;
use super::checkout::Checkout;
use crate::harness::{Background, Done};

/// The commands of each step, without what they are for.
pub(super) fn steps(said: &str) -> Vec<String> {
    let (_, steps) = said.split_once("Next steps:\n").unwrap();
    let steps = steps.split_once("\n\n").map_or(steps, |(steps, _)| steps);
    let mut found = Vec::new();
    for line in steps.lines() {
        match line.strip_prefix("   ") {
            None => found.push(String::new()),
            Some(line) => *found.last_mut().unwrap() += &format!("{line}\n"),
        }
    }
    found
}

/// What a shell does with a command.
pub(super) fn run(checkout: &Checkout, arguments: &[&str]) -> Done {
    let mut shell = Command::new("/bin/sh");
    shell.args(arguments).current_dir(checkout.dir()).stdin(Stdio::null());
    shell.env("PATH", checkout.folder.path().join("bin"));
    Background::start(shell.stdout(Stdio::piped()).stderr(Stdio::piped())).finish()
}

#[test]
fn each_step_is_one_command_or_one_page_to_open() {
    for (refresh, count) in [("workflow", 5), ("function", 7)] {
        for language in ["cloudformation", "terraform"] {
            let checkout = Checkout::new();
            let options = [format!("--refresh={refresh}"), format!("--infrastructure={language}")];
            let done = checkout.init(&[REGION, &options[0], &options[1]]).succeeded();
            let steps = steps(&done.stdout);
            assert_eq!(steps.len(), count, "one more with init itself: {}", done.stdout);
            let pages = steps.iter().filter(|step| step.starts_with("open https://"));
            assert_eq!(pages.count(), 1, "{}", done.stdout);
            for step in steps.iter().filter(|step| !step.starts_with("open ")) {
                run(&checkout, &["-n", "-c", step]).succeeded();
                // Lines that are pasted together: the shell reads all before it runs the first.
                let is_joined = |line: &str| line.ends_with("&&");
                assert_eq!(
                    step.lines().position(|line| !is_joined(line)),
                    Some(step.lines().count() - 1)
                );
            }
        }
    }
}

/// A GitHub CLI that prints the words that it gets.
const PRINTS: &str = "printf 'gh'; printf ' <%s>' \"$@\"; echo\n";

#[test]
fn the_repository_is_set_up_by_commands_of_gh() {
    let checkout = Checkout::new();
    let said = checkout.init(&[REGION, "--default-branch=trunk"]).succeeded().stdout;
    let steps = steps(&said);
    let step = steps.iter().find(|step| step.starts_with("gh ")).unwrap();
    checkout.add_program("gh", PRINTS);
    assert_snapshot!(run(&checkout, &["-c", step]).succeeded().stdout, @"
    gh <variable> <set> <--repo> <Acme/web> <--env-file> <infra/ondeck.env>
    gh <api> <--silent> <--method> <PUT> <repos/Acme/web/environments/ondeck-refresh> <-F> <deployment_branch_policy[protected_branches]=false> <-F> <deployment_branch_policy[custom_branch_policies]=true>
    gh <secret> <set> <ONDECK_GITHUB_TOKEN> <--repo> <Acme/web> <--env> <ondeck-refresh>
    gh <api> <--silent> <repos/Acme/web/environments/ondeck-refresh/deployment-branch-policies> <-f> <name=trunk>
    ");

    // An environment that cannot be created gets no token.
    checkout.add_program("gh", &format!("{PRINTS}test \"$1\" != api\n"));
    let done = run(&checkout, &["-c", step]).exited(1);
    assert!(!done.stdout.contains("<secret>"), "{}", done.stdout);
}

#[test]
fn the_book_has_the_same_steps() {
    let in_one_line = |text: &str| {
        let text = text.replace("\\\n", " ");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let book = in_one_line(include_str!("../../../../../docs/getting-started.md"));
    let checkout = Checkout::new();
    let done = checkout.init(&["--repository=acme/web", "--aws-region=us-east-1"]).succeeded();
    let mut compared = 0;
    for step in steps(&done.stdout).iter().filter(|step| !step.starts_with("open ")) {
        assert!(book.contains(&in_one_line(step)), "not in the book: {step}");
        compared += 1;
    }
    assert_eq!(compared, 4);
}
