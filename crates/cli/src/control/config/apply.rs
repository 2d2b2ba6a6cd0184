//! `ondeck apply`: stores the configuration that refresh is to enforce, in one write.

use std::collections::BTreeMap;

use ondeck_core::inputs::InputScope;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::settings::{APPLIED_CONFIG, Settings as PoolSettings};
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::PortError;

use super::{PoolFile, branch, digest, level, process, together};
use crate::control::applied::{Applied, given_agent, states_agent};
use crate::control::backend;
use crate::control::github_actions;
use crate::control::report::apply::{ApplyReport, ApplyResult, changes};
use crate::inputs::{Common, rows};

type Settings = BTreeMap<String, String>;

/// The longest text that is stored. An item of DynamoDB holds 400 KB, its names and keys included:
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>.
const LONGEST: usize = 380_000;

/// Stores the settings of the file for the pool, unless the same ones are stored.
pub(super) async fn apply(common: &Common) -> Result<ApplyReport, Failure> {
    let file = PoolFile::read(common).map_err(super::Unusable::shown)?;
    let trust = level(common);
    let settings = together::texts(&file.layer(trust.as_deref())?);
    let given_agent = agent_beside(common, &settings)?;
    let is_trial = common.given.is_set(&rows::DRY_RUN);
    if !is_trial {
        branch::check_default()?;
    }
    let plane = backend::plane_of_apply(&process::common(common, &file)?, !is_trial).await;
    let mut report = ApplyReport {
        path: Some(file.source.path),
        trust,
        digest: Some(digest(&settings)),
        settings: settings.len(),
        changes: Vec::new(),
        result: ApplyResult::DryRun,
    };
    let stored = match &plane {
        Ok(plane) => stored(plane).await?,
        Err(failure) if is_trial && failure.kind == FailureKind::NotSetUp => None,
        Err(failure) => return Err(failure.clone()),
    };
    let before = stored.as_ref().map(before).unwrap_or_default();
    let agent = match given_agent {
        Some(given) => given,
        // A call by hand leaves the agent of the release as it is.
        None if !states_agent(&settings) => before.agent.clone(),
        None => Settings::new(),
    };
    report.changes = changes(&joined(&before.settings, &before.agent), &joined(&settings, &agent));
    let (Ok(plane), false) = (plane, is_trial) else { return Ok(report) };
    if let Some(Ok(in_force)) = stored.as_ref().map(PoolSettings::from_map) {
        // A teardown is about to delete the table, and this call would create it again.
        in_force.check_open()?;
    }
    if before.is_applied && before.settings == settings && before.agent == agent {
        report.result = ApplyResult::Unchanged;
        return Ok(report);
    }
    if stored.is_none() {
        plane.retried(|| plane.store.set_up()).await?;
    }
    let text = record(&plane, report.digest.clone().unwrap_or_default(), settings, agent)?;
    store(&plane, text).await?;
    report.result = ApplyResult::Applied;
    Ok(report)
}

/// Removes the applied configuration, so that refresh takes settings from flags again. The stored
/// settings stay as they are.
pub(super) async fn clear(common: &Common) -> Result<ApplyReport, Failure> {
    branch::check_default()?;
    // A file with errors must not keep its pool from being cleared.
    let of_pool = match PoolFile::read(common) {
        Ok(file) => process::common(common, &file)?,
        Err(_) => Common::from_inputs(common.given.clone()),
    };
    let plane = backend::plane_of_apply(&of_pool, false).await?;
    let found = stored(&plane).await?.unwrap_or_default();
    let is_applied = found.contains_key(APPLIED_CONFIG);
    if is_applied {
        store(&plane, String::new()).await?;
    }
    Ok(ApplyReport {
        path: None,
        trust: level(common),
        digest: None,
        settings: 0,
        changes: Vec::new(),
        result: if is_applied { ApplyResult::Cleared } else { ApplyResult::Unchanged },
    })
}

/// The stored settings; `None` if there is no table, or nothing in it.
pub(super) async fn stored(plane: &Plane) -> Result<Option<Settings>, Failure> {
    match plane.retried(|| plane.store.settings()).await {
        Ok(stored) => Ok(Some(stored)),
        Err(PortError::NotSetUp { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What the pool went by before.
#[derive(Default)]
struct Before {
    /// Whether it is an applied configuration.
    is_applied: bool,
    settings: Settings,
    /// Where machines get their agent, as given to apply.
    agent: Settings,
}

/// The configuration that was applied before, or the settings that flags have given. One that cannot
/// be read is replaced.
fn before(stored: &Settings) -> Before {
    match Applied::among(stored) {
        Ok(Some(Applied { settings, agent, .. })) => Before { is_applied: true, settings, agent },
        Ok(None) | Err(_) => {
            let rows = crate::inputs::rows().filter(|row| row.scope == InputScope::Stored);
            let given =
                rows.filter_map(|row| Some((row.name.to_owned(), stored.get(row.name)?.clone())));
            Before { is_applied: false, settings: given.collect(), agent: Settings::new() }
        }
    }
}

/// Where machines get their agent, as given to this call; `None` if it was not given. The action gives
/// it without being asked, so the file takes precedence there. Fails if it is given elsewhere, and the
/// file states it.
fn agent_beside(common: &Common, file: &Settings) -> Result<Option<Settings>, Failure> {
    let given = given_agent(&common.given);
    if given.is_empty() {
        return Ok(None);
    }
    if !states_agent(file) {
        return Ok(Some(given));
    }
    if github_actions::is_own_action() {
        return Ok(None);
    }
    let names: Vec<&str> = given.keys().map(String::as_str).collect();
    let message = format!("given, although the file says where agents are: {}", names.join(", "));
    Err(Failure::invalid(message).hint("remove it from the call, or from the file"))
}

fn joined(settings: &Settings, agent: &Settings) -> Settings {
    settings.iter().chain(agent).map(|(name, text)| (name.clone(), text.clone())).collect()
}

fn record(
    plane: &Plane,
    digest: String,
    settings: Settings,
    agent: Settings,
) -> Result<String, Failure> {
    let variable = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
    let applied = Applied {
        digest,
        settings,
        agent,
        applied_at: plane.now().to_string(),
        commit: variable("GITHUB_SHA"),
        run: variable("GITHUB_RUN_ID"),
    };
    let text = serde_json::json!(applied).to_string();
    if text.len() > LONGEST {
        let message = format!("the settings are longer than {LONGEST} bytes: {}", text.len());
        return Err(Failure::invalid(message)
            .hint("put what the pre-runner script does into the image, or download it there"));
    }
    Ok(text)
}

/// The one write: before it, the pool has what was applied before; after it, all that is applied now.
async fn store(plane: &Plane, text: String) -> Result<(), Failure> {
    let change = BTreeMap::from([(APPLIED_CONFIG.to_owned(), text)]);
    Ok(plane.retried(|| plane.store.put_settings(&change)).await?)
}
