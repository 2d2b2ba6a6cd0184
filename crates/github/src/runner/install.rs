//! Provides the runner software: from the image, from an earlier download, or by downloading it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::Clock;
use ondeck_processes::folder;
use tokio::process::Command;

use super::layout::Layout;
use super::program::ProgramOutput;
use super::user::User;
use super::{
    Timeouts, dependencies, diagnostics, environment, fetch, globalization, program, registration,
};
use crate::packages::{PACKAGES_SETTING, Package, Packages, VERSION_SETTING};
use crate::version::Version;

/// Files that the runner writes next to its software. They are not part of the software.
const WRITTEN: [&str; 8] =
    ["_work", "_diag", ".path", ".env", ".service", "svc.sh", "run-helper.sh", "update.finished"];

/// An installed version of the runner software.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installation {
    /// The folder that contains `config.sh`.
    pub(crate) root: PathBuf,
    pub(crate) version: String,
    /// The lines of the `.env` file that the operator put on the image.
    pub(crate) operator_env: String,
    /// The entries of `root` that belong to the software.
    names: BTreeSet<String>,
}

pub(crate) struct Installer<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) id: &'a InstanceId,
    pub(crate) user: &'a User,
    pub(crate) layout: &'a Layout,
    pub(crate) image: &'a [PathBuf],
    pub(crate) timeouts: &'a Timeouts,
    /// Versions that GitHub has refused, which are not used.
    pub(crate) refused: &'a BTreeSet<String>,
}

