//! The inputs of the program itself: what a process connects to and prints, and the options of
//! commands that only the program has.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use ondeck_core::inputs::{ActionInput, FileForm, Input, InputTable, InputValue, Mode};
use ondeck_core::model::ids::{InstanceId, ResourceClass};
use ondeck_core::modes::cost::Since;
use ondeck_core::modes::drill::Scenario;

/// The word for the local backend and the local forge.
pub(crate) const LOCAL: &str = "local";
/// The word for the AWS backend.
pub(crate) const AWS: &str = "aws";
/// The word for GitHub as the forge.
pub(crate) const GITHUB: &str = "github";

// The action is for aws, unless the job sets ONDECK_BACKEND.
pub(crate) const BACKEND: Input = Input::process(
    "backend",
    "",
    "Where records and machines are: short for --records and --compute",
)
.valued(InputValue::Choice("BACKEND", &[LOCAL, AWS]), None)
.or(LOCAL)
.in_action(ActionInput::Absent);
pub(crate) const RECORDS: Input =
    Input::process("records", "", "Where the store and the pool of idle machines are")
        .valued(InputValue::Choice("BACKEND", &[LOCAL, AWS]), None)
        .or_described("as --backend")
        .in_action(ActionInput::Absent);
pub(crate) const COMPUTE: Input = Input::process("compute", "", "Where machines are launched")
    .valued(InputValue::Choice("BACKEND", &[LOCAL, AWS]), None)
    .or_described("as --backend")
    .in_action(ActionInput::Absent);
pub(crate) const HOME: Input = Input::process(
    "home",
    "DIR",
    "Directory for the files of the local backend, of the local forge and of an agent",
)
.or_described("~/.ondeck")
.in_action(ActionInput::Absent);
// The action's output `result` holds the same object.
pub(crate) const JSON: Input =
    Input::process("json", "", "Print one JSON object on stdout instead of text")
        .valued(InputValue::Switch, None)
        .in_action(ActionInput::Absent);
// GitHub has a switch of its own for the debug log of a run.
pub(crate) const VERBOSE: Input =
    Input::process("verbose", "", "Log every state change to stderr; twice for details")
        .valued(InputValue::Count, Some('v'))
        .in_action(ActionInput::Absent);
pub(crate) const QUIET: Input = Input::process("quiet", "", "Log only errors to stderr")
    .valued(InputValue::Switch, Some('q'))
    .conflicting(&["verbose"])
    .in_action(ActionInput::Absent);

/// The inputs of every command.
pub(crate) const PROCESS: InputTable =
    InputTable { heading: "", rows: &[BACKEND, RECORDS, COMPUTE, HOME, JSON, VERBOSE, QUIET] };

pub(crate) const FORGE: Input =
    Input::stored("forge", "", "Where jobs come from; local is for trials")
        .valued(InputValue::Choice("FORGE", &[LOCAL, GITHUB]), None)
        .or_described("github on aws; otherwise unchanged, at first local")
        .in_file("github", FileForm::Text);
pub(crate) const RESET: Input = Input::call(
    "reset",
    "NAMES",
    "Stored settings to return to their defaults, by name; all for every setting that this call \
     does not give",
    &[Mode::Refresh],
);
pub(crate) const CONFIG: Input =
    Input::call("config", "FILE", "File of the pool", &[Mode::Config, Mode::Apply])
        .or("ondeck.toml");
pub(crate) const STORED: Input =
    Input::switch("stored", "Compare with what the pool has stored; for show", &[Mode::Config]);
pub(crate) const DRY_RUN: Input = Input::switch(
    "dry-run",
    "Show what would change or be deleted, and change nothing",
    &[
        Mode::Drill,
        Mode::Apply,
        Mode::Drain,
        Mode::Retire,
        Mode::Terminate,
        Mode::Pool,
        Mode::Teardown,
    ],
);
/// The commands that change machines.
const OF_MACHINES: &[Mode] = &[Mode::Drain, Mode::Retire, Mode::Terminate];
pub(crate) const CLASS: Input = Input::call(
    "class",
    "CLASS",
    "Only machines, or tickets, of this resource class",
    &[Mode::Drill, Mode::Drain, Mode::Retire, Mode::Pool],
)
.checked(|text| text.parse::<ResourceClass>().map(drop).map_err(|error| error.to_string()));
pub(crate) const USAGE: Input =
    Input::call("usage", "", "Only machines of this purchase option", &[Mode::Drain, Mode::Retire])
        .valued(InputValue::Choice("USAGE", &["spot", "on-demand"]), None);
