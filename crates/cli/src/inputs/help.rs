//! The words of the help that belong to commands and not to single inputs.

use ondeck_core::inputs::{Input, InputScope, Mode};

pub(super) const PROGRAM: &str = "\
Every option with a value can also be given as an environment variable:
--instance-count as ONDECK_INSTANCE_COUNT. Data goes to stdout, logs and errors
to stderr.

Examples:
  ondeck demo                                 Watch a pool work, with nothing to set up
  ondeck refresh                              Create the pool in ~/.ondeck
  ondeck provision --run-id 1 --json          Get a machine for run 1
  ondeck run --run-id 1 -- echo hello         Run a job on it
  ondeck release --run-id 1                   Return the machine to the pool

Exit codes:
  0  success                         7  GitHub refused, or the token is invalid
  2  invalid input                   8  released, but some machines did not respond
  3  not set up, or closed           9  a role has other permissions than it should
  4  no capacity                    10  unexpected error; cleaned up
  5  machines did not become ready  11  the output could not be written
  6  store, queue or compute        12  runs own machines that are to go
     unavailable or busy            20  doctor found warnings, 21 errors
                                    22  a drill found that the pool does not recover
                                   130  interrupted, 143 terminated; cleaned up";

/// What the command does, in one line.
pub(super) fn about(mode: Mode) -> &'static str {
    match mode {
        Mode::Refresh => {
            "Create missing infrastructure, store settings, and clean up; run it first and on a \
             schedule"
        }
        Mode::Provision => "Give a run its machines: idle ones from the pool, then new ones",
        Mode::Release => "Return a run's machines to the pool",
        Mode::Run => {
            "Queue a job for a run on the local forge, show its output, exit with its code"
        }
        Mode::Status => "Show what the pool has and what is wrong, then each machine",
        Mode::Watch => "Watch the pool in the terminal: filter machines, look at one, copy its id",
        Mode::Dashboard => "Show the pool in the browser: a page on this computer, live",
        Mode::Explain => "Tell what happened to a run or a machine, and why",
        Mode::Doctor => {
            "Check everything that a pool needs, and say what is wrong and what fixes it"
        }
        Mode::Drill => "Disturb machines of a pool with consent, and check that it recovers",
        Mode::Cost => "Show what machines, runs, classes and days cost, and what the pool saved",
        Mode::Simulate => {
            "Replay a history of runs, show what waiting costs, and recommend settings"
        }
        Mode::Connect => "Open a shell on a machine through AWS Session Manager",
        Mode::Permissions => "Check on AWS what the role of the current credentials may do",
        Mode::Init => {
            "Write the settings, workflows and infrastructure of a pool into the current repository"
        }
        Mode::Config => "Check the file of a pool, or show where each setting comes from",
        Mode::Apply => "Store the file of a pool, for refresh to enforce",
        Mode::Drain => "Take machines out: idle ones now, busy ones after their runs",
        Mode::Retire => "Replace machines when they are idle, and keep the minimum meanwhile",
        Mode::Terminate => "Terminate machines now",
        Mode::Pool => "Show the tickets of idle machines, or repair them",
        Mode::Teardown => "Terminate a pool's machines, and delete what ondeck created for it",
        Mode::Demo => "Watch a pool work: real processes, a temporary home, under a minute",
        Mode::Agent => "Run the agent of a machine; started by the machine itself",
    }
}

