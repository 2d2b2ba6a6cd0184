//! AWS on loopback, and GitHub on request, for trying ondeck's aws backend by hand.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use ondeck_standin::{
    Capacity, Gateway, GatewayOptions, GitHub, GitHubOptions, LogEntry, MachineCommand, Permission,
    PolicyPool, Role, runner_package,
};
use tokio::signal::unix::{SignalKind, signal};

const ACCESS_KEY: &str = "test";
/// The access key of the person who deploys the stack, with what AWS's managed policy
/// `AdministratorAccess` allows.
const ADMINISTRATOR: &str = "administrator";
const ADMINISTRATOR_ACCESS: &str = r#"{
    "Version": "2012-10-17",
    "Statement": [{ "Effect": "Allow", "Action": "*", "Resource": "*" }]
}"#;
const POOL: &str = "acme/web";
const MACHINE_ROLE: &str = "ondeck-machine";
/// Tokens that the stand-in's GitHub knows: one that registers runners, one that reads runs.
const TOKEN: &str = "test-administration";
const JOBS_TOKEN: &str = "test-actions-read";
/// The version of actions/runner that the stand-in's GitHub offers.
const RUNNER: &str = "2.336.0";
/// The version of ondeck that it offers.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Stands in for AWS on loopback: forwards to DynamoDB and SQS emulators, and provides an EC2 whose
/// machines are processes. Ctrl-C stops it and kills all machines.
#[derive(Debug, Parser)]
#[command(name = "ondeck-standin")]
struct Arguments {
    /// URL of a DynamoDB emulator, such as http://127.0.0.1:8000
    #[arg(long, value_name = "URL")]
    dynamodb: String,
    /// URL of an SQS emulator, such as http://127.0.0.1:4566
    #[arg(long, value_name = "URL")]
    sqs: String,
    /// Path of the ondeck program, which machines run as `PATH agent --backend aws`
    #[arg(long, value_name = "PATH")]
    agent_program: Option<PathBuf>,
    /// Folder for the output of machines, one file for each
    #[arg(long, value_name = "DIR", default_value = "standin-logs")]
    logs: PathBuf,
    /// Port to listen on
    #[arg(long, value_name = "N", default_value_t = 4600)]
    port: u16,
    /// Run a GitHub too, on the port after that of AWS, whose runners take the jobs of machines
    #[arg(long)]
    github: bool,
    /// Folder with botocore's models to check requests against
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Folder with the policies of the roles; without it, every caller may do everything
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// How many machines can be launched
    #[arg(long, value_name = "N")]
    capacity: Option<usize>,
    /// Pool that the exported variables name, and that the keys may use
    #[arg(long, value_name = "OWNER/NAME", default_value = POOL)]
    pool: String,
    /// Boot time of a machine, in seconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    boot: u64,
    /// Write a line for every request
    #[arg(short, long)]
    verbose: bool,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let (watch, requests) = mpsc::channel();
    // Machines and the programs that give them jobs share the local forge's file.
    let home = std::path::absolute(arguments.logs.join("home"))?.display().to_string();
    let gateway = Gateway::start(options(&arguments, &home, watch));
    grant_keys(&gateway, &arguments.pool);
    let github = arguments.github.then(|| start_github(&arguments)).transpose()?;
    write_exports(&gateway, &arguments, &home, github.as_ref())?;
    let printing = std::thread::spawn(move || print_requests(&requests));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(stopped())?;
    let (violations, denials) = (gateway.violations(), gateway.denials());
    drop(gateway);
    for violation in github.iter().flat_map(|(github, _)| github.violations()) {
        writeln!(io::stderr(), "{violation}")?;
    }
    for violation in violations {
        writeln!(io::stderr(), "{violation}")?;
    }
    for denial in denials {
        writeln!(io::stderr(), "{denial}")?;
    }
    match printing.join() {
        // Stdout was closed by its reader, which does not need the rest.
        Ok(Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn options(arguments: &Arguments, home: &str, watch: mpsc::Sender<LogEntry>) -> GatewayOptions {
    let command = |program: &PathBuf| MachineCommand {
        program: program.clone(),
        args: ["agent", "--backend", "aws"].map(str::to_owned).into(),
        env: vec![("ONDECK_HOME".to_owned(), home.to_owned())],
    };
    GatewayOptions {
        models: arguments.models.clone(),
        policies: arguments.policies.clone(),
        port: arguments.port,
        command: arguments.agent_program.as_ref().map(command),
        boot: Duration::from_secs(arguments.boot),
        logs: Some(arguments.logs.clone()),
        // For use by hand, every subnet exists.
        subnets: [].into(),
        capacity: Capacity { total: arguments.capacity, ..Capacity::default() },
        watch: arguments.verbose.then_some(watch),
        ..GatewayOptions::at(&arguments.dynamodb, &arguments.sqs)
    }
}

/// Gives the exported access key the policy of refresh, which covers all modes, the name of each role
/// its own, and `administrator` everything. To try a role, set `AWS_ACCESS_KEY_ID` to its name.
fn grant_keys(gateway: &Gateway, pool: &str) {
    let pool = PolicyPool {
        pool: pool.to_owned(),
        name: format!("ondeck-{}-????????", pool.replace('/', "-")),
        machine_role: MACHINE_ROLE.to_owned(),
    };
    gateway.grant(ACCESS_KEY, &pool, &[Role::Refresh]);
    for role in Role::ALL {
        gateway.grant(role.name(), &pool, &[role]);
    }
    gateway.grant(ADMINISTRATOR, &pool, &[Role::Refresh]);
    gateway.replace_policy(ADMINISTRATOR, ADMINISTRATOR_ACCESS);
}

/// Starts a GitHub that knows two tokens, and offers the runner double and the release of ondeck that
/// the Action looks for. Returns the address of the release too.
fn start_github(arguments: &Arguments) -> io::Result<(GitHub, String)> {
    let port = if arguments.port == 0 { 0 } else { arguments.port.saturating_add(1) };
    let models = arguments.models.clone();
    let github = GitHub::start(GitHubOptions { models, port, ..GitHubOptions::default() });
    github.allow(TOKEN, POOL, &[Permission::Administration]);
    github.allow(JOBS_TOKEN, POOL, &[Permission::ActionsRead]);
    github.publish_runner(RUNNER, runner_package(RUNNER));
    let mut names = Vec::new();
    let (mut program, mut digest) = (Bytes::new(), String::new());
    if let Some(path) = &arguments.agent_program {
        program = Bytes::from(std::fs::read(path)?);
        // Our own digest takes a minute in an unoptimised build.
        digest = first_word(Command::new("sha256sum").arg(path))?;
        for name in ["ondeck", "ondeck-agent"] {
            for arch in ["x86_64", "aarch64"] {
                names.push(format!("{name}-{VERSION}-{arch}-unknown-linux-musl"));
            }
        }
    }
    let page = github.publish_release(VERSION, &names, &program, &digest);
    Ok((github, page))
}

/// Prints the variables with which `ondeck refresh` needs no flag.
fn write_exports(
    gateway: &Gateway,
    arguments: &Arguments,
    home: &str,
    github: Option<&(GitHub, String)>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let control = gateway.endpoint("control");
    let aws = [
        ("AWS_ENDPOINT_URL", control.url()),
        // The AWS CLI deploys infrastructure to MiniStack itself.
        ("AWS_ENDPOINT_URL_CLOUDFORMATION", &arguments.sqs),
        ("AWS_ENDPOINT_URL_IAM", &arguments.sqs),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("ONDECK_BACKEND", "aws"),
        ("ONDECK_POOL", &arguments.pool),
        ("ONDECK_HOME", home),
        ("ONDECK_AMI", "ami-0123456789abcdef0"),
        ("ONDECK_SUBNET_IDS", "subnet-0a subnet-0b"),
        ("ONDECK_IAM_INSTANCE_PROFILE", MACHINE_ROLE),
    ];
    let user = first_word(Command::new("id").arg("-un"))?;
    let forge = match github {
        None => vec![("ONDECK_FORGE", "local")],
        Some((github, page)) => vec![
            ("ONDECK_FORGE", "github"),
            ("ONDECK_GITHUB_URL", github.url()),
            ("ONDECK_GITHUB_TOKEN", TOKEN),
            ("ONDECK_JOBS_TOKEN", JOBS_TOKEN),
            ("ONDECK_REPOSITORY", POOL),
            // Machines are processes of this computer, so they share its users.
            ("ONDECK_RUNNER_USER", &user),
            // Where the Action finds the program.
            ("ONDECK_DOWNLOAD_URL", page),
        ],
    };
    for (name, value) in aws.into_iter().chain(forge) {
        writeln!(out, "export {name}='{value}'")?;
    }
    out.flush()
}

/// The first word that a command prints. Fails if the command does.
fn first_word(command: &mut Command) -> io::Result<String> {
    let done = command.output()?;
    let said = String::from_utf8_lossy(&done.stdout);
    let word = said.split_whitespace().next().filter(|_| done.status.success());
    word.map(str::to_owned).ok_or_else(|| io::Error::other(format!("{command:?}: {}", done.status)))
}

/// Prints a line per request. Returns when the gateway ends, or with an error
/// when stdout is closed.
fn print_requests(requests: &mpsc::Receiver<LogEntry>) -> io::Result<()> {
    for entry in requests {
        let LogEntry { endpoint, service, operation, took, status, .. } = entry;
        let status = status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
        let took = took.as_secs_f64() * 1_000.0;
        writeln!(io::stdout(), "{endpoint}: {service} {operation}: {status} in {took:.1} ms")?;
    }
    Ok(())
}

async fn stopped() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}
