//! The inputs of the local backend. All of them shape how machines are launched, so that shortage
//! and failure can be tried out.

use std::ops::RangeInclusive;

use ondeck_core::inputs::{ActionInput, FileForm, Input, InputTable};
use ondeck_core::model::excerpt::quoted;

use crate::compute::catalogue::Catalogue;

pub(crate) const CAPACITY: Input = Input::stored(
    "local-capacity",
    "COUNT",
    "Most machines that may be alive at the same time; empty for no limit",
)
.checked(|text| whole_number::<usize>(text).map(drop))
.in_action(ActionInput::Absent)
.in_file("local", FileForm::Whole);
pub(crate) const BOOT_MS: Input =
    Input::stored("local-boot-ms", "MS", "How long every machine takes to boot, in milliseconds")
        .or("0")
        .checked(|text| whole_number::<u32>(text).map(drop))
        .in_action(ActionInput::Absent)
        .in_file("local", FileForm::Whole);
pub(crate) const REGISTRATION_MS: Input = Input::stored(
    "local-registration-ms",
    "MS",
    "How long a runner takes to register, in milliseconds: a number, or a range such as 200-6000",
)
.or("0")
.checked(|text| millis_range(text).map(drop))
.in_action(ActionInput::Absent)
.in_file("local", FileForm::Text);
pub(crate) const CATALOGUE: Input = Input::stored(
    "local-catalogue",
    "JSON",
    r#"Instance types, as JSON: [{"type":"c6i.large","cpu":2,"mem":4096,"bootMs":0,"capacity":3}]"#,
)
.or_described("some families and sizes of EC2")
.checked(|text| Catalogue::from_json(text).map(drop))
.in_action(ActionInput::Absent)
.in_file("local", FileForm::Text);
pub(crate) const LAUNCH_FAILURE: Input = Input::stored(
    "local-launch-failure",
    "TEXT",
    "Fail every launch with this text; empty to launch again",
)
.in_action(ActionInput::Absent)
.in_file("local", FileForm::Text);
pub(crate) const DUPLICATE_TICKETS: Input = Input::stored(
    "local-duplicate-tickets",
    "true|false",
    "Deliver every ticket twice, as SQS may do",
)
.or("false")
.checked(true_or_false)
.in_action(ActionInput::Absent)
.in_file("local", FileForm::Flag);

/// Every input of the local backend.
pub const INPUTS: InputTable = InputTable {
    heading: "Local backend",
    rows: &[CAPACITY, BOOT_MS, REGISTRATION_MS, CATALOGUE, LAUNCH_FAILURE, DUPLICATE_TICKETS],
};

/// Fails, with words that follow the name of an input, if the text is not a number of this type.
pub(crate) fn whole_number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("is not a whole number: {}", quoted(text)))
}

/// Reads `MS` or `MS-MS`. Fails, with words that follow the name of an input, if the text is neither
/// or the range is empty.
pub(crate) fn millis_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let range = whole_number(least)?..=whole_number(most)?;
    match range.is_empty() {
        true => Err(format!("is an empty range: {}", quoted(text))),
        false => Ok(range),
    }
}

fn true_or_false(text: &str) -> Result<(), String> {
    match text {
        "true" | "false" => Ok(()),
        _ => Err(format!("is neither true nor false: {}", quoted(text))),
    }
}
