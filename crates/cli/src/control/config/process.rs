//! Which pool the file is about, as inputs of the process.

use ondeck_core::inputs::Input;
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::failure::Failure;

use super::PoolFile;
use super::document::{PROCESS_KEYS, process_row};
use crate::inputs::Common;

/// The inputs, with pool, backend and region of the file where they are not given. Fails if one is
/// given that the file contradicts: one of the two is not the pool that is meant.
pub(super) fn common(common: &Common, file: &PoolFile) -> Result<Common, Failure> {
    let mut given = common.given.clone();
    for (key, row, text) in stated(file) {
        match common.given.text(row).filter(|given| !given.is_empty()) {
            Some(other) if other != text => {
                let message = format!(
                    "{} is given as {}, and {} says {}",
                    row.name,
                    quoted(other),
                    file.source.path,
                    quoted(text)
                );
                return Err(Failure::invalid(message).hint(format!(
                    "correct --{}, {} or {key} in the file",
                    row.name,
                    row.variable()
                )));
            }
            Some(_) => {}
            None => given.insert(row, text),
        }
    }
    Ok(Common::from_inputs(given))
}

/// The keys of the file that are inputs of the process, with their rows and texts.
fn stated(file: &PoolFile) -> impl Iterator<Item = (&'static str, &'static Input, &str)> {
    PROCESS_KEYS.into_iter().filter_map(|(key, input)| {
        let entry = file.document.process.get(input).filter(|entry| !entry.text.is_empty())?;
        Some((key, process_row(input)?, entry.text.as_str()))
    })
}
