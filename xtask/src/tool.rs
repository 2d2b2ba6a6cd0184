//! Programs that cargo does not bring along.

use std::path::Path;

use crate::console::log;
use crate::step::{Step, cargo};

/// Where ours are kept, below the workspace's root. Git ignores it.
pub(crate) const DIRECTORY: &str = ".tools";

/// A cargo subcommand, published on crates.io.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The package.
    pub(crate) name: &'static str,
    /// What cargo calls it.
    subcommand: &'static str,
    /// What is built where it is missing. One that is there already may be of any version.
    version: &'static str,
    /// Which of its features are built, as flags.
    features: &'static str,
}

pub(crate) const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    subcommand: "nextest",
    version: "0.9.143",
    // It need not be able to replace itself, which takes an HTTP client and TLS.
    features: "--no-default-features --features default-no-update",
};
pub(crate) const DENY: Tool =
    Tool { name: "cargo-deny", subcommand: "deny", version: "0.20.2", features: "" };
pub(crate) const MUTANTS: Tool =
    Tool { name: "cargo-mutants", subcommand: "mutants", version: "27.1.0", features: "" };

impl Tool {
    /// Whether cargo finds it and it starts.
    pub(crate) fn is_there(&self, root: &Path) -> bool {
        let asked = cargo(root).args([self.subcommand, "--version"]).output();
        asked.is_ok_and(|answer| answer.status.success())
    }

    /// Builds it, once and for all. Gives the exit code.
    pub(crate) fn install(&self, root: &Path) -> u8 {
        let Tool { name, version, .. } = self;
        log(&format!("\n{name} is not on PATH: building {version} into {DIRECTORY}"));
        log("this takes some minutes, once");
        let exit_code = self.installation().run(root);
        if exit_code != 0 {
            log(&format!("error: cannot build {name}"));
            log(&format!(
                "hint: it needs a C compiler and the crates.io registry; or put {name} on PATH"
            ));
            return exit_code;
        }
        // Kept until now so that an attempt that was broken off need not start anew.
        if let Err(error) = std::fs::remove_dir_all(root.join(DIRECTORY).join("build")) {
            log(&format!("warning: cannot clear {DIRECTORY}/build: {error}"));
        }
        exit_code
    }

    /// Not optimised: that takes a third of the time to build, and no tool computes much.
    fn installation(&self) -> Step {
        let Tool { name, version, features, .. } = self;
        let line = format!(
            "install --locked --debug --root {DIRECTORY} --target-dir {DIRECTORY}/build \
             --version {version} {features} {name}"
        );
        Step::new(format!("build {name}"), &line)
            .with_env("CARGO_PROFILE_DEV_DEBUG", "false")
            // The registry turns callers away now and then; cargo's own patience is short.
            .with_env("CARGO_NET_RETRY", "10")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_built_at_their_pinned_version_with_their_own_lock_file() {
        assert_eq!(
            DENY.installation().to_string(),
            "CARGO_PROFILE_DEV_DEBUG=false CARGO_NET_RETRY=10 cargo install --locked --debug \
             --root .tools --target-dir .tools/build --version 0.20.2 cargo-deny"
        );
    }
}
