//! Messages of the pool: every sender with the permission can put any text there.

use ondeck_core::model::ticket::Ticket;
use proptest::prelude::*;

use super::strategies::{assert_readable, config, corrupted, instance_id, json, spec, text, time};

fn ticket() -> impl Strategy<Value = Ticket> {
    let parts = (instance_id(), spec(), time(), any::<u32>(), any::<Option<u32>>());
    parts.prop_map(|(instance_id, spec, threshold, generation, runs)| Ticket {
        instance_id,
        spec,
        threshold,
        generation,
        runs,
    })
}

/// What is read is a ticket that can be written again; what is not is refused in a line.
#[track_caller]
fn read_or_refused(text: &str) {
    match Ticket::from_json(text) {
        Ok(ticket) => assert_eq!(Ticket::from_json(&ticket.to_json()), Ok(ticket)),
        Err(malformed) => {
            let message = malformed.to_string();
            assert!(message.starts_with("malformed ticket: "), "{message}");
            assert_readable(&message);
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_ticket_survives_being_written(ticket in ticket()) {
        let text = ticket.to_json();
        prop_assert!(!text.contains(['\r', '\n']), "{}", text);
        prop_assert_eq!(Ticket::from_json(&text), Ok(ticket.clone()));
        let older = text.replacen("\"mem\":", "\"mmem\":", 1);
        // A type may be called anything, the name of the field included.
        if !ticket.spec.instance_type.contains("mem") {
            prop_assert_eq!(Ticket::from_json(&older), Ok(ticket));
        }
    }

    #[test]
    fn anything_is_read_or_refused(text in text()) {
        read_or_refused(&text);
    }

    #[test]
    fn any_json_is_read_or_refused(value in json()) {
        read_or_refused(&value.to_string());
    }

    #[test]
    fn a_corrupted_ticket_is_read_or_refused(text in corrupted(ticket().prop_map(|t| t.to_json()))) {
        read_or_refused(&text);
    }

    #[test]
    fn a_field_that_is_missing_is_named(ticket in ticket(), at in any::<prop::sample::Index>()) {
        let mut fields: serde_json::Map<_, _> = serde_json::from_str(&ticket.to_json()).unwrap();
        // A version without it does not write it.
        fields.remove("runs");
        let name = fields.keys().nth(at.index(fields.len())).unwrap().clone();
        fields.remove(&name);
        let text = serde_json::Value::Object(fields).to_string();
        let error = Ticket::from_json(&text).unwrap_err().to_string();
        prop_assert!(error.contains(&format!("missing field `{name}`")), "{}", error);
    }

    #[test]
    fn a_field_that_is_new_harms_nothing(ticket in ticket(), name in "[A-Z]{1,9}", value in json()) {
        let mut fields: serde_json::Map<_, _> = serde_json::from_str(&ticket.to_json()).unwrap();
        fields.insert(name, value);
        let text = serde_json::Value::Object(fields).to_string();
        prop_assert_eq!(Ticket::from_json(&text), Ok(ticket));
    }
}

/// Found here: the word that is refused was repeated as it was, line breaks included, and what
/// stands behind them could pass for a command in a workflow's log.
#[test]
fn a_refused_word_stays_on_its_line() {
    let text = r#"{"instanceId":"i-1","usageClass":"spot\n::set-output name=x::y"}"#;
    let error = Ticket::from_json(text).unwrap_err().to_string();
    assert!(error.contains("unknown variant `spot ::set-output"), "{error}");
    let long = format!(r#"{{"instanceId":"i-1","usageClass":"{}"}}"#, "x".repeat(200_000));
    assert_readable(&Ticket::from_json(&long).unwrap_err().to_string());
}
