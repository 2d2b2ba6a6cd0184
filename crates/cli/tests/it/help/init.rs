//! The help of the command that sets a repository up.

use insta::assert_snapshot;

use super::help;

#[test]
fn the_help_of_init() {
    assert_snapshot!(help("init"));
}
