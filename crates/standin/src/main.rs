//! AWS on loopback, for trying ondeck's aws backend by hand.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::Parser;
use ondeck_standin::{
    Capacity, Gateway, GatewayOptions, LogEntry, MachineCommand, PolicyPool, Role,
};
use tokio::signal::unix::{SignalKind, signal};

const ACCESS_KEY: &str = "test";
const POOL: &str = "acme/web";
const MACHINE_ROLE: &str = "ondeck-machine";

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
    /// Folder with botocore's models to check requests against
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Folder with the policies of the roles; without it, every caller may do everything
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// How many machines can be launched
    #[arg(long, value_name = "N")]
    capacity: Option<usize>,
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
    grant_keys(&gateway);
    write_exports(&gateway, &home)?;
    let printing = std::thread::spawn(move || print_requests(&requests));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(stopped())?;
    let (violations, denials) = (gateway.violations(), gateway.denials());
    drop(gateway);
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

/// Gives the exported access key the policy of refresh, which covers all modes, and the name of each
/// role its own. To try a role, set `AWS_ACCESS_KEY_ID` to its name.
fn grant_keys(gateway: &Gateway) {
    let pool = PolicyPool {
        pool: POOL.to_owned(),
        name: "ondeck-acme-web-????????".to_owned(),
        machine_role: MACHINE_ROLE.to_owned(),
    };
    gateway.grant(ACCESS_KEY, &pool, &[Role::Refresh]);
    for role in Role::ALL {
        gateway.grant(role.name(), &pool, &[role]);
    }
}

/// Prints the variables with which `ondeck refresh` needs no flag.
fn write_exports(gateway: &Gateway, home: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (name, value) in [
        ("AWS_ENDPOINT_URL", gateway.endpoint("control").url()),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("ONDECK_BACKEND", "aws"),
        ("ONDECK_FORGE", "local"),
        ("ONDECK_POOL", POOL),
        ("ONDECK_HOME", home),
        ("ONDECK_AMI", "ami-0123456789abcdef0"),
        ("ONDECK_SUBNET_IDS", "subnet-0a subnet-0b"),
        ("ONDECK_IAM_INSTANCE_PROFILE", MACHINE_ROLE),
    ] {
        writeln!(out, "export {name}='{value}'")?;
    }
    out.flush()
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
