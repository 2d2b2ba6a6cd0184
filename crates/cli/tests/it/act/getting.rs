//! How the Action comes by the program: once, checked, and with a reason where it does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::ActHarness;
use super::page::VERSION;
use crate::harness::{Background, Done};

/// Says with what it was called.
const ECHO: &[u8] = b"#!/bin/sh\necho \"called with $*\"\n";

const ONE_STEP: &str = "
on: push
jobs:
  one:
    runs-on: ubuntu-latest
    steps:
      - uses: ondeck-ci/ondeck@v0
        with:
          mode: release
";

#[test]
fn it_is_downloaded_once() {
    let harness = ActHarness::with_program(ECHO);
    let done = harness.run(ONE_STEP, None, &[], &[]).succeeded();
    assert!(done.stdout.contains("called with release"), "{}", done.stdout);
    let asset =
        format!("/v{VERSION}/ondeck-{VERSION}-{}-unknown-linux-musl", std::env::consts::ARCH);
    assert_eq!(harness.page.asked(), [format!("/v{VERSION}/SHA256SUMS"), asset.clone()]);

    let done = harness.run(ONE_STEP, None, &[], &[]).succeeded();
    assert!(done.stdout.contains("called with release"), "{}", done.stdout);
    assert_eq!(harness.page.asked(), [""; 0]);

    // A file that has changed since is not run.
    fs::write(program(&harness), "#!/bin/sh\necho something else\n").unwrap();
    let done = harness.run(ONE_STEP, None, &[], &[]).succeeded();
    assert!(done.stdout.contains("called with release"), "{}", done.stdout);
    assert!(harness.page.asked().contains(&asset));
    assert_eq!(left(&harness), ["ARCH", "ARCH.complete", "ARCH.lock"]);
}

#[test]
fn what_goes_wrong_is_said_where_people_look() {
    let harness = ActHarness::with_program(ECHO);
    let step = |n: usize, with: &str| {
        let with: String = with.lines().map(|line| format!("          {line}\n")).collect();
        format!(
            "      - id: step-{n}
        uses: ondeck-ci/ondeck@v0
        continue-on-error: true
        with:
{with}      - env:
          RESULT: ${{{{ steps.step-{n}.outputs.result }}}}
        run: echo \"$RESULT\" >>\"$RESULTS\"
"
        )
    };
    let faulty = [
        // No mode.
        "version: 1.0.0",
        "mode: demolish",
        "mode: release\nversion: 9.9.9",
        "mode: release\nversion: ../../1.0.0",
        "mode: release\ndownload-url: http://example.com/ondeck",
        "mode: release\ndownload-url: http://127.0.0.1:1",
        "mode: release\nsha256: 0000000000000000000000000000000000000000000000000000000000000000",
    ];
    let steps: String = faulty.iter().enumerate().map(|(n, with)| step(n, with)).collect();
    let results = harness.home.outside().join("results");
    let steps = steps.replace("$RESULTS", &results.display().to_string());
    let workflow =
        format!("on: push\njobs:\n  one:\n    runs-on: ubuntu-latest\n    steps:\n{steps}");
    let said = [
        "title=no mode::no mode given%0Ahint: mode is refresh, provision, release or apply",
        "title=no such mode::no such mode: demolish%0Ahint: mode is refresh, provision, release or apply",
        "title=no such version::no such file, so probably no such version: ",
        "title=no such version::not a version of ondeck: ../../1.0.0%0Ahint: a version is like 1.2.3",
        "not an address that begins with https://: http://example.com/ondeck%0Ahint: ",
        "title=ondeck cannot be fetched::curl: (7) ",
        "should be 0000000000000000000000000000000000000000000000000000000000000000, but is ",
    ];
    let done = harness.hear(&workflow, &said).succeeded();
    for words in said {
        assert!(done.stdout.contains(words), "{words}\n{}", done.stdout);
    }
    assert!(!done.stdout.contains("called with"), "{}", done.stdout);
    let results = fs::read_to_string(&results).unwrap();
    let results: Vec<Value> =
        results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The workflow may have been run more than once.
    for results in results.chunks(faulty.len()) {
        let errors: Vec<&Value> = results.iter().map(|result| &result["error"]).collect();
        assert!(results.iter().all(|result| result["status"] == "failed"), "{results:?}");
        assert!(results.iter().all(|result| result["schemaVersion"] == 1), "{results:?}");
        let kinds: Vec<&str> = errors.iter().map(|error| error["kind"].as_str().unwrap()).collect();
        let invalid = "invalid-input";
        let expected = [invalid, invalid, invalid, invalid, invalid, "unavailable", invalid];
        assert_eq!(kinds, expected);
        assert_eq!(errors[0]["message"], "no mode given");
        assert_eq!(errors[0]["hint"], "mode is refresh, provision, release or apply");
    }
    // Nothing that was not checked has been kept.
    assert_eq!(left(&harness), ["ARCH.lock"]);
}

