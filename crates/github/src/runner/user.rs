//! The user that the runner and its jobs run as.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs as unix;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ondeck_core::ports::Clock;
use ondeck_processes::FoundBy;
use tokio::process::Command;

use super::program;

/// How long looking up or creating a user may take.
const WITHIN: Duration = Duration::from_secs(30);

/// A user account on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The home folder in the user database, which is not the `HOME` of jobs.
    pub(crate) home: PathBuf,
    /// Whether this is not the agent's own user. All its files and processes then belong to a run.
    pub(crate) dedicated: bool,
    /// Words in front of each command, which the agent's user runs.
    pub(crate) wrapper: Vec<OsString>,
}

impl User {
    /// Returns the user `name`, and creates it with this home if it does not exist. Without a name,
    /// returns the agent's own user. Fails if the user is another one and the agent is not root.
    pub(crate) async fn find_or_create(
        clock: &dyn Clock,
        name: Option<&str>,
        home: &Path,
    ) -> Result<User, String> {
        let own = rustix::process::geteuid();
        let Some(name) = name else {
            let id = own.as_raw();
            let nameless = User {
                name: id.to_string(),
                uid: id,
                gid: rustix::process::getegid().as_raw(),
                home: home.to_owned(),
                dedicated: false,
                wrapper: Vec::new(),
            };
            return Ok(look_up(clock, &id.to_string()).await?.unwrap_or(nameless));
        };
        let known = look_up(clock, name).await?;
        if let Some(user) = known.as_ref().filter(|user| !user.dedicated) {
            return Ok(user.clone());
        }
        if !own.is_root() {
            return Err(format!("only root can run the runner as another user: {name}"));
        }
        if let Some(user) = known {
            return Ok(user);
        }
        create(clock, name, home).await?;
        look_up(clock, name).await?.ok_or_else(|| format!("useradd created no user: {name}"))
    }

    /// A command that runs as this user with the user's groups. `setpriv` replaces itself by the
    /// program, so the pid stays the same.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut words = self.wrapper.clone();
        if self.dedicated {
            let ids = [format!("--reuid={}", self.uid), format!("--regid={}", self.gid)];
            words.push("setpriv".into());
            words.extend(ids.map(OsString::from));
            words.extend(["--init-groups", "--"].map(OsString::from));
        }
        words.push(program.as_ref().to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// Makes these the only supplementary groups of the user, also in the user database: a member
    /// that is listed there could take a group up again. Fails if a group does not exist, or if this
    /// is the agent's own user and groups are given.
    pub(crate) async fn set_groups(
        &self,
        clock: &dyn Clock,
        groups: &[&str],
    ) -> Result<(), String> {
        if !self.dedicated {
            if groups.is_empty() {
                return Ok(());
            }
            let groups = groups.join(" ");
            return Err(format!("jobs run as the agent's own user, whose groups stay: {groups}"));
        }
        let ask = async |option| {
            let mut command = Command::new("id");
            command.args([option, "--name", "--", &self.name]);
            let output = program::run(clock, command, WITHIN).await?;
            output.problem().map_or_else(|| Ok(output.stdout()), Err)
        };
        let failed =
            |why: String| format!("cannot set the groups of the user {}: {why}", self.name);
        let (primary, present) =
            (ask("--group").await.map_err(failed)?, ask("--groups").await.map_err(failed)?);
        let others = |name: &&str| *name != primary.trim();
        let present: BTreeSet<&str> = present.split_whitespace().filter(others).collect();
        let wanted: BTreeSet<&str> = groups.iter().copied().filter(others).collect();
        if present == wanted {
            return Ok(());
        }
        let mut command = Command::new("usermod");
        command.args(["--groups", &groups.join(","), "--", &self.name]);
        let output = program::run(clock, command, WITHIN).await.map_err(failed)?;
        output.problem().map_or(Ok(()), |problem| Err(failed(problem)))?;
        tracing::info!(user = self.name, groups = groups.join(" "), "groups set");
        Ok(())
    }

    /// Changes a file's owner to this user, if it is not the agent's own.
    pub(crate) fn chown(&self, path: &Path) -> io::Result<()> {
        if self.dedicated {
            unix::lchown(path, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }

    /// Creates a folder that only this user can access.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<()> {
        ondeck_processes::folder::make_private(path)?;
        self.chown(path)
    }

    /// How to find the processes that run as this user.
    pub(crate) fn found_by(&self) -> FoundBy {
        if self.dedicated { FoundBy::User(self.uid) } else { FoundBy::Marker }
    }

    /// Makes folders listable for all users, if this is not the agent's own user.
    pub(crate) fn open_folders(&self, folders: &[PathBuf]) -> Result<(), String> {
        use std::os::unix::fs::PermissionsExt;
        for folder in folders.iter().filter(|_| self.dedicated) {
            let opened = fs::metadata(folder).and_then(|found| {
                let mode = found.permissions().mode() | 0o055;
                fs::set_permissions(folder, fs::Permissions::from_mode(mode))
            });
            opened.map_err(|e| format!("cannot open {} to the runner: {e}", folder.display()))?;
        }
        Ok(())
    }

    /// Fails if this user cannot list one of the folders above `path`, as actions/runner must.
    pub(crate) fn check_access_above(&self, path: &Path) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt;
        for folder in path.ancestors().skip(1).filter(|_| self.dedicated) {
            let found = fs::metadata(folder)
                .map_err(|e| format!("cannot look at {}: {e}", folder.display()))?;
            let needed = match (found.uid() == self.uid, found.gid() == self.gid) {
                (true, _) => 0o500,
                (false, true) => 0o050,
                (false, false) => 0o005,
            };
            if found.mode() & needed != needed {
                let (name, folder) = (&self.name, folder.display());
                return Err(format!(
                    "the user {name} cannot list a folder above the runner: {folder}"
                ));
            }
        }
        Ok(())
    }

    /// Whether this user owns a folder, and so may rename its entries.
    pub(crate) fn owns(&self, folder: &Path) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        Ok(fs::metadata(folder)?.uid() == self.uid)
    }
}

