//! The configuration that `ondeck apply` has stored for the pool, and what refresh makes of it.
//!
//! While there is one, it is the whole truth about the stored settings: what it states is given to
//! refresh, every other setting returns to its default, and flags and variables that give settings are
//! refused. Only where machines get their agent may still be given, because the action does that at
//! each refresh: those settings follow the release, unless the configuration states one of them. A
//! refresh that is given no agent, such as the function's, takes the one that apply was given.

use std::collections::BTreeMap;

use ondeck_core::inputs::{ActionInput, Given, Input, InputScope};
use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::settings::{APPLIED_CONFIG, ENFORCED_CONFIG};
use serde::{Deserialize, Serialize};

use crate::control::github_actions;
use crate::control::inputs::settings;
use crate::inputs::{Common, rows};

/// An applied configuration, as the store keeps it: one setting, which is JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Applied {
    /// The SHA-256 of the settings.
    pub(crate) digest: String,
    /// The text of each setting that the file stated. An empty one means the default.
    pub(crate) settings: BTreeMap<String, String>,
    /// Where machines get their agent, as given to apply beside the file. Empty if it was given none,
    /// or if the file states it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) agent: BTreeMap<String, String>,
    /// RFC 3339, in UTC.
    pub(crate) applied_at: String,
    /// The commit of the workflow that applied it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// The workflow run that applied it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
}

/// What refresh goes by.
#[derive(Debug)]
pub(crate) struct Enforcement {
    /// The inputs, with the applied settings among those that were given.
    pub(crate) common: Common,
    /// The settings to store, or why the stored ones stay in force.
    pub(crate) settings: Result<BTreeMap<String, String>, Failure>,
    /// The applied configuration, if there is one that can be read.
    pub(crate) applied: Option<Applied>,
    /// The digest of the configuration that the last successful refresh enforced.
    pub(crate) enforced_before: Option<String>,
}

impl Applied {
    /// The configuration among stored settings. Fails if it cannot be read.
    pub(crate) fn among(stored: &BTreeMap<String, String>) -> Result<Option<Applied>, Failure> {
        let Some(text) = stored.get(APPLIED_CONFIG) else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| {
            let problem = one_line(&error);
            Failure::invalid(format!("the applied configuration cannot be read: {problem}"))
                .hint("run ondeck apply again, or ondeck apply --clear")
        })
    }
}

impl Enforcement {
    /// Decides what a refresh with these inputs stores, where these settings are stored.
    pub(crate) fn of(common: &Common, stored: &BTreeMap<String, String>) -> Enforcement {
        let enforced_before = stored.get(ENFORCED_CONFIG).cloned();
        let unchanged = || Common::from_inputs(common.given.clone());
        let applied = match Applied::among(stored) {
            Ok(Some(applied)) => applied,
            Ok(None) => {
                let mut settings = settings(common);
                if let (Ok(settings), Some(_)) = (&mut settings, &enforced_before) {
                    settings.insert(ENFORCED_CONFIG.to_owned(), String::new());
                }
                return Enforcement {
                    common: unchanged(),
                    settings,
                    applied: None,
                    enforced_before,
                };
            }
            Err(failure) => {
                let (common, settings) = (unchanged(), Err(failure));
                return Enforcement { common, settings, applied: None, enforced_before };
            }
        };
        let in_action = github_actions::is_own_action();
        let (common, settings) = match given(&common.given, &applied, in_action) {
            Ok(given) => {
                let common = Common::from_inputs(given);
                let mut settings = settings(&common);
                if let Ok(settings) = &mut settings {
                    settings.insert(ENFORCED_CONFIG.to_owned(), applied.digest.clone());
                }
                (common, settings)
            }
            Err(failure) => (unchanged(), Err(failure)),
        };
        Enforcement { common, settings, applied: Some(applied), enforced_before }
    }
}

fn stored_rows() -> impl Iterator<Item = &'static Input> {
    crate::inputs::rows().filter(|row| row.scope == InputScope::Stored)
}

/// Whether the action gives the setting by itself.
pub(crate) fn follows_release(row: &Input) -> bool {
    matches!(row.action, ActionInput::Adapted { step_output: true, .. })
}

