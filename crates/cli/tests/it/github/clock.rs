//! A computer whose clock is ahead of everything else's. GitHub and AWS agree with each other, so a
//! token that GitHub has just made is valid, even if this computer's clock shows another time.

use std::time::Duration;

use ondeck_standin::{AwsFault, AwsFaultRule};

use super::harness::{GitHubHarness, github};
use crate::aws::harness::{AwsHarness, LAUNCH, TIMES};
use crate::harness::Driven;

/// More than the hour for which GitHub's registration tokens are valid.
const AHEAD: Duration = Duration::from_secs(2 * 3600);

#[test]
fn a_registration_token_is_valid_by_the_clock_of_aws() {
    let harness = GitHubHarness { pool: AwsHarness::bare(), github: github() };
    harness.github.turn_back(AHEAD);
    let behind = -i64::try_from(AHEAD.as_secs()).unwrap();
    for endpoint in ["control", "agents", "onlooker"] {
        let rule = AwsFaultRule::new(AwsFault::Skew(behind));
        harness.pool.gateway.endpoint(endpoint).inject(rule);
    }
    let refresh = [&["refresh"], &TIMES[..], &LAUNCH[..]].concat();
    harness.ondeck(&refresh).succeeded();
    let cold = harness.provision("1", 1).succeeded();
    assert_eq!(cold.sources(), ["cold"]);
    harness.done(harness.queue("1", "true"));
    harness.release("1").succeeded();
}
