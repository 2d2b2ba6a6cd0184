//! Economy: modes neither wait nor ask nor write more than they need to, and agents send heartbeats as
//! often as they say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::{MachineSource, Outcome, Provisioned};
use ondeck_core::modes::refresh;
use ondeck_core::ports::ReceivedMessage;

use super::pool_rules::LONGEST_HOLD;
use super::{Audit, Invariant, SKEW};
use crate::kernel::Pid;
use crate::plan::{Ask, spans};

/// A status is read this many times before the pauses between two reads grow.
const FIRST_READS: u32 = 16;

/// The longest pause is this many times the first.
const LONGEST_PAUSE: u32 = 16;

/// What the auditor counts.
#[derive(Debug, Default)]
pub(super) struct Economy {
    /// The longest time that a request or answer takes without a fault.
    latency: Duration,
    /// How often each process has read the status of agents.
    reads: BTreeMap<Pid, u32>,
    /// When a ticket of a class was last sent, received or deleted.
    last_ticket: BTreeMap<String, Timestamp>,
    /// The machines whose tickets each process has received.
    met: BTreeMap<Pid, BTreeMap<InstanceId, Ticket>>,
    /// The processes that have received a ticket which was about to expire, or no ticket.
    met_doubtful: BTreeSet<Pid>,
    /// When a message was last received that is no ticket, or one that was about to expire.
    doubtful_at: Option<Timestamp>,
    /// The last heartbeat of each agent, and when it was sent.
    beats: BTreeMap<Pid, (Heartbeat, Timestamp)>,
    /// How many first pauses before a call is repeated were the shortest possible, and how many there
    /// were.
    pauses: (u32, u32),
    /// Rescues that have failed in a row, and when the last of them began.
    failed_rescues: BTreeMap<Label, (u32, Timestamp)>,
    /// The rescues that each refresh has begun, and when.
    rescues: BTreeMap<Pid, BTreeMap<Label, Timestamp>>,
}

impl Economy {
    /// How often rescues under a label have failed in a row, and when the last of them began.
    pub(super) fn failed_rescue(&mut self, label: &Label) -> &mut (u32, Timestamp) {
        self.failed_rescues.entry(label.clone()).or_insert((0, Timestamp::from_millis(0)))
    }
}

impl Audit {
    pub(super) fn calls_take(&mut self, latency: Duration) {
        self.economy.latency = latency;
    }

    /// A process reads the status of agents.
    pub(crate) fn reads_status(&mut self, by: Pid) {
        *self.economy.reads.entry(by).or_default() += 1;
    }

    /// A call is repeated, so long after it failed. The first pause is between 25 and 50 ms; a random
    /// part keeps callers that fail together from calling together again.
    pub(crate) fn pauses(&mut self, pause: Duration) {
        const FIRST: std::ops::RangeInclusive<u128> = 25_000..=50_000;
        const SHORTEST: u128 = 25_500;
        const ENOUGH: u32 = 12;
        let pause = pause.as_micros();
        let (short, all) = &mut self.economy.pauses;
        if FIRST.contains(&pause) {
            *all += 1;
            *short += u32::from(pause <= SHORTEST);
        }
        if *all >= ENOUGH && short == all {
            let how = format!("{all} calls were repeated after the same pause");
            self.violated(Invariant::Economical, how);
        }
    }

    /// Tickets of a class were sent or deleted.
    pub(crate) fn touches_tickets(&mut self, class: &str, now: Timestamp) {
        self.economy.last_ticket.insert(class.to_owned(), now);
    }

    /// A process has received messages.
    pub(super) fn meets(&mut self, by: Pid, messages: &[ReceivedMessage], now: Timestamp) {
        for message in messages {
            let ticket = Ticket::from_json(&message.body).ok();
            match ticket.filter(|ticket| ticket.threshold > now + SKEW) {
                Some(ticket) => {
                    self.touches_tickets(ticket.spec.resource_class.as_str(), now);
                    let met = self.economy.met.entry(by).or_default();
                    met.entry(ticket.instance_id.clone()).or_insert(ticket);
                }
                None => {
                    self.economy.met_doubtful.insert(by);
                    self.economy.doubtful_at = Some(now);
                }
            }
        }
    }

