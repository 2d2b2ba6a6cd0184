//! Each row of ARCHITECTURE.md's table of what can be killed has tests of explain, on both backends.

const LOCAL: &str = concat!(include_str!("../explain.rs"), include_str!("harmless.rs"));
const AWS: &str = include_str!("../aws/explain.rs");

/// The first column of each row, and the tests of explain for it: on the local backend and on AWS.
const ROWS: [(&str, &str, &str); 17] = [
    ("reservation and launch", "between_reservation_and_intent", "after_the_windows_of_a_launch"),
    (
        "intent and launch",
        "between_intent_and_launch_and_between_launch_and_register",
        "after_each_window_in_which_a_provision_or_a_release_can_be_killed",
    ),
    (
        "launch and register",
        "between_intent_and_launch_and_between_launch_and_register",
        "after_the_windows_of_a_launch",
    ),
    (
        "register and activate",
        "between_register_and_activate_and_what_closes_it",
        "after_each_window_in_which_a_provision_or_a_release_can_be_killed",
    ),
    (
        "receive and claim",
        "between_receive_and_claim",
        "after_each_window_in_which_a_provision_or_a_release_can_be_killed",
    ),
    (
        "claim and the ticket's deletion",
        "between_claim_and_deletion_of_the_ticket_the_other_run_learns_who_won",
        "after_the_windows_of_a_claim_and_a_give_back",
    ),
    (
        "claim and commit, or give back",
        "between_claim_and_commit_and_what_closes_it",
        "after_each_window_in_which_a_provision_or_a_release_can_be_killed",
    ),
    (
        "give back and ticket",
        "between_give_back_and_ticket_and_between_release_and_ticket",
        "after_the_windows_of_a_claim_and_a_give_back",
    ),
    (
        "a change and its wake-up",
        "an_agent_that_saw_its_claim_late",
        "between_a_change_and_its_wake_up",
    ),
    (
        "two activations or commits, or the last one and the report",
        "between_the_last_activation_and_the_report",
        "between_the_last_activation_and_the_report",
    ),
    (
        "release and ticket",
        "between_give_back_and_ticket_and_between_release_and_ticket",
        "after_each_window_in_which_a_provision_or_a_release_can_be_killed",
    ),
    ("reap and terminate", "between_reap_and_terminate", "after_the_window_of_a_reap"),
    (
        "two machines, or a change and the termination, of drain, retire or terminate",
        "between_the_changes_of_a_drain",
        "between_the_changes_of_a_drain",
    ),
    (
        "receive and put back, of `ondeck pool`",
        "between_receive_and_put_back_of_pool",
        "between_receive_and_put_back_of_pool",
    ),
    (
        "any two calls of teardown",
        "between_the_changes_of_a_teardown",
        "between_the_calls_of_a_teardown",
    ),
    (
        "a notice and its record",
        "between_a_notice_and_its_record",
        "between_a_notice_and_its_record",
    ),
    ("any two calls of set-up", "between_the_calls_of_a_set_up", "between_the_calls_of_a_set_up"),
];

/// The windows that ARCHITECTURE.md lists, without the settings under which some of them exist.
fn windows() -> Vec<String> {
    let text = include_str!("../../../../../ARCHITECTURE.md");
    let (_, table) = text.split_once("| killed between |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.split('|').nth(1).unwrap());
    first.map(|cell| cell.split(", with `max").next().unwrap().trim().to_owned()).collect()
}

#[test]
fn each_window_in_which_a_process_can_be_killed_is_explained() {
    assert_eq!(windows(), ROWS.map(|(window, _, _)| window));
    for (window, local, aws) in ROWS {
        for (tests, name) in [(LOCAL, local), (AWS, aws)] {
            assert!(tests.contains(&format!("#[test]\nfn {name}() {{")), "{window}: {name}");
        }
    }
}
