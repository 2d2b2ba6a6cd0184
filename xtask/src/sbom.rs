//! The software bill of materials of the released programs, as CycloneDX.
//!
//! `cargo tree` says which crates a build contains: it resolves features for one package, where
//! `cargo metadata` joins those of the whole workspace. Licences and dependencies come from the
//! latter, digests from `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::TaskError;
use crate::release::{FEATURES, LINUX};
use crate::step::{cargo, said};

/// A crate by its name and version.
type Crate = (String, String);

/// Writes the bill of materials into the folder of a release, and returns its path. Fails if a crate of
/// the build is not in `Cargo.lock`, or has no licence.
pub(crate) fn write(root: &Path, dist: &Path) -> Result<PathBuf, TaskError> {
    let built = parse_tree(&said(cargo(root).args(tree_arguments()))?);
    let arguments = ["metadata", "--format-version", "1", "--locked", "--all-features"];
    let metadata = said(cargo(root).args(arguments))?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| TaskError::new(format!("cargo metadata: {error}"), "update cargo"))?;
    let lock = root.join("Cargo.lock");
    let lock_text = fs::read_to_string(&lock).map_err(|error| TaskError::with(&lock, error))?;
    let digests = parse_lock(&lock_text);
    let bill = bill(&built, &metadata, &digests)?;
    let version = version(&metadata);
    let path = dist.join(format!("ondeck-{version}.cdx.json"));
    fs::create_dir_all(dist).map_err(|error| TaskError::with(dist, error))?;
    fs::write(&path, format!("{bill:#}\n")).map_err(|error| TaskError::with(&path, error))?;
    Ok(path)
}

fn tree_arguments() -> Vec<&'static str> {
    let shown = ["--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let build = ["tree", "--package", "ondeck", "--target", LINUX[0]];
    build.into_iter().chain(FEATURES.split(' ')).chain(shown).collect()
}

/// The crates in the output of `cargo tree`: lines such as `serde v1.0.229 (proc-macro)`.
fn parse_tree(text: &str) -> BTreeSet<Crate> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?);
        Some((name.to_owned(), version.strip_prefix('v')?.to_owned()))
    });
    lines.collect()
}

/// The digests of the crates that come from a registry.
fn parse_lock(text: &str) -> BTreeMap<Crate, Option<String>> {
    let packages = text.split("[[package]]").skip(1).filter_map(|package| {
        let field = |name: &str| {
            let begin = format!("{name} = \"");
            let line = package.lines().find_map(|line| line.strip_prefix(&begin))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        Some(((field("name")?, field("version")?), field("checksum")))
    });
    packages.collect()
}

fn version(metadata: &Value) -> String {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let program = packages.into_iter().find(|package| package["name"] == "ondeck");
    program.and_then(|it| it["version"].as_str()).unwrap_or_default().to_owned()
}

fn of_package(package: &Value) -> Option<Crate> {
    Some((package["name"].as_str()?.to_owned(), package["version"].as_str()?.to_owned()))
}

/// The name of a crate in a bill of materials.
fn package_url((name, version): &Crate) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// The bill of materials of these crates: CycloneDX 1.6, without a time or a serial number, so that
/// the same source has the same one.
fn bill(
    built: &BTreeSet<Crate>,
    metadata: &Value,
    digests: &BTreeMap<Crate, Option<String>>,
) -> Result<Value, TaskError> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages: BTreeMap<Crate, &Value> =
        packages.filter_map(|package| Some((of_package(package)?, package))).collect();
    let mut components = Vec::new();
    let mut program = Value::Null;
    for it in built {
        let unknown = |what: &str| {
            let problem = format!("{what}: {} {}", it.0, it.1);
            TaskError::new(problem, "run cargo metadata --locked and look for the crate")
        };
        let package = packages.get(it).ok_or_else(|| unknown("cargo metadata lacks a crate"))?;
        let digest = digests.get(it).ok_or_else(|| unknown("Cargo.lock lacks a crate"))?;
        let licence = package["license"].as_str().ok_or_else(|| unknown("no licence"))?;
        let described = component(it, package, licence, digest.as_deref());
        match it.0.as_str() {
            "ondeck" => program = described,
            _ => components.push(described),
        }
    }
    program["type"] = json!("application");
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": dependencies(built, metadata),
    }))
}

