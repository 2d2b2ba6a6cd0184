//! The help, to the letter.

use insta::assert_snapshot;

use crate::harness::{Background, Driven, Home};

fn shown(arguments: &[&str]) -> String {
    let home = Home::bare();
    // Help shows what variables hold.
    let mut command = home.command(arguments);
    let done = Background::start(command.env_remove("ONDECK_HOME")).finish().succeeded();
    assert_eq!(done.stderr, "");
    done.stdout
}

/// The help of a command, without the part that all commands share.
fn help(command: &str) -> String {
    let help = shown(&[command, "--help"]);
    let (own, common) = help.split_once("\nFor every command:\n").unwrap();
    assert!(common.contains("--home <DIR>"), "{common}");
    own.to_owned()
}

#[test]
fn the_help_of_the_program() {
    assert_snapshot!(shown(&["--help"]), @"
    Keeps self-hosted GitHub Actions runners warm and hands them from workflow to workflow

    Usage: ondeck [OPTIONS] <COMMAND>

    Commands:
      refresh    Set everything up, and clear up whatever went wrong; to be run first, and on a schedule
      provision  Give a run its machines: idle ones from the pool, else new ones
      release    Give a run's machines back to the pool
      run        Queue a job for a run, show its output, and exit with its code (local forge)
      status     Show the machines, what they are doing and how long they may, and the pool
      demo       Watch it work: a story with real processes, in a temporary home, in under a minute
      agent      Be the agent of a machine; started by the machine itself
      help       Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    For every command:
          --backend <BACKEND>  Where machines, records and the pool are [default: local] [possible
                               values: local, aws]
          --home <DIR>         Where the local backend keeps its files, and the local forge its jobs
                               [default: ~/.ondeck]
          --json               One JSON object on stdout instead of text
      -v, --verbose...         Say more on stderr: every state change; twice for details
      -q, --quiet              Say nothing on stderr but errors

    AWS backend, for every command:
          --pool <NAME>             Whose pool: OWNER/REPOSITORY, or OWNER for one that is shared
                                    [default: GITHUB_REPOSITORY]
          --aws-region <REGION>     The region [default: as for AWS's own programs]
          --aws-endpoint-url <URL>  Where all of AWS is, for emulators [default: AWS_ENDPOINT_URL, or
                                    AWS itself]

    Every option with a value can also be given as a variable: --instance-count as
    ONDECK_INSTANCE_COUNT. Data goes to stdout, everything else to stderr.

    Exit codes:
      0  done                          6  store, queue or compute out of reach or busy
      2  invalid input                 7  GitHub refused, or the token is bad
      3  not set up: refresh first     8  released, but some machines did not answer
      4  no capacity                  10  unexpected; everything was dumped
      5  machines did not get ready  130  interrupted, 143 terminated; cleared up
    ");
    assert_snapshot!(shown(&["--version"]), @"ondeck 0.1.0");
}

#[test]
fn the_help_of_refresh() {
    assert_snapshot!(help("refresh"), @r#"
    Set everything up, and clear up whatever went wrong; to be run first, and on a schedule

    Usage: ondeck refresh [OPTIONS]

    Options:
          --resource-class-config <JSON>  The sizes that can be asked for, as JSON:
                                          {"large":{"cpu":2,"mem":4096}} [default: large 2/4096, xlarge
                                          4/8192, 2xlarge 8/16384, 4xlarge 16/32768, 8xlarge 32/65536,
                                          12xlarge 48/98304, 16xlarge 64/131072]
          --min-idle <CLASS=COUNT ...>    Idle machines to keep, by class: "large=2 xlarge=1"
          --pre-runner-script <SCRIPT>    Shell script that every machine runs before its first run
          --rescue <WHAT>                 What to do for runs whose jobs wait without a machine:
                                          provision, report or off [default: provision]
      -h, --help                          Print help

    GitHub:
          --forge <FORGE>
              Where jobs come from; local is for trying it out [default: github on aws, else what it
              was, or local] [possible values: local, github]
          --github-token <TOKEN>
              A token that may register runners; best given as a variable, since others can see a
              command line
          --github-app-id <ID>
              In place of a token: the id of a GitHub App that may register runners
          --github-app-private-key <PEM>
              The App's private key, in PEM; best given as a variable
          --jobs-token <TOKEN>
              A token that may read workflow runs, for rescue [default: the one that registers runners]
          --github-url <URL>
              Where GitHub is; an Enterprise Server has its own [default: GITHUB_SERVER_URL, or
              github.com]
          --scope <SCOPE>
              Whose runners they are: the repository's, or its whole organisation's [default:
              repository] [possible values: repository, organisation]
          --repository <OWNER/NAME>
              The repository [default: GITHUB_REPOSITORY, or the pool]
          --runner-group <NAME>
              The group that runners of an organisation join; empty for the default one
          --actions-runner-version <VERSION>
              The version of actions/runner: a number, or latest for what GitHub offers; one that is on
              the image will do for latest [default: latest]
          --actions-runner-api-url <URL>
              Where releases of actions/runner are looked up [default: api.github.com]
          --runner-user <USER>
              The user that jobs run as; made if there is none [default: runner on aws, else the agent's
              own]

    AWS backend:
          --ami <AMI>                       The image that machines start from
          --subnet-ids <SUBNET ...>         The subnets that machines may be in; best one in each zone
          --security-group-ids <GROUP ...>  The security groups of machines
          --iam-instance-profile <PROFILE>  The instance profile of machines, by name or ARN; it must
                                            let them use the table and end themselves
          --agent-url <URL>                 Where machines get the agent: https://, or s3:// if the
                                            image has the aws program; empty if it is on the image
          --agent-sha256 <HEX>              What the agent's SHA-256 must be
          --volume-size-gb <GB>             The size of each machine's disk; empty for that of the image
          --key-name <NAME>                 The key pair that opens machines to ssh; empty for none

    Local backend:
          --local-capacity <COUNT>
              The most machines that may be alive at once; empty for no limit
          --local-boot-ms <MS>
              How long every machine takes to boot, in milliseconds
          --local-catalogue <JSON>
              The types of machine, as JSON:
              [{"type":"c6i.large","cpu":2,"mem":4096,"bootMs":0,"capacity":3}]
          --local-launch-failure <TEXT>
              Make every launch fail with this text; empty to stop
          --local-duplicate-tickets <true|false>
              Deliver every ticket twice, as SQS may

    Times (kept for everybody until given again):
          --heartbeat-period-sec <SEC>
              How often an agent says that it is alive; three periods without make it unhealthy
              [default: 5]
          --claim-registration-timeout-sec <SEC>
              How long a claimed machine may take to register for the run [default: 10]
          --claim-timeout-sec <SEC>
              How long a machine may stay claimed [default: 300]
          --created-timeout-sec <SEC>
              How long a machine may stay created [default: 600]
          --validation-timeout-sec <SEC>
              How long new machines may take to become ready [default: 180]
          --idle-time-sec <SEC>
              How long an idle machine waits in the pool; 0 keeps none [default: 300]
          --max-runtime-min <MIN>
              How long a run may keep its machines [default: 30]
          --release-timeout-sec <SEC>
              How long release waits for a machine to deregister and clean up [default: 120]
          --self-termination-grace-sec <SEC>
              How far past its threshold a machine ends itself, and past which one without a record is
              swept [default: 60]
          --boot-deadline-sec <SEC>
              How long a machine without a record waits before it ends itself [default: 180]
          --registration-token-refresh-min <MIN>
              How old a registration token may get before refresh renews it; the local forge has none
              [default: 30]
          --registration-token-patience-sec <SEC>
              How long provision waits for refresh to renew a registration token that has expired
              [default: 60]
          --agent-poll-waiting-sec <SEC>
              How often an idle agent looks for a run [default: 0.25]
          --agent-poll-running-sec <SEC>
              How often a working agent looks for its release [default: 1]
          --signal-poll-sec <SEC>
              How often the control plane looks for signals that it waits for [default: 0.05]
          --ticket-hold-sec <SEC>
              How long a ticket stays hidden from others while one run looks at it [default: 30]
          --pickup-patience-sec <SEC>
              How long an empty pool is asked again while others hold tickets of it [default: 1]
          --retention-min <MIN>
              How long records of terminated machines are kept [default: 1440]
    "#);
}

#[test]
fn the_help_of_provision() {
    assert_snapshot!(help("provision"), @r#"
    Give a run its machines: idle ones from the pool, else new ones

    Usage: ondeck provision [OPTIONS]

    Options:
          --run-id <ID>
              The workflow run; also the label of its machines [default: GITHUB_RUN_ID]
          --instance-count <COUNT>
              How many machines [default: 1]
          --resource-class <CLASS>
              Of which size, by the name that refresh configured [default: large]
          --usage-class <CLASS>
              Paid for how: spot or on-demand [default: on-demand]
          --allowed-instance-types <PATTERNS>
              Which instance types will do; * stands for anything [default: "c* m* r*"]
          --capacity-fallback
              Try again for what could not be launched, and then on demand instead of spot
      -h, --help
              Print help

    Times (for this call; otherwise as refresh set them):
          --claim-registration-timeout-sec <SEC>
              How long a claimed machine may take to register for the run [default: 10]
          --claim-timeout-sec <SEC>
              How long a machine may stay claimed [default: 300]
          --created-timeout-sec <SEC>
              How long a machine may stay created [default: 600]
          --validation-timeout-sec <SEC>
              How long new machines may take to become ready [default: 180]
          --idle-time-sec <SEC>
              How long an idle machine waits in the pool; 0 keeps none [default: 300]
          --max-runtime-min <MIN>
              How long a run may keep its machines [default: 30]
          --release-timeout-sec <SEC>
              How long release waits for a machine to deregister and clean up [default: 120]
          --registration-token-patience-sec <SEC>
              How long provision waits for refresh to renew a registration token that has expired
              [default: 60]
    "#);
}

#[test]
fn the_help_of_release() {
    assert_snapshot!(help("release"), @"
    Give a run's machines back to the pool

    Usage: ondeck release [OPTIONS]

    Options:
          --run-id <ID>  The workflow run; also the label of its machines [default: GITHUB_RUN_ID]
      -h, --help         Print help

    Times (for this call; otherwise as refresh set them):
          --idle-time-sec <SEC>        How long an idle machine waits in the pool; 0 keeps none
                                       [default: 300]
          --release-timeout-sec <SEC>  How long release waits for a machine to deregister and clean up
                                       [default: 120]
    ");
}

#[test]
fn the_help_of_the_other_commands() {
    assert_snapshot!(help("run"), @"
    Queue a job for a run, show its output, and exit with its code (local forge)

    Usage: ondeck run [OPTIONS] -- <CMD>...

    Arguments:
      <CMD>...  The command and its arguments

    Options:
          --run-id <ID>              The workflow run; also the label of its machines [default:
                                     GITHUB_RUN_ID]
          --queue-timeout-sec <SEC>  How long the job may wait for a machine of its run before it is
                                     withdrawn [default: 300]
      -h, --help                     Print help
    ");
    assert_snapshot!(help("status"), @"
    Show the machines, what they are doing and how long they may, and the pool

    Usage: ondeck status [OPTIONS]

    Options:
          --all    Show terminated machines too
          --watch  Show it again every second, until interrupted
      -h, --help   Print help
    ");
    assert_snapshot!(help("demo"), @"
    Watch it work: a story with real processes, in a temporary home, in under a minute

    Usage: ondeck demo [OPTIONS]

    Options:
          --keep  Leave the home with its store and logs behind, and say where
      -h, --help  Print help
    ");
    assert_snapshot!(help("agent"), @r#"
    Be the agent of a machine; started by the machine itself

    Usage: ondeck agent [OPTIONS]

    Options:
          --instance-id <ID>            The machine that this is; on EC2 the machine knows
          --shutdown-command <COMMAND>  What ends this machine where EC2 cannot be asked to [default:
                                        "shutdown -h now"]
      -h, --help                        Print help
    "#);
}
