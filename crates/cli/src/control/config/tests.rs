//! Files, good and bad.

mod any_settings;
mod errors;

use std::collections::BTreeMap;

use boon::{Compiler, Schemas};
use ondeck_core::inputs::{FileForm, InputDefault, InputScope, InputValue};

use super::document::settings;
use super::reference::EXAMPLE;
use super::schema::schema;
use super::*;
use crate::inputs::rows as all_rows;

fn read(text: &str) -> Result<PoolFile, Vec<FileProblem>> {
    let source = Source { path: "ondeck.toml".to_owned(), text: text.to_owned() };
    PoolFile::parse(source).map_err(|unusable| match unusable {
        Unusable::Invalid { problems, .. } => problems,
        Unusable::Unread(failure) => panic!("{failure}"),
    })
}

/// The settings of a file without errors.
#[track_caller]
fn texts(text: &str) -> BTreeMap<String, String> {
    let file = read(text).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"));
    together::texts(&file.layer(None).unwrap())
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn every_setting_of_every_crate_has_a_place_in_the_file() {
    for row in all_rows() {
        assert_eq!(row.file.is_some(), row.scope == InputScope::Stored, "{}", row.name);
    }
    for (row, place) in settings() {
        // The keys at the top of the file and the tables are in one namespace.
        let taken = document::PROCESS_KEYS.iter().any(|(key, _)| *key == place.table);
        assert!(!taken && place.table != document::TRUST, "{}", row.name);
        if place.form.is_structured() {
            let alike = settings().filter(|(_, other)| other.table == place.table);
            assert_eq!(alike.count(), 1, "{}", row.name);
        }
    }
}

#[test]
fn every_setting_can_be_stated_in_the_file() {
    for (row, place) in settings() {
        let text = match (row.default, row.value) {
            (InputDefault::Value(text), _) => text,
            (_, InputValue::Choice(_, words)) => words[0],
            _ => match row.name {
                "resource-class-config" => r#"{"large":{"cpu":2,"mem":4096}}"#,
                "min-idle" => "Mon-Fri 08:00-18:00 Europe/Berlin large/spot/c7i.*=4; large=1",
                "max-machines" => "100 large=20",
                "local-catalogue" => r#"[{"type":"a.b","cpu":1,"mem":512}]"#,
                "clean-ignore" => "/etc/motd /opt/cache",
                _ if matches!(place.form, FileForm::Number | FileForm::Whole) => "7",
                _ => "text",
            },
        };
        let mut stored = map(&[(row.name, text)]);
        if row.name == "max-spend-per-day" {
            stored.extend(map(&[("max-machine-age-min", "60")]));
        }
        let file = render::render(&BTreeMap::new(), &stored);
        assert_eq!(texts(&file), stored, "{file}");
    }
}

#[test]
fn a_cap_without_an_age_is_a_problem_of_its_line() {
    let problems = read("[machines]\nmax-spend-per-day = 7\n").unwrap_err();
    let problem = &problems[0];
    assert_eq!((problems.len(), problem.line), (1, 2));
    assert!(problem.message.starts_with("max-spend-per-day needs max-machine-age-min"));
}

#[test]
fn the_example_is_read() {
    let file = read(EXAMPLE).unwrap();
    let base = together::texts(&file.layer(None).unwrap());
    let expected = [
        ("ami", "ami-0123456789abcdef0"),
        ("subnet-ids", "subnet-0a1b2c3d subnet-4e5f6a7b"),
        ("no-proxy", "artifacts.internal"),
        ("pre-runner-script", "apt-get install --yes jq\n"),
        ("max-machine-age-min", "1440"),
        ("keep-docker-cache", "false"),
        (
            "resource-class-config",
            r#"{"large":{"cpu":2,"mem":4096},"xlarge":{"cpu":4,"mem":8192}}"#,
        ),
        ("min-idle", "Mon-Fri 08:00-18:00 Europe/Berlin large/spot/c7i.*,m7i.*=4; large=1"),
        ("max-machines", "100 xlarge=20"),
        ("reuse", "always"),
    ];
    for (name, text) in expected {
        assert_eq!(base[name], text, "{name}");
    }
    let release = together::texts(&file.layer(Some("release")).unwrap());
    assert_eq!((release["reuse"].as_str(), release["min-idle"].as_str()), ("never", "large=1"));
    assert_eq!(release["ami"], base["ami"]);
    let failure = file.layer(Some("relaese")).unwrap_err();
    assert_eq!(failure.message, "ondeck.toml has no trust level \"relaese\"");
}

#[test]
fn the_digest_is_that_of_the_settings_and_not_of_the_text() {
    let digest = |text: &str| super::digest(&texts(text));
    let one = digest("[times]\nidle-time-sec = 900\nmax-runtime-min = 60\n");
    assert_eq!(one, digest("# same\ntimes = { max-runtime-min = 60.0, idle-time-sec = 0x384 }"));
    assert_ne!(one, digest("[times]\nidle-time-sec = 900\nmax-runtime-min = 61\n"));
    assert_eq!(one.len(), 64);
}

/// Whether the schema admits the file. One that is no TOML is not asked about.
fn fits_schema(text: &str) -> bool {
    let value: serde_json::Value = toml::from_str(text).unwrap();
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let address = "https://ondeck.invalid/schema.json";
    compiler.add_resource(address, schema()).unwrap();
    let schema = compiler.compile(address, &mut schemas).unwrap();
    schemas.validate(&value, schema).is_ok()
}

#[test]
fn schema_and_parser_agree_about_the_form_of_a_file() {
    let entry = |more: &str| format!("[[min-idle]]\nclass = \"large\"\ncount = 1\n{more}");
    let good = [
        "",
        EXAMPLE,
        "pool = \"acme\"",
        "backend = \"local\"",
        "[times]\nidle-time-sec = 0.5",
        "[image]\nami = \"\"",
        "[machines]\nconnect = \"\"",
        "[machines]\nvolume-size-gb = 100.0",
        "[network]\nsubnet-ids = []",
        "min-idle = []",
        "[max-machines]\nlarge = 0",
        "[classes.\"a.b\"]\ncpu = 1\nmem = 1",
        "[trust.release]",
        &entry("window = \"Sat,Sun\""),
        &entry("window = \"08:00-18:00\"\ntime-zone = \"UTC\""),
        &entry("instance-types = [\"c*\"]"),
    ];
    for text in good {
        let problems = read(text).err();
        assert_eq!(problems, None, "{text}");
        assert!(fits_schema(text), "{text}");
    }
    let bad = [
        "pool = 7",
        "backend = \"moon\"",
        "nothing = 1",
        "[nothing]",
        "image = 1",
        "[image]\nnothing = 1",
        "[image]\nami = 1",
        "[image]\nami = [\"ami-1\"]",
        "[image]\nsubnet-ids = []",
        "[network]\nsubnet-ids = \"subnet-1\"",
        "[network]\nsubnet-ids = [1]",
        "[network]\nsubnet-ids = [\"a b\"]",
        "[network]\nsubnet-ids = [\"\"]",
        "[times]\nidle-time-sec = \"900\"",
        "[times]\nidle-time-sec = 1979-05-27",
        "[machines]\nkeep-docker-cache = \"true\"",
        "[machines]\nvolume-size-gb = 1.5",
        "[machines]\nconnect = \"ssh\"",
        "[github]\ngithub-token = \"x\"",
        "classes = {}",
        "[classes.large]\ncpu = 2",
        "[classes.large]\ncpu = 0\nmem = 1",
        "[classes.large]\ncpu = 1\nmem = 1\ndisk = 1",
        "[classes.\"a b\"]\ncpu = 1\nmem = 1",
        "[classes]\nlarge = 1",
        "min-idle = \"large=1\"",
        "[min-idle]\nclass = \"large\"",
        "[[min-idle]]\nclass = \"large\"",
        "[[min-idle]]\ncount = 1",
        "[[min-idle]]\nclass = \"large\"\ncount = 1001",
        "[[min-idle]]\nclass = \"large\"\ncount = -1",
        &entry("usage-class = \"reserved\""),
        &entry("instance-types = []"),
        &entry("instance-types = [\"c7i.*=1\"]"),
        &entry("window = \"\""),
        &entry("window = \"Mon; large=7\""),
        &entry("time-zone = \"UTC\""),
        &entry("window = \"Mon\"\ntime-zone = \"a b\""),
        &entry("zone = \"UTC\""),
        "[max-machines]\npool = -1",
        "[max-machines]\npool = 4294967296",
        "[max-machines]\npool = \"1\"",
        "[max-machines]\n\"a b\" = 1",
        "trust = 1",
        "[trust.Release]",
        "[trust.release]\npool = \"acme\"",
        "[trust.release.trust.release]",
        "[trust.release.image]\namii = \"\"",
    ];
    for text in bad {
        assert!(read(text).is_err(), "{text}");
        assert!(!fits_schema(text), "{text}");
    }
    // What only the parser knows: what a setting's own check refuses, and what contradicts another.
    let values = [
        "[times]\nidle-time-sec = -1",
        "[times]\nclaim-timeout-sec = 1",
        "[jobs]\nrescue = \"always\"",
        "[[min-idle]]\nclass = \"huge\"\ncount = 1",
        "[max-machines]\nhuge = 1",
        &entry("window = \"someday\""),
        &entry("window = \"Mon\"\ntime-zone = \"Mars/Base\""),
        "backend = \"aws\"",
    ];
    for text in values {
        assert!(read(text).is_err(), "{text}");
        assert!(fits_schema(text), "{text}");
    }
}