/// The end of the command's help.
pub(super) fn examples(mode: Mode) -> &'static str {
    match mode {
        Mode::Refresh => {
            "\
Refresh stores its settings for all runs and agents. A setting that is not given
stays as it is; an empty value (--idle-time-sec=) or --reset idle-time-sec restores
its default. --reset all restores the default of every setting that is not given.

Examples:
  ondeck refresh
  ondeck refresh --min-idle 'large=2 xlarge=1' --idle-time-sec 900
  ondeck refresh --resource-class-config '{\"small\":{\"cpu\":1,\"mem\":2048}}'
  ondeck refresh --backend aws --pool acme/web --ami ami-0123456789abcdef0 \\
      --subnet-ids 'subnet-1 subnet-2' --iam-instance-profile ondeck-machine"
        }
        Mode::Provision => {
            "\
Examples:
  ondeck provision --run-id 42
  ondeck provision --run-id 42 --instance-count 4 --resource-class xlarge
  ondeck provision --usage-class spot --capacity-fallback --allowed-instance-types 'c7i.* m7i.*'"
        }
        Mode::Release => {
            "\
Examples:
  ondeck release --run-id 42
  ondeck release --run-id 42 --idle-time-sec 0"
        }
        Mode::Run => {
            "\
Examples:
  ondeck run --run-id 42 -- make test
  ondeck run --run-id 42 --queue-timeout-sec 60 -- sh -c 'echo \"$HOSTNAME\"'"
        }
        Mode::Status => {
            "\
A terminal gets as many columns as fit; a pipe or a file gets the same table always.
A machine may be marked: silent (no heartbeat for three of its agent's periods), failed
(its agent says so), overdue (past its threshold), retiring (it does not return to the
pool), preserved (kept for people after a failed run).

Examples:
  ondeck status
  ondeck status --watch
  ondeck status --all --json
  ondeck status --backend aws --pool acme/web"
        }
        Mode::Explain => {
            "\
SUBJECT is the id of a run, a label (run id and suffix) or the id of a machine. What the
records do not tell is said to be unknown: events of a process that was killed may be
missing. Exits with code 2 if the pool knows nothing about SUBJECT.

Examples:
  ondeck explain 42
  ondeck explain 42-large --json
  ondeck explain i-0123456789abcdef0 --backend aws --pool acme/web"
        }
        Mode::Doctor => {
            "\
Changes nothing. Each finding says what is wrong, why it matters and what fixes it; each
check that could not be made says what it needs. The checks of GitHub need the token or
the App that refresh has. Exits with 0 if nothing but notes is found, with 20 if the worst
is a warning (runs will fail, or money is wasted), with 21 if it is an error (runs fail now).

Examples:
  ondeck doctor
  ondeck doctor --json
  ONDECK_GITHUB_TOKEN=... ondeck doctor --backend aws --pool acme/web"
        }
        Mode::Drill => {
            "\
Claims idle machines for runs of its own, whose ids begin with drill-, and disturbs them;
machines of other runs are left alone. Each scenario ends with an audit of records,
machines, tickets and runners. kill-idle and interrupt-spot cost one idle machine each.
cancel-launch and kill-launch need --launch. provision, release and refresh are called as
programs, with the variables of this process. Without --confirm it asks at a terminal;
elsewhere it shows the plan and exits with code 2. Exits with code 22 if an expectation is
not met, or if nothing could be played.

Examples:
  ondeck drill --dry-run
  ondeck drill --scenario kill-idle,cancel-provision --class large
  ondeck drill --backend aws --pool acme/web --confirm acme/web --launch --json \\
      --provision-profile ondeck-provision --release-profile ondeck-release \\
      --refresh-profile ondeck-refresh"
        }
        Mode::Cost => {
            "\
Amounts are list prices, in US dollars. An amount with ~ contains time that events do not
tell: those of a process that was killed may be missing. A machine whose type has no price
is listed as such and not counted. Savings may be negative. Events are kept for 30 days;
with the local backend, for retention-min.

Examples:
  ondeck cost
  ondeck cost --since 24h --json
  ondeck cost --since 2026-11-01 --plot docs/images --backend aws --pool acme/web
  ondeck cost --print-prices > prices.json
  ondeck cost --prices prices.json"
        }
        Mode::Simulate => {
            "\
Plays the runs through provision, release and refresh as they are, on virtual time, once for
each combination of idle time, minimum and purchase option. Connects to no pool and launches
nothing. Recommended is the cheapest point that spares enough of the waiting. A history is CSV:
the header start,machines,minutes[,class], then a line for each run, its start in RFC 3339, UTC.

Examples:
  ondeck simulate --history examples/histories/nightly.csv
  ondeck simulate --generate 1 --print-history > week.csv
  ondeck simulate --history week.csv --idle-times-min '10 30' --usage-classes spot --json
  ondeck simulate --from-github --repository acme/web --since 14d --plot docs/images"
        }
        Mode::Watch => {
            "\
Keys: arrows or j and k select, enter shows a machine, / filters by text, s by state, c by
class, m shows marked machines only, y copies the id (OSC 52), ? lists the keys, q quits.
It needs a terminal; ondeck status --watch does not.

Examples:
  ondeck watch
  ondeck watch --all --interval-sec 10
  ondeck watch --backend aws --pool acme/web"
        }
        Mode::Dashboard => {
            "\
Prints the address of the page and serves it until it is interrupted. It reads the pool
only while a page is open, and changes nothing. On an address that other computers reach,
the page needs a token: ONDECK_DASHBOARD_TOKEN, otherwise one that is made and printed.
The connection is not encrypted; from elsewhere, rather use ssh -L 6633:127.0.0.1:6633.

Examples:
  ondeck dashboard
  ondeck dashboard --listen 127.0.0.1:8080 --interval-sec 10
  ondeck dashboard --backend aws --pool acme/web
  ondeck dashboard --listen 192.0.2.7:6633"
        }
        Mode::Connect => {
            "\
Runs aws ssm start-session in its own place, so the AWS CLI and its session plugin must
be installed, and the exit code is that of the session. The pool must have been refreshed
with --connect ssm before the machine was launched.

Examples:
  ondeck connect i-0123456789abcdef0 --backend aws --pool acme/web"
        }
        Mode::Permissions => {
            "\
Sends requests that the role must be denied, and some that it must be allowed. None
of them changes anything, even if it is allowed: EC2 gets dry runs, and requests to
DynamoDB and SQS name items and queues that do not exist. Requests without such a
form are skipped. Exits with code 9 if AWS decides otherwise than it should.

Examples:
  ondeck permissions check --backend aws --pool acme/web --role release
  AWS_PROFILE=provision ondeck permissions check --backend aws --role provision --json"
        }
        Mode::Init => {
            "\
Asks at a terminal what is not given. Defaults are what git, the AWS CLI and the GitHub
CLI know. A file that exists is shown as a diff and overwritten with consent only;
workflows of your own are left alone. Run it again to change an answer: settings that it
does not ask for stay.

Examples:
  ondeck init
  ondeck init --print --repository acme/web --aws-region us-east-1
  ondeck init --yes --image amazon-linux-2023 --vpc vpc-1a --subnets 'subnet-1a subnet-2b'
  aws cloudformation describe-stacks --stack-name ondeck | ondeck init --outputs - --yes"
        }
        Mode::Config => {
            "\
check says whether the file of the pool is valid, with the place of each error. show
lists each setting, its value and where that comes from. Both read the file only; with
--stored, show also asks the pool. export prints a file with the settings that the pool
has stored, to begin with.

Examples:
  ondeck config check
  ondeck config check --config pools/web.toml --json
  ondeck config show --stored
  ondeck config export --backend aws --pool acme/web > ondeck.toml"
        }
        Mode::Apply => {
            "\
From the next refresh on, the stored settings are those of the file: one that the file
does not state has its default, and flags of refresh that give settings are refused.
In a workflow it works on the default branch only. It needs no token of GitHub.

Examples:
  ondeck apply --dry-run
  ondeck apply
  ondeck apply --trust release
  ondeck apply --clear"
        }
        Mode::Drain => {
            "\
Idle machines are terminated. A machine that a run has stays with it, serves no further
run, and is terminated by the run's release. Without --wait-min the command returns at
once; with it, exit code 12 means that runs still had machines then. A machine that is
claimed meanwhile is treated as busy. All conditions that are given must hold; --all
takes every machine. Asks before it touches more than five machines or busy ones; where
there is no terminal, --yes is needed.

Examples:
  ondeck drain --all --dry-run
  ondeck drain i-0123456789abcdef0 --reason 'disk errors'
  ondeck drain --class large --usage spot --wait-min 30 --yes
  ondeck drain --older-than-min 1440 --backend aws --pool acme/web --yes --json"
        }
        Mode::Retire => {
            "\
Marks machines as if they had reached max-machine-age-min: a busy one is terminated by
its run's release, an idle one by a refresh, one or a tenth of a class at a time, after
its replacement is idle where min-idle asks for one. Until then a run may claim it.

Examples:
  ondeck retire --old-image --dry-run
  ondeck retire --old-image --reason 'image of November' --yes
  ondeck retire --class large --older-than-min 1440 --backend aws --pool acme/web --yes"
        }
        Mode::Terminate => {
            "\
Refuses a machine that a run has (exit code 12), unless --force is given; the report
names the runs that lose machines. The record is changed first, so a command that is
killed leaves machines that the next refresh terminates.

Examples:
  ondeck terminate i-0123456789abcdef0
  ondeck terminate i-0123456789abcdef0 --force --yes --reason 'job hangs'
  ondeck terminate local-1 local-2 --dry-run --json"
        }
        Mode::Pool => {
            "\
list shows what each ticket announces, and whether it is true. repair deletes those that
are not, and announces idle machines that have none. To be looked at, the tickets of a
class are hidden from runs for a moment: a run that looks for a machine just then may
wait for it, or launch one.

Examples:
  ondeck pool list
  ondeck pool list --class large --json
  ondeck pool repair --dry-run
  ondeck pool repair --backend aws --pool acme/web"
        }
        Mode::Teardown => {
            "\
Refuses while runs own machines (exit code 12), unless it may wait for them or terminate
them. From then on the pool is closed: provision fails with exit code 3, and refresh only
cleans up. A teardown that was interrupted is finished by the next one. Stop the schedule
of refresh first, since a refresh after it creates the pool again.

Examples:
  ondeck teardown --dry-run
  ondeck teardown --backend aws --pool acme/web --wait-min 30
  ondeck teardown --backend aws --pool acme/web --force --yes --json
  ondeck teardown --cancel"
        }
        Mode::Demo => {
            "\
Examples:
  ondeck demo
  ondeck demo --dashboard
  ondeck demo --keep"
        }
        Mode::Agent => {
            "\
Examples:
  ondeck agent --backend aws
  ondeck agent --instance-id local-7 --home /srv/ondeck"
        }
    }
}

/// The heading over a row's flag in the help of a command.
pub(super) fn heading(heading: &str, row: &Input, mode: Mode) -> String {
    match (row.scope, mode) {
        (InputScope::Stored, Mode::Refresh) => heading.to_owned(),
        (InputScope::Stored, Mode::Apply) => {
            format!("{heading} (stored beside the file, for a refresh that is given none of them)")
        }
        (InputScope::Stored, _) => {
            format!("{heading} (for this call; otherwise as refresh stored them)")
        }
        _ => heading.to_owned(),
    }
}
