//! The minimum of idle machines, and the ceiling on all machines.

use std::time::Duration;

use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Machine, Order};

use super::{Audit, Invariant, SKEW};
use crate::kernel::Pid;
use crate::plan::Ask;

/// How the runs are called for which refresh launches machines to keep.
const KEPT_FOR: &str = "keep-warm-";

/// The numbers of a text such as `large=2 xlarge=1`, in which a number without a class is for the
/// whole pool.
fn numbers(text: &str) -> Vec<(Option<&str>, usize)> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let number = |word: &'_ str| word.parse().ok();
    words
        .filter_map(|word| match word.split_once('=') {
            Some((class, count)) => Some((Some(class), number(count)?)),
            None => Some((None, number(word)?)),
        })
        .collect()
}

impl Audit {
    /// When a process began.
    fn began(&self, by: Pid) -> Option<Timestamp> {
        let refresh = self.refreshes.get(&by).map(|(_, began)| *began);
        refresh.or_else(|| self.provisions.get(&by).map(|provision| provision.began))
    }

    /// Machines were launched, and `machines` exist at the provider now. Their number must be
    /// within one of the ceilings that have been in force since the process began.
    pub(crate) fn within_ceiling(&mut self, by: Pid, launched: &[Machine], machines: &[Machine]) {
        let Some(began) = self.began(by).filter(|_| !launched.is_empty()) else { return };
        let keeps = |ceiling: &String| {
            numbers(ceiling).into_iter().all(|(class, max)| {
                let counts = |machine: &&Machine| {
                    class.is_none_or(|class| machine.spec.resource_class.as_str() == class)
                };
                let exceeds = machines.iter().filter(counts).count() > max;
                !(exceeds && launched.iter().any(|machine| counts(&machine)))
            })
        };
        let ceilings = self.texts_since("max-machines", began);
        if !ceilings.iter().any(keeps) {
            let how = format!("{} machines exist, and {ceilings:?} may", machines.len());
            self.violated(Invariant::Ceiling, how);
        }
    }

    /// Whether any ceiling has been in force since then.
    pub(crate) fn has_ceiling_since(&self, time: Timestamp) -> bool {
        self.texts_since("max-machines", time).iter().any(|text| !text.is_empty())
    }

    /// All texts of a setting that have been in force since then.
    fn texts_since(&self, name: &str, time: Timestamp) -> Vec<String> {
        let first = self.stored.iter().rposition(|(from, _)| *from <= time).unwrap_or_default();
        let texts = self.stored[first..].iter();
        texts.map(|(_, all)| all.get(name).cloned().unwrap_or_default()).collect()
    }

    /// Refresh launches machines to keep: not more than are missing.
    pub(super) fn launches_to_keep(&mut self, by: Pid, order: &Order, now: Timestamp) {
        let Some(began) = self.began(by).filter(|_| self.is_steady) else { return };
        if !order.run.as_str().starts_with(KEPT_FOR) || self.refreshes.len() > 1 {
            return;
        }
        let class = &order.requirements.class;
        let idle = self.idle(class, began, now).len();
        let minima = self.texts_since("min-idle", began);
        let of_class = |text: &String| {
            let numbers = numbers(text);
            let found = numbers.iter().find(|(name, _)| *name == Some(class.as_str()));
            found.map_or(0, |(_, minimum)| *minimum)
        };
        let minimum = minima.iter().map(of_class).max().unwrap_or(0);
        if idle + order.count as usize > minimum {
            let how = format!("{} are launched beside {idle}, for {minimum}", order.count);
            self.violated(Invariant::MinimumKept, how);
        }
    }

    /// A refresh without faults has ended. As many machines as the minimum says must be idle, and
    /// have at least half of their time left, unless a run has claimed one meanwhile.
    pub(crate) fn refresh_keeps(&mut self, by: Pid, now: Timestamp) {
        let Some((_, began)) = self.refreshes.remove(&by).filter(|_| self.is_steady) else {
            return;
        };
        let claimed = self.last_claim.is_some_and(|claim| claim + SKEW > began);
        let others = !self.refreshes.is_empty();
        if claimed || others || self.has_ceiling_since(began) {
            return;
        }
        let Some(settings) = self.settings_since(began).first().map(|s| (*s).clone()) else {
            return;
        };
        let texts = self.texts_since("min-idle", began);
        let (Some(text), 1) = (texts.first(), texts.len()) else { return };
        for (class, minimum) in numbers(text) {
            let Some(class) = class.and_then(|class| ResourceClass::new(class).ok()) else {
                continue;
            };
            let kept =
                self.idle(&class, began, now).into_iter().filter(|it| is_kept(it, &settings, now));
            let kept = kept.count();
            if kept < minimum {
                let how = format!("{kept} of {minimum} {class} machines will stay");
                self.violated(Invariant::MinimumKept, how);
            }
        }
    }

    /// The announced machines that count for a minimum of this class: on demand, of any recommended
    /// type, and large enough.
    fn idle(&self, class: &ResourceClass, began: Timestamp, now: Timestamp) -> Vec<&Record> {
        let any = Ask::of(1);
        let is_idle = |record: &&Record| {
            record.state == State::Idle
                && record.spec.resource_class == *class
                && record.spec.usage_class == UsageClass::OnDemand
                && any.allows(&record.spec.instance_type)
                && self.was_large_enough(record, began)
                && !record.is_expired(now + SKEW)
                && self.has_ticket(record, now)
        };
        self.records.values().filter(is_idle).collect()
    }
}

/// Whether less than half of the time of an idle machine is over.
fn is_kept(record: &Record, settings: &Settings, now: Timestamp) -> bool {
    let left = record.threshold.map_or(Duration::ZERO, |threshold| threshold.since(now));
    let idle_time = settings.times.idle_time;
    left + SKEW >= idle_time / 2
}
