//! The settings of a history, and how refreshes change them meanwhile.

use std::collections::BTreeMap;

use super::minimums::TEXTS;

/// The setting of the grace, in seconds.
pub(super) const GRACE: &str = "self-termination-grace-sec";

/// The setting of what refresh does about jobs whose machine was taken away.
pub(super) const ON_INTERRUPTION: &str = "on-interruption";

/// The cap on what machines may cost in a day, and the age that it needs.
pub(super) const CAP: &str = "max-spend-per-day";
pub(super) const AGE: &str = "max-machine-age-min";

/// The script that machines run once in some histories.
const SCRIPT: &str = "echo ready";

/// Settings that a refresh is given: names and values.
pub(super) type Given = Vec<(&'static str, &'static str)>;

/// The classes of every history at its beginning.
pub(super) const CLASSES: &str = r#"{"large":{"cpu":2,"mem":4096},"xlarge":{"cpu":4,"mem":8192}}"#;
/// The same, with larger machines, so that idle ones of before are too small.
const LARGER_CLASSES: &str = r#"{"large":{"cpu":4,"mem":8192},"xlarge":{"cpu":8,"mem":16384}}"#;
/// The same, with more memory only.
const MORE_MEMORY: &str = r#"{"large":{"cpu":2,"mem":8192},"xlarge":{"cpu":4,"mem":16384}}"#;
/// The same, and a class more.
const MORE_CLASSES: &str =
    r#"{"large":{"cpu":2,"mem":4096},"xlarge":{"cpu":4,"mem":8192},"huge":{"cpu":8,"mem":8192}}"#;

/// The names of all classes that a history may have.
pub(crate) const CLASS_NAMES: [&str; 3] = ["large", "xlarge", "huge"];

/// Draws the settings that the first refresh writes.
pub(super) fn drawn(random: &mut fastrand::Rng) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: &str| settings.insert(name.to_owned(), value.to_owned());
    set("claim-timeout-sec", "200");
    set("created-timeout-sec", "240");
    set("validation-timeout-sec", "90");
    set("idle-time-sec", ["20", "90", "200"][random.usize(0..3)]);
    set("max-runtime-min", ["3", "8"][random.usize(0..2)]);
    set("release-timeout-sec", "40");
    set(GRACE, "30");
    set("boot-deadline-sec", "90");
    set("agent-poll-waiting-sec", ["0.25", "1"][random.usize(0..2)]);
    set("agent-poll-running-sec", "1.5");
    set("signal-poll-sec", ["0.05", "0.3"][random.usize(0..2)]);
    set("retention-min", "10");
    set("resource-class-config", CLASSES);
    if random.u8(0..6) == 0 {
        set("min-idle", TEXTS[random.usize(0..TEXTS.len())]);
    }
    if random.u8(0..6) == 0 {
        set("max-runs-per-machine", ["1", "2", "3"][random.usize(0..3)]);
    }
    if random.u8(0..8) == 0 {
        set("max-machine-age-min", ["3", "8"][random.usize(0..2)]);
    }
    if random.u8(0..10) == 0 {
        set("rescue", ["off", "report"][random.usize(0..2)]);
    }
    if random.bool() {
        set("pre-runner-script", SCRIPT);
    }
    if random.u8(0..8) == 0 {
        set("max-machines", ["4", "6 large=3", "large=4"][random.usize(0..3)]);
        set("ceiling-patience-sec", ["0", "20"][random.usize(0..2)]);
    }
    // Drawn apart, so that the histories of other seeds stay as they were.
    if fastrand::Rng::with_seed(random.get_seed() ^ 0xdeb6).u8(0..8) == 0 {
        settings.insert("debug-on-failure-min".to_owned(), "2".to_owned());
    }
    let mut apart = fastrand::Rng::with_seed(random.get_seed() ^ 0xca50);
    if apart.u8(0..8) == 0 {
        let cap = ["0.12", "0.25", "0.6"][apart.usize(0..3)];
        settings.insert(CAP.to_owned(), cap.to_owned());
        settings.entry(AGE.to_owned()).or_insert_with(|| "8".to_owned());
    }
    settings
}

