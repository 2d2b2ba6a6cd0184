use std::collections::BTreeSet;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Note,
    /// Runs will fail, or money is wasted.
    Warning,
    /// Runs fail now.
    Error,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// What a finding or a check is about, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    Access,
    SetUp,
    Settings,
    Launches,
    Network,
    Forge,
    Machines,
    Computer,
}

impl Area {
    pub const ALL: [Area; 8] = [
        Area::Access,
        Area::SetUp,
        Area::Settings,
        Area::Launches,
        Area::Network,
        Area::Forge,
        Area::Machines,
        Area::Computer,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Area::Access => "access",
            Area::SetUp => "set-up",
            Area::Settings => "settings",
            Area::Launches => "launches",
            Area::Network => "network",
            Area::Forge => "forge",
            Area::Machines => "machines",
            Area::Computer => "computer",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub severity: Severity,
    /// Lowercase, no full stop.
    pub what: String,
    /// A command, or what to change.
    pub fix: String,
    /// The ids of machines, subnets and other resources that it is about. Empty if it is about the pool.
    pub about: Vec<String>,
}

impl Finding {
    pub(super) fn new(
        kind: FindingKind,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        let severity = kind.severity();
        Finding { kind, severity, what: what.into(), fix: fix.into(), about: Vec::new() }
    }

    /// There is no pool, in the words of a failure.
    pub fn not_set_up(what: String) -> Finding {
        Finding::new(FindingKind::NotSetUp, what, "ondeck refresh")
    }

    /// The pool cannot be reached, in the words of a failure.
    pub fn store_unreachable(what: String, fix: String) -> Finding {
        Finding::new(FindingKind::StoreUnreachable, what, fix)
    }

    #[must_use]
    pub(super) fn about<T: ToString>(mut self, ids: impl IntoIterator<Item = T>) -> Finding {
        self.about = ids.into_iter().map(|id| id.to_string()).collect();
        self
    }

    #[must_use]
    pub(super) fn with(mut self, severity: Severity) -> Finding {
        self.severity = severity;
        self
    }
}

/// A check that could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchecked {
    pub area: Area,
    pub what: String,
    /// A permission, a credential, or a service that answers.
    pub needs: String,
}

/// All that one examination came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The caller, as the provider knows it.
    pub caller: Option<String>,
    /// Sorted by severity, errors first.
    pub findings: Vec<Finding>,
    /// What was checked, in order.
    pub checked: Vec<(Area, &'static str)>,
    pub unchecked: Vec<Unchecked>,
}

impl Findings {
    /// The worst severity; `None` if nothing was found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// An examination that ended with this finding, because the rest depends on it.
    pub fn only(finding: Finding) -> Findings {
        Findings { findings: vec![finding], ..Findings::default() }
    }

    pub(super) fn check(&mut self, area: Area, what: &'static str) {
        if !self.checked.contains(&(area, what)) {
            self.checked.push((area, what));
        }
    }

    pub(super) fn skip(&mut self, area: Area, what: &str, needs: &str) {
        let (what, needs) = (what.to_owned(), needs.to_owned());
        self.unchecked.push(Unchecked { area, what, needs });
    }

    pub(super) fn add(&mut self, found: impl IntoIterator<Item = Finding>) {
        self.findings.extend(found);
    }

    /// Puts each consequence into its cause, and the worst findings first.
    pub(super) fn concluded(mut self) -> Findings {
        let kinds: BTreeSet<FindingKind> = self.findings.iter().map(|it| it.kind).collect();
        for (cause, consequences) in CAUSES {
            if kinds.contains(cause) {
                self.fold(*cause, consequences);
            }
        }
        self.findings.sort_by_key(|it| (std::cmp::Reverse(it.severity), it.kind.area(), it.kind));
        self
    }

    fn fold(&mut self, cause: FindingKind, consequences: &[FindingKind]) {
        let is_one = |it: &Finding| consequences.contains(&it.kind);
        let (folded, kept): (Vec<_>, Vec<_>) = self.findings.drain(..).partition(is_one);
        self.findings = kept;
        let Some(cause) = self.findings.iter_mut().find(|it| it.kind == cause) else {
            // It is itself a consequence of an earlier cause.
            return self.findings.extend(folded);
        };
        for one in folded {
            cause.severity = cause.severity.max(one.severity);
            cause.what = format!("{}; {}", cause.what, one.what);
            cause.about.extend(one.about);
        }
    }
}

