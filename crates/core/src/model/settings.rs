//! The settings that refresh stores for provision, release and the agents.

pub(crate) mod duplicates;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::inputs::times::{TIMES, TimeSpec, Times, Unit};
use crate::inputs::{FileForm, Input, Mode, input_struct};
use crate::model::ceiling::MaxMachines;
use crate::model::credentials::Minted;
use crate::model::excerpt::{one_line, quoted};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::machine_label::RunnerLabel;
pub use crate::model::min_idle::MinIdle;
use crate::model::money::Money;
use crate::model::requirements::ClassSize;
use crate::model::reuse::Reuse;
use crate::model::spend;
use crate::model::timestamp::Timestamp;

input_struct! {
    /// The operator's choices, as provision, release and the agents read them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Settings, rows INPUTS;

    classes: Classes = Classes::default(), Classes::from_json,
        Input::stored(
            "resource-class-config",
            "JSON",
            r#"Resource classes and their sizes, as JSON: {"large":{"cpu":2,"mem":4096}}"#,
        )
        .or_described(
            "large 2/4096, xlarge 4/8192, 2xlarge 8/16384, 4xlarge 16/32768, 8xlarge 32/65536, \
             12xlarge 48/98304, 16xlarge 64/131072",
        )
        .in_file("classes", FileForm::Classes);
    min_idle: MinIdle = MinIdle::default(), str::parse,
        Input::stored(
            "min-idle",
            "ENTRIES",
            r#"Idle machines to keep in the pool: "large=2 xlarge=1", or in a time window "Mon-Fri 08:00-18:00 Europe/Berlin large/spot=4""#,
        )
        .in_file("min-idle", FileForm::MinIdle);
    max_machine_age: Option<Duration> = None, |text| AGE.parse(text).map(Some),
        Input::stored(
            AGE.input,
            "MIN",
            "Age at which release does not return a machine to the pool, and refresh replaces it",
        )
        .or_described("no limit")
        .in_file("machines", FileForm::Number);
    max_runs_per_machine: Option<u32> = None, positive,
        Input::stored(
            "max-runs-per-machine",
            "COUNT",
            "Number of runs after which release does not return a machine to the pool",
        )
        .or_described("no limit")
        .in_file("machines", FileForm::Whole);
    reuse: Reuse, str::parse, REUSE;
    debug_on_failure: Option<Duration> = None, |text| DEBUG_ON_FAILURE.parse(text).map(Some),
        Input::stored(
            DEBUG_ON_FAILURE.input,
            "MIN",
            "How long release keeps the machines of a failed run for people to examine, outside the \
             pool; it must be called with run-failed",
        )
        .or_described("they return to the pool")
        .in_file("machines", FileForm::Number);
    max_machines: MaxMachines = MaxMachines::default(), str::parse,
        Input::stored(
            "max-machines",
            "COUNT ...",
            r#"Most machines that may exist at once, in the pool and by class: "100 large=20""#,
        )
        .or_described("no limit")
        .in_file("max-machines", FileForm::MaxMachines);
    max_spend_per_day: Option<Money> = None, |text| spend::dollars(text).map(Some),
        Input::stored(
            "max-spend-per-day",
            "DOLLARS",
            "Most that machines may cost on a day in UTC, at list prices; needs max-machine-age-min",
        )
        .or_described("no limit")
        .in_file("machines", FileForm::Number);
    pre_runner_script: String = String::new(), |text: &str| Ok(text.to_owned()),
        Input::stored(
            "pre-runner-script",
            "SCRIPT",
            "Shell script that every machine runs once, before it registers a runner",
        )
        .in_file("image", FileForm::Text);
    rescue: Rescue, str::parse,
        Input::stored(
            "rescue",
            "ACTION",
            "Action for runs whose jobs are queued without a machine: provision, report or off",
        )
        .or("provision")
        .in_file("jobs", FileForm::Text);
    on_interruption: OnInterruption, str::parse,
        Input::stored(
            "on-interruption",
            "ACTION",
            "Action for jobs whose machine was taken away by its provider: none, or rerun, once the \
             run has completed",
        )
        .or("none")
        .in_file("jobs", FileForm::Text);
    runner_label: RunnerLabel, str::parse,
        Input::stored(
            "runner-label",
            "LABEL",
            "Label that runners register with: run, the id of the run that has claimed the machine, or \
             machine, a label of the machine's own, under which it is online while it is idle, for about \
             90 MB of memory",
        )
        .or("run")
        .in_file("jobs", FileForm::Text);
    ; also {
        times: Times;
        /// What refresh knows about the credentials that agents register with; `None` where the
        /// forge asks for none.
        minted: Option<Minted>;
        /// The version that refresh gave these settings; `None` if it never did.
        version: Option<SettingsVersion>;
        /// Over how many keys a store should spread each of its lists; 0 if refresh has recorded
        /// nothing, which means one.
        index_shards: u32;
        /// When `max-machines` or `max-spend-per-day` was set, both having been unset before; `None`
        /// while they are.
        ceiling_since: Option<Timestamp>;
        /// When `max-spend-per-day` was set, having been unset before; `None` while it is unset.
        spend_since: Option<Timestamp>;
        /// How long 95 of 100 recent registrations took at most, as refresh has seen it; `None` while
        /// it has seen too few.
        registration_p95: Option<Duration>;
        /// How long 95 of 100 machines that were registered while they were idle took at most to serve the
        /// run that claimed them; `None` while refresh has seen too few.
        ready_p95: Option<Duration>;
        /// The machines that were taken away from runs whose jobs may have to be re-run.
        interrupted: BTreeMap<InstanceId, Interruption>;
        /// Where the last refresh stopped asking the forge about runs.
        runs_marker: RunsMarker;
        /// Since when a teardown has closed the pool: nothing is claimed, launched or set up. `None`
        /// while it is open.
        closed: Option<Timestamp>;
        /// When refresh has last checked everything that the settings need, which it does once in
        /// [`CHECKED_EVERY`]. `None` if it has failed since, or never has.
        checked: Option<Timestamp>;
        /// The settings of the adapters, by the names of their inputs.
        backend: BTreeMap<String, String>;
    }
}

