//! What the facts of a provider mean for launches: image, profile, quotas, permissions, computer.

use std::time::Duration;

use super::facts::{Disk, Facts, FoundImage, Image, Profile, Quota, Told};
use super::finding::{Area, Finding, FindingKind, Findings, Severity};
use crate::model::ids::ResourceClass;
use crate::model::min_idle::Minimum;
use crate::model::requirements::UsageClass;
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;

/// An image older than this has missed two quarters of updates.
const OLD_IMAGE: Duration = Duration::from_secs(180 * 24 * 3_600);
/// How near the day may be on which a publisher takes an image back.
const DEPRECATED_SOON: Duration = Duration::from_secs(14 * 24 * 3_600);
/// From this difference on, a heartbeat may count as missed and a signature as wrong.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(10);
/// A disk with less free is too full for the store.
const FULL_BYTES: u64 = 64 << 20;
const LOW_BYTES: u64 = 1 << 30;
/// More than this is enough, however large the disk is.
const ENOUGH_BYTES: u64 = 10 << 30;
const LOW_PERCENT: u8 = 5;

/// Adds what is wrong with the facts at `now`, and what they leave open.
pub(super) fn judge(facts: &Facts, settings: &Settings, now: Timestamp, into: &mut Findings) {
    into.add(facts.invalid.iter().map(|invalid| {
        let fix = format!("ondeck refresh --{} VALUE", invalid.name);
        Finding::new(FindingKind::SettingsIncomplete, invalid.to_string(), fix)
    }));
    let role = into.caller.as_deref().and_then(assumed_role).map(str::to_owned);
    let mut ask = Ask { into };
    ask.about(Area::Access, "permissions of these credentials", &facts.denied, |denied| {
        let named = |it: &super::facts::Denied| format!("{} ({})", it.permission, it.what);
        let all = denied.iter().map(named).collect::<Vec<_>>().join(", ");
        let what = format!("the credentials lack permissions of the operator: {all}");
        let fix = || put_policy(role.as_deref());
        (!denied.is_empty())
            .then(|| Finding::new(FindingKind::Permissions, what, fix()))
            .into_iter()
    });
    ask.about(Area::SetUp, "launch template", &facts.template, |(name, exists)| {
        let what = format!("there is no launch template {name}");
        let finding = Finding::new(FindingKind::TemplateMissing, what, "ondeck refresh");
        (!exists).then_some(finding).into_iter()
    });
    ask.about(Area::Launches, "image", &facts.image, |image| of_image(image, now).into_iter());
    ask.about(Area::Launches, "instance profile", &facts.profile, |it| of_profile(it).into_iter());
    ask.about(Area::Launches, "quotas", &facts.quotas, |quotas| {
        of_quotas(quotas, settings, now).into_iter()
    });
    ask.about(Area::Computer, "disk", &facts.disk, |disk| of_disk(disk).into_iter());
    ask.about(Area::Computer, "files", &facts.writable_by_others, |files| {
        let named = files.iter().map(|(file, mode)| format!("{file} (mode {mode:o})"));
        let what = format!("other users may change {}", named.collect::<Vec<_>>().join(", "));
        let paths = files.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>().join(" ");
        let fix = format!("chmod go-w {paths}");
        (!files.is_empty()).then(|| Finding::new(FindingKind::HomeWritable, what, fix)).into_iter()
    });
    for (what, needs) in &facts.unchecked {
        into.skip(Area::Access, what, needs);
    }
}

/// The role in the name of a caller that has assumed one.
fn assumed_role(caller: &str) -> Option<&str> {
    caller.split_once(":assumed-role/")?.1.split('/').next()
}

/// The command that gives the role what the operator needs. Its file has placeholders.
fn put_policy(role: Option<&str>) -> String {
    format!(
        "aws iam put-role-policy --role-name {} --policy-name ondeck-operator --policy-document \
         file://policies/operator.json # after replacing its placeholders",
        role.unwrap_or("ROLE")
    )
}

