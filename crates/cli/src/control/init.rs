//! `ondeck init`: writes the files of a set-up into a repository, and says what to do with them.

mod answers;
mod diff;
mod files;
mod function;
mod lines;
mod outputs;
mod steps;
mod surroundings;
mod writing;

use std::io::Write;

use ondeck_core::model::failure::Failure;

use self::files::{GeneratedFile, SETTINGS};
use self::outputs::Outputs;
use self::surroundings::Checkout;
use self::writing::{Outcome, present, write};
use crate::control::config::check_text;
use crate::inputs::Common;
use crate::inputs::init::{OUTPUTS, PRINT};
use crate::inputs::rows::YES;
use crate::logging;
use crate::output::unwritten;

/// Runs the command and returns its exit code.
pub(crate) async fn init(common: &Common) -> u8 {
    let text = match run(common).await {
        Ok(text) => text,
        Err(failure) => return logging::fail(&failure),
    };
    let printed = write!(anstream::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
    match printed.err().and_then(|error| unwritten("stdout", &error)) {
        None => 0,
        Some(failure) => logging::fail(&failure),
    }
}

/// Writes the files and returns what to print.
async fn run(common: &Common) -> Result<String, Failure> {
    let given = &common.given;
    if common.json {
        return Err(Failure::invalid("init prints no JSON").hint("leave --json out"));
    }
    let checkout = Checkout::find().await?;
    let outputs = given.text(&OUTPUTS).map(Outputs::read).transpose()?;
    let answers = answers::find(given, &checkout).await?;
    let files = match &outputs {
        Some(outputs) => {
            let settings = present(&checkout.root, SETTINGS)?.ok_or_else(|| {
                Failure::invalid(format!("there is no file for the outputs: {SETTINGS}"))
                    .hint("run ondeck init without --outputs first")
            })?;
            files::deployed(&settings, outputs)
        }
        None => {
            let settings = present(&checkout.root, SETTINGS)?;
            let parameters = present(&checkout.root, files::PARAMETERS)?;
            files::all(&answers, &|path| {
                if path == SETTINGS { settings.clone() } else { parameters.clone() }
            })
        }
    };
    for file in files.iter().filter(|file| file.path == SETTINGS) {
        // Before the deployment of a new network, nothing knows its subnets.
        let is_draft = lines::value(&file.text, "network", "subnet-ids").is_none();
        check_text(file.path, &file.text, is_draft)?;
    }
    if given.is_set(&PRINT) {
        return Ok(files.iter().map(printed).collect());
    }
    let mut text = String::new();
    for file in &files {
        let outcome = write(&checkout.root, file, given.is_set(&YES))?;
        text += &format!("{:9} {}\n", outcome.word(), file.path);
        if outcome == Outcome::Kept && !file.only_if_absent {
            text += "          --yes overwrites it\n";
        }
    }
    Ok(format!("{text}\n{}", steps::left(&answers, outputs.is_some())))
}

/// A file as --print shows it.
fn printed(file: &GeneratedFile) -> String {
    format!("==> {} <==\n{}\n", file.path, file.text)
}
