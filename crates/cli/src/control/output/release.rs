use ondeck_core::model::failure::Failure;
use ondeck_core::modes::release::{Disposition, Outcome};
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
                let (word, reason) = words(&one.disposition);
                let mut instance = json!({
                    "instanceId": one.id,
                    "fate": word,
                    "instanceType": one.spec.instance_type,
                    "usageClass": one.spec.usage_class,
                    "resourceClass": one.spec.resource_class,
                    "heldMs": one.used_for.map(millis),
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
            let (word, reason) = words(&one.disposition);
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
pub(crate) fn words(fate: &Disposition) -> (&'static str, String) {
    match fate {
        Disposition::Pooled => ("pooled", String::new()),
        Disposition::Terminated => ("ended", "no idle time left".to_owned()),
        Disposition::Expired(why) => ("expired", why.clone()),
        Disposition::Superseded(why) => ("moved-on", why.clone()),
        Disposition::Unfinished(state) => {
            ("expired", format!("left {state} by an unfinished provision"))
        }
    }
}