/// The given settings that say where machines get their agent.
pub(crate) fn given_agent(given: &Given) -> BTreeMap<String, String> {
    let rows = stored_rows().filter(|row| follows_release(row));
    rows.filter_map(|row| Some((row.name.to_owned(), given.text(row)?.to_owned()))).collect()
}

/// Whether these settings say where machines get their agent.
pub(crate) fn states_agent(settings: &BTreeMap<String, String>) -> bool {
    stored_rows().any(|row| follows_release(row) && settings.contains_key(row.name))
}

/// The inputs with the applied settings in place of given ones. Fails if a setting is given that only
/// the configuration may state, or if the configuration states one that this build does not know.
fn given(given: &Given, applied: &Applied, in_action: bool) -> Result<Given, Failure> {
    let states_agent = states_agent(&applied.settings);
    // The action gives these without being asked, so the configuration takes precedence there.
    let is_left = |row: &Input| follows_release(row) && (!states_agent || in_action);
    check_known(applied)?;
    let refused = stored_rows().filter(|row| given.text(row).is_some() && !is_left(row));
    let mut refused: Vec<&str> = refused.map(|row| row.name).collect();
    refused
        .extend(given.text(&rows::RESET).filter(|names| !names.trim().is_empty()).map(|_| "reset"));
    if !refused.is_empty() {
        let names = refused.join(", ");
        return Err(Failure::invalid(format!(
            "given, although a configuration is applied: {names}"
        ))
        .hint("change ondeck.toml and run ondeck apply, or run ondeck apply --clear"));
    }
    let keeps_agent = applied.agent.is_empty() || !given_agent(given).is_empty();
    let mut all = given.clone();
    for row in stored_rows() {
        let texts = match follows_release(row) && !states_agent {
            true if keeps_agent => continue,
            true => &applied.agent,
            false => &applied.settings,
        };
        all.insert(row, texts.get(row.name).map_or("", String::as_str));
    }
    Ok(all)
}