pub(crate) const OLDER_THAN: Input = Input::call(
    "older-than-min",
    "MIN",
    "Only machines that were launched at least so many minutes ago",
    &[Mode::Drain, Mode::Retire],
)
.checked(|text| text.parse::<u32>().map(drop).map_err(|error| error.to_string()));
pub(crate) const OLD_IMAGE: Input = Input::switch(
    "old-image",
    "Only machines that were booted from another image than a launch would use now",
    &[Mode::Drain, Mode::Retire],
);
pub(crate) const OLD_AGENT: Input = Input::switch(
    "old-agent",
    "Only machines whose agent speaks an older protocol than this program",
    &[Mode::Drain, Mode::Retire],
);
pub(crate) const REASON: Input =
    Input::call("reason", "TEXT", "Why, for the events of the machines", OF_MACHINES);
pub(crate) const ACTOR: Input =
    Input::call("actor", "NAME", "Who asks for it, for the events of the machines", OF_MACHINES)
        .or_described(
            "in a workflow its actor, on AWS the caller's ARN, otherwise the user of this process",
        );
pub(crate) const SCENARIO: Input = Input::call(
    "scenario",
    "NAMES",
    "Scenarios to play: kill-idle, cancel-provision, cancel-launch, kill-launch, interrupt-spot",
    &[Mode::Drill],
)
.or_described("all of them")
.checked(|text| scenarios(text).map(drop));
pub(crate) const CONFIRM: Input = Input::call(
    "confirm",
    "POOL",
    "Ask nothing: the name of the pool in which machines may be disturbed, as --dry-run shows it",
    &[Mode::Drill],
);
pub(crate) const LAUNCH: Input = Input::switch(
    "launch",
    "Play also scenarios that launch a machine, one at a time",
    &[Mode::Drill],
);
pub(crate) const RECOVERY: Input = Input::call(
    "recovery-min",
    "MIN",
    "How long to wait until nothing is left of a machine",
    &[Mode::Drill],
)
.or("10")
.checked(|text| text.parse::<u32>().map(drop).map_err(|error| error.to_string()));
pub(crate) const INTERRUPT_COMMAND: Input = Input::call(
    "interrupt-command",
    "COMMAND",
    "Shell command that lets EC2 interrupt the spot machine in ONDECK_DRILL_MACHINE",
    &[Mode::Drill],
);
pub(crate) const PROVISION_PROFILE: Input = Input::call(
    "provision-profile",
    "NAME",
    "AWS profile with the role of provision",
    &[Mode::Drill],
)
.or_described("the credentials of the drill");
pub(crate) const RELEASE_PROFILE: Input =
    Input::call("release-profile", "NAME", "AWS profile with the role of release", &[Mode::Drill])
        .or_described("the credentials of the drill");
pub(crate) const REFRESH_PROFILE: Input =
    Input::call("refresh-profile", "NAME", "AWS profile with the role of refresh", &[Mode::Drill])
        .or_described("the credentials of the drill");

/// The scenarios in a list of names, separated by commas or blanks. Fails if it names none, or one that
/// there is not.
pub(crate) fn scenarios(text: &str) -> Result<BTreeSet<Scenario>, String> {
    let names = text.split([',', ' ']).filter(|name| !name.is_empty());
    let named = names.map(str::parse).collect::<Result<BTreeSet<Scenario>, String>>()?;
    if named.is_empty() { Err("names no scenario".to_owned()) } else { Ok(named) }
}

