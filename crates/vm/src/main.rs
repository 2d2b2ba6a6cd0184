//! The life of a machine on a virtual machine that really boots: `cargo xtask vm` starts this program
//! in a network, mount and process namespace of its own, as root.

mod console;
mod guest;
mod network;
mod shell;
mod story;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};

/// Boots a virtual machine as EC2 would, and plays the life of a machine of the pool on it.
#[derive(Debug, Parser)]
#[command(name = "ondeck-vm")]
enum Arguments {
    /// Play the whole story, with AWS and GitHub on this computer
    Story(StoryArguments),
    /// Be a machine of the stand-in's EC2: boot the image, and end when the guest powers off
    Machine(MachineArguments),
}

#[derive(Debug, Args)]
struct StoryArguments {
    /// URL of a DynamoDB emulator
    #[arg(long, value_name = "URL")]
    dynamodb: String,
    /// URL of an SQS emulator
    #[arg(long, value_name = "URL")]
    sqs: String,
    /// Folder with the API models of AWS and GitHub
    #[arg(long, value_name = "DIR")]
    models: PathBuf,
    /// Folder with the policies of the roles
    #[arg(long, value_name = "DIR")]
    policies: PathBuf,
    /// Path of the ondeck program, which is also the agent that the machine downloads
    #[arg(long, value_name = "PATH")]
    ondeck: PathBuf,
    /// Label that runners register with: run, or machine, under which they are online while idle
    #[arg(long, value_name = "LABEL")]
    runner_label: String,
    #[command(flatten)]
    machine: MachineArguments,
}

#[derive(Debug, Clone, Args)]
struct MachineArguments {
    /// Folder with the image: disk, kernel, initrd and certificates
    #[arg(long, value_name = "DIR")]
    image: PathBuf,
    /// Folder for sockets, logs and settings
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// Let the processor run the guest, instead of emulating one
    #[arg(long)]
    kvm: bool,
}

fn main() -> ExitCode {
    let result = match Arguments::parse() {
        Arguments::Story(arguments) => story::play(&arguments),
        Arguments::Machine(arguments) => guest::live(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            console::say(&format!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}
