//! Settings that exclude each other or have no effect.

use std::collections::BTreeMap;
use std::time::Duration;

use super::finding::{Finding, FindingKind, Severity};
use crate::model::ceiling::MaxMachines;
use crate::model::min_idle::Minimum;
use crate::model::reuse::Reuse;
use crate::model::settings::{APPLIED_CONFIG, ENFORCED_CONFIG, Settings};
use crate::model::timestamp::Timestamp;
use crate::modes::refresh::{Shortfall, check_together};
use crate::ports::Compute;

/// How long GitHub accepts a registration token.
const TOKEN_LIFE: Duration = Duration::from_secs(3_600);

/// The contradictions of the stored settings in the week from `now` on.
pub(super) fn contradictions(
    stored: &BTreeMap<String, String>,
    settings: &Settings,
    now: Timestamp,
) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let mut add = |what: String, fix: String, severity| {
        let finding = Finding::new(FindingKind::SettingsContradict, what, fix).with(severity);
        if !found.iter().any(|it| it.what == finding.what) {
            found.push(finding);
        }
    };
    for contradiction in settings.times.contradictions() {
        let (input, value) = &contradiction.remedy;
        let fix = format!("ondeck refresh --{input} {value}");
        add(contradiction.to_string(), fix, Severity::Warning);
    }
    // Refresh refuses these, so an earlier version has stored them.
    if let Err(failure) = check_together(settings, stored)
        && settings.times.contradictions().is_empty()
    {
        // Each of these failures begins with the setting that it is about.
        let subject = failure.message.split(' ').next().unwrap_or_default();
        let fix = match stored.contains_key(subject) {
            true => format!("ondeck refresh --reset {subject} # {}", failure.hint),
            false => failure.hint,
        };
        add(failure.message, fix, Severity::Warning);
    }
    for (what, fix) in of_numbers(settings, now) {
        add(what, fix, Severity::Warning);
    }
    if settings.minted.is_some() && settings.times.registration_token_refresh >= TOKEN_LIFE {
        let what = "registration-token-refresh-min is no less than the hour for which GitHub accepts \
                    a token";
        add(
            what.to_owned(),
            "ondeck refresh --reset registration-token-refresh-min".to_owned(),
            Severity::Error,
        );
    }
    found
}

/// Minimums, maximums and ages.
fn of_numbers(settings: &Settings, now: Timestamp) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let kept = settings.min_idle.most_in_a_week(now, |it| it.count);
    if let Some(most) = settings.max_machines.pool.filter(|most| kept > *most) {
        let what = format!("min-idle asks for {kept} machines, and max-machines allows {most}");
        found.push((
            what,
            raise_ceiling(&MaxMachines { pool: Some(kept), ..settings.max_machines.clone() }),
        ));
    }
    for (class, most) in &settings.max_machines.classes {
        let of_class = |it: &Minimum| if it.class == *class { it.count } else { 0 };
        let kept = settings.min_idle.most_in_a_week(now, of_class);
        if kept > *most {
            let what = format!(
                "min-idle asks for {kept} machines of class {class}, and max-machines allows {most}"
            );
            let mut raised = settings.max_machines.clone();
            raised.classes.insert(class.clone(), kept);
            found.push((what, raise_ceiling(&raised)));
        }
    }
    if let Some(age) = settings.max_machine_age.filter(|age| *age <= settings.times.created_timeout)
    {
        let what = format!(
            "max-machine-age-min ({}) is no more than created-timeout-sec allows a machine to start",
            age.as_secs() / 60
        );
        let least = settings.times.created_timeout.as_secs() / 60 + 1;
        found.push((what, format!("ondeck refresh --max-machine-age-min {least}")));
    }
    if let Some(runs) = settings.max_runs_per_machine.filter(|runs| *runs > 1)
        && settings.reuse == Reuse::Never
    {
        let what = format!("reuse is never, so max-runs-per-machine has no effect: {runs}");
        found.push((what, "ondeck refresh --reset max-runs-per-machine".to_owned()));
    }
    found
}

