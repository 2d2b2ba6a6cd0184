//! Room below the ceiling: the count may be too high until the next refresh, and no longer, so no
//! provision is refused for want of room that there is.

use ondeck_core::model::ceiling::MachineCount;
use ondeck_core::model::ids::{InstanceId, ResourceClass};
use ondeck_core::model::timestamp::Timestamp;

use super::limits::numbers;
use super::{Audit, Invariant, SKEW};
use crate::kernel::Pid;
use crate::plan::Ask;

impl Audit {
    /// A provision has ended.
    pub(super) fn provision_ended(&mut self, by: Pid, now: Timestamp) {
        if let Some(run) = self.provisions_at_work.remove(&by) {
            self.last_provisions.insert(run, now);
        }
        self.provision_ended = Some(now);
    }

    /// A refresh has succeeded, which began then, and the count is this. The machines that exist, or
    /// did since it began, are `existed`. If it was alone, the count must not be higher.
    pub(crate) fn counts_no_more(
        &mut self,
        began: Timestamp,
        counted: &MachineCount,
        existed: &[InstanceId],
    ) {
        let ended = self.provision_ended.is_none_or(|ended| ended + 2 * SKEW < began);
        let alone = self.is_alone(began) && self.provisions_at_work.is_empty() && ended;
        let [ceiling] = self.texts_since("max-machines", began).try_into().unwrap_or_default();
        if !alone || !self.is_steady || !self.lists_at_once {
            return;
        }
        let too_many = numbers(&ceiling).into_iter().any(|(class, _)| {
            let counted = match class.and_then(|class| ResourceClass::new(class).ok()) {
                None => counted.total,
                Some(class) => counted.of_class(&class),
            };
            counted as usize > self.of_class(existed, class)
        });
        if too_many {
            let how = format!("a refresh counts {counted:?}, and {existed:?} existed");
            self.violated(Invariant::RoomIsUsed, how);
        }
    }

    /// A provision that began then was refused by the ceiling. `existed` are the machines that exist, or
    /// did since the last refresh that ended before it began. If it was alone, there must have been no
    /// room beside them.
    pub(crate) fn refused_without_room(
        &mut self,
        ask: &Ask,
        began: Timestamp,
        existed: &[InstanceId],
    ) {
        let ended = self.provision_ended.is_none_or(|ended| ended < began);
        let alone = self.is_alone(began) && self.refreshes_at_work() == 0;
        if !alone || !ended || !self.provisions_at_work.is_empty() {
            return;
        }
        let has_room = |ceiling: &String| {
            numbers(ceiling).into_iter().all(|(class, max)| {
                let concerns = class.is_none_or(|class| class == ask.class);
                !concerns || self.of_class(existed, class) + ask.count as usize <= max
            })
        };
        let ceilings = self.texts_since("max-machines", began);
        if self.is_steady && self.lists_at_once && ceilings.iter().all(has_room) {
            let how = format!("{} were refused beside {existed:?}, {ceilings:?}", ask.count);
            self.violated(Invariant::RoomIsUsed, how);
        }
    }

    /// When the last refresh began that ended before this moment; `None` if one has ended since, or
    /// none has.
    pub(crate) fn counted_before(&self, moment: Timestamp) -> Option<Timestamp> {
        let (began, ended) = self.last_refresh?;
        (ended < moment).then(|| began.before(2 * SKEW))
    }

    /// Whether no other refresh has been at work since this moment.
    pub(super) fn is_alone(&self, since: Timestamp) -> bool {
        self.refreshes_at_work() <= 1 && self.refresh_ended.is_none_or(|ended| ended < since)
    }

    /// How many of these machines are of a class, or of any.
    fn of_class(&self, machines: &[InstanceId], class: Option<&str>) -> usize {
        let is_of = |id: &&InstanceId| {
            let spec = self.specs.get(id);
            class.is_none_or(|class| spec.is_some_and(|it| it.resource_class.as_str() == class))
        };
        machines.iter().filter(is_of).count()
    }
}
