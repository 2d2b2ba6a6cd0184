//! Installs the emulators and tools into `.tools`, once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program;
use super::retry::{once, retry_until_success};
use super::workflows::{self, Tools};
use crate::console::log;
use crate::error::TaskError;
use crate::tool;

/// The npm package that contains Amazon's DynamoDB Local 1.25.1.
const SIMULATOR: &str = "amplify-dynamodb-simulator-2.9.30";
const SIMULATOR_SPEC: &str = "amplify-dynamodb-simulator@2.9.30";
const SIMULATOR_SHA512: &str = "c5379e44bbf311fab2779961ddb1f8734907bd21c79a6843e590ec1c52804398\
                                36665e89aa515dbad6908422c7cf1129e91cb5a3b4c1ea7888a17b9002749ec1";
/// The Python packages, each with its digests.
const REQUIREMENTS: &str = include_str!("../../requirements.txt");
/// The services whose requests are checked against botocore's models.
const MODELLED: [&str; 6] = ["dynamodb", "sqs", "logs", "ec2", "service-quotas", "iam"];
/// The npm package with GitHub's OpenAPI descriptions. It contains thirty, of
/// which one is unpacked.
const DESCRIPTION: &str = "octokit-openapi-23.0.2";
const DESCRIPTION_SPEC: &str = "@octokit/openapi@23.0.2";
const DESCRIPTION_SHA512: &str = "a55f0cecbf46636dc0c9b36f4e6a369f28e6a669edebedac444fedaabd192d07\
                                  0f4b8967c3bbb979918d9b044d9010b70fb8195db171e401f32d455105718386";
/// The npm package that checks pages for accessibility.
const AXE: &str = "axe-core-4.14.0";
const AXE_SPEC: &str = "axe-core@4.14.0";
const AXE_SHA512: &str = "f564d9c448ec67b6f5dd31fc24f99b576cfc0876e5f34ff6866dd73c41b826035d40b2bc\
                          d480515e64b11df3003a44aa41e4714ffd1dc0d0f3d863a6df3ce971";
/// The description that is unpacked.
const DESCRIBED: &str = "package/generated/api.github.com.json";
/// The script that keeps the parts of the description that requests are checked against.
const EXTRACT: &str = include_str!("extract.py");
/// The file name of a model in botocore.
const MODEL: &str = "service-2.json.gz";

/// The paths of all installed parts.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) java: PathBuf,
    /// The folder of DynamoDB Local's jar.
    pub(super) dynamodb: PathBuf,
    /// The Python interpreter that has MiniStack.
    pub(super) python: PathBuf,
    pub(super) models: PathBuf,
    pub(super) shellcheck: PathBuf,
    pub(super) workflows: Tools,
    /// The script that checks pages for accessibility.
    pub(super) axe: PathBuf,
}

/// Installs missing parts. The caller must hold the lock of [`lock`].
pub(super) fn install(root: &Path, _lock: &File) -> Result<Installed, TaskError> {
    let tools = root.join(tool::DIRECTORY);
    let java = program::java()?;
    program::firewall_tools();
    program::docker_tools();
    program::browser();
    let venv = tools.join("python");
    let python = venv.join("bin").join("python");
    if !starts(&python) {
        // If the distribution has replaced the interpreter, the packages are unusable.
        forget(&venv)?;
    }
    part(&venv, REQUIREMENTS, || {
        log(&format!("installing MiniStack, shellcheck and act into {}/python", tool::DIRECTORY));
        install_packages(&venv, &root.join("xtask").join("requirements.txt"))
    })?;
    let dynamodb = tools.join("dynamodb");
    part(&dynamodb, SIMULATOR_SHA512, || install_dynamodb(&dynamodb, &python))?;
    let models = tools.join("models");
    let modelled = MODELLED.join(" ");
    let pin = [REQUIREMENTS, DESCRIPTION_SHA512, EXTRACT, &modelled].concat();
    part(&models, &pin, || {
        install_models(&models, &python)?;
        install_description(&models, &python)
    })?;
    let workflows = workflows::install(root, &python)?;
    let axe = tools.join("axe");
    part(&axe, AXE_SHA512, || {
        log(&format!("installing axe-core into {}/axe", tool::DIRECTORY));
        unpack(&axe, AXE, AXE_SPEC, AXE_SHA512, &python)
    })?;
    Ok(Installed {
        java,
        dynamodb: dynamodb.join("emulator"),
        python,
        models,
        shellcheck: venv.join("bin").join("shellcheck"),
        workflows,
        axe: axe.join("axe.min.js"),
    })
}

/// Locks `.tools` for changes until the file is dropped. Waits for other processes.
pub(super) fn lock(root: &Path) -> Result<File, TaskError> {
    let tools = root.join(tool::DIRECTORY);
    let path = tools.join("lock");
    let locked = fs::create_dir_all(&tools).and_then(|()| File::create(&path)).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    locked.map_err(|error| TaskError::with(&path, error))
}