/// Whether machines serve more than one run. A call of provision may be stricter than the setting.
pub const REUSE: Input = Input::stored(
    "reuse",
    "WHEN",
    "Whether a machine may serve more than one run: always or never; provision can only be stricter",
)
.of_modes(&[Mode::Refresh, Mode::Provision])
.or("always")
.in_file("machines", FileForm::Text);

/// How the age is read. It is no deadline of a state, and has no default.
const AGE: TimeSpec =
    TimeSpec { input: "max-machine-age-min", unit: Unit::Minutes, may_be_zero: false };

/// How long machines are preserved. It has no default, since that is off.
const DEBUG_ON_FAILURE: TimeSpec =
    TimeSpec { input: "debug-on-failure-min", unit: Unit::Minutes, may_be_zero: false };

fn positive(text: &str) -> Result<Option<u32>, String> {
    let number = text.trim().parse::<u32>().ok().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| format!("is not a whole number above 0: {}", quoted(text)))
}

/// What refresh does for runs whose jobs are queued for their own label while no machine has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rescue {
    /// Provisions for them again.
    #[default]
    Provision,
    /// Reports them as warnings.
    Report,
    /// Does not ask the forge for them.
    Off,
}

/// What refresh does about jobs whose machine was taken away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnInterruption {
    /// The jobs stay failed.
    #[default]
    None,
    /// Re-runs them once, after their run has completed.
    Rerun,
}

/// Where a refresh stopped asking the forge about runs, because it may send only so many requests.
/// The next one continues there, so that each run has its turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunsMarker {
    /// How many refreshes have seen only a part of the open runs.
    pub turn: u64,
    /// The run that was examined last; `None` if all were.
    pub after: Option<RunId>,
}

impl RunsMarker {
    fn parse(text: &str) -> RunsMarker {
        let (turn, after) = text.split_once(' ').unwrap_or((text, ""));
        RunsMarker { turn: turn.parse().unwrap_or_default(), after: RunId::new(after).ok() }
    }

    /// The text that is stored.
    pub(crate) fn text(&self) -> String {
        let after = self.after.as_ref().map_or("", RunId::as_str);
        format!("{} {after}", self.turn)
    }
}

/// The configured resource classes and their sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes(BTreeMap<ResourceClass, ClassSize>);

