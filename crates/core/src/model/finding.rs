//! What a refresh finds that an operator should hear of.

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::model::excerpt::one_line;
use crate::model::timestamp::Timestamp;

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Jobs of a run wait, and the run cannot be given machines. The subject is the label.
    StrandedRun,
    /// A machine of a run sends no heartbeats. The subject is the machine.
    DeadMachine,
    /// The agent of a machine cannot serve the machine's run. The subject is the machine.
    FailingMachine,
    /// The forge will not serve the configured version of the runner for long, or serves it no longer.
    RunnerDeadline,
    /// What machines cost is near the cap. The subject is the day.
    SpendNearCap,
}

impl FindingKind {
    pub const ALL: [FindingKind; 5] = [
        FindingKind::StrandedRun,
        FindingKind::DeadMachine,
        FindingKind::FailingMachine,
        FindingKind::RunnerDeadline,
        FindingKind::SpendNearCap,
    ];

    /// The name for programs, in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            FindingKind::StrandedRun => "stranded-run",
            FindingKind::DeadMachine => "dead-machine",
            FindingKind::FailingMachine => "failing-machine",
            FindingKind::RunnerDeadline => "runner-deadline",
            FindingKind::SpendNearCap => "spend-near-cap",
        }
    }

    /// What holds once a finding of this kind has ended.
    pub(crate) fn ended(self, subject: &str) -> String {
        match self {
            FindingKind::StrandedRun => format!("no jobs wait for run {subject} any more"),
            FindingKind::DeadMachine => {
                format!("machine {subject} is terminated, or sends heartbeats again")
            }
            FindingKind::FailingMachine => {
                format!("machine {subject} is terminated, or serves its run again")
            }
            FindingKind::RunnerDeadline => "the runner's version has no near deadline".to_owned(),
            FindingKind::SpendNearCap => format!("the spend of {subject} is not near its cap"),
        }
    }
}

/// Something that an operator should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// Tells findings of one kind apart. It is the same in each refresh while the finding lasts, and
    /// has no blanks. May be empty.
    pub subject: String,
    /// One sentence for people, on one line.
    pub text: String,
}

/// The findings of one refresh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    found: Vec<Finding>,
    complete: BTreeSet<FindingKind>,
}

impl Findings {
    pub fn add(&mut self, kind: FindingKind, subject: &dyn Display, text: &dyn Display) {
        let finding = Finding { kind, subject: subject.to_string(), text: one_line(text) };
        self.found.push(finding);
    }

    /// Notes that every finding of this kind that there is has been added, so that one that was not
    /// has ended.
    pub fn complete(&mut self, kind: FindingKind) {
        self.complete.insert(kind);
    }

    pub fn is_complete(&self, kind: FindingKind) -> bool {
        self.complete.contains(&kind)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.found.iter()
    }
}

/// What operators are told at a time: at least one item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notice {
    /// Findings that they have not been told of.
    pub new: Vec<NoticeItem>,
    /// Findings that they were told of a while ago, and that last.
    pub lasting: Vec<NoticeItem>,
    /// Findings that they were told of, and that have ended.
    pub resolved: Vec<NoticeItem>,
}

/// One finding in a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeItem {
    /// What was found; for a finding that has ended, with a text that says so.
    pub finding: Finding,
    /// When it was found first.
    pub since: Timestamp,
}

impl Notice {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many findings it tells of.
    pub fn len(&self) -> usize {
        self.new.len() + self.lasting.len() + self.resolved.len()
    }
}
