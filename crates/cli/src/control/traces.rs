//! Traces for OpenTelemetry: one request at the end of a call, with a span for the call, one for each
//! of its stages, and for a provision one for each machine's way.
//!
//! Nothing is recorded unless a collector is configured, and nothing that goes wrong here changes what a
//! call comes to.

mod environment;
mod otlp;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::provision::{self, Provisioned};
use ondeck_core::ports::{Progress, Random};

use self::environment::Collector;
use self::otlp::{Attribute, Span, SpanKind, Status};
use crate::control::metrics::CallResult;
use crate::control::{github_actions, outbound};
use crate::surroundings::Entropy;

/// How long sending may take.
const SEND: Duration = Duration::from_secs(2);
/// The most spans of stages.
const STAGES: usize = 100;
/// The most machines with spans, the slowest first.
const MACHINES: usize = 50;

/// The trace of one call.
pub(crate) struct Trace {
    collector: Collector,
    mode: &'static str,
    began: Moment,
    stages: Arc<Stages>,
}

/// A moment by both clocks, so that spans are measured by the steady one.
#[derive(Debug, Clone, Copy)]
struct Moment {
    of_day: SystemTime,
    steady: Instant,
}

impl Moment {
    fn now() -> Moment {
        Moment { of_day: SystemTime::now(), steady: Instant::now() }
    }

    fn of_day_at(self, at: Instant) -> SystemTime {
        self.of_day + at.saturating_duration_since(self.steady)
    }
}

/// Notes when each stage began.
struct Stages {
    begun: Mutex<Vec<(String, Instant)>>,
    shown_by: Mutex<Option<Arc<dyn Progress>>>,
}

impl Progress for Stages {
    fn stage(&self, doing: &str) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.len() < STAGES {
            begun.push((doing.to_owned(), Instant::now()));
        }
        drop(begun);
        let shown_by = self.shown_by.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(progress) = shown_by {
            progress.stage(doing);
        }
    }
}

impl Trace {
    /// Begins a trace; `None` if no collector is configured.
    pub(crate) fn begin(mode: &'static str) -> Option<Trace> {
        let collector = Collector::of(|name| std::env::var(name).ok())?;
        collector.headers.iter().for_each(|(_, value)| github_actions::mask(value));
        let stages = Stages { begun: Mutex::default(), shown_by: Mutex::default() };
        Some(Trace { collector, mode, began: Moment::now(), stages: Arc::new(stages) })
    }

    /// Notes the stages that are announced from now on, and hands them on.
    pub(crate) fn watch(&self, progress: Arc<dyn Progress>) -> Arc<dyn Progress> {
        let mut shown_by = self.stages.shown_by.lock().unwrap_or_else(PoisonError::into_inner);
        *shown_by = Some(progress);
        self.stages.clone()
    }

    /// Ends the trace with the call that ended at this moment, and sends it. What goes wrong is logged.
    pub(crate) async fn end(
        self,
        pool: &str,
        ended: Instant,
        result: &CallResult<'_>,
        failure: Option<&Failure>,
    ) {
        let spans = self.spans(pool, ended, result, failure, &mut id);
        let body = otlp::json(&self.collector.service, &spans);
        let Collector { url, headers, .. } = &self.collector;
        let sent = tokio::time::timeout(SEND, outbound::post(url, headers, body, SEND)).await;
        match sent {
            Ok(Ok(())) => tracing::debug!(spans = spans.len(), "the trace is sent"),
            Ok(Err(problem)) => tracing::warn!("the trace is not sent: {problem}"),
            Err(_) => tracing::warn!("the trace is not sent: no answer in time"),
        }
    }

    fn spans(
        &self,
        pool: &str,
        ended: Instant,
        result: &CallResult<'_>,
        failure: Option<&Failure>,
        id: &mut dyn FnMut() -> u64,
    ) -> Vec<Span> {
        let parent = self.collector.parent.as_ref();
        let trace_id = parent
            .map_or_else(|| format!("{:016x}{:016x}", id(), id()), |parent| parent.trace.clone());
        let mut family = Family { trace_id, id };
        let mut root = family.span(
            format!("ondeck {}", self.mode),
            (self.began.of_day, self.began.of_day_at(ended)),
            parent.map_or("", |parent| &parent.span),
            attributes(pool, self.mode, result),
        );
        root.status = match failure {
            None => Status::ok(),
            Some(failure) => {
                let kind = failure.kind.as_str();
                root.attributes.push(Attribute::text("error.type", kind));
                Status::error(&failure.message)
            }
        };
        let root_id = root.span_id.clone();
        let mut spans = vec![root];
        let begun = self.stages.begun.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ends = begun.iter().skip(1).map(|(_, at)| *at).chain([ended]);
        for ((doing, from), to) in begun.iter().zip(ends) {
            let times = (self.began.of_day_at(*from), self.began.of_day_at(to));
            let doing_it = vec![Attribute::text("ondeck.stage", doing)];
            spans.push(family.span(name_of(doing), times, &root_id, doing_it));
        }
        if let CallResult::Provision(Some(outcome)) = result {
            let took = outcome.timings.total;
            let start = self.began.of_day_at(ended.checked_sub(took).unwrap_or(ended));
            spans.extend(machines(&mut family, outcome, start, &root_id));
        }
        spans
    }
}

