use ondeck_core::model::failure::Failure;
use ondeck_core::model::requirements::{Mismatch, UsageClass};
use ondeck_core::modes::provision::{MachineSource, Outcome, PoolSearch, Provisioned};
use serde_json::{Value, json};

use crate::control::actions::summary::provision;
use crate::inputs::Backend;

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
                    "readyMs": millis(instance.milestones.ready),
                    "foundMs": instance.milestones.found.map(millis),
                    "ownedMs": millis(instance.milestones.owned),
                    "registeredMs": millis(instance.milestones.registered),
                    "why": instance.why,
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
            "search": search(&self.search),
        });
        if self.failure.is_some() {
            object["ended"] = json!(self.terminated);
            object["returned"] = json!(self.returned);
        }
        if !self.clean_up_failures.is_empty() {
            object["leftovers"] = json!(self.clean_up_failures);
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
                format!("{} ms", millis(instance.milestones.ready)),
            ]
        });
        let machines =
            table(&["instance", "source", "type", "usage", "ready after"], rows.collect());
        format!(
            "{machines}\nrun {}: {} warm, {} cold, {} adopted after {} ms; jobs say runs-on: {}",
            self.run,
            self.count(MachineSource::Warm),
            self.count(MachineSource::Cold),
            self.count(MachineSource::Adopted),
            millis(self.timings.total),
            self.run,
        )
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }

    fn warnings(&self) -> Vec<String> {
        self.clean_up_failures.clone()
    }

    fn notices(&self) -> Vec<String> {
        let dearer = |instance: &&Provisioned| {
            self.usage == UsageClass::Spot && instance.spec.usage_class == UsageClass::OnDemand
        };
        match self.instances.iter().filter(dearer).count() {
            0 => Vec::new(),
            count => vec![format!("spot had no capacity; launched on demand: {count}")],
        }
    }

    fn outputs(&self) -> Vec<(&'static str, String)> {
        let label = if self.failure.is_none() { self.run.as_str() } else { "" };
        let ids: Vec<&str> = self.instances.iter().map(|instance| instance.id.as_str()).collect();
        vec![
            ("label", label.to_owned()),
            ("instance-ids", ids.join(" ")),
            ("warm-count", self.count(MachineSource::Warm).to_string()),
            ("cold-count", self.count(MachineSource::Cold).to_string()),
        ]
    }

    fn summary(&self, backend: Backend) -> String {
        provision::summary(self, backend)
    }
}

fn search(search: &PoolSearch) -> Value {
    let unsuitable = |mismatch| search.unsuitable.get(&mismatch).copied().unwrap_or_default();
    json!({
        "asked": search.asked,
        "tickets": search.tickets,
        "claimed": search.claimed,
        "unsuitable": {
            "resourceClass": unsuitable(Mismatch::Class),
            "usageClass": unsuitable(Mismatch::Usage),
            "instanceType": unsuitable(Mismatch::Type),
            "cpu": unsuitable(Mismatch::Cpu),
            "mem": unsuitable(Mismatch::Mem),
        },
        "void": search.void,
        "lost": search.lost,
        "unhealthy": search.unhealthy,
    })
}