#[test]
fn every_failure_has_a_summary_and_a_result() {
    let harness = ActHarness::with_program(ECHO);
    let [outputs, summary] = ["outputs", "summary"].map(|it| harness.home.outside().join(it));
    let shown = summary.display().to_string();
    for (env, title, message, hint) in [
        (
            &[("MODE", "")][..],
            "no mode",
            "no mode given",
            "mode is refresh, provision, release or apply",
        ),
        (&[], "no mode", "no mode given", "mode is refresh, provision, release or apply"),
        (
            &[("MODE", "\"<b>\\\n&")],
            "no such mode",
            "no such mode: \"<b>\\ &",
            "mode is refresh, provision, release or apply",
        ),
        (
            &[("MODE", "release"), ("VERSION", "latest")],
            "no such version",
            "not a version of ondeck: latest",
            "a version is like 1.2.3",
        ),
    ] {
        let env = [env, &[("GITHUB_STEP_SUMMARY", shown.as_str())]].concat();
        installed(&harness, &env).exited(1);
        let result = fs::read_to_string(&outputs).unwrap();
        let result: Value = serde_json::from_str(result.strip_prefix("result=").unwrap()).unwrap();
        let error = json!({ "kind": "invalid-input", "message": message, "hint": hint });
        assert_eq!(result, json!({ "schemaVersion": 1, "status": "failed", "error": error }));
        let message = message.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        assert_eq!(
            fs::read_to_string(&summary).unwrap(),
            format!("### ondeck failed: {title}\n\n> {message}\n>\n> **hint:** {hint}\n")
        );
        fs::remove_file(&outputs).unwrap();
        fs::remove_file(&summary).unwrap();
    }
}

#[test]
fn outputs_that_cannot_be_written_fail_the_step_and_hide_no_other_failure() {
    let harness = ActHarness::with_program(ECHO);
    let summary = harness.home.outside().join("summary");
    let shown = summary.display().to_string();
    let nowhere = harness.home.outside().join("no/such/folder/file").display().to_string();
    for file in ["", nowhere.as_str(), "/dev/full", "/"] {
        for (mode, own) in [("release", None), ("", Some("no mode"))] {
            let env =
                [("MODE", mode), ("GITHUB_OUTPUT", file), ("GITHUB_STEP_SUMMARY", shown.as_str())];
            let done = installed(&harness, &env).exited(1);
            let unwritable = "ondeck cannot say where it is";
            let titles: Vec<&str> = own.into_iter().chain([unwritable]).collect();
            let annotations = done.stdout.lines().filter_map(|line| {
                line.strip_prefix("::error title=")?.split_once("::").map(|(title, _)| title)
            });
            assert_eq!(annotations.collect::<Vec<_>>(), titles, "{file}: {done:?}");
            let why =
                format!("::step outputs cannot be written: {file}%0Ahint: GITHUB_OUTPUT must");
            assert!(done.stdout.contains(&why), "{done:?}");
            let summary_text = fs::read_to_string(&summary).unwrap();
            let headings =
                summary_text.lines().filter_map(|line| line.strip_prefix("### ondeck failed: "));
            assert_eq!(headings.collect::<Vec<_>>(), titles, "{file}: {summary_text}");
            fs::remove_file(&summary).unwrap();
        }
    }
}

#[test]
fn a_summary_that_cannot_be_written_is_a_warning() {
    let harness = ActHarness::with_program(ECHO);
    let done = installed(&harness, &[("GITHUB_STEP_SUMMARY", "/dev/full")]).exited(1);
    for words in ["::error title=no mode::", "::warning title=ondeck::the job summary cannot be"] {
        assert!(done.stdout.contains(words), "{done:?}");
    }
    let result = fs::read_to_string(harness.home.outside().join("outputs")).unwrap();
    assert!(result.starts_with("result={\"schemaVersion\":1,\"status\":\"failed\","), "{result}");
}

