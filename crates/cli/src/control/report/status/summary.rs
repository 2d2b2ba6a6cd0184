//! The summary: a few labelled lines about the pool as a whole.

use std::collections::BTreeMap;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::modes::status::judgement::{Ceiling, Group, Judgement, Problem, Summary};

use super::{Tone, cut, width};
use crate::control::report::span::span;
use crate::control::report::wire::spend_words;

/// One line of the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SummaryLine {
    pub(crate) subject: Subject,
    /// What precedes the text: a label, or spaces.
    pub(crate) lead: String,
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Pool,
    /// One class, where there are several.
    Class,
    Problem,
}

impl SummaryLine {
    fn new(label: &str, text: String) -> SummaryLine {
        let lead = format!("{label}: ");
        SummaryLine { subject: Subject::Pool, lead, text, tone: Tone::Plain }
    }

    /// The line with its colours, in at most so many columns.
    pub(super) fn shown(&self, columns: Option<usize>) -> String {
        let lead = cut(&self.lead, columns.unwrap_or(usize::MAX));
        let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(width(&lead)));
        format!("{lead}{}", self.tone.paint(&cut(&self.text, room)))
    }
}

/// The lines, from the number of machines to what is wrong.
pub(crate) fn lines(judgement: &Judgement) -> Vec<SummaryLine> {
    let summary = &judgement.summary;
    let mut lines = vec![machines(judgement)];
    if summary.classes.len() > 1 {
        lines.extend(summary.classes.iter().map(|it| SummaryLine {
            subject: Subject::Class,
            lead: "  ".to_owned(),
            text: format!("{}: {}", it.class, counts(&it.groups, "none")),
            tone: Tone::Plain,
        }));
    }
    lines.push(SummaryLine::new("pool", pool(summary)));
    lines.extend(ready(summary).map(|text| SummaryLine::new("ready", text)));
    lines.push(SummaryLine::new("warm", warm(summary)));
    if let Some((id, age)) = &summary.oldest_idle {
        lines.push(SummaryLine::new("oldest idle", format!("{} ({id})", span(*age))));
    }
    lines.push(refresh(judgement));
    if !summary.ceilings.is_empty() {
        lines.push(SummaryLine::new("ceiling", ceilings(&summary.ceilings)));
    }
    lines.extend(summary.spend.as_ref().map(|used| SummaryLine::new("spend", spend_words(used))));
    match summary.problems.as_slice() {
        [] => lines.push(SummaryLine::new("wrong", "nothing".to_owned())),
        problems => lines.extend(problems.iter().enumerate().map(|(n, problem)| SummaryLine {
            subject: Subject::Problem,
            lead: if n == 0 { "wrong: " } else { "       " }.to_owned(),
            text: wrong(problem),
            tone: Tone::Wrong,
        })),
    }
    lines
}

fn machines(judgement: &Judgement) -> SummaryLine {
    let summary = &judgement.summary;
    let total: usize = summary.groups.values().sum();
    let class = match summary.classes.as_slice() {
        [only] if total > 0 => format!(", all {}", only.class),
        _ => String::new(),
    };
    match total {
        0 => {
            let none = match judgement.unreadable.is_empty() {
                true => "no machines",
                false => "no machines with a readable record",
            };
            SummaryLine { lead: String::new(), ..SummaryLine::new("", none.to_owned()) }
        }
        total => {
            let text = format!("{total} ({}){class}", counts(&summary.groups, ""));
            SummaryLine::new("machines", text)
        }
    }
}

fn counts(groups: &BTreeMap<Group, usize>, none: &str) -> String {
    if groups.is_empty() {
        return none.to_owned();
    }
    let counts = groups.iter().map(|(group, count)| format!("{count} {}", group.as_str()));
    counts.collect::<Vec<_>>().join(", ")
}

fn pool(summary: &Summary) -> String {
    let filled = summary.classes.iter().filter(|it| it.tickets > 0);
    let filled: Vec<String> = filled.map(|it| format!("{} {}", it.class, it.tickets)).collect();
    if filled.is_empty() { "empty".to_owned() } else { filled.join(", ") }
}

/// How many idle machines are registered, where they are to be.
fn ready(summary: &Summary) -> Option<String> {
    let idle = summary.groups.get(&Group::Idle).copied().unwrap_or_default();
    let ready = summary.ready?;
    Some(match idle {
        0 => "no machine is idle".to_owned(),
        idle => format!("{ready} of {idle} idle machines are online"),
    })
}

fn warm(summary: &Summary) -> String {
    match summary.warm {
        None => "unknown, no event of the last 24 hours tells".to_owned(),
        Some(warm) => {
            let of = warm.handed_over.max(1);
            let percent = (warm.warm * 100 + of / 2) / of;
            let machines = if of == 1 { "machine" } else { "machines" };
            format!("{percent} %, {} of the last {of} {machines} that runs were given", warm.warm)
        }
    }
}

fn refresh(judgement: &Judgement) -> SummaryLine {
    let summary = &judgement.summary;
    let age = summary.refreshed.map(|at| span(judgement.at.since(at)));
    let (text, tone) = match (age, summary.refresh_overdue) {
        (None, false) => ("unknown".to_owned(), Tone::Plain),
        (None, true) => ("unknown, overdue".to_owned(), Tone::Wrong),
        (Some(age), false) => (format!("within the last {age}"), Tone::Plain),
        (Some(age), true) => {
            (format!("overdue, the last that is known was {age} ago"), Tone::Wrong)
        }
    };
    SummaryLine { tone, ..SummaryLine::new("refresh", text) }
}

fn ceilings(ceilings: &[Ceiling]) -> String {
    let one = |it: &Ceiling| {
        let class = it.class.as_ref().map(|class| format!("{class} ")).unwrap_or_default();
        let count = it.machines.map_or("unknown".to_owned(), |count| count.to_string());
        format!("{class}{count} of {}", it.max)
    };
    ceilings.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A problem, with the first machines that it is about.
fn wrong(problem: &Problem) -> String {
    const NAMED: usize = 3;
    let ids = problem.machines.iter().take(NAMED).map(InstanceId::as_str);
    let mut names = ids.collect::<Vec<_>>().join(", ");
    if problem.machines.len() > NAMED {
        names += &format!(" and {} more", problem.machines.len() - NAMED);
    }
    let about = if names.is_empty() { String::new() } else { format!(": {names}") };
    format!("{}{about}", problem.message)
}