/// Looks a user up by name or id with `getent`, which knows all user databases. `None` if there is no
/// such user.
async fn look_up(clock: &dyn Clock, name: &str) -> Result<Option<User>, String> {
    const UNKNOWN: i32 = 2;
    let mut command = Command::new("getent");
    command.args(["passwd", "--", name]);
    let output = program::run(clock, command, WITHIN).await?;
    if output.code() == Some(UNKNOWN) {
        return Ok(None);
    }
    if let Some(problem) = output.problem() {
        return Err(format!("cannot look up the user {name}: {problem}"));
    }
    let said = output.stdout();
    parse(&said).map(Some).ok_or_else(|| format!("cannot look up the user {name}: {said:?}"))
}

fn parse(entry: &str) -> Option<User> {
    let fields: Vec<&str> = entry.lines().next()?.split(':').collect();
    let [name, _, uid, gid, _, home, _] = fields[..] else { return None };
    let uid = uid.parse().ok()?;
    let dedicated = uid != rustix::process::geteuid().as_raw();
    Some(User {
        name: name.to_owned(),
        uid,
        gid: gid.parse().ok()?,
        home: home.into(),
        dedicated,
        wrapper: Vec::new(),
    })
}

async fn create(clock: &dyn Clock, name: &str, home: &Path) -> Result<(), String> {
    let mut command = Command::new("useradd");
    command.args(["-m", "-s", "/bin/bash", "-d"]).arg(home).args(["--", name]);
    let failed = |why: String| format!("cannot create the user {name}: {why}");
    let output = program::run(clock, command, WITHIN).await.map_err(failed)?;
    if let Some(problem) = output.problem() {
        return Err(failed(problem));
    }
    tracing::info!(user = name, "user created");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_seven_fields() {
        let user = parse("runner:x:54321:121:Runner,,,:/home/runner:/bin/bash\n").unwrap();
        assert_eq!((user.uid, user.gid, user.dedicated), (54_321, 121, true));
        assert_eq!((user.name.as_str(), user.home), ("runner", PathBuf::from("/home/runner")));
        for bad in ["", "runner:x:1:1", "runner:x:one:1::/:/bin/sh"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_another_user_needs_setpriv() {
        let line = |user: &User| format!("{:?}", user.command("./config.sh").as_std());
        let mut user = parse("runner:x:54321:121::/home/runner:/bin/bash").unwrap();
        assert_eq!(
            line(&user),
            r#""setpriv" "--reuid=54321" "--regid=121" "--init-groups" "--" "./config.sh""#
        );
        user.dedicated = false;
        assert_eq!(line(&user), r#""./config.sh""#);
    }

    #[test]
    fn a_wrapper_comes_first() {
        let mut user = parse("runner:x:54321:121::/home/runner:/bin/bash").unwrap();
        user.wrapper = ["nice", "-n", "5"].map(OsString::from).to_vec();
        let line = |user: &User| format!("{:?}", user.command("./run").as_std());
        let whole = line(&user);
        assert!(whole.starts_with(r#""nice" "-n" "5" "setpriv" "#), "{whole}");
        user.dedicated = false;
        assert_eq!(line(&user), r#""nice" "-n" "5" "./run""#);
    }
}
