//! The programs of a release: built for a target, packed, and tried.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::emulators;
use crate::error::TaskError;
use crate::step::{Report, Step, said, tool};

use super::page::Page;
use super::{Scratch, elf};

/// The targets whose programs a release has.
pub(crate) const LINUX: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];
/// The features of the released control plane, which contains the agent.
pub(crate) const FEATURES: &str = "--features aws,dashboard,drill,github,init,shell,simulate,watch";
/// What machines of a pool download: the agent for AWS, without the control plane.
const AGENT_FEATURES: &str = "--no-default-features --features aws,github,local";
const AGENT: &str = "ondeck-agent";
/// It is optimised for size, since each machine downloads it while it boots.
const AGENT_OPT_LEVEL: (&str, &str) = ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "z");
const PROGRAMS: [(&str, &str); 2] = [("ondeck", FEATURES), (AGENT, AGENT_FEATURES)];

/// A C compiler for musl, which SQLite and the cryptography need, and a linker if rustc needs another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compiler {
    program: String,
    linker: Option<&'static str>,
}

/// The compiler that this computer has for a target, or gets from PyPI. Fails if there is none.
pub(super) fn compiler(root: &Path, target: &str) -> Result<Compiler, TaskError> {
    if !is_native(target) {
        let program = zig(root, target)?.display().to_string();
        return Ok(Compiler { program, linker: Some("rust-lld") });
    }
    let native = Compiler { program: "musl-gcc".to_owned(), linker: None };
    let answer = tool(root, &native.program).arg("--version").output();
    match answer {
        Ok(answer) if answer.status.success() => Ok(native),
        _ => Err(TaskError::new(format!("no C compiler for {target}"), "install musl-tools")),
    }
}

/// Whether this computer runs programs of the target.
fn is_native(target: &str) -> bool {
    target.starts_with(std::env::consts::ARCH)
}

/// Writes a script that calls zig's C compiler for a target, and returns its path.
fn zig(root: &Path, target: &str) -> Result<PathBuf, TaskError> {
    let python = emulators::python_with(root, "zig", &root.join("xtask/release/zig.txt"))?;
    let script = root.join(format!(".tools/zig-cc-{}", arch(target)));
    let text = zig_script(&python, target);
    let mode = fs::Permissions::from_mode(0o755);
    let written = fs::write(&script, text).and_then(|()| fs::set_permissions(&script, mode));
    written.map_err(|error| TaskError::with(&script, error))?;
    Ok(script)
}

/// The build scripts of crates name the target as rustc does, and zig has names of its own. Its
/// compiler adds checks for undefined behaviour to debug builds, which need a library of clang's.
fn zig_script(python: &Path, target: &str) -> String {
    format!(
        "#!/bin/sh
for word do
  shift
  case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac
done
exec '{}' -m ziglang cc -target {}-linux-musl -fno-sanitize=undefined \"$@\"
",
        python.display(),
        arch(target)
    )
}

fn arch(target: &str) -> &str {
    target.split('-').next().unwrap_or_default()
}

/// Builds, keeps and tries both programs for a target, and packs what is made from them.
pub(super) fn build(report: &mut Report, root: &Path, dist: &Path, version: &str, target: &str) {
    let Some(compiler) = report.set_up("C compiler", || compiler(root, target)) else { return };
    for (name, features) in PROGRAMS {
        let kept = dist.join(format!("{name}-{version}-{target}"));
        report.check(&format!("build {name} for {target}"), || {
            let step = step(name, features, target, &compiler);
            if step.run(root) != 0 {
                return Err(TaskError::new(format!("not built: {step}"), "its output is above"));
            }
            let built = root.join("target").join(target).join("release/ondeck");
            keep(&built, &kept)
        });
        let emulator = format!("qemu-{}-static", arch(target));
        let emulator = (!is_native(target)).then_some(emulator.as_str());
        try_program(report, name, &kept, version, target, emulator);
    }
    let program = dist.join(format!("ondeck-{version}-{target}"));
    if is_native(target) {
        report.check("life of a pool", || try_life(&program, version));
        report.check("demo", || said(clean(&program).arg("demo")).map(drop));
    }
    report.check(&format!("function for {target}"), || {
        pack_function(root, &program, dist, version, target)
    });
    if target == LINUX[0] {
        report.check("completions and manual pages", || pack_share(&program, dist, version));
    }
}

/// Puts the program that the tests use in the place of each program of a release.
pub(super) fn pack_tested(report: &mut Report, root: &Path, dist: &Path, version: &str) {
    // Exactly what the tests have built, so that nothing is built after them.
    report.run(&Step::new("program", "test --no-run --quiet --workspace --all-features"), root);
    report.check("packages", || {
        let built = root.join("target/debug/ondeck");
        for target in LINUX {
            for (name, _) in PROGRAMS {
                keep(&built, &dist.join(format!("{name}-{version}-{target}")))?;
            }
        }
        let native = LINUX.iter().find(|target| is_native(target));
        let target = native.unwrap_or(&LINUX[0]);
        let program = dist.join(format!("ondeck-{version}-{target}"));
        pack_function(root, &program, dist, version, target)?;
        pack_share(&program, dist, version)
    });
}