macro_rules! kinds {
    ($($kind:ident, $id:literal, $severity:ident, $area:ident, $why:literal;)*) => {
        /// What can be found.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FindingKind {
            $($kind,)*
        }

        impl FindingKind {
            pub const ALL: &[FindingKind] = &[$(FindingKind::$kind,)*];

            /// The id in reports and in the documentation.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(FindingKind::$kind => $id,)*
                }
            }

            pub fn area(self) -> Area {
                match self {
                    $(FindingKind::$kind => Area::$area,)*
                }
            }

            pub fn why(self) -> &'static str {
                match self {
                    $(FindingKind::$kind => $why,)*
                }
            }

            /// How bad it usually is.
            fn severity(self) -> Severity {
                match self {
                    $(FindingKind::$kind => Severity::$severity,)*
                }
            }
        }
    };
}

kinds! {
    Credentials, "credentials", Error, Access,
        "without accepted credentials no command reaches the pool";
    StoreRefused, "store-refused", Error, Access,
        "these credentials cannot read the pool, so nothing else can be checked";
    StoreUnreachable, "store-unreachable", Error, Access,
        "every mode reads the store first";
    Permissions, "permissions", Warning, Access,
        "commands of operators fail, and some of these checks cannot be made";
    NotSetUp, "not-set-up", Error, SetUp,
        "provision and release exit with code 3 until refresh has run";
    PoolClosed, "pool-closed", Error, SetUp,
        "a closed pool claims and launches nothing";
    QueueMissing, "queue-missing", Error, SetUp,
        "runs of the class find no idle machine, and released machines are not announced";
    TemplateMissing, "template-missing", Error, SetUp,
        "no machine can be launched";
    RefreshFailed, "refresh-failed", Warning, SetUp,
        "while refresh fails, nothing is repaired and registration tokens expire";
    RefreshOverdue, "refresh-overdue", Warning, SetUp,
        "without refresh, expired machines cost money and registration tokens expire";
    ConfigNotEnforced, "config-not-enforced", Warning, SetUp,
        "the pool goes by other settings than the applied file states";
    SettingsUnreadable, "settings-unreadable", Error, Settings,
        "every mode refuses to work with a setting that it cannot read";
    SettingsContradict, "settings-contradict", Warning, Settings,
        "settings that exclude each other make runs fail or have no effect";
    SettingsIncomplete, "settings-incomplete", Error, Settings,
        "machines cannot be launched with these settings";
    AgentMissing, "agent-missing", Error, Launches,
        "machines boot, do nothing, and are terminated";
    ImageMissing, "image-missing", Error, Launches,
        "no machine can be launched";
    ImageArchitecture, "image-architecture", Error, Launches,
        "machines of this image cannot run the agent";
    ImageDeprecated, "image-deprecated", Warning, Launches,
        "its publisher may remove it, and then launches fail";
    ImageOld, "image-old", Warning, Launches,
        "an old image lacks security updates and makes machines install more at boot";
    ProfileMissing, "profile-missing", Error, Launches,
        "without its role a machine can neither read its record nor terminate itself";
    QuotaTooSmall, "quota-too-small", Warning, Launches,
        "a launch that exceeds the quota fails, and its run gets no machine";
    SubnetMissing, "subnet-missing", Error, Network,
        "a launch that is tried there fails";
    SubnetsShareZone, "subnets-share-zone", Error, Network,
        "EC2 refuses a launch with two subnets of one availability zone";
    SubnetFull, "subnet-full", Warning, Network,
        "each machine needs an address";
    NoRoute, "no-route", Error, Network,
        "machines reach neither GitHub nor AWS, so they never become ready";
    NoPublicAddress, "no-public-address", Error, Network,
        "an internet gateway serves public addresses only, so machines never become ready";
    GroupMissing, "group-missing", Error, Network,
        "no machine can be launched";
    GroupElsewhere, "group-elsewhere", Error, Network,
        "EC2 refuses a launch whose subnet and security groups are of different networks";
    EgressBlocked, "egress-blocked", Error, Network,
        "machines reach neither GitHub nor AWS, so they never become ready";
    IngressOpen, "ingress-open", Warning, Network,
        "machines need no incoming connections, and jobs may start servers";
    ForgeRefused, "forge-refused", Error, Forge,
        "refresh cannot renew tokens, and machines cannot register";
    RunnerVersion, "runner-version", Error, Forge,
        "no new runner can register";
    RunnerDeadline, "runner-deadline", Warning, Forge,
        "after the deadline GitHub gives these runners no jobs";
    TokenExpired, "token-expired", Error, Forge,
        "machines cannot register, so provision exits with code 7";
    TokenOld, "token-old", Warning, Forge,
        "it should have been renewed, and expires soon";
    JobsUnserved, "jobs-unserved", Error, Forge,
        "these jobs wait until they are cancelled";
    OfflineRunners, "offline-runners", Note, Forge,
        "their machines are gone, and refresh removes them";
    RecordsUnreadable, "records-unreadable", Error, Machines,
        "no mode sees these machines, and they cost money";
    MachinesGone, "machines-gone", Warning, Machines,
        "runs may be given machines that no longer exist";
    Orphans, "orphans", Warning, Machines,
        "machines without a record serve no run and cost money";
    MachinesSilent, "machines-silent", Warning, Machines,
        "a machine whose agent is silent serves no run and costs money";
    MachinesFailed, "machines-failed", Warning, Machines,
        "these machines serve no run, and new ones may fail in the same way";
    MachinesOverdue, "machines-overdue", Warning, Machines,
        "they should have ended, and cost money";
    MachinesUnready, "machines-unready", Warning, Machines,
        "a run that claims one of them waits until it has registered";
    AtCeiling, "at-ceiling", Note, Machines,
        "further launches are refused with exit code 4";
    SpendNearCap, "spend-near-cap", Note, Machines,
        "at the cap further launches are refused with exit code 4";
    Clock, "clock", Warning, Computer,
        "by a wrong clock heartbeats look old, and tokens look expired";
    DiskFull, "disk-full", Warning, Computer,
        "the store and the machines of this computer need space";
    HomeWritable, "home-writable", Warning, Computer,
        "other users of this computer could change the pool, or what jobs run";
}

