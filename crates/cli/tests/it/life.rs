//! The life of a pool when nothing goes wrong.

use crate::harness::{Home, until};

#[test]
fn machines_go_from_run_to_run_and_at_last_away() {
    let home = Home::with(&[]);
    let cold = home.provision("1", 3).succeeded();
    assert_eq!(cold.sources(), ["cold", "cold", "cold"]);
    assert_eq!(home.standings(), ["running 1", "running 1", "running 1"]);
    home.release("1").succeeded();

    let warm = home.provision("2", 3).succeeded();
    assert_eq!(warm.sources(), ["warm", "warm", "warm"]);
    assert_eq!(warm.ids(), cold.ids());

    home.ondeck(&["release", "--run-id", "2", "--idle-time-sec", "0.5"]).succeeded();
    until("all are reaped or have ended themselves", || {
        home.refresh(&[]);
        home.agents().is_empty()
    });
    home.refresh(&[]);
    home.assert_empty();
}
