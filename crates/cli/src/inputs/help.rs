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
  3  not set up: run refresh first   9  a role has other permissions than it should
  4  no capacity                    10  unexpected error; cleaned up
  5  machines did not become ready  11  the output could not be written
  6  store, queue or compute       130  interrupted, 143 terminated; cleaned up
     unavailable or busy";

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
        Mode::Status => "Show the machines, their states and deadlines, and the pool",
        Mode::Connect => "Open a shell on a machine through AWS Session Manager",
        Mode::Permissions => "Check on AWS what the role of the current credentials may do",
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
Examples:
  ondeck status --watch
  ondeck status --all --json
  ondeck status --backend aws --pool acme/web"
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
        Mode::Demo => {
            "\
Examples:
  ondeck demo
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
    if row.scope == InputScope::Stored && mode != Mode::Refresh {
        return format!("{heading} (for this call; otherwise as refresh stored them)");
    }
    heading.to_owned()
}
