//! The attributes of queues, with their defaults and bounds.

use std::collections::BTreeMap;

use super::refusal::Refusal;

/// Attributes that are numbers, each with its default, the least and the most.
const NUMBERS: [(&str, i64, i64, i64); 5] = [
    (DELAY, 0, 0, 900),
    (LARGEST_MESSAGE, 1_048_576, 1_024, 1_048_576),
    (RETENTION, 345_600, 60, 1_209_600),
    (WAIT, 0, 0, 20),
    (VISIBILITY, 30, 0, 43_200),
];
/// Whether SQS encrypts with keys of its own, which it does unless told otherwise.
const MANAGED_ENCRYPTION: &str = "SqsManagedSseEnabled";
/// A key of KMS. No queue has one at first.
const KEY: &str = "KmsMasterKeyId";

pub(super) const DELAY: &str = "DelaySeconds";
pub(super) const LARGEST_MESSAGE: &str = "MaximumMessageSize";
pub(super) const RETENTION: &str = "MessageRetentionPeriod";
pub(super) const WAIT: &str = "ReceiveMessageWaitTimeSeconds";
pub(super) const VISIBILITY: &str = "VisibilityTimeout";

/// Those of a new queue.
pub(super) fn defaults() -> BTreeMap<String, String> {
    let numbers = NUMBERS.map(|(name, default, ..)| (name.to_owned(), default.to_string()));
    let encryption = (MANAGED_ENCRYPTION.to_owned(), "true".to_owned());
    numbers.into_iter().chain([encryption]).collect()
}

/// Whether a caller may set this attribute.
pub(super) fn is_settable(name: &str) -> bool {
    name == MANAGED_ENCRYPTION || name == KEY || NUMBERS.iter().any(|(known, ..)| *known == name)
}

/// Refuses attributes that a caller cannot set, and values that they cannot have.
pub(super) fn check(attributes: &BTreeMap<String, String>) -> Result<(), Refusal> {
    for (name, value) in attributes {
        if !is_settable(name) {
            return Err(Refusal::unknown_attribute(name));
        }
        let is_valid = match NUMBERS.iter().find(|(known, ..)| known == name) {
            Some((_, _, least, most)) => {
                value.parse::<i64>().is_ok_and(|value| (*least..=*most).contains(&value))
            }
            None => name != MANAGED_ENCRYPTION || ["true", "false"].contains(&&**value),
        };
        if !is_valid {
            let message = format!("Invalid value for the parameter {name}.");
            return Err(Refusal::new("InvalidAttributeValue", message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_bounds() {
        for (name, value, code) in [
            (VISIBILITY, "43200", None),
            (VISIBILITY, "43201", Some("InvalidAttributeValue")),
            (RETENTION, "59", Some("InvalidAttributeValue")),
            (DELAY, "x", Some("InvalidAttributeValue")),
            (MANAGED_ENCRYPTION, "false", None),
            (MANAGED_ENCRYPTION, "yes", Some("InvalidAttributeValue")),
            (KEY, "alias/ours", None),
            ("QueueArn", "arn", Some("InvalidAttributeName")),
            ("FifoQueue", "true", Some("InvalidAttributeName")),
        ] {
            let checked = check(&[(name.to_owned(), value.to_owned())].into());
            assert_eq!(checked.err().map(|refusal| refusal.code), code, "{name} = {value}");
        }
        assert_eq!(check(&defaults()), Ok(()));
    }
}
