//! Programs from crates.io that the tasks need and cargo does not include.

use std::path::Path;

use crate::console::log;
use crate::step::{Step, cargo, tool};

/// The folder that tools are installed into, below the workspace's root. Git ignores it.
pub(crate) const DIRECTORY: &str = ".tools";

/// A program that is published on crates.io.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The name of the package, and of its program.
    pub(crate) name: &'static str,
    /// The subcommand of cargo, or `None` for a program that is called by its own name.
    subcommand: Option<&'static str>,
    /// The version to build. An installed tool may have any version.
    version: &'static str,
    /// Flags that choose its features.
    features: &'static str,
}

pub(crate) const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    subcommand: Some("nextest"),
    version: "0.9.143",
    // Without the self-update, which needs an HTTP client and TLS.
    features: "--no-default-features --features default-no-update",
};
pub(crate) const DENY: Tool =
    Tool { name: "cargo-deny", subcommand: Some("deny"), version: "0.20.2", features: "" };
pub(crate) const MUTANTS: Tool =
    Tool { name: "cargo-mutants", subcommand: Some("mutants"), version: "27.1.0", features: "" };

pub(crate) const MDBOOK: Tool = Tool {
    name: "mdbook",
    subcommand: None,
    version: "0.5.4",
    // Without its web server and file watcher, which bring in axum and notify.
    features: "--no-default-features --features search",
};

impl Tool {
    /// Whether the tool is installed and starts.
    pub(crate) fn is_there(&self, root: &Path) -> bool {
        let mut command = match self.subcommand {
            Some(subcommand) => {
                let mut command = cargo(root);
                command.arg(subcommand);
                command
            }
            None => tool(root, self.name),
        };
        command.arg("--version").output().is_ok_and(|answer| answer.status.success())
    }

    /// Builds and installs the tool. Returns cargo's exit code.
    pub(crate) fn install(&self, root: &Path) -> u8 {
        let Tool { name, version, .. } = self;
        log(&format!("\n{name} is not on PATH: building {version} into {DIRECTORY}"));
        log("this takes a few minutes, once");
        let exit_code = self.installation().run(root);
        if exit_code != 0 {
            log(&format!("error: cannot build {name}"));
            log(&format!(
                "hint: install a C compiler and allow access to crates.io, or put {name} on PATH"
            ));
            return exit_code;
        }
        // Removed only after success, so that an interrupted build can be continued.
        if let Err(error) = std::fs::remove_dir_all(root.join(DIRECTORY).join("build")) {
            log(&format!("warning: cannot clear {DIRECTORY}/build: {error}"));
        }
        exit_code
    }

    /// Built without optimisation, which takes a third of the time; no tool is limited by its speed.
    fn installation(&self) -> Step {
        let Tool { name, version, features, .. } = self;
        let line = format!(
            "install --locked --debug --root {DIRECTORY} --target-dir {DIRECTORY}/build \
             --version {version} {features} {name}"
        );
        Step::new(format!("build {name}"), &line)
            .with_env("CARGO_PROFILE_DEV_DEBUG", "false")
            // The registry refuses requests now and then, and cargo gives up after three tries.
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
