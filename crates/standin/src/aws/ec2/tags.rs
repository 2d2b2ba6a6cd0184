//! Parses and validates the tags of requests.

use std::collections::BTreeMap;

use crate::aws::params::Params;

use super::refusal::Refusal;

pub(crate) type Tags = BTreeMap<String, String>;

/// The tags for one type of resource from the `TagSpecification` list. Fails if one is invalid.
pub(crate) fn of(params: &Params, resource: &str) -> Result<Tags, Refusal> {
    let mut tags = Tags::new();
    for specification in params.list("TagSpecification") {
        if specification.text("ResourceType") != Some(resource) {
            continue;
        }
        for tag in specification.list("Tag") {
            let key = tag.text("Key").ok_or_else(|| Refusal::missing("Tag.Key"))?;
            let value = tag.text("Value").unwrap_or_default();
            check(key, value)?;
            if tags.insert(key.to_owned(), value.to_owned()).is_some() {
                let message = format!("Duplicate tag key '{key}' specified.");
                return Err(Refusal::new("InvalidParameterValue", message));
            }
        }
    }
    if tags.len() > 50 {
        return Err(Refusal::new(
            "TagLimitExceeded",
            "The maximum number of Tags has been reached",
        ));
    }
    Ok(tags)
}

/// Fails if the request tags a resource type that this action cannot tag.
pub(crate) fn only_for(params: &Params, resources: &[&str]) -> Result<(), Refusal> {
    for specification in params.list("TagSpecification") {
        let resource = specification.text("ResourceType").unwrap_or_default();
        if !resources.contains(&resource) {
            return Err(Refusal::new(
                "InvalidParameterValue",
                format!("'{resource}' is not a valid taggable resource type for this operation."),
            ));
        }
    }
    Ok(())
}

/// Fails if a key cannot be part of a path: the metadata service serves tags by path.
pub(crate) fn check_for_metadata(tags: &Tags) -> Result<(), Refusal> {
    let fits = |key: &str| {
        !matches!(key, "." | ".." | "_index")
            && key.chars().all(|it| it.is_ascii_alphanumeric() || "+-=.,_:@".contains(it))
    };
    match tags.keys().find(|key| !fits(key)) {
        Some(key) => Err(Refusal::new(
            "InvalidParameterValue",
            format!(
                "'{key}' is not a valid tag key. Tag keys must match pattern \
                     ([0-9a-zA-Z\\\\-_+=,.@:]{{1,255}}), and must not be a reserved name \
                     ('.', '..', '_index')"
            ),
        )),
        None => Ok(()),
    }
}

fn check(key: &str, value: &str) -> Result<(), Refusal> {
    if key.to_ascii_lowercase().starts_with("aws:") {
        let message = "Tag keys starting with 'aws:' are reserved for internal use";
        return Err(Refusal::new("InvalidParameterValue", message));
    }
    if key.chars().count() > 128 {
        return Err(Refusal::new(
            "InvalidParameterValue",
            "Tag key exceeds the maximum length of 128 characters",
        ));
    }
    if value.chars().count() > 256 {
        return Err(Refusal::new(
            "InvalidParameterValue",
            "Tag value exceeds the maximum length of 256 characters",
        ));
    }
    Ok(())
}
