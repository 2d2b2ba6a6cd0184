//! The ids of a repository, without which AWS denies every role to newer ones.

use insta::assert_snapshot;

use super::REGION;
use super::checkout::Checkout;

const WITH_IDS: &str = "Acme@123456/web@456789";

/// The parameter as the template of CloudFormation gets it.
fn parameter(value: &str) -> String {
    format!(r#"{{"ParameterKey":"RepositoryWithIds","ParameterValue":"{value}"}}"#)
}

#[test]
fn ids_that_github_knows_are_among_the_parameters_and_stay_there() {
    let module = format!("repository_with_ids = \"{WITH_IDS}\"\n");
    for (language, file, words) in [
        ("cloudformation", "infra/ondeck.json", parameter(WITH_IDS)),
        ("terraform", "infra/ondeck.tf", module),
    ] {
        let checkout = Checkout::new();
        checkout.add_gh();
        let language = format!("--infrastructure={language}");
        let done = checkout.init(&[REGION, &language]).succeeded();
        assert_eq!(done.stderr, "");
        let before = checkout.text(file);
        assert!(before.contains(&words), "{before}");
        // The second call does not need to ask.
        checkout.add_program("gh", "exit 1\n");
        let done = checkout.init(&[]).succeeded();
        assert_eq!(done.stderr, "");
        assert_eq!(checkout.text(file), before);
    }
}

#[test]
fn without_an_answer_it_says_what_to_run_later_and_goes_on() {
    let checkout = Checkout::new();
    let done = checkout.init(&[REGION]).succeeded();
    assert_snapshot!(done.stderr, @"note: the ids of Acme/web are not known, and AWS denies every role to a repository created, renamed or transferred after 15 July 2026 without them: run gh auth login, then ondeck init again");
    let first = checkout.files();
    for script in ["exit 1\n", "echo nonsense\n", "echo '{\"id\": 1}'\n", "echo '[]'\n"] {
        checkout.add_program("gh", script);
        let again = checkout.init(&["--print"]).succeeded();
        assert_eq!(again.stderr, done.stderr, "{script}");
    }
    assert!(!checkout.text("infra/ondeck.json").contains("RepositoryWithIds"));

    checkout.add_gh();
    checkout.init(&["--yes"]).succeeded();
    let parameters = checkout.text("infra/ondeck.json");
    assert!(parameters.contains(&parameter(WITH_IDS)), "{parameters}");
    let changed = |(path, _): &&(String, String)| path != "infra/ondeck.json";
    let second = checkout.files();
    assert!(first.iter().filter(changed).eq(second.iter().filter(changed)), "nothing else");
}

#[test]
fn a_repository_that_github_spells_otherwise_is_named() {
    for (owner, name) in [("acme", "web"), ("Acme", "site")] {
        let checkout = Checkout::new();
        let answer =
            format!(r#"{{"id": 2, "name": "{name}", "owner": {{"id": 1, "login": "{owner}"}}}}"#);
        checkout.add_program("gh", &format!("echo '{answer}'\n"));
        let done = checkout.init(&[REGION]).succeeded();
        let words = format!("run ondeck init --repository {owner}/{name}\n");
        assert!(done.stderr.ends_with(&words), "{}", done.stderr);
        assert!(!checkout.text("infra/ondeck.json").contains("RepositoryWithIds"));
        let given = format!("--repository={owner}/{name}");
        let done = checkout.init(&[&given, "--yes"]).succeeded();
        assert!(!done.stderr.contains("note: "), "{}", done.stderr);
        let parameters = checkout.text("infra/ondeck.json");
        assert!(parameters.contains(&parameter(&format!("{owner}@1/{name}@2"))), "{parameters}");
    }
}

#[test]
fn ids_that_are_given_count_and_those_of_another_repository_do_not() {
    let checkout = Checkout::new();
    checkout.add_gh();
    checkout.init(&[REGION, "--repository-with-ids=Acme@1/web@2"]).succeeded();
    let parameters = checkout.text("infra/ondeck.json");
    assert!(parameters.contains(&parameter("Acme@1/web@2")), "{parameters}");
    // With the old ones, another repository would be trusted.
    let done = checkout.init(&["--repository=Acme/site", "--yes"]).succeeded();
    assert!(done.stderr.contains("the ids of Acme/site are not known"), "{}", done.stderr);
    let parameters = checkout.text("infra/ondeck.json");
    assert!(parameters.contains(&parameter("")), "{parameters}");
    let done = checkout.init(&["--repository-with-ids=Acme@1/web@2"]).exited(2);
    assert_snapshot!(done.stderr, @"
    error: repository-with-ids is of another repository than Acme/site: Acme@1/web@2
    hint: give --repository-with-ids of this repository, or leave it out if you have gh
    ");
}