/// A cap on what machines cost that cannot pay for the minimum of idle ones.
pub(super) fn unpaid_minimum(
    compute: &dyn Compute,
    settings: &Settings,
    now: Timestamp,
) -> Option<Finding> {
    let shortfall = Shortfall::of(compute, settings, now)?;
    let enough = shortfall.sufficient();
    let fix = format!("ondeck refresh --max-spend-per-day {enough} # or lower min-idle");
    Some(Finding::new(FindingKind::SettingsContradict, shortfall.to_string(), fix))
}

/// The command that sets these maximums.
pub(super) fn raise_ceiling(maximums: &MaxMachines) -> String {
    let of_classes = maximums.classes.iter().map(|(class, most)| format!("{class}={most}"));
    let all = maximums.pool.map(|most| most.to_string()).into_iter().chain(of_classes);
    format!("ondeck refresh --max-machines '{}'", all.collect::<Vec<_>>().join(" "))
}

/// Whether a configuration was applied that no refresh has enforced, with its digest among `stored`.
pub(super) fn not_enforced(stored: &BTreeMap<String, String>) -> Option<Finding> {
    let applied = stored.get(APPLIED_CONFIG)?;
    let applied: serde_json::Value = serde_json::from_str(applied).ok()?;
    let digest = applied.get("digest")?.as_str()?;
    if stored.get(ENFORCED_CONFIG).is_some_and(|enforced| enforced == digest) {
        return None;
    }
    let what = "the applied configuration is not enforced yet";
    Some(Finding::new(FindingKind::ConfigNotEnforced, what, "ondeck refresh"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::credentials::Minted;
    use crate::testkit::{MemoryCompute, VirtualClock};

    fn now() -> Timestamp {
        Timestamp::parse("2026-11-18T12:00:00Z").unwrap()
    }

    fn found(pairs: &[(&str, &str)]) -> Vec<String> {
        let stored = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let stored: BTreeMap<String, String> = stored.collect();
        let settings = Settings::from_map(&stored).unwrap();
        contradictions(&stored, &settings, now()).into_iter().map(|it| it.what).collect()
    }

    #[test]
    fn each_contradiction_is_found_by_itself() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], ""),
            (&[("min-idle", "large=2"), ("max-machines", "2")], ""),
            (&[("min-idle", "large=3"), ("max-machines", "2")], "asks for 3 machines, and"),
            (&[("min-idle", "large=3"), ("max-machines", "9 large=2")], "of class large, and"),
            (&[("reuse", "never"), ("max-runs-per-machine", "1")], ""),
            (&[("reuse", "never"), ("max-runs-per-machine", "5")], "has no effect: 5"),
            (&[("max-machine-age-min", "10")], "max-machine-age-min (10)"),
            (&[("max-machine-age-min", "60")], ""),
            (&[("created-timeout-sec", "100")], "created-timeout-sec (100) must be more"),
            (&[("min-idle", "Sat 08:00-18:00 large=3"), ("max-machines", "2")], "asks for 3"),
            (
                &[
                    ("min-idle", "Mon 08:00-12:00 large=2; Mon 12:00-18:00 xlarge=1"),
                    ("max-machines", "2"),
                ],
                "",
            ),
            (&[("min-idle", "giant=1")], "min-idle names an unknown class: giant"),
        ];
        for (pairs, expected) in cases {
            let found = found(pairs);
            match *expected {
                "" => assert!(found.is_empty(), "{pairs:?}: {found:?}"),
                expected => {
                    assert!(
                        matches!(&found[..], [one] if one.contains(expected)),
                        "{pairs:?}: {found:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_minimum_that_costs_more_than_the_cap_is_found() {
        let compute = MemoryCompute::new(std::sync::Arc::new(VirtualClock::new()));
        // An hour of c6i.large costs $0.085, of m6i.large $0.096.
        for (minimum, cap, expected) in [
            ("large/c6i.large=2", "4.08", None),
            ("large/c6i.large=2", "4.07", Some(("costs $4.08 on", "4.08"))),
            ("Wed 06:00-18:00 large/c6i.large=2", "2.03", Some(("costs $2.04 on", "2.04"))),
            ("Wed 06:00-18:00 large/c6i.large=2", "2.05", None),
            ("large/c6i.large,m6i.large=1", "2.1", None),
            ("large/c6i.large,m6i.large=1", "2", Some(("costs $2.04 to $2.30 on", "2.31"))),
            ("large/c6i.large=1 large/m6i.large=1", "4.3", Some(("costs $4.34 on", "4.35"))),
            ("large/z99.large=1", "0.01", None),
        ] {
            let pairs = [("min-idle", minimum), ("max-spend-per-day", cap)];
            let stored = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let settings = Settings::from_map(&stored.into()).unwrap();
            let found = unpaid_minimum(&compute, &settings, now());
            assert_eq!(found.is_some(), expected.is_some(), "{minimum} {cap}: {found:?}");
            let (Some(found), Some((what, enough))) = (found, expected) else { continue };
            assert!(found.what.contains(what), "{found:?}");
            let fix = format!("ondeck refresh --max-spend-per-day {enough} ");
            assert!(found.fix.starts_with(&fix), "{found:?}");
        }
    }

    #[test]
    fn each_contradiction_is_gone_after_its_fix() {
        for pairs in [
            &[("min-idle", "large=3"), ("max-machines", "2")][..],
            &[("min-idle", "large=3"), ("max-machines", "9 large=2")],
            &[("max-machine-age-min", "10")],
            &[("created-timeout-sec", "100")],
            &[("heartbeat-period-sec", "500")],
        ] {
            let stored = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
                pairs
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect()
            };
            let mut stored = stored(pairs);
            let fix = |stored: &BTreeMap<String, String>| {
                let settings = Settings::from_map(stored).unwrap();
                let found = contradictions(stored, &settings, now());
                found.into_iter().next().map(|finding| finding.fix)
            };
            let mut fixed = 0;
            while let Some(fix) = fix(&stored) {
                let given =
                    fix.strip_prefix("ondeck refresh --").unwrap_or_else(|| panic!("{fix}"));
                let (name, value) = given.split_once(' ').unwrap();
                stored.insert(name.to_owned(), value.trim_matches('\'').to_owned());
                fixed += 1;
                assert!(fixed < 5, "{fix}");
            }
            assert!(fixed > 0, "{pairs:?}");
        }
    }

    #[test]
    fn a_token_must_be_renewed_while_it_is_valid() {
        let minted =
            Minted { target: "t".to_owned(), minted_at: now(), expires_at: now() + TOKEN_LIFE };
        let mut settings = Settings { minted: Some(minted), ..Settings::default() };
        let count = |settings: &Settings| contradictions(&BTreeMap::new(), settings, now()).len();
        assert_eq!(count(&settings), 0);
        settings.times.registration_token_refresh = TOKEN_LIFE;
        assert_eq!(count(&settings), 1);
    }

    #[test]
    fn an_applied_configuration_is_enforced_by_its_digest() {
        let applied = (APPLIED_CONFIG.to_owned(), r#"{"digest":"d1"}"#.to_owned());
        let mut stored = BTreeMap::from([applied]);
        assert!(not_enforced(&stored).is_some());
        stored.insert(ENFORCED_CONFIG.to_owned(), "d0".to_owned());
        assert!(not_enforced(&stored).is_some());
        stored.insert(ENFORCED_CONFIG.to_owned(), "d1".to_owned());
        assert!(not_enforced(&stored).is_none());
        assert!(not_enforced(&BTreeMap::new()).is_none());
    }
}
