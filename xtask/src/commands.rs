//! The cargo commands that each task consists of.

use crate::step::Step;

/// Tests run with all features, because some of them need hooks that only test builds have.
pub(crate) fn nextest(more: &[String]) -> Step {
    Step::new("tests", "nextest run --workspace --all-features --no-fail-fast").and(more)
}

/// Where a second build of the program is, with the protocol that comes after this one. The tests of
/// two versions run it beside the first.
pub(crate) const ANOTHER_VERSION: (&str, &str) =
    ("ONDECK_ANOTHER_VERSION", "target/another-version/debug/ondeck");

pub(crate) fn another_version() -> Step {
    Step::new("another version", "build --package ondeck --target-dir target/another-version")
        .with_env("ONDECK_PROTOCOL", "2")
}

/// Nextest does not run doctests, and these prove that illegal transitions do not compile.
pub(crate) fn doctests() -> Step {
    Step::new("doctests", "test --doc --workspace --all-features --no-fail-fast")
}

pub(crate) fn lints(fix: bool) -> Vec<Step> {
    vec![
        Step::new("format", if fix { "fmt --all" } else { "fmt --all --check" }),
        Step::new("lints", "clippy --workspace --all-targets --all-features -- -D warnings"),
        // What `cargo demo` builds: the local backend without AWS and GitHub.
        Step::new("lints, default features", "clippy -p ondeck -- -D warnings"),
        // Machines of the pool download a build without the control plane. A use of the control
        // plane outside of its feature fails only here.
        Step::new(
            "lints, agent only",
            "clippy -p ondeck --no-default-features --features local -- -D warnings",
        ),
        Step::new(
            "lints, agent on machines",
            "clippy -p ondeck --no-default-features --features aws,github,local -- -D warnings",
        ),
        // What a control plane on macOS has: no local backend, which is for Linux only.
        Step::new(
            "lints, no local backend",
            "clippy -p ondeck --no-default-features --features control,aws,github -- -D warnings",
        ),
        Step::new("documentation", "doc --no-deps --workspace --all-features")
            .with_env("RUSTDOCFLAGS", "-D warnings"),
    ]
}

/// Not optimised: claims mostly wait for registrations.
pub(crate) fn bench_claims() -> Vec<String> {
    let build = "cargo build --quiet --package ondeck-standin --bins";
    let line =
        "cargo bench --package ondeck --features aws,github --bench aws --profile dev -- claims";
    ["sh", "-c", &format!("{build} && {line}")].map(str::to_owned).into()
}

/// The released program's figures: how it is optimised decides them.
pub(crate) fn bench_dashboard() -> Step {
    Step::new("bench", "bench --package ondeck --features dashboard --bench dashboard")
}

/// `.cargo/mutants.toml` lists the files to mutate and the tests to run. The package is named
/// because the workspace's default member is another one.
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
        for features in [
            "",
            " --no-default-features --features local",
            " --no-default-features --features aws,github,local",
            " --no-default-features --features control,aws,github",
        ] {
            let line = format!("cargo clippy -p ondeck{features} -- -D warnings");
            assert!(lines.contains(&line), "{line}");
        }
    }

    #[test]
    fn checks_need_no_network_beyond_the_registry() {
        assert!(!deny().to_string().contains("advisories"));
    }
}
