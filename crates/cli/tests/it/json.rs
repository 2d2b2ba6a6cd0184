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
