//! No secret shows itself: not on stdout or stderr, not in a log, an output, a summary or a
//! record that is not made for it, not in a command line.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::harness::{GitHubHarness, JOBS_TOKEN, TOKEN};
use crate::harness::{Background, Driven};

/// What every process of the computer was started with, again and again until told to stop.
fn command_lines(stop: &AtomicBool) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            seen.insert(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    seen
}

/// Every file under a folder, with its name.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&path, found),
            kind if kind.is_file() => {
                found.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
            }
            _ => {}
        }
    }
}

#[test]
fn tokens_stay_where_they_belong() {
    let harness = GitHubHarness::local(&[]);
    let stop = AtomicBool::new(false);
    let told = harness.pool.outside().join("told");
    fs::create_dir(&told).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = harness.command(arguments);
        command
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_OUTPUT", told.join("output"))
            .env("GITHUB_STEP_SUMMARY", told.join("summary"));
        Background::start(&mut command).finish().succeeded()
    };
    let (said, lines) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| command_lines(&stop));
        harness.renew();
        let said = [
            run(&["refresh", "-vv"]),
            run(&["provision", "-vv", "--run-id=1"]),
            run(&["release", "-vv", "--run-id=1"]),
        ];
        stop.store(true, Ordering::Relaxed);
        (said, watching.join().unwrap())
    });
    let minted: Vec<String> = ["registration", "removal"]
        .map(|name| harness.pool.texts(&format!("SELECT {name} FROM credentials")).concat())
        .into();
    assert!(minted.iter().all(|token| token.len() > 10), "{minted:?}");
    let secrets: Vec<&str> =
        [TOKEN, JOBS_TOKEN].into_iter().chain(minted.iter().map(String::as_str)).collect();

    assert!(
        lines.iter().any(|line| line.contains("Runner.Listener configure")),
        "it was watched: {lines:?}"
    );
    let mut found: Vec<(String, Vec<u8>)> =
        lines.into_iter().map(|line| ("a command line".to_owned(), line.into_bytes())).collect();
    for done in &said {
        // The one place where they are printed, so that GitHub masks them in the log.
        let unmasked = |text: &str| {
            let kept = text.lines().filter(|line| !line.starts_with("::add-mask::"));
            kept.collect::<Vec<_>>().join("\n").into_bytes()
        };
        found.push(("stdout".to_owned(), unmasked(&done.stdout)));
        found.push(("stderr".to_owned(), unmasked(&done.stderr)));
    }
    let first = said[0].stderr.lines().next().unwrap();
    assert!(first.starts_with("::add-mask::"), "before anything else: {first}");
    for secret in &secrets {
        assert!(said[0].stderr.contains(&format!("::add-mask::{secret}")), "every one is masked");
    }
    files(&told, &mut found);
    files(harness.pool.dir(), &mut found);
    // The store's file holds what agents register with, in a table of its own, looked at below.
    found.retain(|(name, _)| !name.contains("ondeck.db"));
    for (place, bytes) in &found {
        let text = String::from_utf8_lossy(bytes);
        for secret in &secrets {
            assert!(!text.contains(secret), "a secret in {place}: {text}");
        }
    }
    let tables = harness.pool.texts("SELECT name FROM sqlite_schema WHERE type = 'table'");
    for table in tables.iter().filter(|name| *name != "credentials") {
        let columns = harness.pool.texts(&format!("SELECT name FROM pragma_table_info('{table}')"));
        for column in columns {
            let rows = harness.pool.texts(&format!(
                "SELECT CAST({column} AS TEXT) FROM {table} WHERE {column} IS NOT NULL"
            ));
            for secret in &secrets {
                assert!(!rows.iter().any(|row| row.contains(secret)), "{table}.{column}");
            }
        }
    }
}
