//! The details of one machine, in sections.

use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::status::judgement::{Judged, Mark};

use crate::control::report::span;
use crate::control::report::status::Tone;

/// A part of the details, below a title of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: &'static str,
    /// A label, which may be empty, and what it is about.
    pub(super) lines: Vec<(&'static str, String, Tone)>,
}

/// What is known about a machine at `now`: what is unusual about it, its deadline, its record, and what
/// its agent has written.
pub(super) fn sections(machine: &Judged, now: Timestamp) -> Vec<Section> {
    vec![deadline(machine, now), record(machine, now), agent(machine, now)]
}

fn deadline(machine: &Judged, now: Timestamp) -> Section {
    let record = &machine.record;
    let until = match record.threshold {
        None => "none, it is terminated".to_owned(),
        Some(at) if at > now => format!("{at}, in {}", span(at.since(now))),
        Some(at) => format!("{at}, {} over", span(now.since(at))),
    };
    let then = match (machine.group.as_str(), record.threshold) {
        (_, None) => "",
        ("running", _) => "its run may use it until then",
        ("claimed" | "created", _) => "its run must have it ready by then",
        ("idle", _) if record.departure.is_drained() => {
            "no run may claim it, because it was drained"
        }
        ("idle", _) => "a run may claim it until then",
        _ => "people may examine it until then",
    };
    let mut lines = vec![("threshold", until, Tone::Plain)];
    if !then.is_empty() {
        lines.push(("", format!("{then}; after that it is terminated"), Tone::Plain));
    }
    lines.extend(machine.marks.iter().map(|mark| {
        let text = match (mark, mark.reason()) {
            (Mark::Overdue(by), _) => format!("overdue: past its threshold for {}", span(*by)),
            (_, Some(why)) => format!("{}: {why}", mark.as_str()),
            (_, None) => "preserved: its run failed, and it is kept for people".to_owned(),
        };
        ("mark", text, Tone::of(mark))
    }));
    Section { title: "deadline", lines }
}

fn record(machine: &Judged, now: Timestamp) -> Section {
    let record = &machine.record;
    let spec = &record.spec;
    let ago = |at: Timestamp| format!("{at}, {} ago", span(now.since(at)));
    let run = record.label().map_or("none".to_owned(), |label| label.to_string());
    let size = format!("{} vCPU, {} MiB", spec.cpu, spec.mem);
    let lines = [
        ("instance", record.id.to_string()),
        ("state", machine.group.as_str().to_owned()),
        ("run", run),
        ("class", spec.resource_class.to_string()),
        ("type", format!("{}, {}, {size}", spec.instance_type, spec.usage_class)),
        ("registered", ago(record.created_at)),
        ("changed", ago(record.updated_at)),
        ("ticket", record.ticketed_at.map_or("none".to_owned(), ago)),
        ("runs so far", record.counts.runs.to_string()),
    ];
    let own = machine.status.machine_label(record).map(|own| ("runs-on", own.to_string()));
    let lines = lines.into_iter().chain(own);
    let lines = lines.map(|(label, text)| (label, text, Tone::Plain)).collect();
    Section { title: "record", lines }
}

fn agent(machine: &Judged, now: Timestamp) -> Section {
    let status = &machine.status;
    let heartbeat = match status.heartbeat {
        None => "never".to_owned(),
        Some(beat) => {
            let (age, period) = (span(now.since(beat.at)), span(beat.period));
            let job = if beat.busy { ", with a job" } else { "" };
            format!("{age} ago, one every {period}{job}")
        }
    };
    let tone = if machine.is_silent() { Tone::Wrong } else { Tone::Plain };
    let mut lines = vec![("heartbeat", heartbeat, tone)];
    if let Some(is_ready) = machine.is_ready {
        let text =
            if is_ready { "yes, a claim need not wait" } else { "no, a claim has it register" };
        lines.push(("registered", text.to_owned(), Tone::Plain));
    }
    match &status.report {
        None => lines.push(("signal", "none".to_owned(), Tone::Plain)),
        Some(report) => {
            let about = report.label().map(|label| format!(" for run {label}")).unwrap_or_default();
            let ago = span(now.since(report.at));
            lines.push(("signal", format!("{}{about}, {ago} ago", report.signal), Tone::Plain));
            if !report.detail.is_empty() {
                lines.push(("", report.detail.replace(char::is_control, " "), Tone::Plain));
            }
        }
    }
    Section { title: "agent", lines }
}