fn check_known(applied: &Applied) -> Result<(), Failure> {
    let unknown = applied.settings.keys().find(|name| stored_rows().all(|row| row.name != *name));
    match unknown {
        None => Ok(()),
        Some(name) => {
            let message = format!("the applied configuration has an unknown setting: {name}");
            Err(Failure::invalid(message)
                .hint("use the version of ondeck that applied it, or a later one"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Input {
        stored_rows().find(|row| row.name == name).unwrap()
    }

    fn inputs(pairs: &[(&str, &str)]) -> Given {
        let mut given = Given::default();
        pairs.iter().for_each(|(name, text)| given.insert(row(name), *text));
        given
    }

    fn applied(pairs: &[(&str, &str)]) -> Applied {
        let settings = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Applied {
            digest: "d1".to_owned(),
            settings: settings.collect(),
            agent: BTreeMap::new(),
            applied_at: "2026-01-31T12:00:00.000Z".to_owned(),
            commit: None,
            run: None,
        }
    }

    fn stored(applied: &Applied) -> BTreeMap<String, String> {
        let text = serde_json::to_string(applied).unwrap();
        BTreeMap::from([(APPLIED_CONFIG.to_owned(), text)])
    }

    fn enforcement(given: Given, stored: &BTreeMap<String, String>) -> Enforcement {
        Enforcement::of(&Common::from_inputs(given), stored)
    }

    #[test]
    fn what_is_applied_is_given_and_the_rest_is_reset() {
        let config = applied(&[("idle-time-sec", "900"), ("min-idle", "")]);
        let made = enforcement(Given::default(), &stored(&config));
        let settings = made.settings.unwrap();
        for row in stored_rows().filter(|row| !follows_release(row)) {
            let expected = if row.name == "idle-time-sec" { "900" } else { "" };
            assert_eq!(settings[row.name], expected, "{}", row.name);
        }
        assert_eq!(settings[ENFORCED_CONFIG], "d1");
        assert_eq!(made.applied, Some(config));
        assert_eq!(made.enforced_before, None);
    }

    #[test]
    fn without_a_configuration_only_what_is_given_is_stored() {
        let given = || inputs(&[("idle-time-sec", "900")]);
        let plain = enforcement(given(), &BTreeMap::new()).settings.unwrap();
        assert_eq!(plain, BTreeMap::from([("idle-time-sec".to_owned(), "900".to_owned())]));
        let cleared = BTreeMap::from([(ENFORCED_CONFIG.to_owned(), "d0".to_owned())]);
        let mut settings = enforcement(given(), &cleared).settings.unwrap();
        assert_eq!(settings.remove(ENFORCED_CONFIG).as_deref(), Some(""));
        assert_eq!(settings, plain);
    }

    #[test]
    fn a_setting_that_is_given_too_is_refused() {
        let config = stored(&applied(&[("idle-time-sec", "900")]));
        for (name, text) in [("idle-time-sec", "900"), ("min-idle", "large=1"), ("rescue", "")] {
            let failure = enforcement(inputs(&[(name, text)]), &config).settings.unwrap_err();
            let message = format!("given, although a configuration is applied: {name}");
            assert_eq!(failure.message, message);
            assert!(failure.hint.contains("ondeck apply --clear"), "{}", failure.hint);
        }
        let mut reset = Given::default();
        reset.insert(&rows::RESET, "all");
        let failure = enforcement(reset, &config).settings.unwrap_err();
        assert!(failure.message.ends_with(": reset"), "{}", failure.message);
    }

    #[cfg(feature = "aws")]
    #[test]
    fn where_agents_come_from_follows_the_release_unless_the_configuration_says_it() {
        let release = inputs(&[("agent-url", "https://a/agent"), ("agent-sha256", "00")]);
        let silent = applied(&[("idle-time-sec", "900")]);
        for in_action in [false, true] {
            let all = given(&release, &silent, in_action).unwrap();
            assert_eq!(all.text(row("agent-url")), Some("https://a/agent"));
            assert_eq!(all.text(row("agent-url-arm64")), None, "stays as it is stored");
        }
        let own = applied(&[("agent-url", "s3://b/agent")]);
        let all = given(&release, &own, true).unwrap();
        assert_eq!(all.text(row("agent-url")), Some("s3://b/agent"));
        assert_eq!(
            all.text(row("agent-sha256")),
            Some(""),
            "that of the release does not belong to it"
        );
        let failure = given(&release, &own, false).unwrap_err();
        assert!(failure.message.ends_with(": agent-url, agent-sha256"), "{}", failure.message);
    }

    #[cfg(feature = "aws")]
    #[test]
    fn a_refresh_without_an_agent_takes_the_one_that_apply_was_given() {
        let release = inputs(&[("agent-url", "https://a/2"), ("agent-sha256", "22")]);
        let mut config = applied(&[("idle-time-sec", "900")]);
        config.agent =
            given_agent(&inputs(&[("agent-url", "https://a/1"), ("agent-sha256", "11")]));
        let all = given(&Given::default(), &config, false).unwrap();
        assert_eq!(all.text(row("agent-url")), Some("https://a/1"));
        assert_eq!(all.text(row("agent-url-arm64")), Some(""), "that of another release");
        let all = given(&release, &config, true).unwrap();
        assert_eq!(all.text(row("agent-url")), Some("https://a/2"));
        config.settings.insert("agent-url".to_owned(), "s3://b/agent".to_owned());
        let all = given(&Given::default(), &config, false).unwrap();
        assert_eq!(all.text(row("agent-url")), Some("s3://b/agent"), "the file holds");
    }

    #[test]
    fn a_configuration_that_cannot_be_used_changes_nothing() {
        let unknown = stored(&applied(&[("future-setting", "1")]));
        let corrupt = BTreeMap::from([(APPLIED_CONFIG.to_owned(), "{".to_owned())]);
        for (stored, words) in
            [(unknown, "unknown setting: future-setting"), (corrupt, "cannot be read")]
        {
            let failure = enforcement(Given::default(), &stored).settings.unwrap_err();
            assert!(failure.message.contains(words), "{}", failure.message);
        }
        let invalid = stored(&applied(&[("idle-time-sec", "soon")]));
        assert!(enforcement(Given::default(), &invalid).settings.is_err());
    }
}
