//! Settings are taken back: by name, all of them, and by an empty value.

use crate::harness::{Background, Driven, Home};

/// Every setting that refresh stores, from the reference of the inputs.
fn stored_settings() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/reference/inputs.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells.first()?.strip_prefix("| `--")?;
        let is_stored = cells.get(2)? == &"stored" && cells[1].split(", ").any(|m| m == "refresh");
        is_stored.then(|| name.split([' ', '`']).next().unwrap())
    });
    rows.collect()
}

/// Stores something for a setting, as an earlier refresh has done. What it is does not matter,
/// because it is not in force any more when it is reset.
fn store(home: &Home, name: &str) {
    let sql = "INSERT OR REPLACE INTO settings (name, value) VALUES (?1, '7')";
    home.file().execute(sql, [name]).unwrap();
}

fn stored(home: &Home, name: &str) -> bool {
    home.number(&format!("SELECT count(*) FROM settings WHERE name = '{name}'")) > 0
}

#[test]
fn each_setting_is_reset_by_its_name_and_by_an_empty_value() {
    let settings = stored_settings();
    for expected in ["pre-runner-script", "key-name", "forge", "idle-time-sec", "min-idle"] {
        assert!(settings.contains(&expected), "{settings:?}");
    }
    let home = Home::bare();
    home.refresh(&[]);
    for name in settings {
        for reset in [format!("--reset={name}"), format!("--{name}=")] {
            store(&home, name);
            home.refresh(&[&reset]);
            assert!(!stored(&home, name), "{reset}");
        }
    }
}

#[test]
fn the_action_resets_by_a_variable() {
    let home = Home::with(&[]);
    let names = ["pre-runner-script", "key-name"];
    names.iter().for_each(|name| store(&home, name));
    let refresh = |value: &str| {
        let mut command = home.command(&["refresh"]);
        command.env("GITHUB_ACTIONS", "true").env("ONDECK_ACTION", "true");
        Background::start(command.env("ONDECK_RESET", value)).finish()
    };
    refresh("").succeeded();
    assert!(names.iter().all(|name| stored(&home, name)), "not given, not reset");
    refresh("pre-runner-script,\n key-name").succeeded();
    assert!(!names.iter().any(|name| stored(&home, name)));
}

#[test]
fn all_settings_that_are_not_given_are_reset_at_once() {
    let home = Home::with(&["--rescue=off", "--local-boot-ms=5", "--max-machines=9"]);
    home.refresh(&["--reset=all", "--max-machines=8"]);
    let names = stored_settings();
    let left = home.texts("SELECT name || '=' || value FROM settings ORDER BY name");
    let of_operator = |line: &&String| names.contains(&line.split('=').next().unwrap());
    assert_eq!(left.iter().filter(of_operator).collect::<Vec<_>>(), ["max-machines=8"]);
    assert!(left.iter().any(|line| line.starts_with("set-up-by=")), "{left:?}");
    home.provision("1", 1).succeeded();
}

#[test]
fn a_script_that_was_taken_back_is_no_longer_run() {
    let home = Home::with(&["--pre-runner-script", "exit 3"]);
    home.provision("1", 1).exited(5);
    home.refresh(&["--reset=pre-runner-script"]);
    home.provision("1", 1).succeeded();
}

#[test]
fn a_reset_that_makes_no_sense_changes_nothing() {
    let home = Home::with(&["--rescue=off"]);
    for (inputs, words) in [
        (&["--reset=rescue nothing"][..], "reset names no stored setting: \"nothing\""),
        (&["--reset=instance-count"], "reset names no stored setting: \"instance-count\""),
        (&["--reset=set-up-by"], "reset names no stored setting: \"set-up-by\""),
        (&["--reset=rescue", "--rescue=report"], "reset names a setting that is given: rescue"),
    ] {
        let done = home.ondeck(&[&["refresh"], inputs].concat()).exited(2);
        assert!(done.stderr.contains(words), "{}", done.stderr);
        assert!(done.stderr.contains("\nhint: "), "{}", done.stderr);
        assert_eq!(home.texts("SELECT value FROM settings WHERE name = 'rescue'"), ["off"]);
    }
}