/// Creates a folder unless it exists and is complete. A marker file, written last, records what the
/// folder was made from. A folder that is incomplete or made from something else is recreated.
pub(crate) fn part(
    folder: &Path,
    pin: &str,
    make: impl FnOnce() -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let complete = marker(folder);
    if fs::read_to_string(&complete).is_ok_and(|found| found == pin) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| TaskError::with(folder, error))?;
    }
    fs::create_dir_all(folder).map_err(|error| TaskError::with(folder, error))?;
    make()?;
    fs::write(&complete, pin).map_err(|error| TaskError::with(&complete, error))
}

fn marker(folder: &Path) -> PathBuf {
    folder.join("made-from")
}

fn forget(folder: &Path) -> Result<(), TaskError> {
    let marker = marker(folder);
    if !marker.exists() {
        return Ok(());
    }
    fs::remove_file(&marker).map_err(|error| TaskError::with(&marker, error))
}

fn starts(python: &Path) -> bool {
    let asked = Command::new(python).args(["-c", "import ministack"]).output();
    asked.is_ok_and(|answer| answer.status.success())
}

/// Installs packages of Python into a folder of their own in `.tools`, and returns the interpreter
/// that finds them.
pub(crate) fn python_with(
    root: &Path,
    folder: &str,
    requirements: &Path,
) -> Result<PathBuf, TaskError> {
    let _lock = lock(root)?;
    let venv = root.join(tool::DIRECTORY).join(folder);
    let pin =
        fs::read_to_string(requirements).map_err(|error| TaskError::with(requirements, error))?;
    part(&venv, &pin, || {
        log(&format!("installing {folder} into {}/{folder}", tool::DIRECTORY));
        install_packages(&venv, requirements)
    })?;
    Ok(venv.join("bin").join("python"))
}

/// Makes a virtual environment with the packages that a file lists with their digests.
fn install_packages(venv: &Path, requirements: &Path) -> Result<(), TaskError> {
    once(Command::new(program::python()?).args(["-m", "venv"]).arg(venv))?;
    let mut pip = Command::new(venv.join("bin").join("python"));
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install"])
        // No package is compiled, and none runs code during installation.
        .args(["--only-binary=:all:", "--require-hashes", "--no-deps", "--requirement"])
        .arg(requirements);
    retry_until_success(&mut pip)
}

/// Installs only the package itself: its dependencies are for its JavaScript.
fn install_dynamodb(folder: &Path, python: &Path) -> Result<(), TaskError> {
    log(&format!("installing DynamoDB Local into {}/dynamodb", tool::DIRECTORY));
    unpack(folder, SIMULATOR, SIMULATOR_SPEC, SIMULATOR_SHA512, python)
}

/// Downloads an npm package into a folder and unpacks it there.
pub(super) fn unpack(
    folder: &Path,
    name: &str,
    spec: &str,
    pinned: &str,
    python: &Path,
) -> Result<(), TaskError> {
    let archive = fetch(folder, name, spec, pinned, python)?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).arg("-C").arg(folder).arg("--strip-components=1");
    once(&mut tar)?;
    fs::remove_file(&archive).map_err(|error| TaskError::with(&archive, error))
}

/// Installs the part of GitHub's description that the stand-in implements.
fn install_description(folder: &Path, python: &Path) -> Result<(), TaskError> {
    log(&format!("installing GitHub's description into {}/models", tool::DIRECTORY));
    let archive = fetch(folder, DESCRIPTION, DESCRIPTION_SPEC, DESCRIPTION_SHA512, python)?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).arg("-C").arg(folder).arg(DESCRIBED);
    once(&mut tar)?;
    let unpacked = folder.join(DESCRIBED);
    let mut extract = Command::new(python);
    extract.args(["-c", EXTRACT]).args([&unpacked, &folder.join("github.json")]);
    once(&mut extract)?;
    let package = folder.join("package");
    fs::remove_dir_all(&package).map_err(|error| TaskError::with(&package, error))?;
    fs::remove_file(&archive).map_err(|error| TaskError::with(&archive, error))
}

/// Downloads an npm package. Fails if its digest has changed.
fn fetch(
    folder: &Path,
    name: &str,
    spec: &str,
    pinned: &str,
    python: &Path,
) -> Result<PathBuf, TaskError> {
    let mut npm = Command::new(program::npm()?);
    npm.current_dir(folder).args(["pack", "--silent", spec]);
    retry_until_success(&mut npm)?;
    let archive = folder.join(format!("{name}.tgz"));
    let found = sha512(&archive, python)?;
    if found != pinned {
        return Err(TaskError::new(
            format!("{spec} is not what it was, its SHA-512 is {found}"),
            "do not use it before you know why; the registry that npm is set to is the first guess",
        ));
    }
    Ok(archive)
}