impl Installer<'_> {
    /// Returns the version that the settings ask for, and downloads it if it is not on the machine. If
    /// the settings ask for the latest one and it cannot be had, returns the newest version on the
    /// machine, with a warning. A version that GitHub has refused is never returned. Fails if none is
    /// left, or a version that the settings name cannot be had.
    pub(crate) async fn find(
        &self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Installation, String> {
        let wanted = WantedVersion::from_settings(settings)?;
        let mut older = Vec::new();
        let ours = [&self.layout.package];
        for root in self.image.iter().chain(ours).filter(|root| is_runner(root)) {
            let Some(version) = self.version_there(root).await else { continue };
            if self.refused.contains(&version) {
                continue;
            }
            if wanted.is_met_by(&version) {
                return self.take_over(root, version).await;
            }
            older.push((root, version));
        }
        let why = match self.download(&wanted).await {
            Ok(found) => return Ok(found),
            Err(why) => why,
        };
        if wanted.version.is_none() {
            older.sort_by_key(|(_, version)| Reverse(version.parse::<Version>().ok()));
            for (root, version) in older {
                // A download that does not start has replaced an earlier one.
                let is_there = *root != self.layout.package
                    || self.version_there(root).await.as_ref() == Some(&version);
                if is_there {
                    tracing::warn!(version, "using an older actions/runner: {why}");
                    return self.take_over(root, version).await;
                }
            }
        }
        Err(why)
    }

    /// Downloads the version that the settings ask for. Fails if GitHub has refused it, or it does not
    /// start.
    async fn download(&self, wanted: &WantedVersion) -> Result<Installation, String> {
        let (version, package) = wanted.package()?;
        if self.refused.contains(version) {
            return Err(wanted.no_other(version));
        }
        tracing::info!(version, url = package.url, "downloading actions/runner");
        let ours = &self.layout.package;
        diagnostics::archive(&ours.join("_diag"), &self.layout.diagnostics)?;
        fetch::fetch(self.clock, self.layout, package, self.timeouts).await?;
        if is_runner(ours) {
            let failed = |why| format!("actions/runner {version} does not start: {why}");
            self.version(ours).await.map_err(failed)?;
        }
        self.finalize(ours, version.to_owned())
    }

    /// Returns the version of the software in `root`. `None`, with a warning, if it cannot be run.
    async fn version_there(&self, root: &Path) -> Option<String> {
        match self.version(root).await {
            Ok(version) => Some(version),
            Err(why) => {
                tracing::warn!("cannot use the runner in {}: {why}", root.display());
                None
            }
        }
    }

    /// Asks the software in `root` for its version, which also shows that it can be run. Software that
    /// lacks libicu is set to do without it. Other libraries are installed, if that can be done.
    async fn version(&self, root: &Path) -> Result<String, String> {
        if !self.is_replaceable(root) {
            // Even `--version` writes a log, so the permissions must be right before.
            self.protect(root)?;
        }
        let mut output = self.ask_version(root).await?;
        if !output.is_success() && globalization::is_missing(&output.all()) {
            tracing::info!("libicu is missing; {} is set to do without it", root.display());
            globalization::do_without(root)?;
            output = self.ask_version(root).await?;
        }
        if !output.is_success()
            && let Some(library) = dependencies::missing(&output.all())
        {
            self.install_dependencies(root, &library).await?;
            output = self.ask_version(root).await?;
            if let Some(library) = dependencies::missing(&output.all()) {
                return Err(dependencies::lacks(
                    &library,
                    "its installdependencies.sh did not help",
                ));
            }
        }
        if let Some(problem) = output.problem() {
            return Err(problem);
        }
        let said = output.stdout();
        let version = said.lines().map(str::trim).rfind(|line| is_version(line));
        version.map(str::to_owned).ok_or_else(|| format!("not a version: {said:?}"))
    }

    async fn ask_version(&self, root: &Path) -> Result<ProgramOutput, String> {
        const WITHIN: Duration = Duration::from_secs(60);
        let mut command = self.user.command(root.join("bin/Runner.Listener"));
        environment::apply(&mut command, self.user, self.layout, self.id);
        command.arg("--version").current_dir(root);
        program::run(self.clock, command, WITHIN).await
    }

    /// Runs the software's own script that installs the libraries it needs, once on each machine. Fails
    /// if the script has run before, cannot run, or fails.
    async fn install_dependencies(&self, root: &Path, library: &str) -> Result<(), String> {
        let lacks = |why: &str| dependencies::lacks(library, why);
        if self.layout.load(DEPENDENCIES)?.is_some() {
            return Err(lacks("its installdependencies.sh has run before"));
        }
        // A job could replace a script that the runner's user owns, and it is run as root.
        let script = root.join("bin/installdependencies.sh");
        if !rustix::process::geteuid().is_root() || self.is_replaceable(root) || !script.is_file() {
            return Err(lacks("install it on the image"));
        }
        self.layout.save(DEPENDENCIES, library)?;
        tracing::info!(library, "a library is missing; running {}", script.display());
        let mut command = Command::new(script);
        environment::apply_minimal(&mut command);
        command.current_dir(root).env("DEBIAN_FRONTEND", "noninteractive");
        let output = program::run(self.clock, command, self.timeouts.dependencies).await;
        let problem = output.map_or_else(Some, |output| output.problem());
        match problem {
            Some(why) => Err(lacks(&format!("its installdependencies.sh failed: {why}"))),
            None => Ok(()),
        }
    }

    /// Whether the runner's user could replace the software, because the user owns the folder above.
    fn is_replaceable(&self, root: &Path) -> bool {
        let owns = |above: &Path| self.user.owns(above).unwrap_or(true);
        self.user.dedicated && root.parent().is_none_or(owns)
    }

    /// Uses the software in place. If jobs could replace it there, uses a copy instead.
    async fn take_over(&self, root: &Path, version: String) -> Result<Installation, String> {
        let ours = &self.layout.package;
        if root == ours || !self.is_replaceable(root) {
            return self.finalize(root, version);
        }
        let there = is_runner(ours) && self.version_there(ours).await.as_ref() == Some(&version);
        if !there {
            diagnostics::archive(&ours.join("_diag"), &self.layout.diagnostics)?;
            self.copy(root).await?;
        }
        self.finalize(ours, version)
    }

    /// Copies the software into the agent's folder, by hard links if it is on the same file system.
    async fn copy(&self, root: &Path) -> Result<(), String> {
        let new = self.layout.package.with_extension("unpacking");
        let mut problem = None;
        for how in ["-al", "-a"] {
            folder::remove(&new).map_err(|e| format!("cannot remove {}: {e}", new.display()))?;
            let mut command = Command::new("cp");
            environment::apply_minimal(&mut command);
            command.arg(how).arg("--").arg(root).arg(&new);
            let output = program::run(self.clock, command, self.timeouts.unpack).await?;
            problem = output.problem();
            if problem.is_none() {
                return fetch::put_in_place(&new, &self.layout.package);
            }
        }
        Err(format!("cannot copy {}: {}", root.display(), problem.unwrap_or_default()))
    }

    /// Describes the software in `root` and protects it. Which entries belong to it is recorded the
    /// first time, before any job can have added some. Fails if `root` holds no runner.
    fn finalize(&self, root: &Path, version: String) -> Result<Installation, String> {
        if !is_runner(root) {
            return Err(format!("the package contains no runner: {}", root.display()));
        }
        let line = format!("{version} {}", root.display());
        let (names, operator_env) = match self.known(&line)? {
            Some(known) => known,
            None => {
                self.clear_earlier(root)?;
                self.learn(root, &line)?
            }
        };
        let found = Installation { root: root.to_owned(), version, operator_env, names };
        self.protect(root)?;
        Ok(found)
    }

    fn known(&self, line: &str) -> Result<Option<(BTreeSet<String>, String)>, String> {
        let Some(saved) = self.layout.load(SOFTWARE)? else { return Ok(None) };
        let mut lines = saved.lines();
        if lines.next() != Some(line) {
            return Ok(None);
        }
        let names = lines.map(str::to_owned).collect();
        Ok(Some((names, self.layout.load(OPERATORS)?.unwrap_or_default())))
    }

    /// Removes what runs have left in the folder of other software that was used before. It is the
    /// last moment at which the entries of that software are known.
    fn clear_earlier(&self, root: &Path) -> Result<(), String> {
        let Some(saved) = self.layout.load(SOFTWARE)? else { return Ok(()) };
        let mut lines = saved.lines();
        let Some((version, earlier)) = lines.next().and_then(|line| line.split_once(' ')) else {
            return Ok(());
        };
        let earlier = Path::new(earlier);
        if earlier == root || !is_runner(earlier) {
            return Ok(());
        }
        diagnostics::archive(&earlier.join("_diag"), &self.layout.diagnostics)?;
        let names = lines.map(str::to_owned).collect();
        let (root, version) = (earlier.to_owned(), version.to_owned());
        Installation { root, version, operator_env: String::new(), names }.clear()
    }

    fn learn(&self, root: &Path, line: &str) -> Result<(BTreeSet<String>, String), String> {
        let failed = |e: io::Error| format!("cannot list {}: {e}", root.display());
        let operator_env = match fs::read_to_string(root.join(".env")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(failed)?,
        };
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(root).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            let written = WRITTEN.contains(&name.as_str());
            if !written && !registration::FILES.contains(&name.as_str()) {
                names.insert(name);
            }
        }
        self.layout.save(OPERATORS, &operator_env)?;
        let list: Vec<&str> = names.iter().map(String::as_str).collect();
        self.layout.save(SOFTWARE, &format!("{line}\n{}\n", list.join("\n")))?;
        Ok((names, operator_env))
    }

    /// Gives the software to root if jobs run as another user. The runner must be able to create files
    /// next to it, so the folder is group-writable; the sticky bit keeps it from replacing files.
    fn protect(&self, root: &Path) -> Result<(), String> {
        let failed = |e: io::Error| format!("cannot protect {}: {e}", root.display());
        if !self.user.dedicated {
            return Ok(());
        }
        for entry in fs::read_dir(root).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if registration::FILES.contains(&&*name) {
                continue;
            }
            if name == ".env" || !WRITTEN.contains(&&*name) {
                make_root_owned(&path).map_err(failed)?;
            } else if fs::symlink_metadata(&path).map_err(failed)?.uid() != self.user.uid {
                // It came with the image and belongs to another user, so the runner could not write to it.
                folder::remove_any(&path).map_err(failed)?;
            }
        }
        lchown(root, Some(0), Some(self.user.gid))
            .and_then(|()| fs::set_permissions(root, fs::Permissions::from_mode(0o1775)))
            .map_err(failed)
    }
}