    /// A provision has ended that has written these changes. Without faults, it must not have waited,
    /// asked or written in vain.
    pub(super) fn provision_is_economical(
        &mut self,
        by: Pid,
        outcome: &Outcome,
        (began, now): (Timestamp, Timestamp),
        written: &[(Transition, InstanceId)],
    ) {
        let reads = self.economy.reads.remove(&by).unwrap_or_default();
        let met = self.economy.met.remove(&by).unwrap_or_default();
        let is_doubtful = self.economy.met_doubtful.remove(&by);
        let Some(ask) = self.provisions.get(&by).map(|begun| begun.ask.clone()) else { return };
        let is_stopped = outcome.failure.as_ref().is_some_and(|failure| {
            matches!(failure.kind, FailureKind::Interrupted | FailureKind::Stopped)
        });
        if !self.is_quiet || !self.calls_are_answered || is_stopped {
            return;
        }
        let stored = self.stored_since(began);
        let polls = stored.iter().filter_map(|all| spans::span(all, "signal-poll-sec"));
        let poll = polls.min().unwrap_or_default();
        let is_settled = stored.len() == 1;
        let lasted = now.since(began);
        // Each candidate is waited for anew.
        let waits = u32::try_from(met.len()).unwrap_or(u32::MAX).saturating_add(ask.count) + 2;
        let most = f64::from(waits * 3 * FIRST_READS)
            + 2.0 * lasted.as_secs_f64() / (poll * LONGEST_PAUSE / 2).as_secs_f64();
        if f64::from(reads) > most {
            let how =
                format!("{reads} reads of the status of agents in {lasted:?}, every {poll:?}");
            return self.violated(Invariant::Economical, how);
        }
        if self.agents_beat {
            for given in &outcome.instances {
                if let Some(how) = self.noticed_late(given, poll) {
                    return self.violated(Invariant::Economical, how);
                }
            }
        }
        let selection = outcome.timings.selection;
        let is_empty = self.economy.last_ticket.get(ask.class).is_none_or(|at| *at + SKEW < began);
        // Its receiver may still hide it, and a queue that hides messages is asked again.
        let doubtful_at = self.economy.doubtful_at;
        let is_empty = is_empty && doubtful_at.is_none_or(|at| at + LONGEST_HOLD < began);
        let is_empty = is_empty && !self.has_tickets_of(ask.class);
        // To store what the run asks for takes three calls, if it has asked before.
        if is_empty && outcome.search.asked && selection > self.economy.latency * 6 + poll {
            let how = format!("{selection:?} were spent on an empty pool");
            return self.violated(Invariant::Economical, how);
        }
        self.renews_once(outcome, written);
        // While it waits for room, a provision looks into the pool again and again.
        let looks_once = !self.has_ceiling_since(began);
        if is_settled && looks_once && !is_doubtful && outcome.search.asked {
            self.tells_what_does_not_suit(outcome, &ask, (began, now), &met);
        }
    }

    /// Whether a ticket of a class is in its queue.
    fn has_tickets_of(&self, class: &str) -> bool {
        let tickets = self.tickets.keys().filter_map(|body| Ticket::from_json(body).ok());
        tickets.into_iter().any(|ticket| ticket.spec.resource_class.as_str() == class)
    }

    /// Checks that a provision noticed soon that a machine had registered: after an eighth of the time
    /// that it had waited, or after the first pause.
    fn noticed_late(&self, given: &Provisioned, poll: Duration) -> Option<String> {
        let it = &given.milestones;
        let waited = it.ready.saturating_sub(it.owned);
        let pause = (waited / 8).clamp(poll, poll * LONGEST_PAUSE) * 2;
        let calls = self.economy.latency * 6 + Duration::from_millis(20);
        let late = it.ready.saturating_sub(it.registered);
        let is_late = given.source != MachineSource::Adopted && late > 2 * pause + calls;
        is_late.then(|| format!("{} was ready {late:?} before that was noticed", given.id))
    }

    /// Checks that a provision that has waited for nothing has renewed each machine once at most.
    fn renews_once(&mut self, outcome: &Outcome, written: &[(Transition, InstanceId)]) {
        let is_adopted = |given: &Provisioned| given.source == MachineSource::Adopted;
        if outcome.failure.is_some() || !outcome.instances.iter().all(is_adopted) {
            return;
        }
        let renewals = |id: &InstanceId| {
            let renewed = (Transition::Renew, id.clone());
            written.iter().filter(|made| **made == renewed).count()
        };
        let again = outcome.instances.iter().find(|given| renewals(&given.id) > 1);
        if let Some(id) = again.map(|given| given.id.clone()) {
            self.violated(Invariant::Economical, format!("{id} was renewed twice"));
        }
    }

    /// Checks how many machines a provision says that it has met and that do not suit it.
    fn tells_what_does_not_suit(
        &mut self,
        outcome: &Outcome,
        ask: &Ask,
        (began, now): (Timestamp, Timestamp),
        met: &BTreeMap<InstanceId, Ticket>,
    ) {
        let is_own = self.reuses_nothing() || ask.reuse == ondeck_core::model::reuse::Reuse::Never;
        let suits = |ticket: &&Ticket| {
            let is_used = is_own && ticket.runs != Some(0);
            self.fits(ask, &ticket.spec, began, false) && !is_used
        };
        let unsuitable = met.values().filter(|ticket| !suits(ticket)).count();
        let said = outcome.search.unsuitable_count();
        if said != unsuitable || outcome.search.tickets != met.len() {
            let how = format!("{unsuitable} of {met:?} do not suit {ask:?}: {:?}", outcome.search);
            self.violated(Invariant::TrueReport, format!("at {now}: {how}"));
        }
    }

