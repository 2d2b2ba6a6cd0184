//! The audit at the end of a scenario.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{End, Scene};
use crate::model::heartbeat::idle_period;
use crate::model::ids::ResourceClass;
use crate::modes::doctor::ForgeAccess;
use crate::modes::drill::audit::{Look, audit, audit_tickets};
use crate::modes::drill::{Expectation, Violation};
use crate::modes::operate::tickets;

/// What an audit looks at, in the order of reports.
const AUDITED: [Expectation; 6] = [
    Expectation::NothingOwned,
    Expectation::OneOwner,
    Expectation::NoOrphan,
    Expectation::MachineForEachRecord,
    Expectation::NoTicketForDeadMachine,
    Expectation::NoOfflineRunner,
];

impl Scene<'_, '_> {
    /// Audits the pool. What was wrong before the drill does not count, and what is only so for a moment
    /// has time to pass.
    pub(in crate::modes::drill) async fn audit(
        &mut self,
        class: &ResourceClass,
    ) -> Result<(), End> {
        self.stage("auditing the pool");
        if self.steps.iter().any(|step| !step.is_met) {
            // What a failure leaves is not to be reported a second time.
            self.drill.clean_up().await;
        }
        let times = self.times();
        let limit = times.self_termination_grace + 3 * idle_period(times.heartbeat_period);
        let since = self.steady();
        let look = self
            .until(since, limit, async |scene: &Self| {
                let look = Look::take(scene.drill.plane, scene.drill.forge).await?;
                let is_over = scene.waited(since) >= limit;
                Ok((is_over || scene.found(&look).is_empty()).then_some(look))
            })
            .await?;
        let look = match look {
            Some(look) => look,
            None => Look::take(self.drill.plane, self.drill.forge).await?,
        };
        let mut found = self.found(&look);
        let drill = &*self.drill;
        let seen = tickets::look(drill.plane, Some(class), false, drill.stop).await?;
        for tickets in &seen.classes {
            found.extend(audit_tickets(&look, tickets, &drill.own()));
        }
        found.retain(|violation| !drill.before.contains(&violation.about));
        // One that is found at the end of the wait does not make the others late.
        let took = self.waited(since).min(limit);
        self.judge(&found, took, limit, look.live.len());
        Ok(())
    }

    fn found(&self, look: &Look) -> Vec<Violation> {
        let drill = &*self.drill;
        let lag = drill.plane.compute.listing_lag();
        let mut found = audit(look, &drill.own(), (&drill.settings.times, lag));
        found.retain(|violation| !drill.before.contains(&violation.about));
        found
    }

    /// One step for each thing that was audited.
    fn judge(&mut self, found: &[Violation], took: Duration, limit: Duration, records: usize) {
        let mut by_kind: BTreeMap<Expectation, Vec<&str>> = BTreeMap::new();
        for violation in found {
            by_kind.entry(violation.expectation).or_default().push(&violation.what);
        }
        let has_runners = matches!(self.drill.forge, ForgeAccess::Open(_));
        for expectation in AUDITED {
            let is_unchecked = expectation == Expectation::NoOfflineRunner && !has_runners;
            match by_kind.remove(&expectation) {
                Some(all) => self.note(expectation, false, all.join("; "), (took, Some(limit))),
                None if is_unchecked => {}
                None => {
                    let seen = format!("live records: {records}");
                    self.note(expectation, true, seen, (took, Some(limit)));
                }
            }
        }
        for (expectation, all) in by_kind {
            self.note(expectation, false, all.join("; "), (took, Some(limit)));
        }
    }
}
