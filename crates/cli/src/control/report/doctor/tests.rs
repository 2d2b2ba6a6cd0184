use ondeck_core::modes::doctor::{FindingKind, Unchecked};

use super::*;

pub(crate) fn example() -> Findings {
    let finding = |kind, severity, what: &str, fix: &str, about: &[&str]| Finding {
        kind,
        severity,
        what: what.to_owned(),
        fix: fix.to_owned(),
        about: about.iter().map(|id| (*id).to_owned()).collect(),
    };
    Findings {
        caller: Some("arn:aws:sts::111122223333:assumed-role/ondeck-operator/alice".to_owned()),
        findings: vec![
            finding(
                FindingKind::NoRoute,
                Severity::Error,
                "no route to the internet that works from subnets: subnet-0123456789abcdef0",
                "add a route for 0.0.0.0/0, or set https-proxy",
                &["subnet-0123456789abcdef0"],
            ),
            finding(
                FindingKind::Orphans,
                Severity::Warning,
                "1 machine without a live record",
                "ondeck refresh",
                &["i-0123456789abcdef0"],
            ),
        ],
        checked: vec![
            (Area::Access, "credentials"),
            (Area::Access, "store"),
            (Area::Network, "subnets"),
        ],
        unchecked: vec![Unchecked {
            area: Area::Launches,
            what: "quotas".to_owned(),
            needs: "servicequotas:GetServiceQuota".to_owned(),
        }],
    }
}

#[test]
fn findings_are_grouped_and_fit_80_columns() {
    let report = DoctorReport::on(example(), None);
    let text = anstream::adapter::strip_str(&report.text()).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text, @"
    caller: arn:aws:sts::111122223333:assumed-role/ondeck-operator/alice
    found: 1 error, 1 warning

    network
      error: no-route
        no route to the internet that works from subnets: subnet-0123456789abcdef0
        why: machines reach neither GitHub nor AWS, so they never become ready
        fix: add a route for 0.0.0.0/0, or set https-proxy

    machines
      warning: orphans
        1 machine without a live record
        why: machines without a record serve no run and cost money
        fix: ondeck refresh

    checked: access: credentials, store; network: subnets
    not checked: quotas, needs servicequotas:GetServiceQuota
    ");
    let failure = report.failure().unwrap();
    assert_eq!(failure.kind.exit_code(), 21);
    assert!(failure.message.starts_with("doctor found 1 error, 1 warning; the first: no route"));
}

#[test]
fn a_healthy_pool_takes_a_few_lines_and_no_failure() {
    let healthy = Findings { findings: Vec::new(), ..example() };
    let report = DoctorReport::on(healthy, None);
    insta::assert_snapshot!(report.text(), @"
    caller: arn:aws:sts::111122223333:assumed-role/ondeck-operator/alice
    found: nothing wrong
    checked: access: credentials, store; network: subnets
    not checked: quotas, needs servicequotas:GetServiceQuota
    ");
    assert_eq!(report.failure(), None);
}

#[test]
fn the_worst_severity_decides_the_exit_code() {
    let code = |severity| {
        let mut findings = example();
        findings.findings.truncate(1);
        findings.findings[0].severity = severity;
        DoctorReport::on(findings, None).failure().map(|failure| failure.kind.exit_code())
    };
    assert_eq!(code(Severity::Error), Some(21));
    assert_eq!(code(Severity::Warning), Some(20));
    assert_eq!(code(Severity::Note), None);
}

#[test]
fn a_text_from_outside_starts_no_line() {
    let mut findings = example();
    findings.findings[0].what = "x\r\n::error::y".to_owned();
    let text = DoctorReport::on(findings, None).text();
    assert!(text.contains("x ::error::y"), "{text}");
}

/// Each id has a row in the guide, and the guide no other.
#[test]
fn the_guide_has_each_finding() {
    let guide = include_str!("../../../../../../docs/guides/doctor.md");
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut documented: Vec<&str> = rows.collect();
    let mut known: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    documented.sort_unstable();
    known.sort_unstable();
    assert_eq!(documented, known);
}
