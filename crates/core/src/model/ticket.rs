//! A message in the pool. It claims that an instance is idle, and has to be checked.

use serde::{Deserialize, Serialize};

use crate::model::excerpt::one_line;
use crate::model::ids::InstanceId;
use crate::model::record::MachineSpec;
use crate::model::timestamp::Timestamp;

/// Announces that an instance was idle when the ticket was sent, and until when that may last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub instance_id: InstanceId,
    pub spec: MachineSpec,
    /// The threshold of the announced idle state. A renewal may have moved it since.
    pub threshold: Timestamp,
    /// The generation of the announced idle state, which a claim requires.
    pub generation: u32,
    /// How many runs the machine was given to; `None` if the sender did not say.
    pub runs: Option<u32>,
}

/// A message that is not a valid ticket, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed ticket: {0}")]
pub struct MalformedTicket(String);

/// The ticket's fields with the order and the names of the message.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    instance_id: InstanceId,
    usage_class: crate::model::requirements::UsageClass,
    instance_type: String,
    cpu: u32,
    #[serde(alias = "mmem")]
    mem: u32,
    resource_class: crate::model::ids::ResourceClass,
    threshold: Timestamp,
    generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runs: Option<u32>,
}

impl Ticket {
    pub fn to_json(&self) -> String {
        let wire = Wire {
            instance_id: self.instance_id.clone(),
            usage_class: self.spec.usage_class,
            instance_type: self.spec.instance_type.clone(),
            cpu: self.spec.cpu,
            mem: self.spec.mem,
            resource_class: self.spec.resource_class.clone(),
            threshold: self.threshold,
            generation: self.generation,
            runs: self.runs,
        };
        serde_json::to_string(&wire).expect("a ticket has only strings and numbers")
    }

    /// Parses a message. Ignores unknown fields, so that a newer version may add some. Fails if a
    /// field is missing or invalid.
    pub fn from_json(text: &str) -> Result<Ticket, MalformedTicket> {
        let wire: Wire = serde_json::from_str(text).map_err(|e| MalformedTicket(one_line(&e)))?;
        Ok(Ticket {
            instance_id: wire.instance_id,
            spec: MachineSpec {
                resource_class: wire.resource_class,
                instance_type: wire.instance_type,
                usage_class: wire.usage_class,
                cpu: wire.cpu,
                mem: wire.mem,
            },
            threshold: wire.threshold,
            generation: wire.generation,
            runs: wire.runs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"instanceId":"i-12345678","usageClass":"on-demand","instanceType":"c6i.large","cpu":2,"mem":4096,"resourceClass":"medium","threshold":"2025-05-31T12:20:00.000Z","generation":3,"runs":2}"#;

    #[test]
    fn the_wire_format_is_kept_to_the_letter() {
        let ticket = Ticket::from_json(TEXT).unwrap();
        assert_eq!(ticket.to_json(), TEXT);
        assert_eq!(Ticket::from_json(&TEXT.replace("\"mem\"", "\"mmem\"")).unwrap(), ticket);
        let silent = TEXT.replace(r#","runs":2"#, "");
        assert_eq!(Ticket::from_json(&silent).unwrap().to_json(), silent);
    }

    #[test]
    fn malformed_tickets_say_what_is_wrong() {
        for (text, problem) in [
            ("", "EOF"),
            ("[]", "invalid length"),
            ("{}", "missing field"),
            (&TEXT.replace("i-12345678", ""), "instance id is empty"),
            (&TEXT.replace("on-demand", "free"), "unknown variant"),
            (&TEXT.replace("2025-05-31T12:20:00.000Z", "soon"), "not a time"),
            (&TEXT.replace(":2,", ":-2,"), "invalid value"),
        ] {
            let error = Ticket::from_json(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
