//! Generates `docs/reference/json.md` and `docs/reference/schemas/` from the types that are
//! serialised, and checks that they are up to date.
//!
//! `UPDATE=1 cargo test -p ondeck --all-features json_docs` writes them.

mod examples;
mod page;

use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::apply::ApplyJson;
use super::config::{ConfigCheckJson, ConfigExportJson};
use super::cost::CostJson;
use super::doctor::json::DoctorJson;
use super::drill::json::DrillJson;
use super::explain::ExplainJson;
use super::failure::FailureJson;
use super::machines::MachinesJson;
use super::permissions::PermissionsJson;
use super::pool::PoolJson;
use super::provision::ProvisionJson;
use super::refresh::RefreshJson;
use super::release::ReleaseJson;
use super::show::ConfigShowJson;
use super::simulate::SimulateJson;
use super::status::json::StatusJson;
use super::teardown::TeardownJson;

#[test]
fn json_docs_are_up_to_date() {
    let mut outdated = Vec::new();
    for (name, schema) in schemas() {
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        outdated.extend(check(&format!("schemas/{name}.json"), &text));
    }
    outdated.extend(check("json.md", &page::page(&schemas())));
    assert!(
        outdated.is_empty(),
        "out of date: {outdated:?}\nhint: UPDATE=1 cargo test -p ondeck --all-features json_docs"
    );
}

/// The schema of every output, by the name of the command. `failure` is the output of any command
/// that fails before it has an outcome to report.
fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("provision", outcome_or_failure::<ProvisionJson>("provision")),
        ("release", outcome_or_failure::<ReleaseJson>("release")),
        ("refresh", outcome_or_failure::<RefreshJson>("refresh")),
        ("status", outcome_or_failure::<StatusJson>("status")),
        ("drain", outcome_or_failure::<MachinesJson>("drain")),
        ("retire", outcome_or_failure::<MachinesJson>("retire")),
        ("terminate", outcome_or_failure::<MachinesJson>("terminate")),
        ("pool", outcome_or_failure::<PoolJson>("pool")),
        ("explain", outcome_or_failure::<ExplainJson>("explain")),
        ("doctor", outcome_or_failure::<DoctorJson>("doctor")),
        ("drill", outcome_or_failure::<DrillJson>("drill")),
        ("cost", outcome_or_failure::<CostJson>("cost")),
        ("simulate", outcome_or_failure::<SimulateJson>("simulate")),
        ("teardown", outcome_or_failure::<TeardownJson>("teardown")),
        ("permissions", outcome_or_failure::<PermissionsJson<'_>>("permissions check")),
        ("config-check", outcome_or_failure::<ConfigCheckJson<'_>>("config check")),
        ("config-show", outcome_or_failure::<ConfigShowJson<'_>>("config show")),
        ("config-export", outcome_or_failure::<ConfigExportJson<'_>>("config export")),
        ("apply", outcome_or_failure::<ApplyJson<'_>>("apply")),
        ("failure", schema("failure", &[SchemaGenerator::subschema_for::<FailureJson>])),
    ]
}

fn outcome_or_failure<T: JsonSchema>(name: &str) -> Value {
    schema(
        name,
        &[SchemaGenerator::subschema_for::<T>, SchemaGenerator::subschema_for::<FailureJson>],
    )
}

fn schema(name: &str, forms: &[fn(&mut SchemaGenerator) -> schemars::Schema]) -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let forms: Vec<Value> = forms.iter().map(|form| form(&mut generator).to_value()).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("ondeck {name} --json, schema version 1"),
        "anyOf": forms,
        "$defs": generator.take_definitions(true),
    })
}

/// Compares a generated file with its text, or writes it if `UPDATE` is 1. Returns its path if it
/// is out of date.
pub(crate) fn check(file: &str, text: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let path = folder.join(file);
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return None;
    }
    (std::fs::read_to_string(&path).unwrap_or_default() != text).then_some(path)
}
