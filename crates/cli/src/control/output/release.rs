use ondeck_core::model::failure::Failure;
use ondeck_core::modes::release::{Fate, Outcome};
use serde_json::{Value, json};

use crate::control::actions::summary::release;
use crate::inputs::Backend;

use super::{Telling, millis, status, table, with_failure};

impl Telling for Outcome {
    fn json(&self) -> Value {
        let instances: Vec<Value> = self
            .instances
            .iter()
            .map(|one| {
                let (word, reason) = words(&one.fate);
                let mut instance = json!({
                    "instanceId": one.id,
                    "fate": word,
                    "instanceType": one.spec.instance_type,
                    "usageClass": one.spec.usage_class,
                    "resourceClass": one.spec.resource_class,
                    "heldMs": one.held.map(millis),
                });
                if !reason.is_empty() {
                    instance["reason"] = json!(reason);
                }
                if !one.account.is_empty() {
                    instance["account"] = json!(one.account);
                }
                instance
            })
            .collect();
        let failure = self.failure();
        let object = json!({
            "status": status(failure.as_ref()),
            "runId": self.run,
            "instances": instances,
            "timings": {"totalMs": millis(self.took)},
        });
        with_failure(object, failure.as_ref())
    }

    fn text(&self) -> String {
        if self.instances.is_empty() {
            return format!("run {} has no machines", self.run);
        }
        let rows = self.instances.iter().map(|one| {
            let (word, reason) = words(&one.fate);
            vec![one.id.to_string(), word.to_owned(), reason]
        });
        let machines = table(&["instance", "fate", "reason"], rows.collect());
        format!("{machines}\nrun {} released after {} ms", self.run, millis(self.took))
    }

    fn failure(&self) -> Option<Failure> {
        Outcome::failure(self)
    }

    fn summary(&self, backend: Backend) -> String {
        release::summary(self, backend)
    }
}

/// What became of a machine, and why.
pub(crate) fn words(fate: &Fate) -> (&'static str, String) {
    match fate {
        Fate::Pooled => ("pooled", String::new()),
        Fate::Ended => ("ended", "no idle time left".to_owned()),
        Fate::Expired(why) => ("expired", why.clone()),
        Fate::MovedOn(why) => ("moved-on", why.clone()),
        Fate::Leftover(state) => ("expired", format!("left {state} by an unfinished provision")),
    }
}