/// Times that contradict the others, whichever these are, so that a refresh must refuse them.
const CONTRADICTORY: [(&str, &str); 8] = [
    ("validation-timeout-sec", "300"),
    ("claim-timeout-sec", "100"),
    ("heartbeat-period-sec", "90"),
    ("created-timeout-sec", "90"),
    ("agent-poll-waiting-sec", "90"),
    ("claim-registration-timeout-sec", "0.25"),
    ("agent-poll-running-sec", "40"),
    ("release-timeout-sec", "0.5"),
];
/// Values that mean nothing, so that a refresh must refuse them.
const MALFORMED: [(&str, &str); 30] = [
    ("min-idle", "large/m$=1"),
    ("min-idle", "Mon 22:00-01:75 Asia/Tokyo large=1"),
    ("min-idle", "Mon 24:30-01:00 Asia/Tokyo large=1"),
    ("min-idle", "Mon 08:00-18:00 Mars/Phobos large=1"),
    ("min-idle", "Mon-Day 08:00-18:00 UTC large=1"),
    ("min-idle", "08:00-18:00 UTC"),
    ("min-idle", "large=many"),
    ("min-idle", "large/often=1"),
    ("min-idle", "tiny=1"),
    ("min-idle", "large=1 large=2"),
    ("min-idle", "large/c*,m*=1 large/m*,c*=2"),
    ("idle-time-sec", "-1"),
    ("idle-time-sec", "soon"),
    ("idle-time-sec", "2592001"),
    ("heartbeat-period-sec", "0"),
    ("max-machine-age-min", "0"),
    ("resource-class-config", "{"),
    ("resource-class-config", "{}"),
    ("resource-class-config", r#"{"large":{"cpu":0,"mem":4096},"xlarge":{"cpu":4,"mem":8192}}"#),
    ("resource-class-config", r#"{"large":{"cpu":2,"mem":0},"xlarge":{"cpu":4,"mem":8192}}"#),
    ("resource-class-config", r#"{"xlarge":{"cpu":4,"mem":8192},"xlarge":{"cpu":8,"mem":8192}}"#),
    ("resource-class-config", r#"{"large":{"cpu":2,"cpu":4,"mem":4096}}"#),
    ("max-machines", "large"),
    ("max-machines", "tiny=3"),
    ("max-machines", "3 4"),
    ("max-runs-per-machine", "few"),
    ("max-runs-per-machine", "0"),
    ("rescue", "perhaps"),
    ("reuse", "sometimes"),
    ("on-interruption", "retry"),
];

/// Whether a refresh must refuse a setting.
pub(crate) fn is_unsound(name: &str, value: &str) -> bool {
    CONTRADICTORY.contains(&(name, value)) || MALFORMED.contains(&(name, value))
}

/// Draws what a refresh in mid-history changes. With `exact_clocks`, heartbeats may be so frequent
/// that only they, and not clocks, may be a few seconds off.
pub(super) fn change(exact_clocks: bool, random: &mut fastrand::Rng) -> Given {
    let periods = if exact_clocks { &["1", "5", "20"][..] } else { &["5", "20"] };
    let choices: [(&'static str, &[&'static str]); 15] = [
        ("max-machines", &["", "8", "6 large=4"]),
        ("heartbeat-period-sec", periods),
        ("idle-time-sec", &["20", "90", "200"]),
        ("min-idle", &[""]),
        ("min-idle", &TEXTS),
        ("max-runs-per-machine", &["", "1", "3"]),
        ("max-machine-age-min", &["", "3", "8"]),
        ("rescue", &["", "provision", "report", "off"]),
        ("resource-class-config", &[CLASSES, LARGER_CLASSES, MORE_MEMORY, MORE_CLASSES]),
        ("claim-registration-timeout-sec", &["10", "30", "60"]),
        ("max-runtime-min", &["3", "8"]),
        ("pickup-patience-sec", &["0", "1", "3"]),
        ("ticket-hold-sec", &["10", "30"]),
        ("agent-poll-running-sec", &["0.5", "1.5"]),
        (ON_INTERRUPTION, &["rerun", "rerun", "none"]),
    ];
    let mut given = Given::new();
    if random.u8(0..8) == 0 {
        given.push(CONTRADICTORY[random.usize(0..CONTRADICTORY.len())]);
    }
    for _ in 0..random.u32(1..5) {
        let (name, values) = choices[random.usize(0..choices.len())];
        given.push((name, values[random.usize(0..values.len())]));
    }
    if random.u8(0..4) == 0 {
        given.push(MALFORMED[random.usize(0..MALFORMED.len())]);
    }
    given
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::settings::Settings;

    use super::*;
    use crate::plan::contradict;

    #[test]
    fn each_contradictory_time_contradicts_all_other_settings() {
        for seed in 0..40 {
            let drawn = drawn(&mut fastrand::Rng::with_seed(seed));
            assert!(
                !contradict(&Settings::from_map(&drawn).unwrap().times, |_| true),
                "seed {seed}"
            );
            for (name, value) in CONTRADICTORY {
                let mut given = drawn.clone();
                given.insert(name.to_owned(), value.to_owned());
                let times = Settings::from_map(&given).unwrap().times;
                assert!(contradict(&times, |input| input == name), "{name} {value}");
            }
        }
    }
}