/// Judges answers, and notes those that are missing.
pub(super) struct Ask<'a> {
    pub(super) into: &'a mut Findings,
}

impl Ask<'_> {
    pub(super) fn about<T, I: Iterator<Item = Finding>>(
        &mut self,
        area: Area,
        what: &'static str,
        told: &Told<T>,
        judge: impl FnOnce(&T) -> I,
    ) {
        match told {
            Told::Known(fact) => {
                self.into.check(area, what);
                self.into.findings.extend(judge(fact));
            }
            Told::Nothing => {}
            Told::Untold(needs) => self.into.skip(area, what, needs),
        }
    }
}

fn of_image(image: &Image, now: Timestamp) -> Option<Finding> {
    let name = &image.name;
    let fix = "ondeck refresh --ami AMI";
    let Some(found) = &image.found else {
        let what = format!("there is no image that can be seen from here: {name}");
        return Some(Finding::new(FindingKind::ImageMissing, what, fix).about([name]));
    };
    let FoundImage { id, unavailable, architecture_problem, created, deprecated } = found;
    let finding = |kind, what: String| Some(Finding::new(kind, what, fix).about([id]));
    if let Some(state) = unavailable {
        return finding(FindingKind::ImageMissing, format!("the image {id} is {state}"));
    }
    if let Some(problem) = architecture_problem {
        return finding(FindingKind::ImageArchitecture, format!("ami {problem}: {id}"));
    }
    if let Some(at) = deprecated.filter(|at| *at <= now + DEPRECATED_SOON) {
        let what = format!("the image {id} is deprecated by its publisher at {at}");
        return finding(FindingKind::ImageDeprecated, what);
    }
    let age = created.map(|at| now.since(at)).filter(|age| *age > OLD_IMAGE)?;
    let days = age.as_secs() / 86_400;
    finding(FindingKind::ImageOld, format!("the image {id} is {days} days old"))
}

fn of_profile(profile: &Profile) -> Option<Finding> {
    let Profile { name, exists, has_role } = profile;
    let what = match (name.as_str(), exists, has_role) {
        ("", ..) => "iam-instance-profile is not set".to_owned(),
        (_, true, true) => return None,
        (_, true, false) => format!("the instance profile has no role: {name}"),
        (_, false, _) => format!("there is no instance profile {name}"),
    };
    let fix = "ondeck refresh --iam-instance-profile PROFILE";
    Some(Finding::new(FindingKind::ProfileMissing, what, fix))
}

/// Compares each quota with the largest class, and with what is to be kept idle now.
fn of_quotas(quotas: &[Quota], settings: &Settings, now: Timestamp) -> Vec<Finding> {
    let size = |class: &ResourceClass| settings.classes.get(class).map_or(0, |size| size.cpu);
    let mut found = Vec::new();
    for Quota { code, usage, cpus } in quotas {
        let finding = |what: String, needed: u32| {
            let fix = format!(
                "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code} \
                 --desired-value {needed}"
            );
            Finding::new(FindingKind::QuotaTooSmall, what, fix)
        };
        let largest = settings.classes.names().map(size).max().unwrap_or_default();
        let larger: Vec<&str> = settings
            .classes
            .names()
            .filter(|class| size(class) > *cpus)
            .map(ResourceClass::as_str)
            .collect();
        let needed = |it: &Minimum| match it.usage == *usage {
            true => it.count.saturating_mul(size(&it.class)),
            false => 0,
        };
        let kept = settings.min_idle.most_in_a_week(now, needed);
        let of = match usage {
            UsageClass::Spot => "spot machines",
            UsageClass::OnDemand => "on-demand machines",
        };
        if kept > *cpus {
            let what = format!("min-idle needs {kept} vCPUs of {of}, and the quota allows {cpus}");
            found.push(finding(what, kept.max(largest)).with(Severity::Error));
        } else if larger.len() == settings.classes.names().count() {
            let what = format!("the quota of {cpus} vCPUs of {of} is too small for each class");
            found.push(finding(what, largest).with(Severity::Error).about(larger));
        } else if !larger.is_empty() {
            let classes = larger.join(", ");
            let what = format!("the quota of {cpus} vCPUs of {of} is too small for {classes}");
            found.push(finding(what, largest).about(larger));
        }
    }
    found
}

