//! The rules of the pool: what is launched although a machine is idle, the minimum, the ceiling.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::SourcePolicy;
use ondeck_core::ports::{Order, ReceivedMessage};

use super::{Audit, Invariant, SKEW, is_about};
use crate::kernel::{Micros, Pid, timestamp};
use crate::plan::{Ask, contradict, is_unsound};
use crate::simulated_machines::Condition;

/// A ticket stays hidden at most this long after it was received.
pub(super) const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// What the auditor knows about the tickets with one text.
#[derive(Debug, Default, Clone)]
pub(super) struct TicketHistory {
    sent_at: Option<Timestamp>,
    /// Who received it, and when.
    received: Vec<(Pid, Timestamp)>,
}

/// A provision that has begun.
#[derive(Debug, Clone)]
pub(super) struct BegunProvision {
    pub(super) ask: Ask,
    pub(super) began: Timestamp,
    /// The machines that it has claimed and not committed, and since when.
    claims: BTreeMap<InstanceId, Timestamp>,
}

impl Audit {
    pub(crate) fn provision_begins(&mut self, by: Pid, run: &RunId, ask: &Ask, began: Timestamp) {
        self.begun.insert(by, began);
        self.asks_again(run);
        self.asked_by_runs.entry(run.clone()).or_default().push(ask.clone());
        self.provisions
            .insert(by, BegunProvision { ask: ask.clone(), began, claims: BTreeMap::new() });
        self.provisions_at_work.insert(by, run.clone());
    }

    pub(crate) fn release_begins(&mut self, by: Pid, began: Timestamp) {
        self.begun.insert(by, began);
    }

    /// When a process of the control plane began.
    pub(super) fn began(&self, by: Pid) -> Option<Timestamp> {
        self.begun.get(&by).copied()
    }

    /// Whether the process is a refresh that has not exited.
    pub(super) fn is_refresh(&self, by: Pid) -> bool {
        self.refreshes.contains_key(&by)
    }

    /// All settings, as they were stored, that have been in force since then.
    pub(super) fn stored_since(&self, time: Timestamp) -> Vec<&BTreeMap<String, String>> {
        let first = self.stored.iter().rposition(|(from, _)| *from <= time).unwrap_or_default();
        self.stored[first..].iter().map(|(_, settings)| settings).collect()
    }

    pub(crate) fn refresh_begins(
        &mut self,
        by: Pid,
        given: &BTreeMap<String, String>,
        began: Timestamp,
    ) {
        self.begun.insert(by, began);
        let is_unsound = given.iter().any(|(name, value)| is_unsound(name, value));
        self.unsound.insert(by, is_unsound);
        let names: BTreeSet<String> = given.keys().cloned().collect();
        self.all_refreshes.insert(by);
        self.refreshes.insert(by, (names, began));
    }

    /// The provider refuses what this refresh sets up.
    pub(crate) fn set_up_refused(&mut self, by: Pid) {
        self.refused_set_ups.insert(by);
        if self.stored_given.contains(&by) {
            let how = "given settings were stored before a set-up that failed";
            self.violated(Invariant::NotHalfway, how);
        }
    }

    /// Settings were stored; `all` are in force from now on.
    pub(crate) fn stored_settings(
        &mut self,
        by: Pid,
        changes: &BTreeMap<String, String>,
        all: &BTreeMap<String, String>,
        now: Micros,
    ) {
        let given = self.refreshes.get(&by).map(|(names, _)| names.clone()).unwrap_or_default();
        let stored = changes.keys().find(|name| given.contains(*name));
        if stored.is_some() {
            self.stored_given.insert(by);
        }
        if self.refused_set_ups.contains(&by)
            && let Some(name) = stored
        {
            self.violated(
                Invariant::NotHalfway,
                format!("{name} was stored, and its set-up failed"),
            );
        }
        /// Fewer registrations say little about the next ones.
        const FEWEST: usize = 5;
        let began = self.began(by);
        let is_listed = |record: &&Record| {
            let changed = self.changed_at.get(&record.id).copied();
            record.state.is_live() || changed >= began
        };
        let live = self.records.values().filter(is_listed).count();
        if changes.contains_key("registration-p95-ms") && live < FEWEST && self.index_lag.is_zero()
        {
            let how = format!("a usual time was taken from {live} machines");
            self.violated(Invariant::TrueReport, how);
        }
        self.first_stored.get_or_insert(timestamp(now));
        let is_news = self.stored.last().is_none_or(|(_, last)| last != all);
        if is_news {
            self.stored.push((timestamp(now), all.clone()));
        }
        match Settings::from_map(all) {
            Ok(settings) => {
                if contradict(&settings.times, |input| changes.contains_key(input)) {
                    let how = format!("stored were {changes:?}");
                    self.violated(Invariant::Contradiction, how);
                }
                self.settings_in_force(timestamp(now), settings);
            }
            Err(error) => self.violated(Invariant::NotHalfway, error.to_string()),
        }
    }

