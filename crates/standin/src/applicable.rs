//! Tests that cannot run everywhere.

use rustix::process::geteuid;

/// Says that a test, or a part of it, cannot run on this computer, and why. The caller then returns or
/// goes on without it.
///
/// # Panics
/// As root in the CI (`CI=true`), which must be able to run every test: a skipped test would look like
/// one that has passed.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
pub fn not_applicable(without: &str) {
    let ci = std::env::var("CI").ok();
    assert!(
        !must_run(ci.as_deref(), geteuid().is_root()),
        "cannot run in the CI without {without}"
    );
    eprintln!("NOT APPLICABLE without {without}");
}

/// Whether each test must run, by the variable `CI`.
fn must_run(ci: Option<&str>, is_root: bool) -> bool {
    ci == Some("true") && is_root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_in_the_ci_must_run_each_test() {
        for (ci, is_root, expected) in [
            (Some("true"), true, true),
            (Some("true"), false, false),
            (Some("false"), true, false),
            (Some(""), true, false),
            (None, true, false),
        ] {
            assert_eq!(must_run(ci, is_root), expected, "{ci:?} {is_root}");
        }
    }
}