fn sha512(file: &Path, python: &Path) -> Result<String, TaskError> {
    const WORK: &str = "import hashlib, sys\n\
                        data = open(sys.argv[1], 'rb').read()\n\
                        print(hashlib.sha512(data).hexdigest())";
    ask(Command::new(python).args(["-c", WORK]).arg(file))
}

fn install_models(folder: &Path, python: &Path) -> Result<(), TaskError> {
    const FIND: &str = "import botocore; print(botocore.__path__[0])";
    const UNPACK: &str = "import gzip, shutil, sys\n\
                          with gzip.open(sys.argv[1]) as packed, open(sys.argv[2], 'wb') as file:\n\
                          \x20   shutil.copyfileobj(packed, file)";
    let data = Path::new(&ask(Command::new(python).args(["-c", FIND]))?).join("data");
    for service in MODELLED {
        let model = newest_model(&data.join(service))?;
        let unpacked = folder.join(format!("{service}.json"));
        once(Command::new(python).args(["-c", UNPACK]).args([&model, &unpacked]))?;
    }
    Ok(())
}

/// The model of the newest version. Each version has a folder named by its date, but some have only
/// examples and no model.
fn newest_model(service: &Path) -> Result<PathBuf, TaskError> {
    let versions = fs::read_dir(service).map_err(|error| TaskError::with(service, error))?;
    let models = versions.flatten().map(|version| version.path().join(MODEL));
    models.filter(|model| model.is_file()).max().ok_or_else(|| {
        TaskError::new(
            format!("no model of this name in botocore: {}", service.display()),
            "its layout has changed with its version; see xtask/src/emulators/install.rs",
        )
    })
}

/// Runs a command and returns the single line that it prints.
fn ask(command: &mut Command) -> Result<String, TaskError> {
    let hint = "remove .tools/python, which will be installed anew";
    let output = command.output().map_err(|error| TaskError::new(error.to_string(), hint))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(TaskError::new(format!("{}: {}", output.status, said.trim_end()), hint));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder for one test, removed afterwards.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("ondeck-install-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).unwrap();
            Scratch(folder)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_part_is_made_once_and_anew_for_another_pin_or_after_a_failure() {
        let scratch = Scratch::new("part");
        let folder = scratch.0.join("tool");
        let mut made = Vec::new();
        let mut attempt = |pin: &str, works: bool| {
            part(&folder, pin, || {
                assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "starts empty");
                fs::write(folder.join("half"), "").unwrap();
                made.push(pin.to_owned());
                if works { Ok(()) } else { Err(TaskError::new("broken off", "again")) }
            })
        };
        assert!(attempt("1", false).is_err());
        assert_eq!(attempt("1", true), Ok(()));
        assert_eq!(attempt("1", true), Ok(()));
        assert!(attempt("2", false).is_err());
        assert_eq!(attempt("2", true), Ok(()));
        assert_eq!(attempt("2", true), Ok(()));
        forget(&folder).unwrap();
        forget(&folder).unwrap();
        assert_eq!(attempt("2", true), Ok(()));
        assert_eq!(made, ["1", "1", "2", "2", "2"]);
    }

    #[test]
    fn the_newest_version_that_has_a_model_is_taken() {
        let scratch = Scratch::new("model");
        for (version, file) in [
            ("2014-09-01", MODEL),
            ("2016-11-15", MODEL),
            ("2015-10-01", MODEL),
            ("2099-01-01", "examples-1.json"),
        ] {
            let folder = scratch.0.join(version);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(file), "").unwrap();
        }
        let newest = newest_model(&scratch.0).unwrap();
        assert_eq!(newest, scratch.0.join("2016-11-15").join(MODEL));
        assert!(newest_model(&scratch.0.join("2099-01-01")).is_err());
        assert!(newest_model(&scratch.0.join("none")).is_err());
    }

    #[test]
    fn everything_is_pinned() {
        let (name, version) = SIMULATOR_SPEC.split_once('@').unwrap();
        assert_eq!(format!("{name}-{version}"), SIMULATOR);
        assert_eq!(SIMULATOR_SHA512.len(), 128);
        let (name, version) = DESCRIPTION_SPEC.rsplit_once('@').unwrap();
        let name = name.trim_start_matches('@').replace('/', "-");
        assert_eq!(format!("{name}-{version}"), DESCRIPTION);
        assert_eq!(DESCRIPTION_SHA512.len(), 128);
        let packages: Vec<&str> =
            REQUIREMENTS.lines().filter(|line| line.starts_with(char::is_alphabetic)).collect();
        for package in &packages {
            assert!(package.contains("==") && package.ends_with('\\'), "{package}");
        }
        let wanted = include_str!("../../requirements.in").lines();
        for wanted in wanted.filter(|line| !line.starts_with('#')) {
            assert!(packages.contains(&format!("{wanted} \\").as_str()), "{wanted}");
        }
    }
}