fn step(name: &str, features: &str, target: &str, compiler: &Compiler) -> Step {
    let line = format!("build --release --locked --target {target} --package ondeck {features}");
    let underscored = target.replace('-', "_");
    let mut step = Step::new(name, &line).with_env(format!("CC_{underscored}"), &compiler.program);
    if let Some(linker) = compiler.linker {
        let variable = format!("CARGO_TARGET_{}_LINKER", underscored.to_ascii_uppercase());
        step = step.with_env(variable, linker);
    }
    if name == AGENT {
        let (variable, level) = AGENT_OPT_LEVEL;
        step = step.with_env(variable, level);
    }
    step
}

/// Copies a program into the folder of the release.
fn keep(built: &Path, kept: &Path) -> Result<(), TaskError> {
    let folder = kept.parent().unwrap_or(kept);
    fs::create_dir_all(folder).map_err(|error| TaskError::with(folder, error))?;
    fs::copy(built, kept).map(drop).map_err(|error| TaskError::with(built, error))
}

/// Whether this computer could run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    Run,
    /// The emulator of the program's architecture is not installed.
    NotRun,
}

/// Tries a program and notes if it was not run: a report must not read as if it was.
fn try_program(
    report: &mut Report,
    name: &str,
    program: &Path,
    version: &str,
    target: &str,
    emulator: Option<&str>,
) {
    let trial =
        report.set_up(&format!("try {name} for {target}"), || run_once(program, version, emulator));
    if let (Some(Trial::NotRun), Some(emulator)) = (trial, emulator) {
        let package = "install qemu-user-static";
        report.note(format!("{name} for {target} was not run: {emulator} is missing, {package}"));
    }
}

/// Checks that the program needs no libraries, and runs it once, with an emulator if one is named.
fn run_once(program: &Path, version: &str, emulator: Option<&str>) -> Result<Trial, TaskError> {
    let contents = fs::read(program).map_err(|error| TaskError::with(program, error))?;
    if elf::is_static(&contents) != Some(true) {
        let problem = format!("not a static program: {}", program.display());
        return Err(TaskError::new(problem, "it has to run on any distribution"));
    }
    let words = match emulator {
        None => said(clean(program).arg("--version"))?,
        Some(emulator) => match Command::new(emulator).arg(program).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Trial::NotRun),
            Err(error) => return Err(TaskError::with(Path::new(emulator), error)),
            Ok(answer) => String::from_utf8_lossy(&answer.stdout).into_owned(),
        },
    };
    has_version(&words, version, program).map(|()| Trial::Run)
}

fn has_version(said: &str, version: &str, program: &Path) -> Result<(), TaskError> {
    if said.trim() == format!("ondeck {version}") {
        return Ok(());
    }
    let problem = format!("{}: not version {version}: {said}", program.display());
    Err(TaskError::new(problem, "the version is in Cargo.toml"))
}

/// Plays a run on the local backend: cold, a job, and back.
pub(super) fn try_life(program: &Path, version: &str) -> Result<(), TaskError> {
    has_version(&said(clean(program).arg("--version"))?, version, program)?;
    let home = Scratch::new("life")?;
    let run =
        |line: &str| said(clean(program).args(line.split(' ')).env("ONDECK_HOME", home.path()));
    run("refresh")?;
    run("provision --run-id 1")?;
    let job = run("run --run-id 1 -- echo hello from $ONDECK_RUN_ID");
    let released = run("release --run-id 1");
    let removed = run("teardown --yes --force");
    job.and(released).and(removed).map(drop)
}

/// A command with no variable of this program but the ones that each program needs.
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    let kept = ["PATH", "HOME", "TMPDIR"];
    command.env_clear();
    command.envs(kept.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

/// Packs the program as a function, and lets the package's own file ask for a call as Lambda starts it.
fn pack_function(
    root: &Path,
    program: &Path,
    dist: &Path,
    version: &str,
    target: &str,
) -> Result<(), TaskError> {
    let arch = arch(target);
    let package = dist.join(format!("ondeck-function-{version}-{arch}.zip"));
    let mut pack = tool(root, "python3");
    said(pack.arg(root.join("xtask/release/pack.py")).args([program, &package]))?;
    if !is_native(target) {
        return Ok(());
    }
    let scratch = Scratch::new("function")?;
    let mut unpack = tool(root, "python3");
    said(unpack.args(["-m", "zipfile", "--extract"]).args([&package, scratch.path()]))?;
    let bootstrap = scratch.path().join("bootstrap");
    // Python does not restore modes; Lambda does.
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&bootstrap, mode).map_err(|error| TaskError::with(&bootstrap, error))?;
    asks_for_a_call(&bootstrap, dist, version)
}

