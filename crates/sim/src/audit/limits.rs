//! The minimum of idle machines, and the ceiling on all machines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::model::ceiling::MachineCount;
use ondeck_core::model::ids::{ResourceClass, RunId};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::refresh;
use ondeck_core::ports::{Machine, Order};

use super::deadlines::{IsOver, LEAST_KEPT};
use super::{Audit, IN_FLIGHT, Invariant, SKEW};
use crate::kernel::{Pid, digest};
use crate::plan::{Ask, Kept, kept, spans};

/// How long a provision may take until it has launched its machines.
const UNCOUNTED: Duration = Duration::from_secs(120);

/// How the runs are called for which refresh launches machines to keep.
pub(super) const KEPT_FOR: &str = "keep-warm-";

/// The numbers of a text such as `large=2 xlarge=1`, in which a number without a class is for the
/// whole pool.
pub(super) fn numbers(text: &str) -> Vec<(Option<&str>, usize)> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let number = |word: &'_ str| word.parse().ok();
    words
        .filter_map(|word| match word.split_once('=') {
            Some((class, count)) => Some((Some(class), number(count)?)),
            None => Some((None, number(word)?)),
        })
        .collect()
}

/// Whether a ceiling limits how many machines of a class there are.
pub(super) fn has_ceiling_for(text: &str, class: &str) -> bool {
    numbers(text).into_iter().any(|(of, _)| of.is_none_or(|of| of == class))
}

/// The run that an order is for. A refresh may launch machines of several kinds for one run of its own,
/// so each kind counts as a run.
pub(super) fn ordered_for(order: &Order) -> RunId {
    if !order.run.as_str().starts_with(KEPT_FOR) {
        return order.run.clone();
    }
    let needs = &order.requirements;
    let kind = digest(&[&needs.class, &needs.usage, &needs.types.to_string()]);
    RunId::new(format!("{}-{kind:x}", order.run)).expect("it is a name")
}

/// How long before it launches machines to keep a refresh may have looked for idle ones: some calls of
/// half a second each.
const LOOKED_BEFORE: Duration = Duration::from_secs(4);

impl Audit {
    /// Machines were launched, and `machines` exist at the provider now. Their number must be
    /// within one of the ceilings that have been in force since the process began. A machine whose
    /// launcher does not know of the ceiling counts from the next refresh on.
    pub(crate) fn within_ceiling(&mut self, by: Pid, launched: &[Machine], machines: &[Machine]) {
        let Some(began) = self.began(by).filter(|_| !launched.is_empty()) else { return };
        let ceilings = self.texts_since("max-machines", began);
        let is_unaware = |machine: &&Machine| {
            let class = machine.spec.resource_class.as_str();
            ceilings.iter().any(|ceiling| !has_ceiling_for(ceiling, class))
        };
        let unaware = launched.iter().filter(is_unaware);
        let unaware = unaware.map(|machine| (machine.id.clone(), machine.launched_at));
        self.launched_unaware.extend(unaware);
        let refreshed = self.last_refresh.map(|(began, _)| began.before(self.index_lag + SKEW));
        let is_known = |machine: &Machine| {
            let launched = self.launched_unaware.get(&machine.id);
            launched.is_none_or(|launched| refreshed.is_some_and(|began| *launched < began))
        };
        let keeps = |ceiling: &String| {
            numbers(ceiling).into_iter().all(|(class, max)| {
                let counts = |machine: &&Machine| {
                    let is_of = |class| machine.spec.resource_class.as_str() == class;
                    class.is_none_or(is_of) && is_known(machine)
                };
                let exceeds = machines.iter().filter(counts).count() > max;
                !(exceeds && launched.iter().any(|machine| counts(&machine)))
            })
        };
        if !ceilings.iter().any(keeps) {
            let how = format!("{} machines exist, and {ceilings:?} may", machines.len());
            self.violated(Invariant::Ceiling, how);
        }
    }

    /// A provision was refused by the ceiling after it had lasted so long. It must have waited for room
    /// as long as the least of the patiences that it may have read, unless it asked for more than a
    /// ceiling would ever allow.
    pub(crate) fn waits_for_room(&mut self, ask: &Ask, began: Timestamp, lasted: Duration) {
        let stored = self.stored_since(began);
        let could_fit = stored.iter().all(|settings| {
            let ceiling = settings.get("max-machines").map_or("", String::as_str);
            numbers(ceiling)
                .into_iter()
                .filter(|(class, _)| class.is_none_or(|class| class == ask.class))
                .all(|(_, max)| max >= ask.count as usize)
        });
        let patience = stored
            .iter()
            .map(|settings| spans::span(settings, "ceiling-patience-sec").unwrap_or_default());
        let least = patience.min().unwrap_or_default();
        if could_fit && lasted < least {
            let how = format!("a provision gave up after {lasted:?} of {least:?}");
            self.violated(Invariant::WaitsForRoom, how);
        }
    }

    /// Whether any ceiling, or a cap on what machines may cost, has been in force since then.
    pub(crate) fn has_ceiling_since(&self, time: Timestamp) -> bool {
        self.has_cap_since(time)
            || self.texts_since("max-machines", time).iter().any(|text| !text.is_empty())
    }

