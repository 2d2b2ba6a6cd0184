//! Which commands each task consists of.

use crate::step::Step;

/// All features, so that the hooks which only tests may use are there for them.
pub(crate) fn nextest(more: &[String]) -> Step {
    Step::new("tests", "nextest run --workspace --all-features --no-fail-fast").and(more)
}

/// Nextest runs none of these, and they hold the proofs that wrong code does not compile.
pub(crate) fn doctests() -> Step {
    Step::new("doctests", "test --doc --workspace --all-features --no-fail-fast")
}

pub(crate) fn lints(fix: bool) -> Vec<Step> {
    vec![
        Step::new("format", if fix { "fmt --all" } else { "fmt --all --check" }),
        Step::new("lints", "clippy --workspace --all-targets --all-features -- -D warnings"),
        // Who tries the embedded backend builds this, without a line of AWS or GitHub.
        Step::new("lints, default features", "clippy -p ondeck -- -D warnings"),
        // What machines of the pool download is built without the control plane; a use of it
        // that is not behind its feature shows only here.
        Step::new("lints, agent only", "clippy -p ondeck --no-default-features -- -D warnings"),
        Step::new(
            "lints, agent on machines",
            "clippy -p ondeck --no-default-features --features aws,github -- -D warnings",
        ),
        Step::new("documentation", "doc --no-deps --workspace --all-features")
            .with_env("RUSTDOCFLAGS", "-D warnings"),
    ]
}

/// Not optimised: calls do not depend on it, and a release build takes minutes.
pub(crate) fn bench_aws() -> Vec<String> {
    let line = "cargo bench --package ondeck --features aws --bench aws --profile dev";
    line.split(' ').map(str::to_owned).collect()
}

/// Which of its files are mutated, and who judges, is in `.cargo/mutants.toml`. The package has to
/// be named, since the workspace's default member is another.
pub(crate) fn mutants(more: &[String]) -> Step {
    Step::new("mutants", "mutants --package ondeck-core").and(more)
}

pub(crate) fn deny() -> Step {
    Step::new("licences, bans, sources", "deny check bans licenses sources")
}

pub(crate) fn advisories() -> Step {
    Step::new("advisories", "deny check advisories")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_for_nextest_come_last() {
        let step = nextest(&["--".into(), "--exact".into()]);
        assert!(step.to_string().ends_with(" --no-fail-fast -- --exact"), "{step}");
    }

    #[test]
    fn fixing_formats_and_changes_nothing_else() {
        let lines = |fix| lints(fix).iter().map(ToString::to_string).collect::<Vec<_>>();
        let (complain, fix) = (lines(false), lines(true));
        assert_eq!(complain[0], "cargo fmt --all --check");
        assert_eq!(fix[0], "cargo fmt --all");
        assert_eq!(complain[1..], fix[1..]);
    }

    #[test]
    fn each_program_that_is_built_is_linted() {
        let lines: Vec<String> = lints(false).iter().map(ToString::to_string).collect();
        for features in
            ["", " --no-default-features", " --no-default-features --features aws,github"]
        {
            let line = format!("cargo clippy -p ondeck{features} -- -D warnings");
            assert!(lines.contains(&line), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_checked_everywhere_is_not_among_the_checks() {
        assert!(!deny().to_string().contains("advisories"));
    }
}
