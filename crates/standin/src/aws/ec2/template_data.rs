//! A launch template's data, translated from the names in requests to those in answers.

use aws_smithy_types::base64;

use crate::aws::params::Params;
use crate::aws::xml::Xml;

use super::refusal::Refusal;

/// EC2's limit for user data in bytes, before base64.
const USER_DATA_LIMIT: usize = 16_384;

/// Fails for data that EC2 refuses when the template is created. EC2 validates most of the
/// data only at launch.
pub(crate) fn check(data: &Params) -> Result<(), Refusal> {
    let Some(user_data) = data.text("UserData") else { return Ok(()) };
    let digits = user_data.trim_end_matches('=');
    let is_base64 = user_data.len().is_multiple_of(4)
        && digits.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'/'));
    if !is_base64 {
        let message = "Invalid BASE64 encoding of user data.";
        return Err(Refusal::new("InvalidUserData.Malformed", message));
    }
    if digits.len() * 3 / 4 > USER_DATA_LIMIT {
        let message = format!("User data is limited to {USER_DATA_LIMIT} bytes");
        return Err(Refusal::new("InvalidParameterValue", message));
    }
    Ok(())
}

/// The bytes of base64 that [`check`] has accepted.
pub(crate) fn decoded(text: &str) -> Vec<u8> {
    base64::decode(text).unwrap_or_default()
}

/// Writes the data as in an answer: names begin with a lowercase letter, and lists
/// are sets of items.
pub(crate) fn write(xml: &mut Xml, data: &Params) {
    for (name, member) in data.members() {
        let small = uncapitalized(name);
        if member.is_list() {
            xml.within(&format!("{small}Set"), |xml| {
                for entry in member.entries() {
                    match entry.value() {
                        Some(value) => xml.text("item", value),
                        None => xml.within("item", |xml| write(xml, entry)),
                    }
                }
            });
        } else if let Some(value) = member.value() {
            xml.text(&small, value);
        } else {
            xml.within(&small, |xml| write(xml, member));
        }
    }
}

fn uncapitalized(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
