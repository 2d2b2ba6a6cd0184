//! What `ondeck drill` shows: its plan, and what it came to.

pub(crate) mod json;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::drill::{Options, Outcome, Planned, Played, Step, Target, Verdict};

use self::json::DrillJson;
use super::wire::to_json;
use super::{Report, span, table};

/// A plan, and the outcome if it was carried out.
#[derive(Debug)]
pub(crate) struct DrillReport {
    pool: String,
    /// What the ids of the drill's runs begin with.
    name: String,
    planned: Vec<Planned>,
    outcome: Option<Outcome>,
    /// Why it was not carried out.
    refusal: Option<Failure>,
}

impl DrillReport {
    pub(crate) fn planned(pool: &str, options: &Options, planned: Vec<Planned>) -> DrillReport {
        let (pool, name) = (pool.to_owned(), options.name.clone());
        DrillReport { pool, name, planned, outcome: None, refusal: None }
    }

    /// The same, without consent.
    pub(crate) fn refused(self, refusal: Failure) -> DrillReport {
        DrillReport { refusal: Some(refusal), ..self }
    }

    pub(crate) fn played(self, outcome: Outcome) -> DrillReport {
        DrillReport { outcome: Some(outcome), ..self }
    }

    fn plan(&self) -> Vec<String> {
        let row = |planned: &Planned| {
            let (target, what) = match &planned.target {
                Ok(target) => (kind(target), planned.scenario.what().to_owned()),
                Err(reason) => ("-".to_owned(), format!("skipped: {reason}")),
            };
            vec![planned.scenario.to_string(), target, what]
        };
        let rows = self.planned.iter().map(row).collect();
        let table = table(&["scenario", "machine", "what a drill would do"], rows);
        let played = || self.planned.iter().filter(|it| it.target.is_ok()).map(|it| it.scenario);
        let ended = played().filter(|it| it.ends_idle_machine()).count();
        let launched = played().filter(|it| it.launches()).count();
        let ends = match ended {
            0 => "it ends no idle machine".to_owned(),
            1 => "it ends 1 idle machine".to_owned(),
            _ => format!("it ends {ended} idle machines"),
        };
        let launches = match launched {
            0 => "launches none".to_owned(),
            1 => "launches 1, which counts towards max-machines".to_owned(),
            _ => format!("launches {launched}, one at a time, which count towards max-machines"),
        };
        vec![
            format!("plan of a drill in pool {}", self.pool),
            String::new(),
            table,
            String::new(),
            format!("cost: {ends}, and {launches}"),
            "machines of other runs are left alone; the refreshes of a drill do what they do on \
             schedule"
                .to_owned(),
        ]
    }

    fn outcome(&self, outcome: &Outcome) -> Vec<String> {
        let mut lines = vec![format!("drill in pool {}, runs {}-*", self.pool, self.name)];
        for played in &outcome.scenarios {
            lines.push(String::new());
            lines.push(headline(played));
            if !played.steps.is_empty() {
                let rows = played.steps.iter().map(row).collect();
                let columns = ["  expectation", "result", "took", "limit", "seen"];
                lines.push(table(&columns, rows));
            }
        }
        let unmet: Vec<(&Played, &Step)> = outcome.unmet().collect();
        if !unmet.is_empty() {
            lines.extend([String::new(), "not met:".to_owned()]);
        }
        for (played, step) in unmet {
            let Step { expectation, seen, .. } = step;
            lines.push(format!("  {}: {}", played.scenario, expectation.what()));
            lines.push(format!("    seen: {seen}"));
            lines.push(format!("    why: {}", expectation.why()));
            lines.push(format!("    fix: {}", expectation.fix()));
        }
        let before = outcome.before.iter().map(|it| format!("before the drill: {}", it.what));
        let unchecked = outcome.unchecked.iter().map(|it| format!("not checked: {it}"));
        let left = outcome.left.iter().map(|it| format!("left: {it}"));
        let rest: Vec<String> = before.chain(unchecked).chain(left).collect();
        if !rest.is_empty() {
            lines.push(String::new());
        }
        lines.extend(rest);
        lines
    }
}

/// The kind of machine, in a few words.
fn kind(target: &Target) -> String {
    let Target { class, usage, instance_type } = target;
    let kind = instance_type.as_deref().unwrap_or("new");
    format!("{class} {kind} {}", usage.as_str())
}

fn headline(played: &Played) -> String {
    let Played { scenario, verdict, machine, .. } = played;
    let machine = machine.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    match verdict {
        Verdict::Passed => format!("{scenario}{machine}: passed"),
        Verdict::Failed => format!("{scenario}{machine}: FAILED"),
        Verdict::Incomplete(reason) => format!("{scenario}{machine}: incomplete: {reason}"),
        Verdict::Skipped(reason) => format!("{scenario}{machine}: skipped: {reason}"),
    }
}

fn row(step: &Step) -> Vec<String> {
    let is_late = step.limit.is_some_and(|limit| step.took > limit);
    let result = match step.is_met {
        true => "met",
        false if is_late => "LATE",
        false => "NOT MET",
    };
    vec![
        format!("  {}", step.expectation.as_str()),
        result.to_owned(),
        span(step.took),
        step.limit.map_or("-".to_owned(), span),
        step.seen.clone(),
    ]
}

impl Report for DrillReport {
    fn json(&self) -> String {
        to_json(&DrillJson::from(self))
    }

    fn text(&self) -> String {
        let lines = match &self.outcome {
            None => self.plan(),
            Some(outcome) => self.outcome(outcome),
        };
        // A text from outside cannot start a line of its own. The lines of a table are its own.
        let plain = |line: String| line.replace(|c: char| c.is_control() && c != '\n', " ");
        lines.into_iter().map(plain).collect::<Vec<_>>().join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        let of_outcome = || self.outcome.as_ref().and_then(Outcome::failure);
        self.refusal.clone().or_else(of_outcome)
    }
}

#[cfg(test)]
pub(crate) mod tests;
