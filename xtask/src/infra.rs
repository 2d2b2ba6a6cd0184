//! `cargo xtask infra`: writes the policies into the templates of CloudFormation and the modules of
//! Terraform in `infra`, and lints the templates.

mod render;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::child;
use crate::emulators;
use crate::error::TaskError;
use crate::step::{Report, exit_code_of};
use render::{Deployment, Language};

const TEMPLATE: &str = "infra/cloudformation.yaml";
const FUNCTION_TEMPLATE: &str = "infra/function.yaml";
const MODULE_POLICIES: &str = "infra/terraform/policies.tf";
const FUNCTION_MODULE_POLICIES: &str = "infra/terraform/function/policies.tf";
const BEGIN: &str = "# Generated from ";
const BY: &str = "\n";
const END: &str = "# End of the generated part\n";

/// The policies of the module with roles and network, by their path below `policies`.
const POLICIES: [&str; 11] = [
    "refresh",
    "operator",
    "steward",
    "provision",
    "release",
    "machine",
    "optional/machine-logs",
    "optional/machine-connect",
    "optional/operator-connect",
    "optional/volume-key",
    "optional/image-parameter",
];

/// Those of the module with the function.
const FUNCTION_POLICIES: [&str; 4] =
    ["refresh", "optional/function", "optional/image-parameter", "optional/volume-key"];

/// What cfn-lint is installed from.
const REQUIREMENTS: &str = "xtask/infra/requirements.txt";

/// Writes the generated parts and lints the template.
pub(crate) fn run(root: &Path) -> Report {
    let mut report = Report::default();
    check(&mut report, root, true);
    report
}

/// Compares the generated parts with `policies`, or writes them to `fix` them, and lints the
/// template.
pub(crate) fn check(report: &mut Report, root: &Path, fix: bool) {
    report.check("infrastructure", || if fix { write(root) } else { compare(root) });
    report.check("cfn-lint", || lint(root));
}

fn lint(root: &Path) -> Result<(), TaskError> {
    let python = emulators::python_with(root, "cfn-lint", &root.join(REQUIREMENTS))?;
    // The program's first line has the interpreter's path, which changes if .tools is copied.
    let program = python.with_file_name("cfn-lint");
    let mut command = Command::new(python);
    command.arg(program).args(["--template", TEMPLATE, FUNCTION_TEMPLATE]).current_dir(root);
    match exit_code_of(child::run(&mut command), "cfn-lint") {
        0 => Ok(()),
        code => Err(TaskError::new(
            format!("{TEMPLATE}, {FUNCTION_TEMPLATE}: cfn-lint ended with exit code {code}"),
            "its lines above name the problems; if it did not start, remove .tools/cfn-lint",
        )),
    }
}

fn write(root: &Path) -> Result<(), TaskError> {
    for (file, text) in generated(root)? {
        let path = root.join(file);
        fs::write(&path, text).map_err(|error| TaskError::with(&path, error))?;
    }
    Ok(())
}

fn compare(root: &Path) -> Result<(), TaskError> {
    for (file, text) in generated(root)? {
        // A missing file is out of date, too.
        if fs::read_to_string(root.join(file)).unwrap_or_default() != text {
            return Err(TaskError::new(format!("out of date: {file}"), "cargo xtask infra"));
        }
    }
    Ok(())
}

/// The files with generated parts, as they should be.
fn generated(root: &Path) -> Result<[(&'static str, String); 4], TaskError> {
    let read = |file: &str| {
        let path = root.join(file);
        fs::read_to_string(&path).map_err(|error| TaskError::with(&path, error))
    };
    let made = |file: &str, deployment| template(&read(file)?, deployment, read);
    let module = |policies: &[&str], deployment| module_policies(policies, deployment, read);
    Ok([
        (TEMPLATE, made(TEMPLATE, Deployment::Pool)?),
        (FUNCTION_TEMPLATE, made(FUNCTION_TEMPLATE, Deployment::Function)?),
        (MODULE_POLICIES, module(&POLICIES, Deployment::Pool)?),
        (FUNCTION_MODULE_POLICIES, module(&FUNCTION_POLICIES, Deployment::Function)?),
    ])
}

/// The template with each generated part made anew from the file that its first line names.
fn template(
    text: &str,
    deployment: Deployment,
    read: impl Fn(&str) -> Result<String, TaskError>,
) -> Result<String, TaskError> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let broken = || {
            let hint = "each generated part has a line with its source and an end";
            TaskError::new(format!("broken part of a template after {before:.40}"), hint)
        };
        let (source, after) = after.split_once(BY).ok_or_else(broken)?;
        let (_, after) = after.split_once(END).ok_or_else(broken)?;
        let indent = before.len() - before.trim_end_matches(' ').len();
        let part = read(source)?;
        let part = match source.ends_with(".json") {
            true => render::policy(&part, Language::CloudFormation, deployment)?,
            false => part,
        };
        made += &format!("{before}{BEGIN}{source}{BY}");
        for line in part.lines() {
            made += &format!("{:indent$}{line}\n", "");
        }
        made += &format!("{:indent$}{END}", "");
        rest = after;
    }
    Ok(made + rest)
}

/// The file of a module that holds these policies.
fn module_policies(
    policies: &[&str],
    deployment: Deployment,
    read: impl Fn(&str) -> Result<String, TaskError>,
) -> Result<String, TaskError> {
    let mut made =
        "# Written by cargo xtask infra from the files in policies/.\nlocals {\n".to_owned();
    for (number, policy) in policies.iter().enumerate() {
        let text = read(&format!("policies/{policy}.json"))?;
        let text = render::policy(&text, Language::Terraform, deployment)?;
        let name = policy.trim_start_matches("optional/").replace('-', "_");
        let text = text.trim_end().replace('\n', "\n  ");
        let blank = if number == 0 { "" } else { "\n" };
        made += &format!("{blank}  policy_{name} = jsonencode({text})\n");
    }
    Ok(made + "}\n")
}