fn asks_for_a_call(bootstrap: &Path, dist: &Path, version: &str) -> Result<(), TaskError> {
    let page = Page::serve(dist, version)?;
    let api = page.url().trim_start_matches("http://");
    let answer = clean(bootstrap).env("AWS_LAMBDA_RUNTIME_API", api).output();
    let answer = answer.map_err(|error| TaskError::with(bootstrap, error))?;
    // There is no call for it, so it ends with an error.
    if page.asked().iter().any(|path| path.ends_with("/runtime/invocation/next")) {
        return Ok(());
    }
    let problem = format!("no function: {}", String::from_utf8_lossy(&answer.stderr).trim());
    Err(TaskError::new(problem, "it must ask the runtime API for a call"))
}

/// Packs shell completions and manual pages, which are the same for every target.
fn pack_share(program: &Path, dist: &Path, version: &str) -> Result<(), TaskError> {
    let scratch = Scratch::new("share")?;
    let share = scratch.path().join("share");
    let completions = share.join("completions");
    let pages = share.join("man/man1");
    for folder in [&completions, &pages] {
        fs::create_dir_all(folder).map_err(|error| TaskError::with(folder, error))?;
    }
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = said(clean(program).args(["completions", shell]))?;
        let file = completions.join(format!("ondeck.{shell}"));
        fs::write(&file, text).map_err(|error| TaskError::with(&file, error))?;
    }
    said(clean(program).arg("man").arg(&pages))?;
    let archive: PathBuf = dist.join(format!("ondeck-{version}-share.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(archive).arg("-C").arg(scratch.path()).arg("share");
    said(&mut tar).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_names_target_compiler_and_linker() {
        let zig = Compiler { program: "/zig-cc".to_owned(), linker: Some("rust-lld") };
        let line = step(AGENT, AGENT_FEATURES, LINUX[1], &zig).to_string();
        assert_eq!(
            line,
            "CC_aarch64_unknown_linux_musl=/zig-cc \
             CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
             CARGO_PROFILE_RELEASE_OPT_LEVEL=z cargo build --release --locked \
             --target aarch64-unknown-linux-musl --package ondeck --no-default-features --features \
             aws,github,local"
        );
    }

    #[test]
    fn zig_gets_its_own_name_of_the_target_and_all_other_words() {
        let folder = Scratch::new("zig").unwrap();
        let (python, script) = (folder.path().join("python"), folder.path().join("cc"));
        fs::write(&python, "#!/bin/sh\nprintf '<%s>' \"$@\"\n").unwrap();
        fs::write(&script, zig_script(&python, LINUX[1])).unwrap();
        let shell = "chmod +x python && sh ./cc -c --target=aarch64-unknown-linux-musl 'a b.c'";
        let words = said(Command::new("sh").args(["-c", shell]).current_dir(folder.path()));
        let expected =
            "<-m><ziglang><cc><-target><aarch64-linux-musl><-fno-sanitize=undefined><-c><a b.c>";
        assert_eq!(words.unwrap(), expected);
    }

    /// The programs for arm64 are tried on x86-64 where an emulator is installed.
    #[test]
    fn a_program_that_was_not_run_is_noted() {
        let folder = Scratch::new("trial").unwrap();
        let program = folder.path().join("ondeck");
        fs::write(&program, elf::tests::program(&[1])).unwrap();
        let emulator = folder.path().join("qemu-aarch64-static");
        let emulator = emulator.to_str().unwrap();
        let tried = || {
            let mut report = Report::default();
            try_program(&mut report, "ondeck", &program, "1.2.3", LINUX[1], Some(emulator));
            (report.exit_code(), report.notes().to_vec())
        };
        let note = format!(
            "ondeck for aarch64-unknown-linux-musl was not run: {emulator} is missing, install \
             qemu-user-static"
        );
        assert_eq!(tried(), (0, vec![note]));

        let executable = fs::Permissions::from_mode(0o755);
        for (version, exit_code) in [("1.2.3", 0), ("1.2.4", 1)] {
            fs::write(emulator, format!("#!/bin/sh\necho ondeck {version}\n")).unwrap();
            fs::set_permissions(emulator, executable.clone()).unwrap();
            assert_eq!(tried(), (exit_code, vec![]), "{version}");
        }
        fs::set_permissions(emulator, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(tried(), (1, vec![]), "an emulator that cannot be started is a failure");
    }

    #[test]
    fn another_version_is_refused() {
        let program = Path::new("ondeck");
        assert!(has_version("ondeck 1.2.3\n", "1.2.3", program).is_ok());
        assert!(has_version("ondeck 1.2.4\n", "1.2.3", program).is_err());
        assert!(has_version("", "1.2.3", program).is_err());
    }
}
