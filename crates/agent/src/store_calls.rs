//! The agent's calls of the store: it writes signals, and reads its record and the settings. Errors
//! of the store are logged and never stop the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::model::label::Label;
use ondeck_core::model::record::Record;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{Report, Signal, output_tail};
use ondeck_core::ports::{News, PortError, PortResult};
use ondeck_core::runtime::retry::{Retry, retry};

use crate::memory::Memory;
use crate::refusals::is_refusal;
use crate::wake_ups::Remark;
use crate::{Agent, deadline};

/// How long an agent that starts waits for a store that refuses it before it reports that. New
/// credentials and policies may take some seconds to be in force.
const REFUSED_AT_START: Duration = Duration::from_secs(30);

/// For how many heartbeat periods an agent that relies on wake-ups waits for one before it looks at its
/// record. So late does it notice a claim or a release whose wake-up was lost.
const UNWOKEN_PERIODS: u32 = 3;
/// The longest that it waits, also with a longer period: 15 s, as with the default.
const LONGEST_UNWOKEN: Duration = Duration::from_secs(15);

/// A clock may count milliseconds, and would not move for less.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

impl Agent {
    /// Writes a signal, and retries until the store has it.
    pub(crate) async fn signal(
        &self,
        memory: &Memory,
        signal: Signal,
        label: Option<&Label>,
        detail: &str,
    ) {
        // Stores limit the size of a report. One that is too large would be retried for ever.
        let detail = output_tail(detail);
        let at = memory.next_report_time(self.clock.now());
        let generation = match signal {
            Signal::Deregistered => memory.idle_generation(),
            _ => None,
        };
        let (run, suffix) = label.cloned().map_or((None, None), |it| (Some(it.run), it.suffix));
        let machine_label = match signal {
            Signal::Registered => memory.own().map(|own| own.label),
            _ => None,
        };
        let report = Report { signal, run, suffix, detail, at, generation, machine_label };
        let report = &report;
        let written = retry(&*self.clock, &*self.random, Retry::PATIENT, |_| async move {
            let written = self.store.report(&self.id, report).await;
            self.log_failure(memory, "signal not written yet", &written);
            written
        })
        .await;
        let label = label.map(Label::to_string).unwrap_or_default();
        match written {
            Ok(()) => tracing::info!(label, detail = report.detail, "{signal}"),
            Err(error) => tracing::error!(label, "{signal} not written: {error}"),
        }
    }

