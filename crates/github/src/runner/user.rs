//! Whom the runner runs as.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs as unix;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ondeck_core::ports::Clock;
use ondeck_processes::Sign;
use tokio::process::Command;

use super::program;

/// How long looking up or making a user may take.
const WITHIN: Duration = Duration::from_secs(30);

/// Somebody whom the system knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Where the system says that they live.
    pub(crate) home: PathBuf,
    /// Whether this is another one than the agent's own, so that whatever is theirs is a run's.
    pub(crate) dedicated: bool,
}

impl User {
    /// The one of this name, who is made if there is none, to live at `home`; without a name the
    /// agent's own.
    pub(crate) async fn find_or_make(
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
        make(clock, name, home).await?;
        look_up(clock, name).await?.ok_or_else(|| format!("useradd has made no user: {name}"))
    }

    /// A command that runs as this user, with the groups that the system gives them. The program
    /// takes the place of the one that changes the user, and so keeps its number.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        if !self.dedicated {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={}", self.uid))
            .arg(format!("--regid={}", self.gid))
            .args(["--init-groups", "--"])
            .arg(program);
        command
    }

    /// Gives a file to this user.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        if self.dedicated {
            unix::lchown(path, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }

    /// Makes a folder of this user's, which nobody else can look into.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<()> {
        ondeck_processes::folder::make_private(path)?;
        self.own(path)
    }

    /// By what this user's processes are known.
    pub(crate) fn sign(&self) -> Sign {
        if self.dedicated { Sign::User(self.uid) } else { Sign::Mark }
    }

    /// Whether this user may rename what is in a folder, as far as its owner tells.
    pub(crate) fn rules(&self, folder: &Path) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        Ok(fs::metadata(folder)?.uid() == self.uid)
    }
}

/// Asks the system, whatever it keeps its users in.
async fn look_up(clock: &dyn Clock, name: &str) -> Result<Option<User>, String> {
    const UNKNOWN: i32 = 2;
    let mut command = Command::new("getent");
    command.args(["passwd", "--", name]);
    let ended = program::run(clock, command, WITHIN).await?;
    if ended.code() == Some(UNKNOWN) {
        return Ok(None);
    }
    if let Some(problem) = ended.problem() {
        return Err(format!("cannot look up the user {name}: {problem}"));
    }
    let said = ended.output();
    parse(&said).map(Some).ok_or_else(|| format!("cannot look up the user {name}: {said:?}"))
}

fn parse(entry: &str) -> Option<User> {
    let fields: Vec<&str> = entry.lines().next()?.split(':').collect();
    let [name, _, uid, gid, _, home, _] = fields[..] else { return None };
    let uid = uid.parse().ok()?;
    let dedicated = uid != rustix::process::geteuid().as_raw();
    Some(User { name: name.to_owned(), uid, gid: gid.parse().ok()?, home: home.into(), dedicated })
}

async fn make(clock: &dyn Clock, name: &str, home: &Path) -> Result<(), String> {
    let mut command = Command::new("useradd");
    command.args(["-m", "-s", "/bin/bash", "-d"]).arg(home).args(["--", name]);
    let failed = |why: String| format!("cannot make the user {name}: {why}");
    let ended = program::run(clock, command, WITHIN).await.map_err(failed)?;
    if let Some(problem) = ended.problem() {
        return Err(failed(problem));
    }
    tracing::info!(user = name, "user made");
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
    fn another_user_comes_by_setpriv_and_the_own_one_by_itself() {
        let line = |user: &User| format!("{:?}", user.command("./config.sh").as_std());
        let mut user = parse("runner:x:54321:121::/home/runner:/bin/bash").unwrap();
        assert_eq!(
            line(&user),
            r#""setpriv" "--reuid=54321" "--regid=121" "--init-groups" "--" "./config.sh""#
        );
        user.dedicated = false;
        assert_eq!(line(&user), r#""./config.sh""#);
    }
}