fn of_disk(disk: &Disk) -> Option<Finding> {
    let Disk { place, free_bytes, free_percent, free_inodes_percent } = disk;
    let is_full = *free_bytes < FULL_BYTES || *free_inodes_percent == 0;
    let is_low = *free_bytes < LOW_BYTES
        || *free_bytes < ENOUGH_BYTES && *free_percent < LOW_PERCENT
        || *free_inodes_percent < LOW_PERCENT;
    if !is_full && !is_low {
        return None;
    }
    let severity = if is_full { Severity::Error } else { Severity::Warning };
    let what = format!(
        "{} MiB ({free_percent} %) and {free_inodes_percent} % of the inodes are free on the disk \
         of {place}",
        free_bytes >> 20
    );
    Some(
        Finding::new(FindingKind::DiskFull, what, "free space there, or give --home")
            .with(severity),
    )
}

/// Compares this computer's clock with that of the pool, and the pool's with those of the agents.
pub(super) fn of_clock(ahead: Duration, is_behind: bool) -> Option<Finding> {
    let way = if is_behind { "behind" } else { "ahead of" };
    let what = format!("this computer's clock is {} s {way} the pool's", ahead.as_secs());
    let fix = "timedatectl set-ntp true";
    (ahead > CLOCK_TOLERANCE).then(|| Finding::new(FindingKind::Clock, what, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::Classes;

    fn now() -> Timestamp {
        Timestamp::parse("2026-11-18T12:00:00Z").unwrap()
    }

    fn days(days: u64) -> Duration {
        Duration::from_secs(days * 86_400)
    }

    fn found() -> FoundImage {
        FoundImage {
            id: "ami-1".to_owned(),
            unavailable: None,
            architecture_problem: None,
            created: Some(now().before(days(30))),
            deprecated: Some(now() + days(300)),
        }
    }

    /// What is found about these facts with default settings.
    fn judged(facts: &Facts, settings: &Settings) -> Vec<(FindingKind, Severity)> {
        let mut findings = Findings::default();
        judge(facts, settings, now(), &mut findings);
        findings.findings.iter().map(|it| (it.kind, it.severity)).collect()
    }

    #[test]
    fn an_image_is_judged_by_its_first_fault() {
        type Change = fn(&mut FoundImage);
        let cases: &[(Change, Option<FindingKind>)] = &[
            (|_| {}, None),
            (|it| it.created = None, None),
            (
                |it| it.unavailable = Some("deregistered".to_owned()),
                Some(FindingKind::ImageMissing),
            ),
            (
                |it| it.architecture_problem = Some("is an image for arm64".to_owned()),
                Some(FindingKind::ImageArchitecture),
            ),
            (|it| it.created = Some(now().before(days(180))), None),
            (|it| it.created = Some(now().before(days(181))), Some(FindingKind::ImageOld)),
            (|it| it.deprecated = Some(now() + days(15)), None),
            (|it| it.deprecated = Some(now() + days(13)), Some(FindingKind::ImageDeprecated)),
            (|it| it.deprecated = None, None),
        ];
        for (number, (change, expected)) in cases.iter().enumerate() {
            let mut found = found();
            change(&mut found);
            let image = Image { name: "ami-1".to_owned(), found: Some(found) };
            let facts = Facts { image: Told::Known(image), ..Facts::default() };
            let kinds: Vec<_> =
                judged(&facts, &Settings::default()).iter().map(|it| it.0).collect();
            assert_eq!(kinds, Vec::from_iter(*expected), "case {number}");
        }
        let image = Image { name: "ami-1".to_owned(), found: None };
        let facts = Facts { image: Told::Known(image), ..Facts::default() };
        let missing = [(FindingKind::ImageMissing, Severity::Error)];
        assert_eq!(judged(&facts, &Settings::default()), missing);
    }

    #[test]
    fn a_quota_is_compared_with_classes_and_minimums() {
        let text = r#"{"large":{"cpu":2,"mem":4096},"huge":{"cpu":64,"mem":4096}}"#;
        let settings = |minimum: &str| Settings {
            classes: Classes::from_json(text).unwrap(),
            min_idle: minimum.parse().unwrap(),
            ..Settings::default()
        };
        for (cpus, minimum, expected) in [
            (64, "", None),
            (63, "", Some(Severity::Warning)),
            (1, "", Some(Severity::Error)),
            (64, "large/spot=32", None),
            (64, "large/spot=33", Some(Severity::Error)),
            (64, "large/on-demand=33", None),
            (64, "Sat 08:00-18:00 large/spot=33", Some(Severity::Error)),
        ] {
            let quota = Quota { code: "L-1".to_owned(), usage: UsageClass::Spot, cpus };
            let facts = Facts { quotas: Told::Known(vec![quota]), ..Facts::default() };
            let found = judged(&facts, &settings(minimum));
            let severities: Vec<Severity> = found.iter().map(|it| it.1).collect();
            assert_eq!(severities, Vec::from_iter(expected), "{cpus} {minimum}");
        }
    }

    #[test]
    fn a_role_is_named_by_who_has_assumed_it() {
        let caller = "arn:aws:sts::111122223333:assumed-role/ondeck-operator/alice";
        assert_eq!(assumed_role(caller), Some("ondeck-operator"));
        assert_eq!(assumed_role("arn:aws:iam::111122223333:user/alice"), None);
        assert!(put_policy(Some("ondeck-operator")).contains("--role-name ondeck-operator "));
    }

    #[test]
    fn a_profile_needs_a_name_and_a_role() {
        for (name, exists, has_role, is_fine) in [
            ("machine", true, true, true),
            ("machine", true, false, false),
            ("machine", false, false, false),
            ("", false, false, false),
        ] {
            let profile = Profile { name: name.to_owned(), exists, has_role };
            assert_eq!(of_profile(&profile).is_none(), is_fine, "{profile:?}");
        }
    }

    #[test]
    fn a_disk_is_low_before_it_is_full() {
        for (megabytes, percent, inodes, expected) in [
            (100_000, 50, 50, None),
            (100_000, 4, 50, None),
            (2_000, 5, 50, None),
            (2_000, 4, 50, Some(Severity::Warning)),
            (900, 50, 50, Some(Severity::Warning)),
            (100_000, 50, 4, Some(Severity::Warning)),
            (63, 50, 50, Some(Severity::Error)),
            (100_000, 50, 0, Some(Severity::Error)),
        ] {
            let disk = Disk {
                place: "/home".to_owned(),
                free_bytes: megabytes << 20,
                free_percent: percent,
                free_inodes_percent: inodes,
            };
            assert_eq!(of_disk(&disk).map(|it| it.severity), expected, "{disk:?}");
        }
    }

    #[test]
    fn a_clock_may_be_off_by_ten_seconds() {
        assert_eq!(of_clock(Duration::from_secs(10), true), None);
        let found = of_clock(Duration::from_secs(3_600), true).unwrap();
        assert_eq!(found.what, "this computer's clock is 3600 s behind the pool's");
    }

    #[test]
    fn what_is_not_told_is_listed_and_what_makes_no_sense_is_not() {
        let mut findings = Findings::default();
        let facts = Facts {
            quotas: Told::Untold("servicequotas:GetServiceQuota".to_owned()),
            template: Told::Known(("ondeck".to_owned(), true)),
            ..Facts::default()
        };
        judge(&facts, &Settings::default(), now(), &mut findings);
        assert_eq!(findings.checked, [(Area::SetUp, "launch template")]);
        let [one] = &findings.unchecked[..] else { panic!("{findings:?}") };
        assert_eq!(
            (one.what.as_str(), one.needs.as_str()),
            ("quotas", "servicequotas:GetServiceQuota")
        );
    }
}
