//! A repository for init to write into.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::harness::{Background, Done};

/// A folder with a repository, gone with the test.
pub(super) struct Checkout {
    pub(super) folder: tempfile::TempDir,
}

impl Checkout {
    /// With a remote on GitHub.
    pub(super) fn new() -> Checkout {
        let checkout = Checkout::without_remote();
        checkout.git(&["remote", "add", "origin", "https://x:s3cret@github.com/Acme/web.git"]);
        checkout
    }

    pub(super) fn without_remote() -> Checkout {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("web/src")).unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let git = std::env::split_paths(&path).map(|folder| folder.join("git"));
        let git = git.into_iter().find(|path| path.exists()).unwrap();
        symlink(git, folder.path().join("bin/git")).unwrap();
        let checkout = Checkout { folder };
        checkout.git(&["init", "--quiet", "--initial-branch", "main"]);
        checkout
    }

    pub(super) fn git(&self, arguments: &[&str]) {
        let done = Command::new("git").current_dir(self.dir()).args(arguments).status().unwrap();
        assert!(done.success());
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.folder.path().join("web")
    }

    pub(super) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.dir().join(path)).unwrap()
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.dir().join(path).parent().unwrap()).unwrap();
        fs::write(self.dir().join(path), text).unwrap();
    }

    /// Every file but git's own, with what it says.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let (mut files, mut folders) = (Vec::new(), vec![self.dir()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.extend((!path.ends_with(".git")).then_some(path));
                } else {
                    let name = path.strip_prefix(self.dir()).unwrap().display().to_string();
                    files.push((name, fs::read_to_string(&path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }

    /// The program in a folder of the repository, with only git on its path, and no settings of AWS.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ondeck"));
        for (name, _) in std::env::vars_os() {
            let is = |prefix: &&str| name.to_string_lossy().starts_with(*prefix);
            if ["ONDECK_", "GITHUB_", "AWS_", "GIT_"].iter().any(is) {
                command.env_remove(name);
            }
        }
        command.env("PATH", self.folder.path().join("bin")).current_dir(self.dir().join("src"));
        command.arg("init").args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What `ondeck config check` says about the settings.
    pub(super) fn check(&self) -> Done {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ondeck"));
        command.args(["config", "check"]).current_dir(self.dir()).stdin(Stdio::null());
        Background::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).finish()
    }

    pub(super) fn init(&self, arguments: &[&str]) -> Done {
        Background::start(&mut self.command(arguments)).finish()
    }

    /// Puts an AWS CLI on the path that answers like one with credentials.
    pub(super) fn add_aws(&self) {
        self.add_program(
            "aws",
            "case \"$1 $2\" in\n\
             'configure get') echo eu-west-1 ;;\n\
             'ec2 describe-subnets') echo '{\"Subnets\": [\
             {\"AvailabilityZone\": \"eu-west-1b\", \"SubnetId\": \"subnet-2b\", \"VpcId\": \"vpc-1a\"},\
             {\"AvailabilityZone\": \"eu-west-1a\", \"SubnetId\": \"subnet-1a\", \"VpcId\": \"vpc-1a\"}]}' ;;\n\
             'iam list-open-id-connect-providers') echo '{\"OpenIDConnectProviderList\": [{\"Arn\": \
             \"arn:aws:iam::123456789012:oidc-provider/token.actions.githubusercontent.com\"}]}' ;;\n\
             'iam list-roles') echo '{\"Roles\": []}' ;;\n\
             *) exit 254 ;;\nesac\n",
        );
    }

    /// Puts a GitHub CLI on the path that answers like one that is signed in and may see Acme/web.
    pub(super) fn add_gh(&self) {
        self.add_program(
            "gh",
            "test \"$*\" = 'api --hostname github.com repos/Acme/web' || exit 1\n\
             echo '{\"id\": 456789, \"name\": \"web\", \"full_name\": \"Acme/web\", \
             \"owner\": {\"login\": \"Acme\", \"id\": 123456, \"type\": \"Organization\"}}'\n",
        );
    }

    /// Puts a script of the shell on the path, in place of one that has the name already.
    pub(super) fn add_program(&self, name: &str, script: &str) {
        let program = self.folder.path().join("bin").join(name);
        fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
}
