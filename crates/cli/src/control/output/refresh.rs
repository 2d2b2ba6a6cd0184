use ondeck_core::model::failure::Failure;
use ondeck_core::modes::refresh::Outcome;
use serde_json::{Value, json};

use crate::control::actions::summary::refresh;
use crate::inputs::Backend;

use super::{Telling, status, with_failure};

impl Telling for Outcome {
    fn json(&self) -> Value {
        let object = json!({
            "status": status(self.failure.as_ref()),
            "reaped": self.reaped,
            "pruned": self.pruned_tickets,
            "swept": self.orphans,
            "ticketed": self.requeued,
            "silent": self.unresponsive,
            "intentsSettled": self.settled_intents,
            "ghosts": self.offline_runners,
            "forgotten": self.pruned_records,
            "warmed": self.warmed,
            "stranded": self.stranded,
            "rescued": self.rescued,
            "warnings": self.warnings,
        });
        with_failure(object, self.failure.as_ref())
    }

    fn text(&self) -> String {
        let counts = [
            (self.reaped.len(), "past their threshold, ended"),
            (self.pruned_tickets, "void tickets dropped"),
            (self.orphans.len(), "without a record, ended"),
            (self.requeued.len(), "announced in the pool again"),
            (self.unresponsive.len(), "idle but silent, expired"),
            (self.settled_intents, "abandoned launches settled"),
            (self.offline_runners.len(), "ghost runners struck off"),
            (self.pruned_records, "old records removed"),
            (self.rescued.len(), "runs rescued"),
            (self.warmed, "launched to keep warm"),
        ];
        let mut lines = vec!["set up".to_owned()];
        let done = counts.iter().filter(|(count, _)| *count > 0);
        lines.extend(done.map(|(count, what)| format!("{count} {what}")));
        lines.join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn notices(&self) -> Vec<String> {
        let rescued = self.rescued.iter();
        rescued.map(|run| format!("given machines again, as its jobs had none: {run}")).collect()
    }

    fn summary(&self, _backend: Backend) -> String {
        refresh::summary(self)
    }
}