#[test]
fn a_release_that_was_tampered_with_is_not_used() {
    let harness = ActHarness::with_program(ECHO);
    let asset = format!("ondeck-{VERSION}-{}-unknown-linux-musl", std::env::consts::ARCH);
    harness.page.put(&asset, b"#!/bin/sh\necho called otherwise\n");
    let done = installed(&harness, &[("MODE", "release")]).exited(1);
    assert!(done.stdout.contains("::error title=ondeck is not what it should be::"), "{done:?}");
    harness.page.put("SHA256SUMS", b"");
    let done = installed(&harness, &[("MODE", "release")]).exited(1);
    assert!(done.stdout.contains("::not among the files of release"), "{done:?}");
    assert_eq!(left(&harness), ["ARCH.lock"]);
}

#[test]
fn the_provenance_is_checked_where_it_is_required() {
    let harness = ActHarness::with_program(ECHO);
    let required = [("MODE", "release"), ("VERIFY_PROVENANCE", "required")];
    let path = path_of(&harness);
    let env = [&required[..], &[("PATH", path.as_str())]].concat();
    put_on_path(&harness, "gh", "#!/bin/sh\nexit 1\n");
    let done = installed(&harness, &env).exited(1);
    assert!(done.stdout.contains("::the GitHub CLI has no valid token for github.com%0A"));
    assert_eq!(left(&harness), ["ARCH.lock"]);

    // Without being asked to, it takes what a mirror has; later it is not taken from the cache.
    let auto = installed(&harness, &[("MODE", "release"), ("PATH", path.as_str())]).succeeded();
    assert!(auto.stdout.contains("was not checked: download-url names a mirror"), "{auto:?}");
    put_on_path(&harness, "gh", "#!/bin/sh\n[ \"$1\" = auth ] || { echo forged; exit 1; }\n");
    let done = installed(&harness, &env).exited(1);
    assert!(done.stdout.contains("its provenance is not that of ondeck-ci/ondeck: forged%0A"));
    put_on_path(
        &harness,
        "gh",
        "#!/bin/sh\ncase $* in auth*|attestation*ondeck-ci/ondeck) ;; *) exit 1 ;; esac\n",
    );
    let done = installed(&harness, &env).succeeded();
    assert!(done.stdout.contains("the provenance was checked: built by ondeck-ci/ondeck"));
    let done = installed(&harness, &env).succeeded();
    assert!(done.stdout.contains("is in the tool cache"), "{done:?}");
    assert_eq!(left(&harness), ["ARCH", "ARCH.complete", "ARCH.lock", "ARCH.provenance"]);

    let wrong = [("MODE", "release"), ("VERIFY_PROVENANCE", "maybe")];
    let done = installed(&harness, &wrong).exited(1);
    assert!(done.stdout.contains("verify-provenance is none of auto, required, off: maybe"));
}

#[test]
fn a_platform_without_release_is_named() {
    let harness = ActHarness::with_program(ECHO);
    let system =
        "#!/bin/sh\ncase $1 in -s) echo Darwin ;; -m) echo arm64 ;; *) echo Darwin arm64 ;; esac\n";
    put_on_path(&harness, "uname", system);
    let env = [("MODE", "release"), ("PATH", &*path_of(&harness))];
    let done = installed(&harness, &env).exited(1);
    let words = "::error title=no ondeck for this platform::no release of ondeck for this platform: \
                 Darwin arm64%0Ahint: there are releases for Linux on x86-64 and arm64; with \
                 from-source: true it is built here";
    assert!(done.stdout.contains(words), "{done:?}");
    assert_eq!(harness.page.asked(), [""; 0]);
}

#[test]
fn it_is_built_where_the_workflow_asks_for_it() {
    let harness = ActHarness::with_program(ECHO);
    put_on_path(&harness, "cargo", "#!/bin/sh\necho \"$PWD $*\"\n");
    let path = path_of(&harness);
    let env = [("MODE", "release"), ("FROM_SOURCE", "true"), ("PATH", path.as_str())];
    let done = installed(&harness, &env).succeeded();
    let action = harness.action().display().to_string();
    let line = format!(
        "{action} build --release --locked --target-dir target --package ondeck --features aws,github\n"
    );
    assert_eq!(done.stderr, line);
    let said = fs::read_to_string(harness.home.outside().join("outputs")).unwrap();
    assert_eq!(said, format!("program={action}/target/release/ondeck\n"));
    assert_eq!(harness.page.asked(), [""; 0]);

    put_on_path(&harness, "cargo", "#!/bin/sh\nexit 101\n");
    let done = installed(&harness, &env).exited(1);
    assert!(done.stdout.contains("::error title=ondeck cannot be built::"), "{done:?}");
}