    /// An agent sends a heartbeat: not before half of the time is over that it has announced, unless it
    /// has news, goes by a shorter period now, or could not send the last one.
    pub(super) fn beats_in_time(
        &mut self,
        agent: Pid,
        heartbeat: &Heartbeat,
        id: &InstanceId,
        troubled_until: Timestamp,
    ) {
        const SHORTEST: Duration = Duration::from_secs(1);
        let before = self.economy.beats.insert(agent, (*heartbeat, heartbeat.at));
        let Some((before, at)) = before.filter(|_| self.calls_are_answered && self.is_quiet) else {
            return;
        };
        let has_news =
            heartbeat.interrupted != before.interrupted || heartbeat.period < before.period;
        let is_troubled = at < troubled_until;
        let threshold = self.records.get(id).and_then(|record| record.threshold);
        let is_near = threshold.is_none_or(|it| it < heartbeat.at + before.period + SKEW);
        let early = heartbeat.at.since(at) < before.period / 2 && before.period >= SHORTEST;
        if early && !has_news && !is_near && !is_troubled {
            let how = format!("{id} sends a heartbeat at {at} and at {}", heartbeat.at);
            self.violated(Invariant::Economical, how);
        }
    }

    /// Settings are stored besides those that set-up stores. At least one of them must change.
    pub(crate) fn stores_news(
        &mut self,
        by: Pid,
        changes: &BTreeMap<String, String>,
        before: &BTreeMap<String, String>,
    ) {
        let is_alone = self.is_refresh(by)
            && self.refreshes_at_work() == 1
            && self.began(by) > self.refresh_ended;
        let is_old = |(name, value): (&String, &String)| {
            before.get(name).map_or("", String::as_str) == value.as_str()
        };
        let is_set_up = changes.contains_key("set-up-by");
        if self.calls_are_answered && is_alone && !is_set_up && changes.iter().all(is_old) {
            let how = format!("a refresh stores {changes:?}, which is stored already");
            self.violated(Invariant::Economical, how);
        }
    }

    /// A refresh takes the right to rescue a run. One that has failed is tried again after four minutes,
    /// and after twice as long each time, up to an hour.
    pub(crate) fn begins_rescue(&mut self, by: Pid, label: &Label, now: Timestamp) {
        const FIRST: Duration = Duration::from_secs(240);
        const LONGEST: Duration = Duration::from_secs(3_600);
        self.economy.rescues.entry(by).or_default().insert(label.clone(), now);
        let Some((times, at)) = self.economy.failed_rescues.get(label) else { return };
        let pause = FIRST.saturating_mul(1 << times.saturating_sub(1).min(16)).min(LONGEST);
        if now + SKEW < *at + pause {
            let how = format!("run {label} is rescued at {now}, {times} times in vain at {at}");
            self.violated(Invariant::BacksOff, how);
        }
    }

    /// A run asks for machines itself, so that earlier rescues of it do not count, nor do those under
    /// way: their failures are noted in the demand, which the run replaces.
    pub(super) fn asks_again(&mut self, run: &RunId) {
        self.economy.failed_rescues.retain(|label, _| label.run != *run);
        for begun in self.economy.rescues.values_mut() {
            begun.retain(|label, _| label.run != *run);
        }
    }

    /// A refresh has ended. Notes which of its rescues have failed after they had ordered machines.
    pub(super) fn concludes_rescues(&mut self, by: Pid, outcome: &refresh::Outcome) {
        let begun = self.economy.rescues.remove(&by).unwrap_or_default();
        for (label, began) in begun {
            let ordered = self.launched.contains_key(&(by, label.run.clone()));
            let asks = self.provisions_at_work.values().any(|run| *run == label.run);
            if outcome.rescued.contains(&label) || asks || self.labels_of(&label.run) > 1 {
                self.economy.failed_rescues.remove(&label);
            } else if ordered && self.calls_are_answered && outcome.stranded.contains(&label) {
                // It failed at some moment since it began.
                let failed = self.economy.failed_rescue(&label);
                *failed = (failed.0 + 1, began);
            }
        }
    }

    /// Under how many labels a run has asked.
    fn labels_of(&self, run: &RunId) -> usize {
        let asks = self.asked_by_runs.get(run).into_iter().flatten();
        asks.map(|ask| ask.suffix).collect::<BTreeSet<_>>().len()
    }
}