/// The spans of one trace.
struct Family<'a> {
    trace_id: String,
    id: &'a mut dyn FnMut() -> u64,
}

impl Family<'_> {
    fn span(
        &mut self,
        name: String,
        (start, end): (SystemTime, SystemTime),
        parent: &str,
        attributes: Vec<Attribute>,
    ) -> Span {
        Span {
            trace_id: self.trace_id.clone(),
            span_id: format!("{:016x}", (self.id)()),
            parent_span_id: parent.to_owned(),
            name,
            kind: SpanKind,
            start_time_unix_nano: start,
            end_time_unix_nano: end.max(start),
            attributes,
            status: Status::default(),
        }
    }
}

/// What the call did, in numbers.
fn attributes(pool: &str, mode: &str, result: &CallResult<'_>) -> Vec<Attribute> {
    let mut all = vec![Attribute::text("ondeck.mode", mode), Attribute::text("ondeck.pool", pool)];
    match result {
        CallResult::Refresh(Some(outcome)) => all.extend([
            Attribute::number("ondeck.machines.reaped", outcome.reaped.len()),
            Attribute::number("ondeck.machines.orphans", outcome.orphans.len()),
            Attribute::number("ondeck.machines.warmed", outcome.warmed),
            Attribute::number("ondeck.runs.rescued", outcome.rescued.len()),
            Attribute::number("ondeck.runs.stranded", outcome.stranded.len()),
            Attribute::number("ondeck.warnings", outcome.warnings.len()),
        ]),
        CallResult::Provision(Some(outcome)) => all.extend([
            Attribute::text("ondeck.run", outcome.run.as_str()),
            Attribute::number("ondeck.machines.requested", outcome.requested as usize),
            Attribute::number("ondeck.machines.given", outcome.instances.len()),
        ]),
        CallResult::Release(Some(outcome)) => all.extend([
            Attribute::text("ondeck.run", outcome.run.as_str()),
            Attribute::number("ondeck.machines.released", outcome.instances.len()),
        ]),
        CallResult::Refresh(None) | CallResult::Provision(None) | CallResult::Release(None) => {}
    }
    all
}

/// A span for each machine, and in it one for each part of its way.
fn machines(
    family: &mut Family<'_>,
    outcome: &provision::Outcome,
    start: SystemTime,
    root: &str,
) -> Vec<Span> {
    let mut slowest: Vec<&Provisioned> = outcome.instances.iter().collect();
    slowest.sort_by_key(|machine| std::cmp::Reverse(machine.milestones.ready));
    let mut spans = Vec::new();
    for machine in slowest.into_iter().take(MACHINES) {
        let Provisioned { id, source, spec, milestones, .. } = machine;
        let source = source.as_str();
        let about = vec![
            Attribute::text("ondeck.machine", id.as_str()),
            Attribute::text("ondeck.machine.source", source),
            Attribute::text("ondeck.machine.type", &spec.instance_type),
            Attribute::text("ondeck.machine.class", spec.resource_class.as_str()),
            Attribute::text("ondeck.machine.usage", spec.usage_class.as_str()),
        ];
        let at = |since: Duration| start + since;
        let whole = (at(milestones.found.unwrap_or_default()), at(milestones.ready));
        let parent = family.span(format!("{source} machine"), whole, root, about);
        let parent_id = parent.span_id.clone();
        spans.push(parent);
        let parts = [
            ("claim", milestones.found, milestones.owned),
            ("register", Some(milestones.owned), milestones.registered),
            ("confirm", Some(milestones.registered), milestones.ready),
        ];
        for (name, from, to) in parts {
            let Some(from) = from.filter(|from| *from < to) else { continue };
            spans.push(family.span(name.to_owned(), (at(from), at(to)), &parent_id, Vec::new()));
        }
    }
    spans
}

/// The name of a stage without its details: those are different in each call.
fn name_of(doing: &str) -> String {
    let beginning = doing.split(':').next().unwrap_or_default();
    let is_plain = |word: &&str| !word.bytes().any(|byte| byte.is_ascii_digit());
    beginning.split_whitespace().filter(is_plain).collect::<Vec<_>>().join(" ")
}

/// A random id, which is not 0.
fn id() -> u64 {
    Entropy.number().max(1)
}