    pub(super) fn settings_in_force(&mut self, from: Timestamp, settings: Settings) {
        let unchanged = self.settings.last().is_some_and(|(_, last)| {
            (&last.times, &last.classes, &last.min_idle, &last.pre_runner_script)
                == (
                    &settings.times,
                    &settings.classes,
                    &settings.min_idle,
                    &settings.pre_runner_script,
                )
        });
        if !unchanged {
            self.settings.push((from, settings));
        }
    }

    /// Whether the times of a call that began then contradict each other.
    pub(crate) fn is_contradictory(&self, ask: &Ask, began: Timestamp) -> bool {
        self.settings_since(began).iter().all(|settings| ask.is_contradictory(&settings.times))
    }

    /// A machine registers a runner. It must have been prepared, with the operator's script.
    /// It registers under a label that its run has asked for.
    pub(crate) fn registers(&mut self, id: &InstanceId, label: &Label, condition: &Condition) {
        let asks = self.asked_by_runs.get(&label.run);
        if asks.is_some_and(|asks| asks.iter().all(|ask| ask.label(&label.run) != *label)) {
            let how = format!("{id} registers as {label}, which its run has not asked for");
            self.violated(Invariant::Label, how);
        }
        self.registers_prepared(id, condition);
    }

    /// A machine registers a runner, which must be installed, and the operator's script must have run.
    pub(super) fn registers_prepared(&mut self, id: &InstanceId, condition: &Condition) {
        // Its agent has read the settings since the machine was launched.
        let launched = self.launched_at.get(id).copied().unwrap_or(timestamp(0));
        let scripts = self.settings_since(launched);
        let has_run = |settings: &&Settings| settings.pre_runner_script == condition.script;
        if !condition.is_prepared || !scripts.iter().any(has_run) {
            self.violated(Invariant::Prepared, format!("{id} registers unprepared"));
        }
    }

    /// The settings that have been in force at any time since `since`.
    pub(super) fn settings_since(&self, since: Timestamp) -> Vec<&Settings> {
        let first = self.settings.iter().rposition(|(from, _)| *from <= since).unwrap_or_default();
        self.settings[first..].iter().map(|(_, settings)| settings).collect()
    }

    /// A ticket was sent.
    pub(super) fn note_sent(&mut self, ticket: &Ticket, now: Timestamp) {
        let history = self.tickets.entry(ticket.to_json()).or_default();
        history.sent_at.get_or_insert(now);
    }

    /// A provision claims a machine. It may have a quarter more machines claimed than it asks for, and
    /// those only after the first of them has been slow for a while.
    pub(super) fn hedges(&mut self, by: Pid, claimed: &InstanceId, now: Timestamp) {
        /// The least delay is a second.
        const SLOW: Duration = Duration::from_millis(990);
        let Some(provision) = self.provisions.get_mut(&by) else { return };
        let records = &self.records;
        // What is no longer claimed has become ready, was given back, or was given up.
        provision
            .claims
            .retain(|id, _| records.get(id).is_some_and(|record| record.state == State::Claimed));
        let wanted = provision.ask.count as usize;
        let first = provision.claims.values().min().copied();
        provision.claims.insert(claimed.clone(), now);
        let have = provision.claims.len();
        let early = have > wanted && first.is_some_and(|first| now.since(first) < SLOW);
        if early || have > wanted + wanted.div_ceil(4) {
            let how = format!("a provision of {wanted} has {have} claimed since {first:?}");
            self.violated(Invariant::FewHedges, how);
        }
    }