/// The name under which refresh records the credentials that it requested. Not an input.
pub(crate) const MINTED: &str = "credentials-minted";
/// The name under which refresh records its version. Its presence means that refresh has run. Not
/// an input.
pub(crate) const SET_UP_BY: &str = "set-up-by";

/// The name under which refresh records when it has last checked everything that the settings need.
/// A refresh that has failed removes it. Not an input.
pub(crate) const CHECKED: &str = "set-up-checked";

/// How often refresh checks everything that the settings need, if nothing has changed.
pub const CHECKED_EVERY: Duration = Duration::from_secs(3_600);

/// The name under which compute records what precedes a machine's id in the identity that its
/// provider vouches for. Stores whose access rules go by that identity keep what an agent writes
/// under it. Not an input.
pub const AGENT_KEY_PREFIX: &str = "agent-key-prefix";
/// The name under which refresh records over how many keys a store should spread each of its lists.
/// It only grows. Not an input.
pub const INDEX_SHARDS: &str = "index-shards";

/// The name under which refresh records since when there is a ceiling. Not an input.
pub(crate) const CEILING_SINCE: &str = "ceiling-since";
/// The name under which refresh records since when there is a cap on what machines may cost. Not an
/// input.
pub(crate) const SPEND_SINCE: &str = "spend-since";
/// The name under which refresh records how long registrations take. Not an input.
pub const REGISTRATION_P95: &str = "registration-p95-ms";
/// The name under which refresh records how long the claim of a registered machine takes. Not an input.
pub(crate) const READY_P95: &str = "ready-claim-p95-ms";

/// The name under which refresh records where it stopped asking about runs. Not an input.
pub(crate) const RUNS_MARKER: &str = "runs-marker";

/// The name under which refresh records what operators were told. Not an input.
pub(crate) const NOTICES: &str = "notices-told";

/// The name under which `ondeck apply` stores the configuration that refresh is to enforce. Not an
/// input.
pub const APPLIED_CONFIG: &str = "applied-config";
/// The name under which refresh records the digest of the configuration whose settings are stored. Not
/// an input.
pub const ENFORCED_CONFIG: &str = "enforced-config";

/// Whether refresh has stored any settings. An applied configuration alone makes no pool.
pub fn is_set_up(map: &BTreeMap<String, String>) -> bool {
    map.keys().any(|name| name != APPLIED_CONFIG)
}
/// The name under which teardown records that it has closed the pool. Not an input.
pub(crate) const CLOSED: &str = "closed-at";

/// What precedes the id of a machine in the name under which refresh records that it was taken away
/// from a run. Each machine has a name of its own, so that two refreshes at once lose no record of
/// each other. Not an input.
const INTERRUPTED_MACHINE: &str = "interrupted-machine-";

/// Refresh has seen that a machine was taken away from a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interruption {
    pub run: RunId,
    /// When refresh saw it first.
    pub at: Timestamp,
}

impl Interruption {
    /// The change that records this about a machine.
    pub(crate) fn note(&self, machine: &InstanceId) -> (String, String) {
        (format!("{INTERRUPTED_MACHINE}{machine}"), format!("{} {}", self.run, self.at))
    }

    /// The change that removes what is recorded about a machine.
    pub(crate) fn forget(machine: &InstanceId) -> (String, String) {
        (format!("{INTERRUPTED_MACHINE}{machine}"), String::new())
    }

    /// Reads a stored setting; `None` if it is none of these, or malformed.
    fn read(name: &str, value: &str) -> Option<(InstanceId, Interruption)> {
        let machine = InstanceId::new(name.strip_prefix(INTERRUPTED_MACHINE)?).ok()?;
        let (run, at) = value.split_once(' ')?;
        let (run, at) = (RunId::new(run).ok()?, Timestamp::parse(at).ok()?);
        Some((machine, Interruption { run, at }))
    }
}

/// The name under which refresh records the version of the settings. Not an input.
pub(crate) const VERSION: &str = "settings-version";
/// The names that refresh writes for the control plane. They do not count for the version, since no
/// agent goes by them and some change with every refresh.
const UNVERSIONED: [&str; 14] = [
    VERSION,
    MINTED,
    SET_UP_BY,
    CHECKED,
    INDEX_SHARDS,
    REGISTRATION_P95,
    READY_P95,
    CEILING_SINCE,
    SPEND_SINCE,
    RUNS_MARKER,
    NOTICES,
    APPLIED_CONFIG,
    ENFORCED_CONFIG,
    CLOSED,
];