/// Findings that follow from another one, most original cause first. They are reported with it.
const CAUSES: &[(FindingKind, &[FindingKind])] = {
    use FindingKind as Kind;
    &[
        (
            Kind::ForgeRefused,
            &[Kind::RefreshFailed, Kind::TokenExpired, Kind::TokenOld, Kind::MachinesUnready],
        ),
        (Kind::RunnerVersion, &[Kind::RefreshFailed, Kind::MachinesUnready]),
        (Kind::TokenExpired, &[Kind::MachinesUnready]),
        (Kind::SettingsIncomplete, &[Kind::RefreshFailed]),
        (Kind::ImageMissing, &[Kind::RefreshFailed]),
        (Kind::ImageArchitecture, &[Kind::RefreshFailed]),
        (
            Kind::RefreshOverdue,
            &[
                Kind::RefreshFailed,
                Kind::TokenExpired,
                Kind::TokenOld,
                Kind::MachinesOverdue,
                Kind::Orphans,
                Kind::OfflineRunners,
                Kind::ConfigNotEnforced,
            ],
        ),
        (Kind::RefreshFailed, &[Kind::TokenExpired, Kind::TokenOld, Kind::ConfigNotEnforced]),
        (Kind::PoolClosed, &[Kind::TemplateMissing, Kind::QueueMissing]),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(found: &[FindingKind]) -> Vec<FindingKind> {
        let findings = found.iter().map(|kind| Finding::new(*kind, kind.as_str(), "fix"));
        let findings = Findings { findings: findings.collect(), ..Findings::default() };
        findings.concluded().findings.iter().map(|it| it.kind).collect()
    }

    #[test]
    fn ids_are_words_and_different() {
        let ids: BTreeSet<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(ids.len(), FindingKind::ALL.len());
        for kind in FindingKind::ALL {
            let id = kind.as_str();
            assert!(id.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'), "{id}");
            assert!(!kind.why().ends_with('.') && kind.why().len() < 100, "{id}");
        }
    }

    #[test]
    fn a_consequence_is_reported_with_its_cause() {
        use FindingKind::*;
        assert_eq!(kinds(&[MachinesOverdue, RefreshOverdue]), [RefreshOverdue]);
        assert_eq!(kinds(&[TokenExpired]), [TokenExpired]);
        assert_eq!(kinds(&[MachinesUnready, TokenExpired]), [TokenExpired]);
        assert_eq!(kinds(&[RefreshFailed, ImageMissing, TokenOld]), [ImageMissing, TokenOld]);
        assert_eq!(kinds(&[TokenExpired, RefreshFailed, ForgeRefused]), [ForgeRefused]);
        assert_eq!(kinds(&[OfflineRunners, Orphans, NoRoute]), [NoRoute, Orphans, OfflineRunners]);
    }

    #[test]
    fn a_cause_is_as_bad_as_its_consequences_and_says_what_they_are() {
        let expired =
            Finding::new(FindingKind::TokenExpired, "the token expired", "f").about(["t"]);
        let overdue = Finding::new(FindingKind::RefreshOverdue, "refresh is overdue", "run it");
        let findings = Findings { findings: vec![expired, overdue], ..Findings::default() };
        let [one] = &findings.concluded().findings[..] else { panic!("one finding") };
        assert_eq!(one.severity, Severity::Error);
        assert_eq!(
            (one.what.as_str(), one.fix.as_str()),
            ("refresh is overdue; the token expired", "run it")
        );
        assert_eq!(one.about, ["t"]);
    }
}