pub(crate) const CLEAR: Input = Input::switch(
    "clear",
    "Remove the applied configuration, so that refresh takes settings from flags again",
    &[Mode::Apply],
)
.conflicting(&["dry-run"])
.in_action(ActionInput::Absent);
pub(crate) const QUEUE_TIMEOUT: Input = Input::call(
    "queue-timeout-sec",
    "SEC",
    "How long the job may wait for a machine of its run before it is withdrawn",
    &[Mode::Run],
)
.or("300")
.checked(|text| text.parse::<u32>().map(drop).map_err(|error| error.to_string()));
pub(crate) const LABEL: Input = Input::call(
    "label",
    "LABEL",
    "What the job names as runs-on: a label that provision has printed",
    &[Mode::Run],
)
.or_described("any machine of the run");
pub(crate) const ALL: Input = Input::switch(
    "all",
    "All machines: for status and watch also terminated ones, otherwise every one of the pool",
    &[Mode::Status, Mode::Watch, Mode::Drain, Mode::Retire],
);
pub(crate) const WATCH: Input = Input::switch(
    "watch",
    "Redraw in place every second, until interrupted; without a terminal, print one after the other",
    &[Mode::Status],
)
.conflicting(&["json"]);
pub(crate) const SINCE: Input = Input::call(
    "since",
    "TIME",
    "Beginning of the account, or of the runs of --from-github: a span such as 7d or 12h, a date (midnight \
     in UTC), or a time in RFC 3339",
    &[Mode::Cost, Mode::Simulate],
)
.or("7d")
.checked(|text| text.parse::<Since>().map(drop));
pub(crate) const PRICES: Input = Input::call(
    "prices",
    "FILE",
    "File with prices, in place of the table of the program",
    &[Mode::Cost, Mode::Simulate],
);
pub(crate) const PRINT_PRICES: Input = Input::switch(
    "print-prices",
    "Print the price table of the program, to begin a file for --prices with, and nothing else",
    &[Mode::Cost],
)
.conflicting(&["json", "prices", "plot"]);
pub(crate) const PLOT: Input = Input::call(
    "plot",
    "DIR",
    "Directory in which to write a plot, of the days or of what waiting costs, for light and for dark \
     pages: cost-light.svg or simulate-light.svg, and -dark.svg",
    &[Mode::Cost, Mode::Simulate],
);
pub(crate) const INTERVAL: Input = Input::call(
    "interval-sec",
    "SEC",
    "Pause between two readings of the pool; a reading is one batch of calls",
    &[Mode::Watch, Mode::Dashboard],
)
.or("2")
.checked(|text| match text.parse::<u32>() {
    Ok(1..=3_600) => Ok(()),
    _ => Err("is not a whole number from 1 to 3600".to_owned()),
});
pub(crate) const LISTEN: Input = Input::call(
    "listen",
    "ADDRESS:PORT",
    "Where the page is served; any address but one of this computer itself needs a token",
    &[Mode::Dashboard],
)
.or("127.0.0.1:6633")
.checked(|text| text.parse::<SocketAddr>().map(drop).map_err(|_| NO_ADDRESS.to_owned()));
const NO_ADDRESS: &str = "is not an address with a port, such as 127.0.0.1:6633 or [::1]:6633";
pub(crate) const DASHBOARD_TOKEN: Input = Input::secret(
    "dashboard-token",
    "TOKEN",
    "Token without which the page is not shown; give it as a variable, because other users of this \
     computer see command lines",
)
.of_modes(&[Mode::Dashboard])
.or_described("made at random if --listen needs one")
.checked(|text| {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
    match text.len() {
        20..=128 if text.chars().all(is_plain) => Ok(()),
        _ => Err("is not 20 to 128 letters, digits and -._~".to_owned()),
    }
});
pub(crate) const DASHBOARD: Input = Input::switch(
    "dashboard",
    "Show the pool in the browser too; needs a build with the feature dashboard",
    &[Mode::Demo],
);
pub(crate) const KEEP: Input = Input::switch(
    "keep",
    "Keep the temporary home with its store and logs, and print its path",
    &[Mode::Demo],
);
pub(crate) const ROLE: Input = Input::call(
    "role",
    "",
    "Role whose permissions to check; the credentials must be the role's",
    &[Mode::Permissions],
)
.valued(
    InputValue::Choice(
        "ROLE",
        &["refresh", "provision", "release", "operator", "steward", "machine"],
    ),
    None,
);
pub(crate) const OTHER_POOL: Input = Input::call(
    "other-pool",
    "NAME",
    "Another pool of the account, which the role must not reach; without it, the requests name a \
     pool that does not exist",
    &[Mode::Permissions],
);
pub(crate) const WAIT: Input = Input::call(
    "wait-min",
    "MIN",
    "How long to wait for runs that own machines; teardown closes the pool for that time",
    &[Mode::Drain, Mode::Teardown],
)
.or("0")
.checked(|text| text.parse::<u32>().map(drop).map_err(|error| error.to_string()));
pub(crate) const FORCE: Input = Input::switch(
    "force",
    "Terminate also machines that runs own",
    &[Mode::Terminate, Mode::Teardown],
)
.conflicting(&["wait-min"]);
pub(crate) const YES: Input = Input::switch(
    "yes",
    "Ask nothing: change the machines, delete the pool, or overwrite files that differ",
    &[Mode::Drain, Mode::Retire, Mode::Terminate, Mode::Teardown, Mode::Init],
);
pub(crate) const CANCEL: Input = Input::switch(
    "cancel",
    "Open a pool again that an unfinished teardown has closed",
    &[Mode::Teardown],
)
.conflicting(&["wait-min", "force", "dry-run", "yes"]);
pub(crate) const INSTANCE_ID: Input =
    Input::call("instance-id", "ID", "Id of this machine", &[Mode::Agent, Mode::Permissions])
        .or_described("on EC2, as the instance metadata says")
        .checked(|text| text.parse::<InstanceId>().map(drop).map_err(|error| error.to_string()));