    /// All texts of a setting that have been in force since then.
    pub(crate) fn texts_since(&self, name: &str, time: Timestamp) -> Vec<String> {
        let stored = self.stored_since(time).into_iter();
        let texts = stored.map(|all| all.get(name).cloned().unwrap_or_default());
        // A refresh beside the very first one may have found nothing stored.
        let is_first = self.first_stored.is_some_and(|first| first > time);
        texts.chain(is_first.then(String::new)).collect()
    }

    /// Refresh launches machines to keep: not more than are missing, or have to be replaced.
    pub(super) fn launches_to_keep(&mut self, by: Pid, order: &Order, now: Timestamp) {
        let Some(began) = self.began(by).filter(|_| self.is_steady) else { return };
        // Those with a time limit launch once, also beside each other.
        let is_alone = self.refreshes_at_work() <= 1 || self.leaves_new();
        // Below a cap an order names types instead of the patterns by which minimums are told apart.
        if !order.run.as_str().starts_with(KEPT_FOR) || !is_alone || self.has_cap_since(began) {
            return;
        }
        let ordered = &order.requirements;
        let (class, types) = (ordered.class.as_str(), ordered.types.to_string());
        // Clocks differ at the ends of a window.
        let (from, to) = (began.before(SKEW), now + SKEW);
        let texts = self.texts_since("min-idle", began);
        let rows = texts.iter().flat_map(|text| kept(text));
        let of_kind = rows.filter(|kept| kept.is_kind(class, ordered.usage, &types));
        let allowed = of_kind.filter(|kept| kept.holds_sometimes(from, to));
        let Some(most) = allowed.max_by_key(|kept| kept.count) else {
            let how = format!("{class} {types} machines are launched, for no minimum: {texts:?}");
            return self.violated(Invariant::MinimumKept, how);
        };
        let idle = self.idle(most, began, now);
        // One that has become idle since the refresh last looked is not missing, but it cannot know.
        let is_seen = |it: &&Record| {
            self.idle_since.get(&it.id).is_none_or(|since| *since + LOOKED_BEFORE < now)
        };
        let idle = idle.into_iter().filter(is_seen);
        let idle = idle.filter(|it| self.is_over(it, began, now) == IsOver::No).count();
        let starting = self.starting(most, began, now);
        if idle + starting + order.count as usize > most.count {
            let beside = format!("{idle} and {starting}");
            let how = format!("{} are launched beside {beside}, for {}", order.count, most.count);
            self.violated(Invariant::MinimumKept, how);
        }
    }

    /// A refresh has ended without an outcome: it failed, or its process died.
    pub(crate) fn refresh_is_gone(&mut self, by: Pid, now: Timestamp) {
        if self.refreshes.contains_key(&by) && self.gone_refreshes.insert(by) {
            // What it has sent may still arrive.
            self.refresh_ended = Some(now + IN_FLIGHT);
        }
    }

    /// How many refreshes are at work.
    pub(super) fn refreshes_at_work(&self) -> usize {
        self.refreshes.keys().filter(|by| !self.gone_refreshes.contains(by)).count()
    }

    /// A refresh without faults has ended. As many machines as the minimum says must be idle, and
    /// have at least half of their time left, unless a run has claimed one meanwhile. One of its `warnings`
    /// may say that no time was left to launch what is missing.
    pub(crate) fn refresh_keeps(&mut self, by: Pid, warnings: &[String], now: Timestamp) {
        self.refresh_ended = Some(now);
        let Some((_, began)) = self.refreshes.remove(&by).filter(|_| self.is_steady) else {
            return;
        };
        let claimed = self.last_claim.is_some_and(|claim| claim + SKEW > began);
        let others = self.refreshes_at_work() > 0;
        if claimed || others || self.has_ceiling_since(began) {
            return;
        }
        let took = now.since(began);
        if warnings.iter().any(|warning| self.leaves_the_minimum(took, warning)) {
            return;
        }
        let stored = self.stored_since(began);
        let (Some(settings), 1) = (stored.first(), stored.len()) else { return };
        let idle_time = spans::span(settings, "idle-time-sec").unwrap_or_default();
        let text = settings.get("min-idle").cloned().unwrap_or_default();
        let (from, to) = (began.before(SKEW), now + SKEW);
        for kept in kept(&text).iter().filter(|kept| kept.holds_throughout(from, to)) {
            // The refresh may have looked at its beginning, and taken long for another machine.
            let stays = |record: &&Record| {
                let left = record.threshold.map_or(Duration::ZERO, |until| until.since(began));
                left + SKEW >= idle_time.max(LEAST_KEPT) / 2
            };
            let staying = self.idle(kept, began, now).into_iter().filter(stays).count();
            let coming = self.coming(kept, began) + self.starting(kept, began, now);
            if staying + coming < kept.count {
                let how = format!("{staying} and {coming} machines stay of {kept:?}");
                return self.violated(Invariant::MinimumKept, how);
            }
        }
    }

