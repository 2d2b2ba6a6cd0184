//! Emulators of AWS for tests: DynamoDB Local, and MiniStack for SQS and EC2. They keep everything
//! in memory and stop when [`Emulators`] is dropped.

mod environment;
mod install;
mod program;
mod retry;
mod service;
mod workflows;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::child::{self, Background};
use crate::console::{log, print};
use crate::error::TaskError;
use crate::step::{exit_code_of, search_path};
use crate::tool;
pub(crate) use environment::Environment;
use environment::Places;
use install::Installed;
pub(crate) use install::{part, python_with};
pub(crate) use program::vm_tools;
use service::{EmulatorSpec, Service};
pub(crate) use workflows::actionlint;

/// `cargo xtask emulators`: runs a command with the emulators and returns its exit code. Without a
/// command, prints their environment and runs until one of them stops.
pub(crate) fn run(root: &Path, command: &[String]) -> u8 {
    run_with(Emulators::start(root), root, command)
}

/// Runs a benchmark, as [`run`] does, with emulators that share its processors: what they compile once
/// costs less in each round.
pub(crate) fn run_bench(root: &Path, command: &[String]) -> u8 {
    run_with(Emulators::start_with(root, &OPTIMISED), root, command)
}

fn run_with(started: Result<Emulators, TaskError>, root: &Path, command: &[String]) -> u8 {
    let emulators = match started {
        Ok(emulators) => emulators,
        Err(error) => {
            error.report();
            return 1;
        }
    };
    match command.split_first() {
        None => {
            print(&emulators.environment.as_shell_lines());
            log("they stay until you press Ctrl-C");
            emulators.until_one_ends().report();
            1
        }
        Some((program, args)) => {
            let mut command = Command::new(program);
            command.args(args).env("PATH", search_path(root));
            emulators.environment.apply(&mut command);
            exit_code_of(child::run(&mut command), program)
        }
    }
}

/// How Java runs DynamoDB Local for tests, which take minutes. The optimising compiler and the parallel
/// collector would take twice the time, both for the start and for ten thousand writes.
const QUICK: [&str; 3] = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
/// The same for benchmarks, which repeat few calls: optimised, and without a collection within most
/// rounds.
const OPTIMISED: [&str; 4] = ["-Xmx512m", "-Xms512m", "-Xmn256m", "-XX:+UseSerialGC"];

/// The running emulators, which stop when this is dropped.
pub(crate) struct Emulators {
    services: [Service; 2],
    pub(crate) environment: Environment,
    pub(crate) models: PathBuf,
    /// The folder for logs and temporary files of this call. A later call removes it once
    /// this one has ended.
    pub(crate) folder: PathBuf,
    _occupied: File,
}

impl Emulators {
    /// Installs missing emulators, starts all of them on free ports, and waits until they answer.
    pub(crate) fn start(root: &Path) -> Result<Emulators, TaskError> {
        Emulators::start_with(root, &QUICK)
    }

    fn start_with(root: &Path, java: &'static [&'static str]) -> Result<Emulators, TaskError> {
        let lock = install::lock(root)?;
        let installed = install::install(root, &lock)?;
        let (folder, occupied) = occupy(&root.join(tool::DIRECTORY).join("logs"))?;
        drop(lock);

        let started = Instant::now();
        let mut services = [
            Service::start(dynamodb(&installed, &folder, java))?,
            Service::start(ministack(&installed, &folder))?,
        ];
        services.iter_mut().try_for_each(Service::until_it_answers)?;
        log(&format!("emulators are ready after {:.1} s", started.elapsed().as_secs_f32()));

        let [dynamodb, ministack] = &services;
        let places = Places {
            dynamodb: &dynamodb.url(),
            ministack: &ministack.url(),
            dynamodb_pid: dynamodb.pid(),
            models: &installed.models,
            shellcheck: &installed.shellcheck,
            actionlint: &installed.workflows.actionlint,
            act: &installed.workflows.act,
            axe: &installed.axe,
            folder: &folder,
        };
        let environment = Environment::of_tests(&places, std::env::vars_os().map(|(name, _)| name));
        Ok(Emulators {
            services,
            environment,
            models: installed.models,
            folder,
            _occupied: occupied,
        })
    }

    /// Installs what is missing, and starts nothing.
    pub(crate) fn install(root: &Path) -> Result<(), TaskError> {
        install::install(root, &install::lock(root)?).map(drop)
    }

    pub(crate) fn dynamodb(&self) -> String {
        self.services[0].url()
    }

    pub(crate) fn sqs(&self) -> String {
        self.services[1].url()
    }

    /// An error for each emulator that has stopped unexpectedly. Failures since then may
    /// be due to that.
    pub(crate) fn ended(&mut self) -> Vec<TaskError> {
        self.services.iter_mut().filter_map(Service::ended).collect()
    }

    fn until_one_ends(mut self) -> TaskError {
        loop {
            if let Some(error) = self.ended().pop() {
                return error;
            }
            retry::pause(Duration::from_secs(1));
        }
    }
}