#[test]
fn machines_get_the_agent_of_the_same_release() {
    let harness = ActHarness::with_program(ECHO);
    let outputs = harness.home.outside().join("outputs");
    for mode in ["refresh", "apply"] {
        installed(&harness, &[("MODE", mode)]).succeeded();
        let said = fs::read_to_string(&outputs).unwrap();
        fs::remove_file(&outputs).unwrap();
        for (suffix, target) in [("", "x86_64"), ("-arm64", "aarch64")] {
            let agent =
                format!("{}/v{VERSION}/ondeck-agent-{VERSION}-{target}", harness.page.url());
            let line =
                format!("agent-url{suffix}={agent}-unknown-linux-musl\nagent-sha256{suffix}=");
            assert!(said.contains(&line), "{mode}: {said}");
        }
    }
    for (mode, url) in [
        ("provision", ""),
        ("refresh", "https://example.com/agent"),
        ("refresh", "image"),
        ("apply", "image"),
    ] {
        installed(&harness, &[("MODE", mode), ("AGENT_URL", url)]).succeeded();
        let said = fs::read_to_string(&outputs).unwrap();
        fs::remove_file(&outputs).unwrap();
        assert!(said.starts_with("program=") && !said.contains("agent"), "{mode}: {said}");
    }
}

#[test]
fn jobs_that_install_at_once_do_not_disturb_each_other() {
    let harness = ActHarness::with_program(ECHO);
    for round in 0..4 {
        let jobs: Vec<Background> = (0..8)
            .map(|_| Background::start(&mut installation(&harness, &[("MODE", "release")])))
            .collect();
        for job in jobs {
            job.finish().succeeded();
        }
        assert_eq!(left(&harness), ["ARCH", "ARCH.complete", "ARCH.lock"]);
        assert_eq!(fs::read(program(&harness)).unwrap(), ECHO);
        assert_eq!(harness.page.asked().len(), 2);
        match round {
            // Broken, half there, and not there at all.
            0 => fs::write(program(&harness), "").unwrap(),
            1 => fs::remove_file(program(&harness)).unwrap(),
            2 => fs::remove_file(versions(&harness).join(format!("{}.complete", arch()))).unwrap(),
            _ => fs::remove_dir_all(versions(&harness)).unwrap(),
        }
    }
}

/// The script alone, for what does not take a workflow.
fn installed(harness: &ActHarness, env: &[(&str, &str)]) -> Done {
    Background::start(&mut installation(harness, env)).finish()
}

fn installation(harness: &ActHarness, env: &[(&str, &str)]) -> Command {
    let mut script = Command::new("bash");
    script
        .arg(harness.action().join("action/install.sh"))
        .env("GITHUB_ACTION_PATH", harness.action())
        .env("GITHUB_OUTPUT", harness.home.outside().join("outputs"))
        .env("RUNNER_TOOL_CACHE", harness.tool_cache())
        .env("DOWNLOAD_URL", harness.page.url())
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    script
}

/// A program that stands in for another one.
fn put_on_path(harness: &ActHarness, name: &str, script: &str) {
    let file = harness.home.outside().join(name);
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn path_of(harness: &ActHarness) -> String {
    format!("{}:{}", harness.home.outside().display(), std::env::var("PATH").unwrap())
}

/// The Action's name for what this computer is.
fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" }
}

fn versions(harness: &ActHarness) -> std::path::PathBuf {
    harness.tool_cache().join("ondeck").join(VERSION)
}

fn program(harness: &ActHarness) -> std::path::PathBuf {
    versions(harness).join(arch()).join("ondeck")
}

/// What is in the tool cache of our version, sorted.
fn left(harness: &ActHarness) -> Vec<String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut left: Vec<String> =
        names(&versions(harness)).into_iter().map(|name| name.replace(arch(), "ARCH")).collect();
    left.sort();
    left
}
