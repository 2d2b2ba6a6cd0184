use ondeck_core::failure::Failure;
use ondeck_core::provision::{Outcome, Source};
use serde_json::{Value, json};

use super::{Telling, millis, status, table, with_failure};

impl Telling for Outcome {
    fn json(&self) -> Value {
        let instances: Vec<Value> = self
            .instances
            .iter()
            .map(|instance| {
                json!({
                    "instanceId": instance.id,
                    "source": instance.source.as_str(),
                    "instanceType": instance.spec.instance_type,
                    "usageClass": instance.spec.usage_class,
                    "resourceClass": instance.spec.resource_class,
                    "readyMs": millis(instance.ready),
                })
            })
            .collect();
        let timings = &self.timings;
        let mut object = json!({
            "status": status(self.failure.as_ref()),
            "runId": self.run,
            "label": self.run,
            "requested": self.requested,
            "instances": instances,
            "timings": {
                "adoptionMs": millis(timings.adoption),
                "selectionMs": millis(timings.selection),
                "creationMs": millis(timings.creation),
                "validationMs": millis(timings.validation),
                "postProvisionMs": millis(timings.post_provision),
                "totalMs": millis(timings.total),
            },
        });
        if !self.leftovers.is_empty() {
            object["leftovers"] = json!(self.leftovers);
        }
        with_failure(object, self.failure.as_ref())
    }

    fn text(&self) -> String {
        if self.failure.is_some() {
            return String::new();
        }
        let rows = self.instances.iter().map(|instance| {
            vec![
                instance.id.to_string(),
                instance.source.as_str().to_owned(),
                instance.spec.instance_type.clone(),
                instance.spec.usage_class.to_string(),
                format!("{} ms", millis(instance.ready)),
            ]
        });
        let machines =
            table(&["instance", "source", "type", "usage", "ready after"], rows.collect());
        format!(
            "{machines}\nrun {}: {} warm, {} cold, {} adopted after {} ms; jobs say runs-on: {}",
            self.run,
            self.count(Source::Warm),
            self.count(Source::Cold),
            self.count(Source::Adopted),
            millis(self.timings.total),
            self.run,
        )
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.leftovers.clone()
    }
}
