//! Two versions of the program with one pool: this build, and one whose protocol is the next.

use std::path::PathBuf;

use crate::harness::{Background, Done, Driven, Home, program};

/// The build with the next protocol.
fn newer() -> PathBuf {
    let variable = "ONDECK_ANOTHER_VERSION";
    match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => panic!("{variable} is not set\nhint: run cargo xtask test, which makes that build"),
    }
}

fn with_newer(home: &Home, arguments: &[&str]) -> Done {
    let home_of_test = format!("--home={}", home.dir().display());
    let mut command = program(&newer(), &[arguments, &[&home_of_test, "--json"]].concat());
    Background::start(&mut command).finish()
}

#[test]
fn an_older_program_leaves_machines_of_newer_agents_to_newer_programs() {
    let home = Home::with(&[]);
    let machine = with_newer(&home, &["provision", "--run-id=1"]).succeeded().ids().concat();
    with_newer(&home, &["release", "--run-id=1"]).succeeded();
    let older = home.provision("2", 1).succeeded();
    assert_eq!(older.sources(), ["cold"], "it does not use what it may misunderstand");
    assert_eq!(older.json()["search"]["givenBack"], 1);
    let next = with_newer(&home, &["provision", "--run-id=3"]).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], vec![machine]));
}

#[test]
fn a_newer_program_works_with_machines_of_older_agents() {
    let home = Home::with(&[]);
    let machine = home.provision("1", 1).succeeded().ids().concat();
    home.release("1").succeeded();
    let next = with_newer(&home, &["provision", "--run-id=2"]).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], vec![machine]));
    with_newer(&home, &["release", "--run-id=2"]).succeeded();
    assert_eq!(home.provision("3", 1).succeeded().sources(), ["warm"]);
}