const SOFTWARE: &str = "software";
/// The state file that exists once the software's script for libraries has run.
const DEPENDENCIES: &str = "dependencies";
const OPERATORS: &str = "operator_env-env";

impl Installation {
    /// Removes everything from `root` that is not part of the software.
    pub(crate) fn clear(&self) -> Result<(), String> {
        let failed = |path: &Path, e: io::Error| format!("cannot remove {}: {e}", path.display());
        for entry in fs::read_dir(&self.root).map_err(|e| failed(&self.root, e))? {
            let entry = entry.map_err(|e| failed(&self.root, e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.names.contains(&name) {
                continue;
            }
            folder::remove_any(&entry.path()).map_err(|e| failed(&entry.path(), e))?;
        }
        Ok(())
    }
}

/// Gives a file, or a folder with its content, to root, readable but not writable for other users.
fn make_root_owned(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.uid() != 0 || found.gid() != 0 {
        lchown(path, Some(0), Some(0))?;
    }
    if found.is_symlink() {
        return Ok(());
    }
    let mode = found.permissions().mode() & 0o7777;
    let wanted = (mode & 0o755) | if found.is_dir() { 0o555 } else { 0o444 };
    if mode != wanted {
        fs::set_permissions(path, fs::Permissions::from_mode(wanted))?;
    }
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            make_root_owned(&entry?.path())?;
        }
    }
    Ok(())
}

fn is_runner(root: &Path) -> bool {
    root.join("config.sh").is_file() && root.join("bin/Runner.Listener").is_file()
}

fn is_version(text: &str) -> bool {
    text.parse::<Version>().is_ok()
}

/// The version that the settings ask for, and the packages that refresh looked up.
#[derive(Debug, PartialEq, Eq)]
struct WantedVersion {
    version: Option<String>,
    packages: Option<Packages>,
}

