//! Checks of EC2's Query protocol, which flattens all names and numbers the entries of lists.

use crate::aws::params::Params;

use super::{Found, Model, Reference, ShapeType, below, leaf};

/// Checks a request's parameters against its input shape, and its API version.
pub(super) fn check_request(model: &Model, shape: &str, params: &Params, found: &mut Found) {
    let version = params.text("Version").unwrap_or_default();
    if version != model.metadata.api_version {
        found.add("Version", format!("not that of the model: {version}"));
    }
    check(model, shape, &params.without("Action").without("Version"), "", found);
}

fn check(model: &Model, shape: &str, params: &Params, place: &str, found: &mut Found) {
    let shape = model.shape(shape);
    match shape.kind {
        ShapeType::Structure => {
            no_value(params, place, found);
            let wire: Vec<(String, &String, &Reference)> =
                shape.members.iter().map(|(name, it)| (wire_name(name, it), name, it)).collect();
            for (name, params) in params.members() {
                let place = below(place, name);
                match wire.iter().find(|(wire, ..)| wire == name) {
                    Some((_, _, member)) => check(model, &member.shape, params, &place, found),
                    None => found.add(&place, "no such member"),
                }
            }
            for (name, ..) in wire.iter().filter(|(wire, name, _)| {
                shape.required.contains(name) && !params.members().contains_key(wire)
            }) {
                found.add(&below(place, name), "missing");
            }
        }
        ShapeType::List => {
            no_value(params, place, found);
            let entries = params.members();
            leaf::check_size(shape, entries.len(), "entries", place, found);
            for number in 1..=entries.len() {
                if !entries.contains_key(&number.to_string()) {
                    found.add(&below(place, &number.to_string()), "missing from the list");
                }
            }
            for (number, entry) in entries {
                if let Some(member) = &shape.member {
                    check(model, &member.shape, entry, &below(place, number), found);
                }
            }
        }
        _ => {
            for name in params.members().keys() {
                found.add(&below(place, name), "no such member");
            }
            if let Some(text) = params.value() {
                leaf::check_text(shape, text, place, found);
            }
        }
    }
}

fn no_value(params: &Params, place: &str, found: &mut Found) {
    if let Some(text) = params.value() {
        found.add(place, format!("a single value where there should be more: {text}"));
    }
}

/// The name of a member in EC2 requests: `queryName`, or else `locationName` with a capital, or
/// else the name itself.
fn wire_name(name: &str, member: &Reference) -> String {
    if let Some(query) = &member.query_name {
        return query.clone();
    }
    let Some(location) = &member.location_name else { return name.to_owned() };
    let mut letters = location.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