/// The version that refresh gave to stored settings; `None` if they name none.
pub fn version_of(map: &BTreeMap<String, String>) -> Option<SettingsVersion> {
    map.get(VERSION).and_then(|text| SettingsVersion::parse(text))
}

/// Differs between any two sets of settings that an agent could tell apart. It travels with each
/// record, so that an agent reads the settings again only if they have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsVersion(String);

impl SettingsVersion {
    /// The version of stored settings: a digest of their names and values.
    pub fn of(map: &BTreeMap<String, String>) -> SettingsVersion {
        let counted = map.iter().filter(|(name, _)| {
            !UNVERSIONED.contains(&name.as_str()) && !name.starts_with(INTERRUPTED_MACHINE)
        });
        // FNV-1a with 64 bits. The byte that no UTF-8 contains keeps neighbouring texts apart.
        let texts = counted.flat_map(|(name, value)| [name, value]);
        let bytes = texts.flat_map(|text| text.bytes().chain([0xff]));
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        SettingsVersion(format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325, step)))
    }

    /// Reads what a store keeps. An empty text is no version.
    pub fn parse(text: &str) -> Option<SettingsVersion> {
        (!text.is_empty()).then(|| SettingsVersion(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A stored setting that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct InvalidSetting {
    pub name: String,
    /// Worded to follow the name.
    pub problem: String,
}

impl Settings {
    /// Fails if a teardown has closed the pool.
    pub fn check_open(&self) -> Result<(), Failure> {
        let Some(at) = self.closed else { return Ok(()) };
        let message = format!("the pool is closed by ondeck teardown, since {at}");
        Err(Failure::new(FailureKind::Closed, message)
            .hint("ondeck teardown --cancel opens it again"))
    }

    /// Reads what the store holds. A setting that is missing has its default. A name that is
    /// neither core's nor recorded by refresh belongs to an adapter and is kept for it. Fails with
    /// the first setting that cannot be parsed.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Settings, InvalidSetting> {
        let mut settings = Settings::default();
        for (name, value) in map {
            let invalid = |problem| InvalidSetting { name: name.clone(), problem };
            if let Some(time) = TIMES.iter().find(|time| time.input == name) {
                settings.times.set(name, time.parse(value).map_err(invalid)?);
                continue;
            }
            if settings.set_input(name, value).map_err(invalid)? {
                continue;
            }
            match name.as_str() {
                // Refresh wrote it, so the operator cannot correct it: refresh requests new
                // credentials instead.
                MINTED => settings.minted = serde_json::from_str(value).ok(),
                VERSION => settings.version = SettingsVersion::parse(value),
                // As with the credentials, refresh corrects it.
                INDEX_SHARDS => settings.index_shards = value.parse().unwrap_or_default(),
                CHECKED => settings.checked = Timestamp::parse(value).ok(),
                SPEND_SINCE => settings.spend_since = Timestamp::parse(value).ok(),
                CEILING_SINCE => settings.ceiling_since = Timestamp::parse(value).ok(),
                REGISTRATION_P95 => {
                    settings.registration_p95 = value.parse().ok().map(Duration::from_millis);
                }
                READY_P95 => {
                    settings.ready_p95 = value.parse().ok().map(Duration::from_millis);
                }
                RUNS_MARKER => settings.runs_marker = RunsMarker::parse(value),
                // A time that cannot be read closes the pool as well.
                CLOSED => {
                    let at = Timestamp::parse(value).unwrap_or(Timestamp::from_millis(0));
                    settings.closed = Some(at);
                }
                SET_UP_BY | AGENT_KEY_PREFIX | APPLIED_CONFIG | ENFORCED_CONFIG | NOTICES => {}
                _ if name.starts_with(INTERRUPTED_MACHINE) => {
                    settings.interrupted.extend(Interruption::read(name, value));
                }
                _ => {
                    settings.backend.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(settings)
    }
}

impl std::str::FromStr for OnInterruption {
    type Err = String;

    fn from_str(text: &str) -> Result<OnInterruption, String> {
        match text.trim() {
            "none" => Ok(OnInterruption::None),
            "rerun" => Ok(OnInterruption::Rerun),
            _ => Err(format!("is none of none, rerun: {}", quoted(text))),
        }
    }
}

impl std::str::FromStr for Rescue {
    type Err = String;

    fn from_str(text: &str) -> Result<Rescue, String> {
        match text.trim() {
            "provision" => Ok(Rescue::Provision),
            "report" => Ok(Rescue::Report),
            "off" => Ok(Rescue::Off),
            _ => Err(format!("is none of provision, report, off: {}", quoted(text))),
        }
    }
}

impl Classes {
    /// Reads `{"large":{"cpu":2,"mem":4096}, …}`. Fails if the text names no class, or gives one
    /// no processor or no memory.
    pub fn from_json(text: &str) -> Result<Classes, String> {
        let classes: BTreeMap<ResourceClass, ClassSize> = serde_json::from_str(text)
            .map_err(|e| format!("is not a map of classes: {}", one_line(&e)))?;
        if classes.is_empty() {
            return Err("names no class".to_owned());
        }
        match classes.iter().find(|(_, size)| size.cpu == 0 || size.mem == 0) {
            Some((name, _)) => Err(format!("gives a class no cpu or no memory: {name}")),
            None => Ok(Classes(classes)),
        }
    }

    /// The size of a class; `None` if the class is not configured.
    pub fn get(&self, class: &ResourceClass) -> Option<ClassSize> {
        self.0.get(class).copied()
    }

    /// The names of the configured classes, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &ResourceClass> {
        self.0.keys()
    }

    /// The names on one line, smallest class first, for hints.
    pub fn listing(&self) -> String {
        let mut classes: Vec<_> = self.0.iter().collect();
        classes.sort_by_key(|(_, size)| (size.cpu, size.mem));
        classes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Default for Classes {
    fn default() -> Classes {
        const SIZES: [(&str, u32, u32); 7] = [
            ("large", 2, 4096),
            ("xlarge", 4, 8192),
            ("2xlarge", 8, 16384),
            ("4xlarge", 16, 32768),
            ("8xlarge", 32, 65536),
            ("12xlarge", 48, 98304),
            ("16xlarge", 64, 131_072),
        ];
        let entry = |(name, cpu, mem)| {
            let name = ResourceClass::new(name).expect("the names above are valid");
            (name, ClassSize { cpu, mem })
        };
        Classes(SIZES.into_iter().map(entry).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::InputDefault;

    const CLASSES: &str = "resource-class-config";
    const MIN_IDLE: &str = "min-idle";
    const SCRIPT: &str = "pre-runner-script";
    const RESCUE: &str = "rescue";

    #[test]
    fn settings_are_read_by_name_and_unknown_ones_are_kept_for_the_adapters() {
        let map = BTreeMap::from(
            [
                ("idle-time-sec", "1.234"),
                ("max-runtime-min", "0.5"),
                (CLASSES, r#"{"tiny":{"cpu":1,"mmem":512}}"#),
                (MIN_IDLE, "tiny=3"),
                (SCRIPT, "echo hello\n"),
                (RESCUE, "report"),
                (MINTED, "of another version"),
                (SET_UP_BY, "0.1.0"),
                (APPLIED_CONFIG, "{}"),
                (ENFORCED_CONFIG, "d1"),
                ("local-capacity", "4"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let settings = Settings::from_map(&map).unwrap();
        assert_eq!(settings.times.idle_time, Duration::from_millis(1_234));
        assert_eq!(settings.times.max_runtime, Duration::from_secs(30));
        assert_eq!(settings.times.claim_timeout, Times::default().claim_timeout);
        assert_eq!(settings.classes.listing(), "tiny");
        let minimum: Vec<_> = settings.min_idle.iter().map(|(c, n)| (c.as_str(), n)).collect();
        assert_eq!(minimum, [("tiny", 3)]);
        assert_eq!(settings.pre_runner_script, "echo hello\n");
        assert_eq!((settings.rescue, settings.minted), (Rescue::Report, None));
        assert_eq!(settings.backend, BTreeMap::from([("local-capacity".into(), "4".into())]));
        assert_eq!(Settings::from_map(&BTreeMap::new()).unwrap(), Settings::default());
        let tiny = ResourceClass::new("tiny").unwrap();
        assert_eq!(settings.classes.get(&tiny), Some(ClassSize { cpu: 1, mem: 512 }));
    }

    #[test]
    fn the_version_changes_with_what_agents_go_by() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let version = |pairs| SettingsVersion::of(&map(pairs));
        let base = version(&[("a", "1"), ("b", "2")]);
        for other in [&[("a", "1")][..], &[("a", "1b"), ("", "2")], &[("a", "1"), ("b", "3")]] {
            assert_ne!(version(other), base, "{other:?}");
        }
        for name in UNVERSIONED {
            let with = SettingsVersion::of(&map(&[("a", "1"), ("b", "2"), (name, "x")]));
            assert_eq!(with, base, "{name}");
        }
        let read = Settings::from_map(&map(&[(VERSION, base.as_str())])).unwrap();
        assert_eq!(read.version, Some(base));
    }

    #[test]
    fn an_applied_configuration_alone_makes_no_pool() {
        let map = |names: &[&str]| -> BTreeMap<String, String> {
            names.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect()
        };
        assert!(!is_set_up(&map(&[])) && !is_set_up(&map(&[APPLIED_CONFIG])));
        assert!(is_set_up(&map(&[APPLIED_CONFIG, SET_UP_BY])) && is_set_up(&map(&["rescue"])));
    }

    #[test]
    fn an_interruption_is_read_as_it_was_noted_and_changes_no_version() {
        let machine = InstanceId::new("i-1").unwrap();
        let run = RunId::new("7").unwrap();
        let noted = Interruption { run, at: Timestamp::from_millis(5_000) };
        let other = InstanceId::new("i-2").unwrap();
        let map = BTreeMap::from([noted.note(&machine), noted.note(&other)]);
        assert_eq!(
            map.len(),
            2,
            "a write about one machine of a run leaves the other's note alone"
        );
        let settings = Settings::from_map(&map).unwrap();
        let both = [&machine, &other].map(|machine| (machine.clone(), noted.clone()));
        assert_eq!(settings.interrupted, BTreeMap::from(both));
        assert!(settings.backend.is_empty());
        assert_eq!(SettingsVersion::of(&map), SettingsVersion::of(&BTreeMap::new()));
        let (name, value) = Interruption::forget(&machine);
        assert_eq!((&name, value.as_str()), (&noted.note(&machine).0, ""));
        for malformed in ["", "7", "7 soon", "a b c"] {
            let map = BTreeMap::from([(name.clone(), malformed.to_owned())]);
            assert!(Settings::from_map(&map).unwrap().interrupted.is_empty(), "{malformed}");
        }
    }

    #[test]
    fn an_error_names_the_setting() {
        for (name, value, problem) in [
            ("idle-time-sec", "soon", "not a number"),
            (CLASSES, "{", "not a map of classes"),
            (CLASSES, "{}", "names no class"),
            (CLASSES, r#"{"a b":{"cpu":1,"mem":1}}"#, "resource class may hold"),
            (CLASSES, r#"{"none":{"cpu":0,"mem":1}}"#, "no cpu or no memory: none"),
            (RESCUE, "always", "none of provision, report, off"),
            ("max-machines", "large=many", "COUNT or CLASS=COUNT"),
            (MIN_IDLE, "large", "CLASS=COUNT"),
            (MIN_IDLE, "large=many", "has no count"),
            (MIN_IDLE, "large=1001", "more than 1000"),
        ] {
            let map = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let error = Settings::from_map(&map).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn the_described_default_sizes_are_those_of_the_code() {
        let classes = Classes::default();
        let sizes: Vec<String> = classes
            .listing()
            .split(", ")
            .map(|name| {
                let size = classes.get(&ResourceClass::new(name).unwrap()).unwrap();
                format!("{name} {}/{}", size.cpu, size.mem)
            })
            .collect();
        let row = INPUTS.iter().find(|row| row.name == CLASSES).unwrap();
        let InputDefault::Described(described) = row.default else { panic!("{row:?}") };
        assert_eq!(described, sizes.join(", "));
    }

    #[test]
    fn classes_are_listed_by_size() {
        let listing = Classes::default().listing();
        assert_eq!(listing, "large, xlarge, 2xlarge, 4xlarge, 8xlarge, 12xlarge, 16xlarge");
    }
}