    /// The announced machines that count for a minimum.
    fn idle(&self, kept: &Kept, began: Timestamp, now: Timestamp) -> Vec<&Record> {
        let is_idle = |record: &&Record| {
            self.suits(kept, record, began)
                && !record.is_expired(now + SKEW)
                && self.has_ticket(record, now)
        };
        self.records.values().filter(is_idle).collect()
    }

    /// How many machines that count for a minimum were still leaving their runs while the refresh
    /// looked.
    fn coming(&self, kept: &Kept, began: Timestamp) -> usize {
        let just_left = |record: &&Record| {
            let changed = self.changed_at.get(&record.id).copied();
            let leaving = self.leaving_within() + SKEW;
            record.ticketed_at.is_none()
                && self.suits(kept, record, began)
                && changed.is_some_and(|changed| changed + leaving > began)
        };
        self.records.values().filter(just_left).count()
    }

    /// How many machines for a minimum refreshes with a time limit have launched that are not idle yet.
    fn starting(&self, kept: &Kept, began: Timestamp, now: Timestamp) -> usize {
        let is_starting = |record: &&Record| {
            matches!(record.state, State::Created | State::Running)
                && record.run.as_ref().is_some_and(|run| run.as_str().starts_with(KEPT_FOR))
                && !record.is_expired(now + SKEW)
                && self.fits(&kept.ask(), &record.spec, began, false)
                && self.was_large_enough(record, began)
        };
        let records = self.records.values().filter(|_| self.leaves_new());
        records.filter(is_starting).count()
    }

    /// How long a machine may take to leave its run.
    fn leaving_within(&self) -> Duration {
        let stored = self.stored.iter();
        let timeouts =
            stored.filter_map(|(_, settings)| spans::span(settings, "release-timeout-sec"));
        timeouts.max().unwrap_or_default()
    }

    fn suits(&self, kept: &Kept, record: &Record, began: Timestamp) -> bool {
        record.state == State::Idle
            && self.fits(&kept.ask(), &record.spec, began, false)
            && self.was_large_enough(record, began)
    }

    /// Checks how many machine-hours a refresh says that its minimum costs.
    pub(super) fn says_what_it_costs(
        &mut self,
        began: Timestamp,
        said: &BTreeMap<ResourceClass, f64>,
    ) {
        let texts = self.texts_since("min-idle", began);
        let says = |text: &String| {
            let mut hours: BTreeMap<&str, f64> = BTreeMap::new();
            for kept in kept(text) {
                *hours.entry(kept.class).or_default() += kept.machine_hours();
            }
            hours.len() == said.len()
                && said.iter().all(|(class, said)| {
                    hours.get(class.as_str()).is_some_and(|hours| (hours - said).abs() < 0.01)
                })
        };
        if !texts.iter().any(says) {
            let how = format!("a refresh says that {texts:?} costs {said:?}");
            self.violated(Invariant::TrueReport, how);
        }
    }

    /// A refresh that has succeeded must say how many machines each ceiling allows.
    pub(super) fn says_what_is_used(&mut self, began: Timestamp, outcome: &refresh::Outcome) {
        if outcome.failure.is_some() {
            return;
        }
        let says = |ceiling: &String| {
            let said: BTreeSet<(Option<String>, usize)> = outcome
                .ceilings
                .iter()
                .map(|it| (it.class.as_ref().map(|of| of.as_str().to_owned()), it.max as usize))
                .collect();
            let is: BTreeSet<(Option<String>, usize)> = numbers(ceiling)
                .into_iter()
                .map(|(class, max)| (class.map(str::to_owned), max))
                .collect();
            said == is
        };
        let ceilings = self.texts_since("max-machines", began);
        if !ceilings.iter().any(says) {
            let how = format!("a refresh says {:?} of {ceilings:?}", outcome.ceilings);
            self.violated(Invariant::TrueReport, how);
        }
    }

    /// Machines were launched, and `machines` exist. The count that the ceiling goes by must not be
    /// less, for the pool or for a class that has a ceiling.
    pub(crate) fn counts(&mut self, by: Pid, counted: &MachineCount, machines: &[Machine]) {
        let Some(began) = self.began(by) else { return };
        // A provision that began before there was a ceiling launches without being counted.
        let first = machines.iter().map(|machine| machine.launched_at).min();
        let earliest = first.map_or(began, |first| first.min(began)).before(UNCOUNTED);
        let ceilings = self.texts_since("max-machines", earliest);
        let is_short = |ceiling: &String| {
            numbers(ceiling).into_iter().any(|(class, _)| {
                let of_class = |machine: &&Machine| {
                    class.is_none_or(|class| machine.spec.resource_class.as_str() == class)
                };
                let known = class.and_then(|class| ResourceClass::new(class).ok());
                let counted = match known {
                    None => counted.total,
                    Some(class) => counted.classes.get(&class).copied().unwrap_or_default(),
                };
                machines.iter().filter(of_class).count() > counted as usize
            })
        };
        if !ceilings.iter().any(String::is_empty) && ceilings.iter().all(is_short) {
            let how = format!("{counted:?}, and {} machines exist", machines.len());
            self.violated(Invariant::Counted, how);
        }
    }
}
