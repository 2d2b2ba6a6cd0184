//! `cargo xtask vm`: a virtual machine that boots as on EC2, and the life of a machine of the pool on
//! it. `crates/vm` has the story.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::args::INSIDE;
use crate::child::{self, Background};
use crate::console::log;
use crate::emulators::{Emulators, part, vm_tools};
use crate::error::TaskError;
use crate::step::{Step, exit_code_of};

/// Makes the image, by this script and the one that the guide recommends. The image is made anew when
/// either changes.
const RECIPE: &str = include_str!("vm/image.sh");
const PREPARE: &str = include_str!("../../examples/images/prepare.sh");
/// How long making the image may take, and how long the story, in seconds.
const IMAGE_LIMIT: &str = "1800";
const STORY_LIMIT: &str = "1500";
/// The kinds of label that runners may have: the story is played with each.
const LABELS: [&str; 2] = ["run", "machine"];
/// Tells the part inside the namespaces which of them it is.
const LABEL: &str = "ONDECK_VM_RUNNER_LABEL";

/// The first process of the namespaces, with which all others end. It has no default actions for
/// signals, so it says what ends it.
const FIRST_PROCESS: &str =
    "trap 'exit 1' TERM INT HUP; ip link set lo up && { \"$@\" & wait $!; }";

/// Builds what the story needs and plays it. Returns the exit code. All processes are in namespaces of
/// their own, which end with this process, however it ends.
pub(crate) fn run(root: &Path, inside: bool) -> u8 {
    let played = if inside { story(root) } else { prepare(root) };
    played.unwrap_or_else(|error| {
        error.report();
        1
    })
}

fn prepare(root: &Path) -> Result<u8, TaskError> {
    let id = Command::new("id").arg("-u").output();
    if !id.is_ok_and(|id| id.stdout == b"0\n") {
        return Err(TaskError::new(
            "only root can set up the network of a virtual machine",
            "sudo -E env PATH=\"$PATH\" cargo xtask vm",
        ));
    }
    vm_tools()?;
    Emulators::install(root)?;
    let exit_code = build().run(root);
    if exit_code != 0 {
        return Ok(exit_code);
    }
    let folder = root.join("target").join("vm");
    let _only_one = lock(&folder)?;
    let image = folder.join("image");
    part(&image, &format!("{RECIPE}{PREPARE}"), || make_image(&image))?;
    let scratch = folder.join("run");
    if scratch.exists() {
        fs::remove_dir_all(&scratch).map_err(|error| TaskError::with(&scratch, error))?;
    }
    for label in LABELS {
        let exit_code = play(&scratch, label)?;
        if exit_code != 0 {
            return Ok(exit_code);
        }
    }
    Ok(0)
}

/// Plays the story in namespaces of its own, on a pool whose runners have this kind of label.
fn play(scratch: &Path, label: &str) -> Result<u8, TaskError> {
    let folder = scratch.join(label);
    fs::create_dir_all(&folder).map_err(|error| TaskError::with(&folder, error))?;
    log(&format!(
        "\n--> a machine from its launch to its end, runner-label {label}: time since the launch, time \
         of the step"
    ));
    let started = Instant::now();
    let me = std::env::current_exe().map_err(|error| TaskError::with(Path::new("xtask"), error))?;
    let mut command = isolated(STORY_LIMIT, &["--net", "--mount-proc"]);
    command.env(LABEL, label);
    command.args(["sh", "-c", FIRST_PROCESS, "sh"]).arg(me).args(["vm", INSIDE]);
    let ended = Background::start(&mut command).and_then(|mut story| story.wait());
    let exit_code = exit_code_of(ended, "the story");
    let seconds = started.elapsed().as_secs();
    let word = if exit_code == 0 { "ok" } else { "FAILED" };
    log(&format!("\n{word} after {seconds} s; consoles and logs are in target/vm/run/{label}"));
    Ok(exit_code)
}

/// Starts the emulators in this network namespace, and the story with them.
fn story(root: &Path) -> Result<u8, TaskError> {
    let emulators = Emulators::start(root)?;
    let me = std::env::current_exe().map_err(|error| TaskError::with(Path::new("xtask"), error))?;
    let folder = root.join("target").join("vm");
    let label = std::env::var(LABEL).unwrap_or_else(|_| LABELS[0].to_owned());
    // Cargo puts the programs it has just built beside this one.
    let mut story = Command::new(me.with_file_name("ondeck-vm"));
    story
        .args(["story", "--dynamodb", &emulators.dynamodb(), "--sqs", &emulators.sqs(), "--models"])
        .arg(&emulators.models)
        .arg("--policies")
        .arg(root.join("policies"))
        .arg("--ondeck")
        .arg(me.with_file_name("ondeck"))
        .arg("--image")
        .arg(folder.join("image"))
        .arg("--folder")
        .arg(folder.join("run").join(&label))
        .arg("--runner-label")
        .arg(&label);
    emulators.environment.apply(&mut story);
    Ok(exit_code_of(child::run(&mut story), "ondeck-vm"))
}

fn build() -> Step {
    Step::new(
        "build",
        "build --package ondeck --package ondeck-standin --package ondeck-vm --features \
         ondeck/aws,ondeck/github",
    )
}

fn make_image(folder: &Path) -> Result<(), TaskError> {
    log("making the image of the virtual machine; this takes three minutes, once");
    let script = folder.join("image.sh");
    for (path, text) in [(&script, RECIPE), (&folder.join("prepare.sh"), PREPARE)] {
        fs::write(path, text).map_err(|error| TaskError::with(path, error))?;
    }
    // What the script mounts is gone with its namespace.
    let mut command = isolated(IMAGE_LIMIT, &[]);
    command.arg("sh").arg(&script).arg(folder);
    match Background::start(&mut command).and_then(|mut image| image.wait()) {
        Ok(status) if status.success() => Ok(()),
        other => Err(TaskError::new(
            format!("the image of the virtual machine cannot be made: {other:?}"),
            "what it says itself is above; Debian's registry has to be in reach",
        )),
    }
}

/// A command that begins in namespaces of its own for mounts and processes, and is killed with all
/// processes that it has started after so many seconds, or when this process ends.
fn isolated(seconds: &str, more: &[&str]) -> Command {
    let mut command = Background::command(Path::new("timeout"));
    command.args(["--foreground", "--signal=KILL", seconds, "unshare"]);
    command.args(["--mount", "--pid", "--fork", "--kill-child"]).args(more).arg("--");
    command
}

/// Waits until no other call of this task is under way in this folder.
fn lock(folder: &Path) -> Result<File, TaskError> {
    let path = folder.join("lock");
    let locked = fs::create_dir_all(folder).and_then(|()| File::create(&path)).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    locked.map_err(|error| TaskError::with(&path, error))
}
