//! Lets the runner work on machines without libicu, which minimal images lack.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Value, json};

use super::layout::write_file;

/// The programs of the runner, each with a file of settings for .NET.
const PROGRAMS: [&str; 3] = ["Runner.Listener", "Runner.Worker", "Runner.PluginHost"];

/// Whether a program of the runner did not start because libicu is missing, by its output.
pub(crate) fn is_missing(said: &str) -> bool {
    said.contains("valid ICU package")
}

/// Sets the runner in `root` to do without libicu. Jobs notice nothing of it, unlike a variable.
/// Fails if a file cannot be read or written; one that does not exist is left out.
pub(crate) fn do_without(root: &Path) -> Result<(), String> {
    for program in PROGRAMS {
        let path = root.join("bin").join(format!("{program}.runtimeconfig.json"));
        let unreadable = |e: &dyn std::fmt::Display| format!("cannot read {}: {e}", path.display());
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.map_err(|e| unreadable(&e))?,
        };
        let mut config: Value = serde_json::from_str(&text).map_err(|e| unreadable(&e))?;
        let options = config.get_mut("runtimeOptions").and_then(Value::as_object_mut);
        let options = options.ok_or_else(|| unreadable(&"it has no runtimeOptions"))?;
        let properties = options.entry("configProperties").or_insert_with(|| json!({}));
        let properties = properties
            .as_object_mut()
            .ok_or_else(|| unreadable(&"configProperties is no object"))?;
        properties.insert("System.Globalization.Invariant".to_owned(), Value::Bool(true));
        write_file(&path, format!("{config:#}\n").as_bytes(), 0o644, None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_settings_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bin/Runner.Worker.runtimeconfig.json");
        fs::create_dir(dir.path().join("bin")).unwrap();
        let both = r#"{"runtimeOptions":{"tfm":"net8.0","configProperties":{"A":1}}}"#;
        for (before, after) in [
            (both, json!({"A": 1, "System.Globalization.Invariant": true})),
            (r#"{"runtimeOptions":{}}"#, json!({"System.Globalization.Invariant": true})),
        ] {
            fs::write(&path, before).unwrap();
            do_without(dir.path()).unwrap();
            do_without(dir.path()).unwrap();
            let read: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(read["runtimeOptions"]["configProperties"], after);
        }
        fs::write(&path, "{}").unwrap();
        let error = do_without(dir.path()).unwrap_err();
        assert!(error.ends_with("it has no runtimeOptions"), "{error}");
    }
}
