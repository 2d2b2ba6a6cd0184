//! What one call of provision did, as one stored item for people. No decision depends on it, so losing
//! one does no harm. Lists and texts in it are bounded, and so is its size.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::excerpt::one_line;
use crate::model::ids::{InstanceId, IntentId, RunId};
use crate::model::label::{Label, LabelSuffix};
use crate::model::readiness::ClaimWay;
use crate::model::requirements::UsageClass;
use crate::model::timestamp::Timestamp;
use crate::modes::provision::ProvisionOptions;

/// How long a summary is kept, as events are.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The most entries of each list.
pub const LONGEST_LIST: usize = 12;

/// The most characters of a text from outside, such as the reason of a provider.
const LONGEST_TEXT: usize = 160;

/// One call of provision. Spans are in milliseconds since its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionSummary {
    pub run: RunId,
    #[serde(default)]
    pub origin: CallOrigin,
    pub began: Timestamp,
    /// When the summary was made: on success just before the machines were handed over, otherwise
    /// after the clean-up.
    pub at: Timestamp,
    #[serde(default)]
    pub asked: ProvisionOptions,
    #[serde(default)]
    pub search: SearchCounts,
    #[serde(default)]
    pub candidates: Vec<CandidateNote>,
    #[serde(default)]
    pub hedges: Vec<HedgeNote>,
    #[serde(default)]
    pub launches: Vec<LaunchNote>,
    #[serde(default)]
    pub waits: Vec<WaitNote>,
    /// The machines that it held when the summary was made, the slowest first.
    #[serde(default)]
    pub machines: Vec<MachineNote>,
    #[serde(default)]
    pub phases: Phases,
    #[serde(default)]
    pub ending: CallEnding,
    /// How many entries were left out of the lists.
    #[serde(default)]
    pub omitted: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallOrigin {
    /// The run itself called provision.
    Run,
    /// Refresh, to keep machines warm.
    KeepWarm,
    /// Refresh, for a run whose jobs wait.
    Rescue,
    /// A version that this one does not know wrote it.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What the search of the pool met. Each machine counts once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SearchCounts {
    /// Whether the pool was searched at all.
    pub asked: bool,
    pub tickets: usize,
    pub claimed: usize,
    /// By the reason, in words.
    pub unsuitable: BTreeMap<String, usize>,
    pub void: usize,
    pub lost: usize,
    pub unhealthy: usize,
    pub given_back: usize,
    pub hedges: usize,
}

/// One machine of the pool that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CandidateNote {
    pub machine: InstanceId,
    pub outcome: CandidateOutcome,
    /// The reason, in words; empty if the outcome says it all.
    #[serde(default)]
    pub why: String,
    /// The run that won the race for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub winner: Option<RunId>,
    pub after_ms: u64,
}

/// What became of a machine of the pool that was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CandidateOutcome {
    /// It was claimed and is ready.
    Ready,
    /// It does not match the request.
    Unsuitable,
    /// Its ticket had expired.
    Expired,
    /// Another run had claimed it.
    Lost,
    /// It was gone, or no longer idle.
    Gone,
    /// It failed its checks and was terminated.
    Unhealthy,
    /// It did not register in time and was given back.
    Unregistered,
    /// Its agent is newer than the caller. It was given back.
    TooNew,
    /// Another machine was ready first. It was given back.
    LostToHedge,
    /// A version that this one does not know wrote it.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A second claim, because this machine was slow to register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HedgeNote {
    /// The machine that was slow to register, or to answer.
    pub machine: InstanceId,
    /// Whether it was registered when it was claimed, in a pool where that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<ClaimWay>,
    pub after_ms: u64,
}

/// One order to the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchNote {
    pub intent: IntentId,
    pub usage: UsageClass,
    /// How many machines were ordered.
    pub count: u32,
    /// How many were launched; `None` if the provider's answer is missing.
    pub launched: Option<u32>,
    /// Why there are not more, in the provider's words.
    #[serde(default)]
    pub why: String,
    pub after_ms: u64,
    pub took_ms: u64,
}

/// A time in which the call could not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitNote {
    pub cause: WaitCause,
    /// More about the cause, in words.
    #[serde(default)]
    pub why: String,
    pub after_ms: u64,
    pub took_ms: u64,
}

/// What a call waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitCause {
    /// The first refresh of the pool.
    SetUp,
    /// A refresh that renews the registration token.
    Token,
    /// Tickets that other runs held.
    Tickets,
    /// Room below the ceiling on machines.
    Room,
    /// A provider that throttled launches.
    Provider,
    /// A version that this one does not know wrote it.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One machine that the call held, and when it reached each milestone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineNote {
    pub machine: InstanceId,
    /// `warm`, `cold` or `adopted`.
    pub source: String,
    /// Of a warm one, whether it was registered when it was claimed, in a pool where that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<ClaimWay>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_ms: Option<u64>,
    pub owned_ms: u64,
    /// `None` if it was not ready when the call ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<u64>,
}

/// How long each phase took; `None` if the call did not enter it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Phases {
    /// Reading settings and the run's machines, and waiting for set-up and token.
    pub preparation_ms: Option<u64>,
    pub adoption_ms: Option<u64>,
    pub selection_ms: Option<u64>,
    pub creation_ms: Option<u64>,
    pub validation_ms: Option<u64>,
    /// After a failure.
    pub clean_up_ms: Option<u64>,
    /// From the beginning until the summary was made.
    pub total_ms: u64,
}