/// Creates a folder that belongs to this call as long as it holds the locked file in it. Removes
/// the folders of calls that have ended; until then, their logs can be read.
fn occupy(logs: &Path) -> Result<(PathBuf, File), TaskError> {
    const HELD: &str = "held";
    let with_path = |error| TaskError::with(logs, error);
    fs::create_dir_all(logs).map_err(with_path)?;
    for folder in fs::read_dir(logs).map_err(with_path)?.flatten().map(|entry| entry.path()) {
        let free = File::open(folder.join(HELD)).map_or(true, |file| file.try_lock().is_ok());
        if free {
            fs::remove_dir_all(&folder).map_err(|error| TaskError::with(&folder, error))?;
        }
    }
    let folder = logs.join(std::process::id().to_string());
    let held = folder.join(HELD);
    let occupied = fs::create_dir(&folder).and_then(|()| File::create(&held)).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    occupied.map(|file| (folder, file)).map_err(|error| TaskError::with(&held, error))
}

fn dynamodb(
    installed: &Installed,
    folder: &Path,
    options: &'static [&'static str],
) -> EmulatorSpec {
    let (java, scratch) = (installed.java.clone(), folder.to_owned());
    let jar = installed.dynamodb.join("DynamoDBLocal.jar");
    let libraries = installed.dynamodb.join("DynamoDBLocal_lib").display().to_string();
    let command = move |port: u16| {
        let mut command = bare(&java);
        command
            .current_dir(&scratch)
            // With its flag alone it would still look up the service that it reports to.
            .env("DDB_LOCAL_TELEMETRY", "0")
            .args(options)
            // Without this, it leaves performance data in a shared folder.
            .args(["-XX:-UsePerfData", &format!("-Djava.library.path={libraries}"), "-jar"])
            .arg(&jar)
            .args(["-inMemory", "-disableTelemetry"])
            // Otherwise every access key has its own tables, and agents have other credentials
            // than the control plane.
            .args(["-sharedDb", "-port", &port.to_string()]);
        command
    };
    EmulatorSpec {
        name: "DynamoDB Local",
        command: Box::new(command),
        // Listing tables needs its database, not only its listener.
        greeting: "POST / HTTP/1.1\r\n\
             Host: 127.0.0.1\r\n\
             Connection: close\r\n\
             Content-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: DynamoDB_20120810.ListTables\r\n\
             Authorization: AWS4-HMAC-SHA256 \
             Credential=greeting/20260101/us-east-1/dynamodb/aws4_request, \
             SignedHeaders=host, Signature=none\r\n\
             Content-Length: 2\r\n\r\n{}"
            .into(),
        log: folder.join("dynamodb.log"),
    }
}

fn ministack(installed: &Installed, folder: &Path) -> EmulatorSpec {
    let (python, scratch) = (installed.python.clone(), folder.to_owned());
    let command = move |port: u16| {
        let mut command = bare(&python);
        command
            .args(["-m", "ministack"])
            .env("GATEWAY_PORT", port.to_string())
            .env("BIND_HOST", "127.0.0.1")
            .env("PERSIST_STATE", "0")
            // It must not listen on fixed ports.
            .env("SFTP_ENABLED", "0")
            .env("IOT_MTLS_ENABLED", "0")
            // Otherwise it would remove containers that it considers its own leftovers.
            .env("DOCKER_HOST", format!("unix://{}", scratch.join("no-docker").display()))
            .env("TMPDIR", &scratch);
        command
    };
    EmulatorSpec {
        name: "MiniStack",
        command: Box::new(command),
        greeting: "GET /_ministack/ready HTTP/1.1\r\n\
             Host: 127.0.0.1\r\n\
             Connection: close\r\n\r\n"
            .into(),
        log: folder.join("ministack.log"),
    }
}

/// A command without our environment, so that no variable configures an emulator by accident or
/// gives it a real account.
fn bare(program: &Path) -> Command {
    let mut command = Background::command(program);
    command.env_clear();
    for name in ["PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    command
}
