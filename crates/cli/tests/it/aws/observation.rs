//! Metrics and traces on emulated AWS: which calls of AWS they take.

use std::collections::BTreeMap;

use ondeck_standin::Service;

use super::harness::AwsHarness;
use crate::harness::{Background, Driven, Receiver};

/// The calls of AWS that a quiet refresh makes with these arguments and variables.
fn calls(
    harness: &AwsHarness,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> BTreeMap<(Service, String), usize> {
    harness.control.reset();
    let mut command = harness.command(&[&["refresh"], arguments].concat());
    command.envs(variables.iter().copied());
    Background::start(&mut command).finish().succeeded();
    harness.control.calls()
}

#[test]
fn what_is_not_asked_for_takes_no_call_and_a_line_and_a_trace_take_none_either() {
    let harness = AwsHarness::with(&[]);
    harness.refresh(&[]);
    let quiet = calls(&harness, &[], &[]);
    let collector = Receiver::start();
    let folder = tempfile::tempdir().unwrap();
    let line = format!("--emf-file={}", folder.path().join("line").display());
    let observed =
        calls(&harness, &[&line], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url(""))]);
    assert_eq!(observed, quiet);
    assert_eq!(collector.take().len(), 1);

    // The file has the pool as it is, which is read as status reads it.
    let file = format!("--metrics-file={}", folder.path().join("ondeck.prom").display());
    let read = calls(&harness, &[&file], &[]);
    let total = |calls: &BTreeMap<(Service, String), usize>| calls.values().sum::<usize>();
    assert!(total(&read) > total(&quiet), "{read:?}");
    harness.control.reset();
    harness.ondeck(&["status"]).succeeded();
    assert!(total(&read) <= total(&quiet) + harness.control.total(), "{read:?} and {quiet:?}");
}