/// User data sets it. An agent that is started in another way may share its computer.
pub(crate) const OWN_MACHINE: Input = Input::call(
    "own-machine",
    "",
    "Whether this computer belongs to the pool alone; the agent then removes everything that a run \
     leaves on it, also files of other users and Docker images",
    &[Mode::Agent],
)
.valued(InputValue::Choice("TRUE|FALSE", &[TRUE, FALSE]), None)
.or(FALSE);
/// The value of [`OWN_MACHINE`] for a computer without other users.
pub(crate) const TRUE: &str = "true";
const FALSE: &str = "false";
pub(crate) const SHUTDOWN_COMMAND: Input = Input::call(
    "shutdown-command",
    "COMMAND",
    "Command that shuts this machine down if EC2 cannot be asked to terminate it",
    &[Mode::Agent],
)
.or("shutdown -h now");

pub(crate) const METRICS_FILE: Input = Input::call(
    "metrics-file",
    "FILE",
    "File to write the metrics of this call to, in the text format of Prometheus; for the textfile \
     collector of node_exporter its name ends in .prom",
    &[Mode::Refresh, Mode::Provision, Mode::Release],
)
.in_action(ActionInput::Absent);
pub(crate) const EMF_FILE: Input = Input::call(
    "emf-file",
    "FILE",
    "File to add a line of metrics to, in the embedded metric format of CloudWatch",
    &[Mode::Refresh],
)
.in_action(ActionInput::Absent);

/// The inputs of single commands.
pub(crate) const COMMANDS: &[InputTable] = &[
    InputTable {
        heading: "",
        rows: &[
            RESET,
            CONFIG,
            STORED,
            DRY_RUN,
            CLEAR,
            QUEUE_TIMEOUT,
            LABEL,
            ALL,
            CLASS,
            USAGE,
            OLDER_THAN,
            OLD_IMAGE,
            OLD_AGENT,
            REASON,
            ACTOR,
            SCENARIO,
            CONFIRM,
            LAUNCH,
            RECOVERY,
            INTERRUPT_COMMAND,
            PROVISION_PROFILE,
            RELEASE_PROFILE,
            REFRESH_PROFILE,
            WATCH,
            INTERVAL,
            LISTEN,
            DASHBOARD_TOKEN,
            SINCE,
            PRICES,
            PRINT_PRICES,
            PLOT,
            ROLE,
            OTHER_POOL,
            DASHBOARD,
            KEEP,
            WAIT,
            FORCE,
            YES,
            CANCEL,
            INSTANCE_ID,
            OWN_MACHINE,
            SHUTDOWN_COMMAND,
            METRICS_FILE,
            EMF_FILE,
        ],
    },
    InputTable { heading: "GitHub", rows: &[FORGE] },
];
