//! The JSON that the built program prints is what `docs/reference/schemas` says.

use std::path::Path;

use boon::{Compiler, Schemas};
use serde_json::{Value, json};

use crate::harness::{Done, Driven, Home};

/// The schema of a command, made strict: a field that it does not describe is an error.
fn strict_schema(command: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/schemas");
    let text = std::fs::read_to_string(folder.join(format!("{command}.json"))).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    for definition in schema["$defs"].as_object_mut().unwrap().values_mut() {
        if definition["properties"].is_object() {
            definition["additionalProperties"] = json!(false);
        }
    }
    schema
}

/// Asserts that the program printed one object that its schema describes completely.
#[track_caller]
pub(crate) fn assert_valid(command: &str, done: &Done) {
    let object: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(done.stdout.starts_with(r#"{"schemaVersion":1,"#), "{}", done.stdout);
    assert_eq!(done.stdout.lines().count(), 1, "{}", done.stdout);
    let problem = problem(command, &object);
    assert_eq!(problem, None, "{}", done.stdout);
}

fn problem(command: &str, object: &Value) -> Option<String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let address = "https://ondeck.invalid/schema.json";
    compiler.add_resource(address, strict_schema(command)).unwrap();
    let schema = compiler.compile(address, &mut schemas).unwrap();
    schemas.validate(object, schema).err().map(|error| error.to_string())
}

#[test]
fn every_output_of_the_program_matches_its_schema() {
    let home = Home::bare();
    let provision = |count: &str| {
        home.ondeck(&["provision", "--json", "--run-id", "7", "--instance-count", count])
    };
    let unset = provision("1").exited(3);
    assert_valid("provision", &unset);
    assert_valid("status", &home.ondeck(&["status", "--json"]).exited(3));
    let job = home.ondeck(&["run", "--json", "--run-id", "7", "--", "true"]).exited(3);
    assert_valid("failure", &job);
    drop(home);

    let home = Home::with(&["--local-capacity=2"]);
    assert_valid("status", &home.ondeck(&["status", "--json"]).succeeded());
    let provision = |run: &str, count: &str| {
        home.ondeck(&["provision", "--json", "--run-id", run, "--instance-count", count])
    };
    assert_valid("provision", &home.ondeck(&["provision", "--json"]).exited(2));
    assert_valid("provision", &provision("7", "2").succeeded());
    assert_valid("provision", &provision("7", "2").succeeded());
    assert_valid("status", &home.ondeck(&["status", "--json"]).succeeded());
    let release = |run: &str| home.ondeck(&["release", "--json", "--run-id", run]);
    assert_valid("release", &release("7").succeeded());
    assert_valid("release", &release("none").succeeded());
    assert_valid("status", &home.ondeck(&["status", "--json"]).succeeded());
    // More than there is room for: what was claimed is returned, what was launched is terminated.
    assert_valid("provision", &provision("8", "3").exited(4));
    assert_valid("provision", &provision("9", "1").succeeded());
    assert_valid("release", &release("9").succeeded());
    assert_valid("refresh", &home.ondeck(&["refresh", "--json"]).succeeded());
    assert_valid("refresh", &home.ondeck(&["refresh", "--json", "--min-idle=huge=1"]).exited(2));
}

#[test]
fn a_command_line_that_is_refused_is_answered_in_json_too() {
    let home = Home::bare();
    for (arguments, words) in [
        (&["provision", "--json", "--run-id=1", "--instance-count=two"][..], "instance-count"),
        (&["--json", "provision", "--run-id=a b"], "run-id"),
        (&["release", "--run-id", "--json"], "run-id"),
        (&["release", "--idle-time-sec=soon", "--json"], "idle-time-sec"),
        (&["refresh", "--json", "--backend=moon"], "backend"),
        (&["refresh", "--json=yes"], "json"),
        (&["refresh", "--json", "--quiet", "-v"], "quiet"),
        (&["refresh", "--json", "--no-such-option"], "no-such-option"),
        (&["status", "--json", "--watch"], "watch"),
        (&["status", "--json", "surplus"], "surplus"),
        (&["run", "--json", "--run-id=1"], "CMD"),
        (&["run", "--json", "--run-id=1", "--queue-timeout-sec=x", "--", "true"], "queue-timeout"),
        (&["permissions", "--json"], "TASK"),
        (&["permissions", "check", "--json", "--role=king"], "role"),
        (&["completions", "--json", "cmd"], "cmd"),
        (&["demo", "--json", "--kept"], "kept"),
        (&["agent", "--json", "--instance-id=a b"], "instance-id"),
        (&["demolish", "--json"], "demolish"),
        (&["", "--json"], "no command given"),
        (&["--json"], "no command given"),
    ] {
        let done = home.ondeck(arguments).exited(2);
        assert_valid("failure", &done);
        let answer = done.json();
        assert_eq!(answer["error"]["kind"], "invalid-input", "{arguments:?}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{arguments:?}: {message}");
        assert_ne!(answer["error"]["hint"], "", "{arguments:?}");
        assert!(done.stderr.contains(message), "{arguments:?}: {}", done.stderr);
    }
    // What belongs to the job is not an option of ondeck.
    let done = home.ondeck(&["run", "--run-id=a b", "--", "ls", "--json"]).exited(2);
    assert_eq!(done.stdout, "");
}

#[test]
fn the_schemas_refuse_what_the_program_does_not_print() {
    let failure = json!({
        "schemaVersion": 1,
        "status": "failed",
        "error": { "kind": "forge", "message": "m", "hint": "" },
    });
    assert_eq!(problem("failure", &failure), None);
    let mut cases = vec![failure.clone(), failure.clone(), failure.clone(), failure];
    cases[0]["schemaVersion"] = json!(2);
    cases[1]["error"]["kind"] = json!("unheard-of");
    cases[2]["more"] = json!(true);
    cases[3].as_object_mut().unwrap().remove("error");
    for case in cases {
        assert!(problem("failure", &case).is_some(), "{case}");
    }
}