    /// Reads the settings for the first time, and retries until the store answers: without them the
    /// machine would be prepared wrongly. Fails if the settings are invalid, or if the store refuses
    /// the agent for longer than [`REFUSED_AT_START`].
    pub(crate) async fn load_settings(&self, memory: &Memory) -> Result<(), String> {
        let begun = self.clock.steady();
        let read = retry(&*self.clock, &*self.random, Retry::PATIENT, |_| async move {
            let answer = self.look_at_settings(memory).await;
            let waited = self.clock.steady().saturating_sub(begun);
            match answer {
                Err(refusal) if is_refusal(&refusal) && waited >= REFUSED_AT_START => {
                    Ok(Err(refusal))
                }
                answer => answer.map(Ok),
            }
        });
        let map = read.await.and_then(|read| read).map_err(|error| error.to_string())?;
        memory.set_settings(Settings::from_map(&map).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Reads the machine's record once and remembers it. Fails if the store does not answer, and
    /// without asking it if it has refused that and it is too early to ask again.
    pub(crate) async fn look_at_record(&self, memory: &Memory) -> PortResult<Option<Record>> {
        match memory.with_refusals(|refusals| refusals.standing(self.clock.steady())) {
            Some(refusal) => Err(refusal),
            None => self.read_record(memory).await,
        }
    }

    /// Waits until the record is to be read again: for `poll`, or for longer if the agent can rely on
    /// being woken and the last look succeeded. The wake-up that caused a look is not sent again if the
    /// look fails.
    pub(crate) async fn await_next_look<T>(
        &self,
        memory: &Memory,
        looked: &PortResult<T>,
        poll: Duration,
    ) {
        let patience = match looked {
            Ok(_) => self.patience(memory).max(poll),
            Err(_) => poll,
        };
        self.await_news(memory, poll, patience).await;
    }

    /// Waits until the record may have changed, for at most `patience`, or for `poll` if the store
    /// announces nothing; while the store refuses the agent, for longer.
    pub(crate) async fn await_news(&self, memory: &Memory, poll: Duration, patience: Duration) {
        let now = self.clock.steady();
        if let Some(left) = memory.with_refusals(|refusals| refusals.until_next_look(now)) {
            // In steps, because a heartbeat that is taken again ends the pause.
            return self.clock.sleep(left.min(poll).max(SHORTEST_WAIT)).await;
        }
        let waiting = memory.begin_to_wait();
        let news = self.store.news(&*self.clock, poll, patience).await;
        drop(waiting);
        let now = self.clock.steady();
        match memory.heard(&news, now) {
            Some(Remark::Polls(why)) => {
                let every = poll.as_secs_f64();
                tracing::warn!("no wake-ups, so the record is read every {every} s: {why}");
            }
            Some(Remark::Relies) => tracing::info!("wake-ups are relied on again"),
            None => {}
        }
        if news == News::Announced {
            let pause = memory.with_wake_ups(|wake_ups| wake_ups.pause_before_look(now));
            if !pause.is_zero() {
                self.clock.sleep(pause).await;
            }
        }
    }

    /// How long the agent may wait for a wake-up before it looks at the record in any case; zero if it
    /// cannot rely on one. It looks at least twice before the threshold, which may have moved: no
    /// wake-up announces that. It also looks twice while a provision or a release waits for its answer,
    /// so that a lost wake-up does not cost the machine.
    fn patience(&self, memory: &Memory) -> Duration {
        let until_threshold = deadline::until_threshold(&memory.record(), self.clock.now());
        match until_threshold {
            Some(left) if memory.with_wake_ups(|wake_ups| wake_ups.are_relied_on()) => {
                let times = memory.times();
                let awaited = times.claim_registration_timeout.min(times.release_timeout);
                let unwoken = times.heartbeat_period * UNWOKEN_PERIODS;
                unwoken.min(LONGEST_UNWOKEN).min(awaited / 2).min(left / 2)
            }
            _ => Duration::ZERO,
        }
    }

    /// Reads the machine's record once and remembers it. Fails if the store does not answer.
    pub(crate) async fn read_record(&self, memory: &Memory) -> PortResult<Option<Record>> {
        let record = self.store.record(&self.id).await;
        self.note_look(memory, "own record not read", &record);
        let record = record?;
        memory.remember_record(record.as_ref(), self.clock.steady());
        Ok(record)
    }

    async fn look_at_settings(&self, memory: &Memory) -> PortResult<BTreeMap<String, String>> {
        if let Some(refusal) = memory.with_refusals(|it| it.standing(self.clock.steady())) {
            return Err(refusal);
        }
        let map = self.store.settings().await;
        self.note_look(memory, "settings not read", &map);
        map
    }

    fn note_look<T>(&self, memory: &Memory, what: &'static str, answer: &PortResult<T>) {
        let now = self.clock.steady();
        memory.with_refusals(|refusals| refusals.looked(answer, now, &*self.random));
        self.log_failure(memory, what, answer);
    }

    /// Logs that a kind of call fails, when the reason changes and once a minute, and that it succeeds
    /// again.
    pub(crate) fn log_failure<T>(
        &self,
        memory: &Memory,
        what: &'static str,
        answer: &PortResult<T>,
    ) {
        let now = self.clock.steady();
        match answer {
            Ok(_) => {
                if memory.with_refusals(|refusals| refusals.has_recovered(what)) {
                    tracing::info!("no longer: {what}");
                }
            }
            Err(error) => {
                if memory.with_refusals(|refusals| refusals.is_to_be_said(what, error, now)) {
                    tracing::warn!("{what}: {error}{}", hint_of(error));
                }
            }
        }
    }

    /// Reads the settings once, and returns whether the store answered. If it did not or the
    /// settings are invalid, the last known ones stay in force.
    pub(crate) async fn reload_settings(&self, memory: &Memory) -> bool {
        let Ok(map) = self.look_at_settings(memory).await else { return false };
        match Settings::from_map(&map) {
            Ok(settings) => memory.set_settings(settings),
            Err(error) => tracing::warn!("settings invalid: {error}"),
        }
        true
    }
}

/// What an operator can do about an error, in words that follow it.
pub(crate) fn hint_of(error: &PortError) -> String {
    match error {
        PortError::Unusable { hint, .. } => format!("; hint: {hint}"),
        _ => String::new(),
    }
}