fn component(it: &Crate, package: &Value, licence: &str, digest: Option<&str>) -> Value {
    // Some crates still use the form of before SPDX expressions.
    let licence = licence.replace('/', " OR ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut component = json!({
        "type": "library",
        "bom-ref": package_url(it),
        "name": it.0,
        "version": it.1,
        "purl": package_url(it),
        "licenses": [{ "expression": licence }],
    });
    if let Some(digest) = digest {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
    }
    if let Some(repository) = package["repository"].as_str() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// For each crate of the build, the crates of the build that it depends on.
fn dependencies(built: &BTreeSet<Crate>, metadata: &Value) -> Vec<Value> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let by_id: BTreeMap<&str, Crate> =
        packages.filter_map(|it| Some((it["id"].as_str()?, of_package(it)?))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let entries = nodes.filter_map(|node| {
        let it = by_id.get(node["id"].as_str()?).filter(|it| built.contains(*it))?;
        let needed = node["deps"].as_array().into_iter().flatten().filter(|dep| {
            let kinds = dep["dep_kinds"].as_array().into_iter().flatten();
            kinds.into_iter().any(|kind| kind["kind"].is_null())
        });
        let needed = needed.filter_map(|dep| by_id.get(dep["pkg"].as_str()?));
        let needed: BTreeSet<String> =
            needed.filter(|it| built.contains(*it)).map(package_url).collect();
        Some((package_url(it), needed))
    });
    let entries: BTreeMap<String, BTreeSet<String>> = entries.collect();
    entries.iter().map(|(it, needed)| json!({ "ref": it, "dependsOn": needed })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "serde"
version = "1.0.229"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "abc"

[[package]]
name = "ondeck"
version = "0.1.0"
dependencies = [
 "serde",
]
"#;

    fn metadata(licence: &Value) -> Value {
        let dependency = |kind: Value| json!({ "pkg": "s", "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                { "id": "o", "name": "ondeck", "version": "0.1.0", "license": "MIT OR Apache-2.0" },
                { "id": "s", "name": "serde", "version": "1.0.229", "license": licence },
                { "id": "d", "name": "dev", "version": "1.0.0", "license": "MIT" },
            ],
            "resolve": { "nodes": [
                { "id": "o", "deps": [dependency(Value::Null)] },
                { "id": "s", "deps": [] },
                { "id": "d", "deps": [dependency(json!("dev"))] },
            ] },
        })
    }

    #[test]
    fn the_bill_lists_what_is_built() {
        let built =
            parse_tree("ondeck v0.1.0 (/x/crates/cli)\nserde v1.0.229\nserde v1.0.229 (*)\n");
        assert_eq!(built.len(), 2);
        let bill = bill(&built, &metadata(&json!("MIT / Apache-2.0")), &parse_lock(LOCK)).unwrap();
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/ondeck@0.1.0");
        assert_eq!(bill["metadata"]["component"]["hashes"], Value::Null);
        let components = bill["components"].as_array().unwrap();
        assert_eq!(components.len(), 1);
        assert_eq!(components[0]["hashes"][0]["content"], "abc");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let expected = json!([
            { "ref": "pkg:cargo/ondeck@0.1.0", "dependsOn": ["pkg:cargo/serde@1.0.229"] },
            { "ref": "pkg:cargo/serde@1.0.229", "dependsOn": [] },
        ]);
        assert_eq!(bill["dependencies"], expected);
    }

    #[test]
    fn a_crate_without_licence_or_lock_is_an_error() {
        let built = parse_tree("serde v1.0.229\n");
        let sound = metadata(&json!("MIT"));
        assert!(bill(&built, &metadata(&Value::Null), &parse_lock(LOCK)).is_err());
        assert!(bill(&built, &sound, &BTreeMap::new()).is_err());
        assert!(bill(&parse_tree("other v1.0.0\n"), &sound, &parse_lock(LOCK)).is_err());
        assert!(bill(&built, &sound, &parse_lock(LOCK)).is_ok());
    }
}
