//! The deadline that each change gives to a machine, and how long a machine may be reused.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::timestamp::Timestamp;

use super::limits::{KEPT_FOR, has_ceiling_for};
use super::{Audit, Invariant, SKEW};
use crate::kernel::Pid;
use crate::plan::{Ask, spans};

/// The least time for which refresh keeps a machine of a minimum.
pub(super) const LEAST_KEPT: Duration = Duration::from_secs(1_800);

/// Whether a machine has reached a limit of its lifetime, as far as it can be said: clocks differ,
/// the settings may change at that moment, and ages are spread over the last tenth of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsOver {
    No,
    Perhaps,
    Yes,
}

/// Whether refresh has taken the machine for an orphan, which expires at once.
pub(crate) fn is_orphan(record: &Record) -> bool {
    record.run.as_ref().is_some_and(|run| run.as_str() == "orphan")
}

impl Audit {
    /// A change was written. Its deadline must be what the settings and the call say.
    pub(super) fn deadline(
        &mut self,
        by: Pid,
        transition: Transition,
        before: Option<&Record>,
        (after, at): (&Record, Timestamp),
    ) {
        let Some(began) = self.began(by) else { return };
        // The table of transitions says what these do to it.
        use Transition::{Drain, Expire, Retire};
        let gives_none = matches!(transition, Expire | Retire | Drain);
        let Some(threshold) = after.threshold.filter(|_| !gives_none) else { return };
        let kept = before.and_then(|before| before.threshold) == Some(threshold);
        if transition == Transition::Renew && after.state == State::Idle && kept {
            return;
        }
        let is_over = before.map_or(IsOver::No, |before| self.is_over(before, began, at));
        let spans: Vec<Duration> = self
            .stored_since(began)
            .into_iter()
            .flat_map(|settings| self.spans(by, transition, before, after, settings, is_over))
            .collect();
        let given = threshold.since(at);
        if !spans.contains(&given) {
            let how = format!("{transition} of {} gives it {given:?}, not {spans:?}", after.id);
            self.violated(Invariant::Deadline, how);
        }
    }

    /// What a change may give a machine under these settings.
    fn spans(
        &self,
        by: Pid,
        transition: Transition,
        before: Option<&Record>,
        after: &Record,
        settings: &BTreeMap<String, String>,
        is_over: IsOver,
    ) -> Vec<Duration> {
        let owner = after.run.as_ref().or_else(|| before.and_then(|before| before.run.as_ref()));
        let warms_up = owner.is_some_and(|run| run.as_str().starts_with(KEPT_FOR));
        let asks: Vec<Option<&Ask>> = match (self.provisions.get(&by), owner) {
            (Some(provision), _) => vec![Some(&provision.ask)],
            // A rescue asks for what the run has asked for, and a completed run is released by the
            // settings. A write may take effect after its refresh has exited.
            (None, Some(run)) if self.all_refreshes.contains(&by) && !warms_up => {
                let asked = self.asked_by_runs.get(run).into_iter().flatten();
                asked.map(Some).chain([None]).collect()
            }
            _ => vec![None],
        };
        let time = |ask: Option<&Ask>, input: &str| {
            let stated = ask.and_then(|ask| ask.times.iter().find(|(name, _)| *name == input));
            let stated = stated.and_then(|(name, text)| spans::read(name, text));
            stated.or_else(|| spans::span(settings, input)).unwrap_or_default()
        };
        let mut allowed = Vec::new();
        for ask in asks {
            let idle = time(ask, "idle-time-sec");
            // A provision may have to wait for room, with what it has. Refresh and release do not wait.
            let has_ceiling = settings
                .get("max-machines")
                .is_some_and(|text| has_ceiling_for(text, after.spec.resource_class.as_str()));
            let waits = match has_ceiling && self.provisions.contains_key(&by) {
                true => time(ask, "ceiling-patience-sec"),
                false => Duration::ZERO,
            };
            match transition {
                Transition::Register if is_orphan(after) => allowed.push(Duration::ZERO),
                Transition::Register => allowed.push(time(ask, "created-timeout-sec") + waits),
                Transition::Claim => allowed.push(time(ask, "claim-timeout-sec") + waits),
                Transition::Activate | Transition::Commit if warms_up => {
                    allowed.push(time(None, "release-timeout-sec") * 2);
                }
                Transition::Activate | Transition::Commit => {
                    allowed.push(time(ask, "max-runtime-min"));
                }
                Transition::GiveBack => {
                    allowed.push(time(ask, "release-timeout-sec") + idle);
                }
                Transition::Renew if after.state == State::Idle => {
                    allowed.push(time(None, "idle-time-sec").max(LEAST_KEPT));
                }
                Transition::Renew => allowed.push(time(ask, "max-runtime-min")),
                Transition::Preserve => allowed.push(time(None, "debug-on-failure-min")),
                Transition::Release if warms_up => {
                    allowed.push(time(None, "idle-time-sec").max(LEAST_KEPT));
                    // The warming up failed after the machines were committed.
                    allowed.push(idle);
                }
                // A provision that takes back what it committed does not look at the lifetime.
                Transition::Release if self.provisions.contains_key(&by) => allowed.push(idle),
                Transition::Release => {
                    if is_over != IsOver::Yes {
                        allowed.push(idle);
                    }
                    if is_over != IsOver::No {
                        allowed.push(Duration::ZERO);
                    }
                }
                Transition::Retire | Transition::Drain | Transition::Expire | Transition::Reap => {}
            }
        }
        allowed
    }

    /// Whether a machine has reached a limit by the settings that were in force since `began`.
    pub(super) fn is_over(&self, record: &Record, began: Timestamp, now: Timestamp) -> IsOver {
        let settings = self.stored_since(began);
        let judged: Vec<IsOver> =
            settings.into_iter().map(|settings| self.over_by(record, settings, now)).collect();
        let all = |it: IsOver| judged.iter().all(|judged| *judged == it);
        match (all(IsOver::No), all(IsOver::Yes)) {
            (true, _) => IsOver::No,
            (_, true) => IsOver::Yes,
            _ => IsOver::Perhaps,
        }
    }
}

impl Audit {
    fn over_by(
        &self,
        record: &Record,
        settings: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> IsOver {
        let own = record.run.as_ref().is_some_and(|run| self.asks_for_own_machines(run));
        let used = record.counts.runs > 0 && (own || self.reuses_nothing());
        match over_by(record, settings, now) {
            _ if used => IsOver::Yes,
            // A release may have read the record before an operator marked it.
            IsOver::No if Audit::is_wanted_gone(record) => IsOver::Perhaps,
            // A machine that a refresh has given back to the run whose job it had.
            IsOver::No if record.reuse == Reuse::Never => IsOver::Perhaps,
            is_over => is_over,
        }
    }
}

fn over_by(record: &Record, settings: &BTreeMap<String, String>, now: Timestamp) -> IsOver {
    let runs = settings.get("max-runs-per-machine").and_then(|text| text.parse::<u32>().ok());
    if runs.is_some_and(|runs| record.counts.runs >= runs) {
        return IsOver::Yes;
    }
    let Some(age) = spans::span(settings, "max-machine-age-min") else { return IsOver::No };
    let reached = now.since(record.created_at);
    if reached >= age + SKEW {
        IsOver::Yes
    } else if reached + SKEW >= age * 9 / 10 {
        IsOver::Perhaps
    } else {
        IsOver::No
    }
}
