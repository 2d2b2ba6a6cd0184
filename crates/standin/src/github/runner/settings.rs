//! The configuration files of a runner, and the environment of its jobs.

use std::io;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use serde::{Deserialize, Serialize};

use crate::sync::locked;

use super::command::PREFIX;

const SETTINGS: &str = ".runner";
const CREDENTIALS: &str = ".credentials";
const KEY: &str = ".credentials_rsaparams";
/// The byte order mark with which the real runner starts its files.
const MARK: &str = "\u{feff}";

/// The content of the file `.runner`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settings {
    pub(super) agent_id: u64,
    pub(super) agent_name: String,
    #[serde(default)]
    pub(super) disable_update: bool,
    #[serde(default)]
    pub(super) ephemeral: bool,
    pub(super) pool_id: u64,
    pub(super) pool_name: String,
    pub(super) server_url: String,
    pub(super) git_hub_url: String,
    pub(super) work_folder: String,
}

/// The content of the file `.credentials`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Credentials {
    pub(super) scheme: String,
    pub(super) data: CredentialData,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CredentialData {
    pub(super) client_id: String,
    pub(super) authorization_url: String,
}

impl Settings {
    /// Reads the settings in a folder; `None` if the runner is not configured.
    pub(super) fn read(root: &Path) -> Option<Settings> {
        read(&root.join(SETTINGS))
    }

    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        write(&root.join(SETTINGS), self)
    }
}

impl Credentials {
    pub(super) fn read(root: &Path) -> Option<Credentials> {
        read(&root.join(CREDENTIALS))
    }

    /// Writes the credentials, and beside them the file with the key, as the real runner does.
    pub(super) fn write(&self, root: &Path) -> io::Result<()> {
        write(&root.join(CREDENTIALS), self)?;
        std::fs::write(root.join(KEY), "{\"d\":\"\",\"exponent\":\"AQAB\",\"modulus\":\"\"}")
    }
}

pub(super) fn forget_credentials(root: &Path) {
    for name in [CREDENTIALS, KEY] {
        // The file may not exist.
        std::fs::remove_file(root.join(name)).ok();
    }
}

pub(super) fn forget_settings(root: &Path) {
    std::fs::remove_file(root.join(SETTINGS)).ok();
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Option<T> {
    let text = std::fs::read_to_string(file).ok()?;
    serde_json::from_str(text.strip_prefix(MARK).unwrap_or(&text)).ok()
}

fn write(file: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(file, format!("{MARK}{text}"))
}

/// The variables that `.env` adds. A process cannot change its own environment safely.
fn added() -> &'static Mutex<Vec<(String, String)>> {
    static ADDED: OnceLock<Mutex<Vec<(String, String)>>> = OnceLock::new();
    ADDED.get_or_init(Mutex::default)
}

/// Adds variables to the environment of the listener and its jobs.
pub(super) fn remember<'a>(variables: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut added = locked(added());
    added.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

/// The value of a variable, including those of `.env`.
pub(super) fn variable(name: &str) -> Option<String> {
    let added = locked(added()).iter().rev().find(|(known, _)| known == name).cloned();
    let value = added.map(|(_, value)| value).or_else(|| std::env::var(name).ok());
    value.filter(|value| !value.is_empty())
}

/// The environment of jobs: that of the listener, without the variables that configured it.
pub(super) fn environment() -> Vec<(String, String)> {
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let own = own.filter(|(name, _)| !name.to_ascii_uppercase().starts_with(PREFIX));
    own.chain(locked(added()).clone()).collect()
}
