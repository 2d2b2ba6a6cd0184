use super::*;
use crate::step::workspace_root;

/// The longest template that CloudFormation takes without a bucket, in bytes.
const LONGEST_TEMPLATE: usize = 51_200;

#[test]
fn what_is_committed_is_current() {
    assert_eq!(compare(&workspace_root()), Ok(()));
}

#[test]
fn the_template_can_be_sent_without_a_bucket() {
    let text = fs::read_to_string(workspace_root().join(TEMPLATE)).unwrap();
    assert!(text.len() <= LONGEST_TEMPLATE, "{}", text.len());
}
