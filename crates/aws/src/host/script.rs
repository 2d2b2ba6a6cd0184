//! The operator's script. It runs once on each machine, by the interpreter that its first line names.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::signal::output_tail;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;

/// The variables that a script inherits from the agent, proxies among them. Others may be secrets that
/// the image gives to the agent.
const HANDED_ON: [&str; 12] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TZ",
    "SHELL",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

#[derive(Debug, Clone, Copy)]
pub(super) struct Script<'a> {
    pub(super) text: &'a str,
    pub(super) instance: &'a InstanceId,
    /// The directory that it is written to and runs in.
    pub(super) folder: &'a Path,
}

impl Script<'_> {
    /// Runs it, unless it has succeeded on this machine before: then the agent was restarted by its
    /// service, and the machine is prepared. Fails with the script's last output.
    pub(super) async fn run_once(&self) -> Result<(), String> {
        let done = self.folder.join("pre-runner.done");
        let mark = self.mark();
        if fs::read_to_string(&done).is_ok_and(|found| found == mark) {
            tracing::info!(instance = %self.instance, "the pre-runner script has run before");
            return Ok(());
        }
        self.run().await.unwrap_or_else(|error| Err(format!("cannot run the script: {error}")))?;
        if let Err(error) = fs::write(&done, mark) {
            tracing::warn!("the script would be run again by an agent that restarts: {error}");
        }
        Ok(())
    }

    /// What is written to disk once it has succeeded. A machine launched from this disk has another
    /// id, and runs it again; so does this one if the script changes.
    fn mark(&self) -> String {
        let mut mark = format!("{} ", self.instance);
        for byte in Sha256::digest(self.text) {
            // Writing to a string cannot fail.
            write!(mark, "{byte:02x}").ok();
        }
        mark.push('\n');
        mark
    }

    /// Runs it with its output going to a file. A pipe would be held open by background processes of
    /// the script.
    async fn run(&self) -> io::Result<Result<(), String>> {
        fs::create_dir_all(self.folder)?;
        let file = self.folder.join("pre-runner.sh");
        let said = self.folder.join("pre-runner.out");
        fs::write(&file, self.text)?;
        let output = fs::File::create(&said)?;
        let (program, argument) = interpreter(self.text);
        let status = Command::new(program)
            .args(argument)
            .arg(&file)
            .env_clear()
            .envs(HANDED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env("ONDECK_INSTANCE_ID", self.instance.as_str())
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .status()
            .await
            .map_err(|error| io::Error::other(format!("{}: {error}", quoted(program))))?;
        if status.success() {
            return Ok(Ok(()));
        }
        let words = output_tail(&String::from_utf8_lossy(&fs::read(&said)?));
        Ok(Err(format!("the script ended with {status}: {words}")))
    }
}

/// The program that the first line names and, as in the kernel, the rest of the line as one argument.
/// Without such a line, a shell that exits at the first command that fails.
///
/// The file is not executed directly: that fails in a directory mounted `noexec`, and if another
/// child that was forked meanwhile still has the file open.
fn interpreter(text: &str) -> (&str, Option<&str>) {
    let first = text.lines().next().unwrap_or_default();
    let blank = [' ', '\t'];
    let named = first.strip_prefix("#!").map(|line| line.trim_matches(blank));
    match named.filter(|line| !line.is_empty()) {
        None => ("sh", Some("-e")),
        Some(line) => match line.split_once(blank) {
            None => (line, None),
            Some((program, argument)) => (program, Some(argument.trim_start_matches(blank))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_interpreter() {
        for (text, expected) in [
            ("", ("sh", Some("-e"))),
            ("true\n", ("sh", Some("-e"))),
            ("# !/bin/bash\n", ("sh", Some("-e"))),
            ("\n#!/bin/bash\n", ("sh", Some("-e"))),
            ("#!\ntrue\n", ("sh", Some("-e"))),
            ("#! \t\ntrue\n", ("sh", Some("-e"))),
            ("#!/bin/bash", ("/bin/bash", None)),
            ("#!/bin/bash\r\ntrue\r\n", ("/bin/bash", None)),
            ("#! /bin/bash \ntrue\n", ("/bin/bash", None)),
            ("#!/bin/bash -eu\n", ("/bin/bash", Some("-eu"))),
            ("#!/usr/bin/env\t -S python3 -u \n", ("/usr/bin/env", Some("-S python3 -u"))),
        ] {
            assert_eq!(interpreter(text), expected, "{text:?}");
        }
    }
}
