//! What the control plane makes of the inputs.

use std::collections::BTreeMap;

use ondeck_core::inputs::{Given, Input, InputScope};
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::secret::Secret;
use ondeck_core::modes::provision::run_from_inputs;

use crate::control::github_actions;
use crate::inputs::{Backend, Common, rows};

/// The word of `--reset` for every setting that is not given.
const EVERY_SETTING: &str = "all";

/// The secrets among the inputs.
pub(crate) fn secrets(given: &Given) -> impl Iterator<Item = Secret> {
    let secret = crate::inputs::rows().filter(|row| row.scope == InputScope::Secret);
    secret.filter_map(|row| given.secret(row))
}

/// The settings that refresh is to store: what was given, an empty text for what is to return to its
/// default, and the forge in any case if machines come from a cloud, because they are of no use to
/// the local forge. Fails with the first setting that its row's parser refuses, or if the names to
/// reset are none of settings that were not given.
pub(crate) fn settings(common: &Common) -> Result<BTreeMap<String, String>, Failure> {
    check_reset(&common.given)?;
    let mut settings = BTreeMap::new();
    for row in stored_rows() {
        let text = match common.given.text(row) {
            None if is_reset(&common.given, row) => "",
            None => continue,
            Some(text) => text,
        };
        if !text.is_empty() {
            (row.check)(text).map_err(|problem| {
                Failure::invalid(format!("{} {problem}", row.name))
                    .hint("ondeck refresh --help shows what it takes")
            })?;
        }
        settings.insert(row.name.to_owned(), text.to_owned());
    }
    if common.compute != Backend::Local {
        let forge = settings.entry(rows::FORGE.name.to_owned()).or_default();
        if forge.is_empty() {
            rows::GITHUB.clone_into(forge);
        }
    }
    Ok(settings)
}

/// Whether refresh is to return a setting to its default: it was given as an empty text, or
/// `--reset` names it, or all settings and it was not given.
pub(crate) fn is_reset(given: &Given, row: &Input) -> bool {
    match given.text(row) {
        Some(text) => text.is_empty(),
        None => names_to_reset(given).any(|name| name == row.name || name == EVERY_SETTING),
    }
}

fn names_to_reset(given: &Given) -> impl Iterator<Item = &str> {
    let names = given.text(&rows::RESET).unwrap_or_default();
    names.split([' ', ',', '\n', '\r', '\t']).filter(|name| !name.is_empty())
}

fn stored_rows() -> impl Iterator<Item = &'static Input> {
    crate::inputs::rows().filter(|row| row.scope == InputScope::Stored)
}

fn check_reset(given: &Given) -> Result<(), Failure> {
    for name in names_to_reset(given).filter(|name| *name != EVERY_SETTING) {
        let row = stored_rows().find(|row| row.name == name).ok_or_else(|| {
            Failure::invalid(format!("reset names no stored setting: {}", quoted(name)))
                .hint("ondeck refresh --help lists the settings")
        })?;
        if given.text(row).is_some_and(|text| !text.is_empty()) {
            return Err(Failure::invalid(format!("reset names a setting that is given: {name}"))
                .hint(format!("remove {name} from one of the two")));
        }
    }
    Ok(())
}

/// The run that was named, or the one that this process is part of.
pub(crate) fn run_id(given: &Given) -> Result<RunId, Failure> {
    let of_process = std::env::var("GITHUB_RUN_ID").ok().filter(|run| !run.is_empty());
    run_from_inputs(given, of_process)
}

/// The run to provision for. Fails in a workflow step if that is not the step's own run: a machine
/// refuses the jobs of any other run, so none of them would start.
pub(crate) fn run_to_provision(given: &Given) -> Result<RunId, Failure> {
    let run = run_id(given)?;
    match std::env::var("GITHUB_RUN_ID") {
        Ok(own) if github_actions::is_active() && !own.is_empty() && own != run.as_str() => {
            let message =
                format!("run-id is not the id of this workflow run, which is {own}: {run}");
            Err(Failure::invalid(message).hint(
                "remove run-id; give label-suffix if a run needs several kinds of machines, and \
                 use the label that provision prints in runs-on",
            ))
        }
        _ => Ok(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(compute: Backend, given: &[(&Input, &str)]) -> Common {
        let mut inputs = Given::default();
        given.iter().for_each(|(row, text)| inputs.insert(row, *text));
        Common {
            records: compute,
            compute,
            home: None,
            json: false,
            verbose: 0,
            quiet: false,
            given: inputs,
        }
    }

    #[test]
    fn every_setting_can_be_reset_by_name_by_all_and_by_an_empty_text() {
        for row in stored_rows() {
            let expected = BTreeMap::from([(row.name.to_owned(), String::new())]);
            let by_name = common(Backend::Local, &[(&rows::RESET, row.name)]);
            assert_eq!(settings(&by_name), Ok(expected.clone()), "{}", row.name);
            let by_text = common(Backend::Local, &[(row, "")]);
            assert_eq!(settings(&by_text), Ok(expected), "{}", row.name);
        }
        let all = settings(&common(Backend::Local, &[(&rows::RESET, "all")])).unwrap();
        assert!(all.values().all(String::is_empty));
        assert_eq!(all.len(), stored_rows().count());
    }

    #[test]
    fn what_is_given_is_not_reset() {
        let row = stored_rows().find(|row| row.name == "max-machines").unwrap();
        let all = settings(&common(Backend::Local, &[(&rows::RESET, "all"), (row, "7")])).unwrap();
        assert_eq!(all["max-machines"], "7");
        assert!(all.iter().all(|(name, text)| name == "max-machines" || text.is_empty()));
        for names in ["max-machines", "rescue, max-machines", "all max-machines"] {
            let failure = settings(&common(Backend::Local, &[(&rows::RESET, names), (row, "7")]));
            let message = failure.unwrap_err().message;
            assert_eq!(message, "reset names a setting that is given: max-machines", "{names}");
        }
    }

    #[test]
    fn only_settings_can_be_reset() {
        for name in ["instance-count", "github-token", "set-up-by", "nothing", "All"] {
            let failure = settings(&common(Backend::Local, &[(&rows::RESET, name)])).unwrap_err();
            assert_eq!(failure.message, format!("reset names no stored setting: \"{name}\""));
        }
    }

    #[test]
    fn machines_from_a_cloud_have_jobs_from_github_after_a_reset_too() {
        for given in
            [&[][..], &[(&rows::RESET, "forge")], &[(&rows::RESET, "all")], &[(&rows::FORGE, "")]]
        {
            assert_eq!(settings(&common(Backend::Aws, given)).unwrap()["forge"], "github");
        }
    }
}