impl WantedVersion {
    fn from_settings(settings: &BTreeMap<String, String>) -> Result<WantedVersion, String> {
        let version = settings.get(VERSION_SETTING).map(|it| it.trim().trim_start_matches('v'));
        let version = version.filter(|it| !it.is_empty() && *it != "latest").map(str::to_owned);
        let packages = settings.get(PACKAGES_SETTING).map(|it| serde_json::from_str(it));
        let unreadable = |e| format!("cannot parse {PACKAGES_SETTING}: {e}");
        Ok(WantedVersion { version, packages: packages.transpose().map_err(unreadable)? })
    }

    /// Whether this version needs no download: it is the one that the settings name, or, if they name
    /// none, not older than the one that would be downloaded.
    fn is_met_by(&self, version: &str) -> bool {
        if let Some(wanted) = &self.version {
            return wanted == version;
        }
        let Some(packages) = &self.packages else { return true };
        match (version.parse::<Version>(), packages.version.parse::<Version>()) {
            (Ok(found), Ok(offered)) => found >= offered,
            _ => version == packages.version,
        }
    }

    /// Says what to do if GitHub refuses the only version that is known.
    fn no_other(&self, refused: &str) -> String {
        if self.version.as_deref() == Some(refused) {
            return "set actions-runner-version to latest".to_owned();
        }
        "no newer one is known: run ondeck refresh, or set actions-runner-version".to_owned()
    }

    fn package(&self) -> Result<(&str, &Package), String> {
        const HINT: &str = "run ondeck refresh";
        let Some(packages) = &self.packages else {
            return Err(format!("no runner on the image, and no package is known: {HINT}"));
        };
        let known = packages.version.as_str();
        if let Some(wanted) = self.version.as_deref().filter(|wanted| *wanted != known) {
            return Err(format!("{wanted} is wanted, but the known package is {known}: {HINT}"));
        }
        let platform = match std::env::consts::ARCH {
            "x86_64" => "linux-x64",
            "aarch64" => "linux-arm64",
            other => return Err(format!("there is no actions/runner for {other}")),
        };
        let package = packages.packages.get(platform);
        package
            .map(|package| (known, package))
            .ok_or_else(|| format!("no package of {known} is known for {platform}: {HINT}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(version: &str, packages: &str) -> Result<WantedVersion, String> {
        let settings = [(VERSION_SETTING, version), (PACKAGES_SETTING, packages)];
        let settings = settings.into_iter().filter(|(_, value)| !value.is_empty());
        WantedVersion::from_settings(&settings.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    const BOTH: &str = r#"{"version":"2.336.0","linux-x64":{"url":"https://x","sha256":"1"},
                           "linux-arm64":{"url":"https://a","sha256":"2"}}"#;

    #[test]
    fn a_version_is_used_if_it_is_wanted() {
        for (setting, packages, version, is_met) in [
            ("", "", "2.300.0", true),
            ("latest", BOTH, "2.300.0", false),
            ("latest", BOTH, "2.99.9", false),
            ("latest", BOTH, "2.336.0", true),
            ("latest", BOTH, "2.336.1", true),
            ("latest", BOTH, "2.1000.0", true),
            ("2.336.0", BOTH, "2.300.0", false),
            ("2.336.0", BOTH, "2.337.0", false),
            ("v2.300.0", BOTH, "2.300.0", true),
            (" 2.336.0 ", "", "2.336.0", true),
        ] {
            let wanted = wanted(setting, packages).unwrap();
            assert_eq!(wanted.is_met_by(version), is_met, "{setting} {version}");
        }
    }

    #[test]
    fn a_missing_package_is_reported() {
        assert_eq!(wanted("", BOTH).unwrap().package().unwrap().0, "2.336.0");
        for (setting, packages, problem) in [
            ("", "", "no package is known"),
            ("2.335.0", BOTH, "2.335.0 is wanted, but the known package is 2.336.0"),
            ("", r#"{"version":"2.336.0"}"#, "no package of 2.336.0 is known for linux-"),
        ] {
            let error = wanted(setting, packages).unwrap().package().unwrap_err();
            assert!(error.contains(problem) && error.contains("refresh"), "{error}");
        }
        let error = wanted("", "{").unwrap_err();
        assert!(error.starts_with("cannot parse actions-runner-packages"), "{error}");
    }

    #[test]
    fn a_refused_version_has_a_remedy() {
        for (setting, remedy) in [
            ("2.336.0", "set actions-runner-version to latest"),
            ("latest", "no newer one is known: run ondeck refresh, or set actions-runner-version"),
        ] {
            assert_eq!(wanted(setting, BOTH).unwrap().no_other("2.336.0"), remedy);
        }
    }

    #[test]
    fn versions_have_three_numbers() {
        for (text, is) in [("2.336.0", true), ("2.336", false), ("a.b.c", false), ("", false)] {
            assert_eq!(is_version(text), is, "{text}");
        }
    }
}