    /// A process has sent tickets, and these are the texts of all tickets. If calls and queues work, no
    /// more than two different ones may announce the present idle state of one machine: that of its
    /// renewal, and the one before. Refreshes that run at the same time may all renew a machine, so what
    /// they send counts as one. A ticket that is there is not sent again, except by a process that could
    /// not know of it.
    pub(crate) fn few_tickets(&mut self, by: Pid, sent: &[Ticket], all: &[String], now: Timestamp) {
        let Some(began) = self.began(by).filter(|_| self.is_quiet) else { return };
        let ended = self.refresh_ended;
        let is_alone = self.refreshes_at_work() <= 1 && ended.is_none_or(|ended| ended < began);
        let all: Vec<Ticket> = all.iter().filter_map(|body| Ticket::from_json(body).ok()).collect();
        for ticket in sent {
            if !is_alone {
                self.sent_beside.insert((ticket.instance_id.clone(), ticket.threshold));
            }
            let Some(record) = self.records.get(&ticket.instance_id) else { continue };
            let own = all.iter().filter(|it| it.instance_id == ticket.instance_id);
            let alive: Vec<&Ticket> =
                own.filter(|it| is_about(it, record) && it.threshold > now).collect();
            let different: BTreeSet<Timestamp> = alive.iter().map(|it| it.threshold).collect();
            let is_beside = |at: &&Timestamp| self.sent_beside.contains(&(record.id.clone(), **at));
            let beside = different.iter().filter(is_beside).count();
            let renewals = different.len() - beside.saturating_sub(1);
            let equal = alive.iter().filter(|it| **it == ticket).count();
            let marked = self.marked.get(&(record.id.clone(), ticket.threshold));
            let known = marked.is_some_and(|at| *at + self.index_lag + SKEW < began);
            if renewals > 2 && is_alone || equal > 1 && known {
                let how = format!("{} is announced by {alive:?}", record.id);
                return self.violated(Invariant::FewTickets, how);
            }
        }
    }

    /// A process received tickets.
    pub(crate) fn received(&mut self, by: Pid, messages: &[ReceivedMessage], now: Timestamp) {
        self.meets(by, messages, now);
        for message in messages {
            let history = self.tickets.entry(message.body.clone()).or_default();
            history.received.push((by, now));
            self.receivers.insert(message.receipt.0.clone(), by);
        }
    }

    /// The last of identical tickets was deleted.
    pub(super) fn ticket_gone(&mut self, ticket: &Ticket) {
        self.tickets.remove(&ticket.to_json());
    }

    /// Whether a ticket announces the present idle state of a machine.
    pub(super) fn has_ticket(&self, record: &Record, now: Timestamp) -> bool {
        let tickets = self.tickets.keys().filter_map(|body| Ticket::from_json(body).ok());
        let mut own = tickets.filter(|ticket| ticket.instance_id == record.id);
        own.any(|ticket| is_about(&ticket, record) && ticket.threshold > now)
    }

    /// A process orders machines although it may look for idle ones. None of these may have been
    /// there for it: announced before it began, and received by no other process since.
    pub(super) fn look_in_pool_first(&mut self, by: Pid, order: &Order, now: Timestamp) {
        let Some(BegunProvision { ask, began, .. }) = self.provisions.get(&by).cloned() else {
            return;
        };
        if !self.is_quiet || ask.source == SourcePolicy::New {
            return;
        }
        let is_own = self.reuses_nothing() || ask.reuse == Reuse::Never;
        let ticket_for_it = |(body, history): (&String, &TicketHistory)| {
            let others = |(pid, at): &(Pid, Timestamp)| *pid != by && *at + LONGEST_HOLD > began;
            let early = history.sent_at.is_some_and(|sent| sent < began);
            let ticket = Ticket::from_json(body).ok().filter(|_| early)?;
            (!history.received.iter().any(others)).then_some(ticket)
        };
        let missed = self.tickets.iter().filter_map(ticket_for_it).find(|ticket| {
            let record = self.records.get(&ticket.instance_id);
            record.is_some_and(|record| {
                is_about(ticket, record)
                    && ticket.threshold > now + SKEW
                    && record.threshold.is_some_and(|threshold| threshold > now + SKEW)
                    && self.fits(&ask, &record.spec, began, false)
                    && !(is_own && record.counts.runs > 0)
                    && self.was_large_enough(record, began)
            })
        });
        if let Some(ticket) = missed {
            let (id, run) = (&ticket.instance_id, &order.run);
            let how =
                format!("{} machines were launched for {run} while {id} was idle", order.count);
            self.violated(Invariant::FoundInPool, how);
        }
    }

    /// Whether a machine is large enough by all settings that a provision may have read.
    pub(super) fn was_large_enough(&self, record: &Record, began: Timestamp) -> bool {
        self.settings_since(began).into_iter().all(|settings| {
            let size = settings.classes.get(&record.spec.resource_class);
            size.is_some_and(|size| record.spec.cpu >= size.cpu && record.spec.mem >= size.mem)
        })
    }

    /// The machines that any process has launched for a run.
    pub(super) fn launched_by_run(&self, run: &RunId) -> BTreeSet<InstanceId> {
        let of_run = self.launched.iter().filter(|((_, owner), _)| owner == run);
        of_run.flat_map(|(_, ordered)| ordered.launched.iter().cloned()).collect()
    }
}
