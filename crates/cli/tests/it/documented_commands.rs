//! The shell commands of the README and of the book do what they say.
//!
//! Each page's `sh` blocks run in one shell, in a home of their own, with the built program on the
//! path. A command must exit with 0, or with the code in a comment behind it: `# exit code 4`. A
//! block that cannot run has `<!-- not run: REASON -->` on the line above it. Commands of cargo
//! are run by the CI, so only their names and packages are checked here. Other programs are never
//! started, because they could change an account or this computer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Home, ondeck};

/// Opens a block of shell commands.
const FENCE: &str = "```sh";
const NOT_RUN: &str = "<!-- not run: ";
const EXIT_CODE: &str = "# exit code ";

#[test]
fn the_commands_of_the_readme_and_the_book_succeed() {
    let mut commands = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let documented = documented(&text).unwrap_or_else(|problem| {
            panic!("{}: {problem}", page.display());
        });
        let (of_cargo, to_run): (Vec<_>, Vec<_>) =
            documented.into_iter().partition(|documented| documented.line.starts_with("cargo "));
        for command in &to_run {
            let ours = command.line.starts_with("ondeck ");
            assert!(ours, "neither ondeck nor cargo: {}:{}", page.display(), command.number);
        }
        for command in of_cargo {
            let known = check_cargo(&command.line);
            assert_eq!(known, Ok(()), "{}:{}: {}", page.display(), command.number, command.line);
        }
        commands += to_run.len();
        run(&page, &to_run);
    }
    assert!(commands > 20, "only {commands} commands were found");
}

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
struct Documented {
    /// The number of its line.
    number: usize,
    line: String,
    exit_code: i32,
}

/// The README, and all pages of the book.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands that are to be run. Fails for shell blocks of an unknown kind.
fn documented(text: &str) -> Result<Vec<Documented>, String> {
    let mut commands: Vec<Documented> = Vec::new();
    let (mut above, mut inside, mut continued) = ("", None, false);
    for (line, number) in text.lines().zip(1..) {
        let bare = line.trim();
        match inside {
            None if bare == FENCE => {
                let skipped = above.strip_prefix(NOT_RUN).and_then(|it| it.strip_suffix(" -->"));
                if skipped.is_some_and(str::is_empty) {
                    return Err(format!("line {number}: no reason is given"));
                }
                inside = Some(skipped.is_none());
            }
            None if ["```bash", "```shell", "```console", "```sh "]
                .iter()
                .any(|it| line.starts_with(it)) =>
            {
                return Err(format!("line {number}: unknown kind of block: {bare}"));
            }
            None => {}
            Some(_) if bare == "```" => inside = None,
            Some(true) if !bare.is_empty() && !bare.starts_with('#') => {
                let (command, more) = match bare.strip_suffix('\\') {
                    Some(command) => (command, true),
                    None => (bare, false),
                };
                match commands.last_mut().filter(|_| continued) {
                    Some(last) => last.line.push_str(command),
                    None => commands.push(Documented {
                        number,
                        line: command.to_owned(),
                        exit_code: exit_code(bare)?,
                    }),
                }
                continued = more;
            }
            Some(_) => {}
        }
        above = bare;
    }
    Ok(commands)
}

fn exit_code(line: &str) -> Result<i32, String> {
    match line.split_once(EXIT_CODE) {
        None => Ok(0),
        Some((_, code)) => code.trim().parse().map_err(|_| format!("not an exit code: {code}")),
    }
}

/// Runs the commands of a page one after the other, as a user would type them.
fn run(page: &Path, commands: &[Documented]) {
    if commands.is_empty() {
        return;
    }
    let home = Home::bare();
    let programs = home.outside().join("bin");
    fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ondeck"), programs.join("ondeck")).unwrap();
    let mut script = String::new();
    for Documented { number, line, exit_code } in commands {
        script.push_str(&format!(
            "{line}\ncode=$?\n[ $code -eq {exit_code} ] || \
             {{ echo \"line {number}: exit code $code instead of {exit_code}\" >&2; exit 1; }}\n"
        ));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&path)));
    // Without the variables that a user may have set for ondeck, GitHub and AWS.
    let clean = ondeck(&[]);
    let mut shell = Command::new("sh");
    for (name, value) in clean.get_envs() {
        assert_eq!(value, None, "{name:?}");
        shell.env_remove(name);
    }
    shell
        .args(["-c", &script])
        .env("PATH", path.unwrap())
        .env("HOME", home.outside())
        .env("ONDECK_HOME", home.dir())
        .current_dir(home.outside())
        .stdin(Stdio::null());
    let output = shell.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {}\n{stderr}", page.display(), output.status);
}

/// Whether the alias, task, package and features that a cargo command names exist.
fn check_cargo(line: &str) -> Result<(), String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let words: Vec<&str> = line.split_whitespace().take_while(|word| *word != "#").collect();
    let after = |flag: &str| {
        let position = words.iter().position(|word| *word == flag)?;
        words.get(position + 1).copied()
    };
    match words[1] {
        "xtask" => {
            let task = words.get(2).copied().unwrap_or_default();
            if !read("xtask/src/args/help.txt").contains(&format!("\n  {task} ")) {
                return Err(format!("no such task: {task}"));
            }
        }
        "install" | "build" | "run" | "test" => {
            let folder = after("--path").unwrap_or("crates/cli");
            if !root().join(folder).join("Cargo.toml").is_file() {
                return Err(format!("no such package: {folder}"));
            }
            let manifest = read("crates/cli/Cargo.toml");
            let known: BTreeSet<&str> = manifest
                .lines()
                .filter_map(|line| line.split_once(" = [").map(|(feature, _)| feature))
                .collect();
            let features = after("--features").unwrap_or_default().split(',');
            for feature in features.filter(|feature| !feature.is_empty()) {
                if !known.contains(feature) {
                    return Err(format!("no such feature: {feature}"));
                }
            }
        }
        alias => {
            if !read(".cargo/config.toml").contains(&format!("\n{alias} = ")) {
                return Err(format!("no such alias: {alias}"));
            }
        }
    }
    Ok(())
}

#[test]
fn commands_are_read_with_their_exit_codes() {
    let text = "```sh\na b  # a comment\n\n# only a comment\nc \\\n  d\ne   # exit code 4\n```\n\
                <!-- not run: it needs AWS -->\n```sh\nf\n```\n```text\ng\n```\n";
    let command =
        |number, line: &str, exit_code| Documented { number, line: line.to_owned(), exit_code };
    let expected = [
        command(2, "a b  # a comment", 0),
        command(5, "c d", 0),
        command(7, "e   # exit code 4", 4),
    ];
    assert_eq!(documented(text), Ok(expected.into()));
}

#[test]
fn blocks_of_an_unknown_kind_are_refused() {
    for text in ["```bash\na\n```", "```console\n$ a\n```", "<!-- not run:  -->\n```sh\na\n```"] {
        assert!(documented(text).is_err(), "{text}");
    }
    assert!(documented("```sh\na # exit code four\n```").is_err());
}

#[test]
fn commands_of_cargo_must_exist() {
    for line in ["cargo demo", "cargo xtask test", "cargo install --path crates/cli --features aws"]
    {
        assert_eq!(check_cargo(line), Ok(()), "{line}");
    }
    for line in ["cargo dem", "cargo xtask tests", "cargo install --path crates/none"] {
        assert!(check_cargo(line).is_err(), "{line}");
    }
    assert!(check_cargo("cargo build --features moon").is_err());
}