/// How the call ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallEnding {
    pub result: CallResult,
    /// The kind of the failure, as the JSON output has it; empty without one.
    pub kind: String,
    /// What failed; empty without a failure.
    pub message: String,
    /// How many machines the clean-up terminated.
    pub terminated: usize,
    /// How many it returned to the pool.
    pub returned: usize,
    /// How many stayed with the run, because they may have jobs.
    pub kept: usize,
    /// What could not be cleaned up, in words.
    pub unfinished: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallResult {
    /// It was about to hand its machines to the run. The events of the machines tell whether it did.
    HandingOver,
    /// It failed, and what it had done was undone as far as the summary says.
    Failed,
    /// A version that this one does not know wrote it.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ProvisionSummary {
    /// What the machines were labelled with.
    pub fn label(&self) -> Label {
        Label::new(self.run.clone(), self.asked.label_suffix.clone())
    }

    /// Tells the summaries of one run apart. A later version of the same call's summary has the same
    /// one, and replaces it.
    pub fn key(&self) -> String {
        let suffix = self.asked.label_suffix.as_ref().map_or("", LabelSuffix::as_str);
        format!("{}#{suffix}", self.began)
    }

    /// Parses a stored summary. Logs a malformed one and returns `None`.
    pub fn read(run: &RunId, text: &str) -> Option<ProvisionSummary> {
        match serde_json::from_str(text) {
            Ok(summary) => Some(summary),
            Err(error) => {
                tracing::warn!(%run, "a summary cannot be read: {}; skipped", one_line(&error));
                None
            }
        }
    }

    /// As stores keep it.
    pub fn stored(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A text from outside as a summary keeps it: on one line, and not long.
pub fn short(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut letters = text.chars().map(plain);
    let kept: String = letters.by_ref().take(LONGEST_TEXT).collect();
    if letters.next().is_some() { format!("{kept}…") } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> InstanceId {
        InstanceId::new(format!("{n:0>64}")).unwrap()
    }

    /// A summary whose lists and texts are as long as they may be.
    fn longest() -> ProvisionSummary {
        let (after_ms, took_ms, why) = (u64::MAX, u64::MAX, short(&"\u{1F980}".repeat(9_999)));
        let winner = Some(RunId::new("w".repeat(128)).unwrap());
        let outcome = CandidateOutcome::LostToHedge;
        let way = Some(ClaimWay::Registers);
        let each = |n| CandidateNote {
            machine: id(n),
            outcome,
            why: why.clone(),
            winner: winner.clone(),
            after_ms,
        };
        let launch = |n: usize| LaunchNote {
            intent: IntentId::new(format!("{n:0>64}")).unwrap(),
            usage: UsageClass::OnDemand,
            count: u32::MAX,
            launched: Some(u32::MAX),
            why: why.clone(),
            after_ms,
            took_ms,
        };
        let machine = |n| MachineNote {
            machine: id(n),
            source: "adopted".to_owned(),
            way,
            found_ms: Some(after_ms),
            owned_ms: after_ms,
            registered_ms: Some(after_ms),
            ready_ms: Some(after_ms),
        };
        ProvisionSummary {
            run: RunId::new("r".repeat(128)).unwrap(),
            origin: CallOrigin::KeepWarm,
            began: Timestamp::from_millis(u64::MAX),
            at: Timestamp::from_millis(u64::MAX),
            asked: ProvisionOptions::default(),
            search: SearchCounts::default(),
            candidates: (0..LONGEST_LIST).map(each).collect(),
            hedges: (0..LONGEST_LIST)
                .map(|n| HedgeNote { machine: id(n), way, after_ms })
                .collect(),
            launches: (0..LONGEST_LIST).map(launch).collect(),
            waits: (0..LONGEST_LIST)
                .map(|_| WaitNote { cause: WaitCause::Room, why: why.clone(), after_ms, took_ms })
                .collect(),
            machines: (0..LONGEST_LIST).map(machine).collect(),
            phases: Phases::default(),
            ending: CallEnding {
                result: CallResult::Failed,
                message: why.clone(),
                unfinished: (0..LONGEST_LIST).map(|_| why.clone()).collect(),
                ..CallEnding::default()
            },
            omitted: 9_999,
        }
    }

    /// DynamoDB refuses an item above 400 KB, and charges a unit for each KB.
    #[test]
    fn the_longest_summary_is_small() {
        let bytes = longest().stored().len();
        assert!(bytes < 48_000, "{bytes}");
        let empty = ProvisionSummary {
            candidates: Vec::new(),
            hedges: Vec::new(),
            launches: Vec::new(),
            waits: Vec::new(),
            machines: Vec::new(),
            ending: CallEnding::default(),
            ..longest()
        };
        assert!(empty.stored().len() < 1_500, "{}", empty.stored().len());
    }

    #[test]
    fn a_summary_survives_the_round_trip() {
        let summary = longest();
        assert_eq!(ProvisionSummary::read(&summary.run, &summary.stored()), Some(summary));
    }

    #[test]
    fn what_another_version_wrote_is_read_as_far_as_it_is_known() {
        let run = RunId::new("7").unwrap();
        let text = r#"{"run":"7","began":"2025-05-31T12:00:00.000Z","at":"2025-05-31T12:00:01.000Z",
            "origin":"martian","colour":"red","ending":{"result":"exploded"},
            "waits":[{"cause":"tea","afterMs":1,"tookMs":2}],
            "candidates":[{"machine":"i-1","outcome":"eaten","afterMs":3}]}"#;
        let summary = ProvisionSummary::read(&run, text).unwrap();
        assert_eq!(summary.origin, CallOrigin::Unknown);
        assert_eq!(summary.ending.result, CallResult::Unknown);
        assert_eq!(summary.waits[0].cause, WaitCause::Unknown);
        assert_eq!(summary.candidates[0].outcome, CandidateOutcome::Unknown);
        assert_eq!(ProvisionSummary::read(&run, "{"), None);
    }
}
