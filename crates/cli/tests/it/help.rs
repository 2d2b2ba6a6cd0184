//! The help, to the letter.

mod config;
mod init;
mod simulate;

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

/// The help of a command, without the options that all commands share.
fn help(command: &str) -> String {
    let help = shown(&[command, "--help"]);
    let (own, common) = help.split_once("\nFor every command:\n").unwrap();
    assert!(common.contains("--home <DIR>"), "{common}");
    let (_, last) = common.split_once("--aws-endpoint-url").unwrap();
    let (_, examples) = last.split_once("\n\n").unwrap();
    format!("{own}\n(options of every command)\n\n{examples}")
}

#[test]
fn the_help_of_the_program() {
    assert_snapshot!(shown(&["--help"]), @"
    Keeps self-hosted GitHub Actions runners warm and hands them from workflow to workflow

    Usage: ondeck [OPTIONS] <COMMAND>

    Commands:
      refresh      Create missing infrastructure, store settings, and clean up; run it first and on a
                   schedule
      provision    Give a run its machines: idle ones from the pool, then new ones
      release      Return a run's machines to the pool
      run          Queue a job for a run on the local forge, show its output, exit with its code
      status       Show what the pool has and what is wrong, then each machine
      explain      Tell what happened to a run or a machine, and why
      doctor       Check everything that a pool needs, and say what is wrong and what fixes it
      drill        Disturb machines of a pool with consent, and check that it recovers
      cost         Show what machines, runs, classes and days cost, and what the pool saved
      simulate     Replay a history of runs, show what waiting costs, and recommend settings
      watch        Watch the pool in the terminal: filter machines, look at one, copy its id
      dashboard    Show the pool in the browser: a page on this computer, live
      connect      Open a shell on a machine through AWS Session Manager
      permissions  Check on AWS what the role of the current credentials may do
      init         Write the settings, workflows and infrastructure of a pool into the current
                   repository
      config       Check the file of a pool, or show where each setting comes from
      apply        Store the file of a pool, for refresh to enforce
      drain        Take machines out: idle ones now, busy ones after their runs
      retire       Replace machines when they are idle, and keep the minimum meanwhile
      terminate    Terminate machines now
      pool         Show the tickets of idle machines, or repair them
      teardown     Terminate a pool's machines, and delete what ondeck created for it
      demo         Watch a pool work: real processes, a temporary home, under a minute
      agent        Run the agent of a machine; started by the machine itself
      completions  Print a script that completes commands and options in a shell
      man          Write the manual pages, one for each command
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help
      -V, --version  Print version

    For every command:
          --backend <BACKEND>  Where records and machines are: short for --records and --compute
                               [default: local] [possible values: local, aws]
          --records <BACKEND>  Where the store and the pool of idle machines are [default: as --backend]
                               [possible values: local, aws]
          --compute <BACKEND>  Where machines are launched [default: as --backend] [possible values:
                               local, aws]
          --home <DIR>         Directory for the files of the local backend, of the local forge and of
                               an agent [default: ~/.ondeck]
          --json               Print one JSON object on stdout instead of text
      -v, --verbose...         Log every state change to stderr; twice for details
      -q, --quiet              Log only errors to stderr

    AWS backend, for every command:
          --pool <NAME>             Pool to use: OWNER/REPOSITORY, or OWNER for a pool that an
                                    organisation shares [default: GITHUB_REPOSITORY]
          --trust <LEVEL>           Trust level, such as release: each is a pool of its own, with its
                                    own table, queues and machines [default: the pool without a level]
          --aws-region <REGION>     AWS region [default: as the AWS CLI finds it]
          --aws-endpoint-url <URL>  Endpoint of all AWS services, for emulators [default:
                                    AWS_ENDPOINT_URL, or AWS itself]

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
                                       130  interrupted, 143 terminated; cleaned up
    ");
    assert_snapshot!(shown(&["--version"]), @"ondeck 0.1.0");
}

#[test]
fn the_help_of_drill() {
    assert_snapshot!(help("drill"), @r"
    Disturb machines of a pool with consent, and check that it recovers

    Usage: ondeck drill [OPTIONS]

    Options:
          --dry-run                      Show what would change or be deleted, and change nothing
          --class <CLASS>                Only machines, or tickets, of this resource class
          --scenario <NAMES>             Scenarios to play: kill-idle, cancel-provision, cancel-launch,
                                         kill-launch, interrupt-spot [default: all of them]
          --confirm <POOL>               Ask nothing: the name of the pool in which machines may be
                                         disturbed, as --dry-run shows it
          --launch                       Play also scenarios that launch a machine, one at a time
          --recovery-min <MIN>           How long to wait until nothing is left of a machine [default:
                                         10]
          --interrupt-command <COMMAND>  Shell command that lets EC2 interrupt the spot machine in
                                         ONDECK_DRILL_MACHINE
          --provision-profile <NAME>     AWS profile with the role of provision [default: the
                                         credentials of the drill]
          --release-profile <NAME>       AWS profile with the role of release [default: the credentials
                                         of the drill]
          --refresh-profile <NAME>       AWS profile with the role of refresh [default: the credentials
                                         of the drill]
      -h, --help                         Print help

    GitHub:
          --github-token <TOKEN>          Token that may register runners; prefer the variable, because
                                          other users can see a command line
          --github-app-id <ID>            Instead of a token: id of a GitHub App that may register
                                          runners
          --github-app-private-key <PEM>  Private key of the GitHub App, in PEM; prefer the variable
          --github-url <URL>              Address of GitHub; set it for an Enterprise Server [default:
                                          GITHUB_SERVER_URL, or https://github.com]
          --runner-scope <SCOPE>          Level at which runners register: the repository or its
                                          organisation [default: repository] [possible values:
                                          repository, organisation]
          --repository <OWNER/NAME>       Repository that runners serve [default: GITHUB_REPOSITORY, or
                                          the pool; for init the remote origin]

    (options of every command)

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
      ondeck drill --backend aws --pool acme/web --confirm acme/web --launch --json \
          --provision-profile ondeck-provision --release-profile ondeck-release \
          --refresh-profile ondeck-refresh
    ");
}

#[test]
fn the_help_of_doctor() {
    assert_snapshot!(help("doctor"), @"
    Check everything that a pool needs, and say what is wrong and what fixes it

    Usage: ondeck doctor [OPTIONS]

    Options:
      -h, --help  Print help

    GitHub:
          --github-token <TOKEN>          Token that may register runners; prefer the variable, because
                                          other users can see a command line
          --github-app-id <ID>            Instead of a token: id of a GitHub App that may register
                                          runners
          --github-app-private-key <PEM>  Private key of the GitHub App, in PEM; prefer the variable
          --jobs-token <TOKEN>            Token that may read workflow runs, for rescue [default: the
                                          token that registers runners]
          --github-url <URL>              Address of GitHub; set it for an Enterprise Server [default:
                                          GITHUB_SERVER_URL, or https://github.com]
          --runner-scope <SCOPE>          Level at which runners register: the repository or its
                                          organisation [default: repository] [possible values:
                                          repository, organisation]
          --repository <OWNER/NAME>       Repository that runners serve [default: GITHUB_REPOSITORY, or
                                          the pool; for init the remote origin]
          --actions-runner-api-url <URL>  GitHub API that lists the releases of actions/runner [default:
                                          https://api.github.com]

    AWS backend:
          --github-app-key-source <SOURCE>  Where AWS keeps the private key of the GitHub App: ssm:NAME
                                            of a parameter, or secretsmanager:ARN of a secret
          --github-token-source <SOURCE>    Where AWS keeps the token that may register runners, as for
                                            github-app-key-source

    (options of every command)

    Changes nothing. Each finding says what is wrong, why it matters and what fixes it; each
    check that could not be made says what it needs. The checks of GitHub need the token or
    the App that refresh has. Exits with 0 if nothing but notes is found, with 20 if the worst
    is a warning (runs will fail, or money is wasted), with 21 if it is an error (runs fail now).

    Examples:
      ondeck doctor
      ondeck doctor --json
      ONDECK_GITHUB_TOKEN=... ondeck doctor --backend aws --pool acme/web
    ");
}

#[test]
fn the_help_of_refresh() {
    assert_snapshot!(help("refresh"), @r#"
    Create missing infrastructure, store settings, and clean up; run it first and on a schedule

    Usage: ondeck refresh [OPTIONS]

    Options:
          --time-limit-sec <SEC>          How long this refresh may take, at least 30; it waits for no
                                          new machine, and the next refresh with a limit continues
                                          [default: no limit]
          --resource-class-config <JSON>  Resource classes and their sizes, as JSON:
                                          {"large":{"cpu":2,"mem":4096}} [default: large 2/4096, xlarge
                                          4/8192, 2xlarge 8/16384, 4xlarge 16/32768, 8xlarge 32/65536,
                                          12xlarge 48/98304, 16xlarge 64/131072]
          --min-idle <ENTRIES>            Idle machines to keep in the pool: "large=2 xlarge=1", or in a
                                          time window "Mon-Fri 08:00-18:00 Europe/Berlin large/spot=4"
          --max-machine-age-min <MIN>     Age at which release does not return a machine to the pool,
                                          and refresh replaces it [default: no limit]
          --max-runs-per-machine <COUNT>  Number of runs after which release does not return a machine
                                          to the pool [default: no limit]
          --reuse <WHEN>                  Whether a machine may serve more than one run: always or
                                          never; provision can only be stricter [default: always]
          --debug-on-failure-min <MIN>    How long release keeps the machines of a failed run for people
                                          to examine, outside the pool; it must be called with
                                          run-failed [default: they return to the pool]
          --max-machines <COUNT ...>      Most machines that may exist at once, in the pool and by
                                          class: "100 large=20" [default: no limit]
          --max-spend-per-day <DOLLARS>   Most that machines may cost on a day in UTC, at list prices;
                                          needs max-machine-age-min [default: no limit]
          --pre-runner-script <SCRIPT>    Shell script that every machine runs once, before it registers
                                          a runner
          --rescue <ACTION>               Action for runs whose jobs are queued without a machine:
                                          provision, report or off [default: provision]
          --on-interruption <ACTION>      Action for jobs whose machine was taken away by its provider:
                                          none, or rerun, once the run has completed [default: none]
          --runner-label <LABEL>          Label that runners register with: run, the id of the run that
                                          has claimed the machine, or machine, a label of the machine's
                                          own, under which it is online while it is idle [default: run]
          --reset <NAMES>                 Stored settings to return to their defaults, by name; all for
                                          every setting that this call does not give
          --metrics-file <FILE>           File to write the metrics of this call to, in the text format
                                          of Prometheus; for the textfile collector of node_exporter its
                                          name ends in .prom
          --emf-file <FILE>               File to add a line of metrics to, in the embedded metric
                                          format of CloudWatch
      -h, --help                          Print help

    GitHub:
          --forge <FORGE>
              Where jobs come from; local is for trials [default: github on aws; otherwise unchanged, at
              first local] [possible values: local, github]
          --github-token <TOKEN>
              Token that may register runners; prefer the variable, because other users can see a
              command line
          --github-app-id <ID>
              Instead of a token: id of a GitHub App that may register runners
          --github-app-private-key <PEM>
              Private key of the GitHub App, in PEM; prefer the variable
          --jobs-token <TOKEN>
              Token that may read workflow runs, for rescue [default: the token that registers runners]
          --github-url <URL>
              Address of GitHub; set it for an Enterprise Server [default: GITHUB_SERVER_URL, or
              https://github.com]
          --runner-scope <SCOPE>
              Level at which runners register: the repository or its organisation [default: repository]
              [possible values: repository, organisation]
          --repository <OWNER/NAME>
              Repository that runners serve [default: GITHUB_REPOSITORY, or the pool; for init the
              remote origin]
          --runner-group <NAME>
              Runner group that an organisation's runners join; empty for the default group
          --actions-runner-version <VERSION>
              Version of actions/runner: a number, or latest for GitHub's newest; with latest, a runner
              on the image is used unless it is older [default: latest]
          --actions-runner-api-url <URL>
              GitHub API that lists the releases of actions/runner [default: https://api.github.com]
          --runner-user <USER>
              User that jobs run as; the agent creates it if it does not exist [default: runner on aws,
              else the agent's own user]
          --runner-groups <GROUP ...>
              Supplementary groups of the user that jobs run as; docker makes jobs root on their machine
              [default: none]
          --keep-docker-cache <TRUE|FALSE>
              Keep the Docker images, tags and build cache of a run for later runs; a run can then leave
              a false image to another [default: false] [possible values: true, false]
          --min-free-disk-percent <PERCENT>
              Free space and inodes that a machine must have after a run to be used again; 0 for any
              [default: 10]
          --clean-ignore <PATH ...>
              Files and folders that may change during a run, beside those that each system changes by
              itself [default: none]

    Notices:
          --notice-webhook <URL>     Address that is told what refresh finds, as Slack's incoming
                                     webhooks take it; prefer the variable, because other users can see
                                     a command line
          --notice-repeat-min <MIN>  How long after a notice the same finding is told again, if it lasts
                                     [default: 1440]

    AWS backend:
          --ami <AMI>
              Image that machines boot: its id, or resolve:ssm:PARAMETER to look the id up at every
              launch
          --subnet-ids <SUBNET ...>
              Subnets to launch machines in, no more than one in each availability zone; a launch tries
              four of them, and different launches try different ones
          --security-group-ids <GROUP ...>
              Security groups of the machines
          --iam-instance-profile <PROFILE>
              Instance profile of the machines, by name or ARN; it must allow them to use the table and
              to terminate themselves
          --agent-url <URL>
              Where x86-64 machines download the agent: https://, or s3:// if the image has the AWS CLI;
              empty if the agent is on the image
          --agent-sha256 <HEX>
              SHA-256 digest that the x86-64 agent must have
          --agent-url-arm64 <URL>
              Where arm64 machines download the agent, as agent-url
          --agent-sha256-arm64 <HEX>
              SHA-256 digest that the arm64 agent must have
          --on-demand-price-protection-percent <PERCENT>
              How far the price of an on-demand machine may exceed that of the cheapest C, M or R type
              that fits; 999999 for no limit. For spot machines EC2 sets a limit of its own [default:
              100]
          --instance-generations <CURRENT|ANY>
              Generations of instance types to accept: current, or any for previous ones too [default:
              current] [possible values: current, any]
          --volume-size-gb <GB>
              Size of each machine's root volume; empty for the size of the image
          --key-name <NAME>
              EC2 key pair for ssh to the machines; empty for none
          --metadata-firewall <ON|OFF>
              Keep jobs from the instance metadata service, and so from the role of their machine; needs
              nftables and cgroup v2 on the image [default: on] [possible values: on, off]
          --machine-logs <DESTINATION>
              Where machines copy the log of their agent, so that it outlives them: off, or
              cloudwatch:GROUP for a log group of CloudWatch Logs that exists [default: off]
          --connect <OFF|SSM>
              How ondeck connect reaches machines: off, or ssm for Session Manager, if the image has its
              agent [default: off] [possible values: off, ssm]
          --http-proxy <URL>
              Proxy for http requests of the machines: user data, agent, pre-runner script, runner and
              jobs
          --https-proxy <URL>
              Proxy for https requests of the machines, as http-proxy
          --no-proxy <HOST,...>
              Hosts that machines reach without a proxy, beside themselves and the metadata service
          --github-app-key-source <SOURCE>
              Where AWS keeps the private key of the GitHub App: ssm:NAME of a parameter, or
              secretsmanager:ARN of a secret
          --github-token-source <SOURCE>
              Where AWS keeps the token that may register runners, as for github-app-key-source
          --notice-webhook-source <SOURCE>
              Where AWS keeps the address for notices, as for github-app-key-source

    Local backend:
          --local-capacity <COUNT>
              Most machines that may be alive at the same time; empty for no limit
          --local-boot-ms <MS>
              How long every machine takes to boot, in milliseconds [default: 0]
          --local-registration-ms <MS>
              How long a runner takes to register, in milliseconds: a number, or a range such as
              200-6000 [default: 0]
          --local-catalogue <JSON>
              Instance types, as JSON: [{"type":"c6i.large","cpu":2,"mem":4096,"bootMs":0,"capacity":3}]
              [default: some families and sizes of EC2]
          --local-launch-failure <TEXT>
              Fail every launch with this text; empty to launch again
          --local-duplicate-tickets <true|false>
              Deliver every ticket twice, as SQS may do [default: false]

    Times:
          --heartbeat-period-sec <SEC>
              How often an agent writes a heartbeat, half as often while its machine is idle; after
              three missed ones (at least 3 s) the machine counts as unhealthy [default: 5]
          --claim-registration-timeout-sec <SEC>
              How long a claimed machine may take to register its runner [default: 60]
          --claim-timeout-sec <SEC>
              How long a machine may stay claimed [default: 300]
          --created-timeout-sec <SEC>
              How long a machine may stay created [default: 600]
          --validation-timeout-sec <SEC>
              How long new machines may take to become ready [default: 180]
          --idle-time-sec <SEC>
              How long an idle machine stays in the pool; 0 keeps none [default: 300]
          --max-runtime-min <MIN>
              How long a run may keep its machines [default: 30]
          --release-timeout-sec <SEC>
              How long release waits for a machine to deregister and clean up [default: 120]
          --self-termination-grace-sec <SEC>
              How long past its threshold a machine terminates itself, and refresh terminates an orphan
              [default: 60]
          --boot-deadline-sec <SEC>
              How long a machine waits for its record before it terminates itself [default: 180]
          --registration-token-refresh-min <MIN>
              Age at which refresh renews the registration token; unused by the local forge [default:
              30]
          --registration-token-patience-sec <SEC>
              How long provision waits for refresh to renew an expired registration token [default: 60]
          --agent-poll-waiting-sec <SEC>
              How often an idle agent checks for a run if it cannot be woken [default: 0.25]
          --agent-poll-running-sec <SEC>
              How often a working agent checks for its release if it cannot be woken [default: 1]
          --signal-poll-sec <SEC>
              How often the control plane reads signals while it waits for them [default: 0.05]
          --ticket-hold-sec <SEC>
              How long a received ticket stays hidden from other runs [default: 30]
          --pickup-patience-sec <SEC>
              How long pickup retries an empty pool while other runs hold its tickets [default: 1]
          --ceiling-patience-sec <SEC>
              How long provision waits for room below max-machines before it fails [default: 0]
          --retention-min <MIN>
              How long records of terminated machines are kept [default: 1440]

    (options of every command)

    Refresh stores its settings for all runs and agents. A setting that is not given
    stays as it is; an empty value (--idle-time-sec=) or --reset idle-time-sec restores
    its default. --reset all restores the default of every setting that is not given.

    Examples:
      ondeck refresh
      ondeck refresh --min-idle 'large=2 xlarge=1' --idle-time-sec 900
      ondeck refresh --resource-class-config '{"small":{"cpu":1,"mem":2048}}'
      ondeck refresh --backend aws --pool acme/web --ami ami-0123456789abcdef0 \
          --subnet-ids 'subnet-1 subnet-2' --iam-instance-profile ondeck-machine
    "#);
}

#[test]
fn the_help_of_provision() {
    assert_snapshot!(help("provision"), @"
    Give a run its machines: idle ones from the pool, then new ones

    Usage: ondeck provision [OPTIONS]

    Options:
          --run-id <ID>
              Workflow run; also the label of its machines [default: GITHUB_RUN_ID]
          --instance-count <COUNT>
              Number of machines [default: 1]
          --resource-class <CLASS>
              Resource class, as configured by refresh [default: large]
          --usage-class <CLASS>
              Purchase option: spot or on-demand [default: on-demand]
          --allowed-instance-types <PATTERNS>
              Instance types to accept, as patterns in which * matches any text [default: all that the
              compute backend recommends; on aws c* m* r*]
          --capacity-fallback
              Retry when capacity is short, and buy on-demand machines if spot is exhausted
          --label-suffix <SUFFIX>
              Gives the machines the label RUN-SUFFIX, so that a run can have several kinds of machines
              [default: the label is the run id]
          --machine-source <SOURCE>
              Where machines come from: the pool and then new ones, only the pool, or only new ones
              [default: any] [possible values: any, pool, new]
          --reuse <WHEN>
              Whether a machine may serve more than one run: always or never; provision can only be
              stricter [default: always]
          --metrics-file <FILE>
              File to write the metrics of this call to, in the text format of Prometheus; for the
              textfile collector of node_exporter its name ends in .prom
      -h, --help
              Print help

    Times (for this call; otherwise as refresh stored them):
          --claim-registration-timeout-sec <SEC>
              How long a claimed machine may take to register its runner [default: 60]
          --claim-timeout-sec <SEC>
              How long a machine may stay claimed [default: 300]
          --created-timeout-sec <SEC>
              How long a machine may stay created [default: 600]
          --validation-timeout-sec <SEC>
              How long new machines may take to become ready [default: 180]
          --idle-time-sec <SEC>
              How long an idle machine stays in the pool; 0 keeps none [default: 300]
          --max-runtime-min <MIN>
              How long a run may keep its machines [default: 30]
          --release-timeout-sec <SEC>
              How long release waits for a machine to deregister and clean up [default: 120]
          --registration-token-patience-sec <SEC>
              How long provision waits for refresh to renew an expired registration token [default: 60]
          --ceiling-patience-sec <SEC>
              How long provision waits for room below max-machines before it fails [default: 0]

    (options of every command)

    Examples:
      ondeck provision --run-id 42
      ondeck provision --run-id 42 --instance-count 4 --resource-class xlarge
      ondeck provision --usage-class spot --capacity-fallback --allowed-instance-types 'c7i.* m7i.*'
    ");
}

#[test]
fn the_help_of_release() {
    assert_snapshot!(help("release"), @"
    Return a run's machines to the pool

    Usage: ondeck release [OPTIONS]

    Options:
          --run-id <ID>          Workflow run; also the label of its machines [default: GITHUB_RUN_ID]
          --run-failed           The run has failed: keep its machines for debug-on-failure-min, if that
                                 is set
          --metrics-file <FILE>  File to write the metrics of this call to, in the text format of
                                 Prometheus; for the textfile collector of node_exporter its name ends
                                 in .prom
      -h, --help                 Print help

    Times (for this call; otherwise as refresh stored them):
          --idle-time-sec <SEC>        How long an idle machine stays in the pool; 0 keeps none
                                       [default: 300]
          --release-timeout-sec <SEC>  How long release waits for a machine to deregister and clean up
                                       [default: 120]

    (options of every command)

    Examples:
      ondeck release --run-id 42
      ondeck release --run-id 42 --idle-time-sec 0
    ");
}

#[test]
fn the_help_of_the_other_commands() {
    assert_snapshot!(help("watch"), @"
    Watch the pool in the terminal: filter machines, look at one, copy its id

    Usage: ondeck watch [OPTIONS]

    Options:
          --all                 All machines: for status and watch also terminated ones, otherwise every
                                one of the pool
          --interval-sec <SEC>  Pause between two readings of the pool; a reading is one batch of calls
                                [default: 2]
      -h, --help                Print help

    (options of every command)

    Keys: arrows or j and k select, enter shows a machine, / filters by text, s by state, c by
    class, m shows marked machines only, y copies the id (OSC 52), ? lists the keys, q quits.
    It needs a terminal; ondeck status --watch does not.

    Examples:
      ondeck watch
      ondeck watch --all --interval-sec 10
      ondeck watch --backend aws --pool acme/web
    ");
    assert_snapshot!(help("dashboard"), @"
    Show the pool in the browser: a page on this computer, live

    Usage: ondeck dashboard [OPTIONS]

    Options:
          --interval-sec <SEC>       Pause between two readings of the pool; a reading is one batch of
                                     calls [default: 2]
          --listen <ADDRESS:PORT>    Where the page is served; any address but one of this computer
                                     itself needs a token [default: 127.0.0.1:6633]
          --dashboard-token <TOKEN>  Token without which the page is not shown; give it as a variable,
                                     because other users of this computer see command lines [default:
                                     made at random if --listen needs one]
      -h, --help                     Print help

    (options of every command)

    Prints the address of the page and serves it until it is interrupted. It reads the pool
    only while a page is open, and changes nothing. On an address that other computers reach,
    the page needs a token: ONDECK_DASHBOARD_TOKEN, otherwise one that is made and printed.
    The connection is not encrypted; from elsewhere, rather use ssh -L 6633:127.0.0.1:6633.

    Examples:
      ondeck dashboard
      ondeck dashboard --listen 127.0.0.1:8080 --interval-sec 10
      ondeck dashboard --backend aws --pool acme/web
      ondeck dashboard --listen 192.0.2.7:6633
    ");
    assert_snapshot!(help("run"), @r#"
    Queue a job for a run on the local forge, show its output, exit with its code

    Usage: ondeck run [OPTIONS] -- <CMD>...

    Arguments:
      <CMD>...  Command of the job and its arguments

    Options:
          --run-id <ID>              Workflow run; also the label of its machines [default:
                                     GITHUB_RUN_ID]
          --queue-timeout-sec <SEC>  How long the job may wait for a machine of its run before it is
                                     withdrawn [default: 300]
      -h, --help                     Print help

    (options of every command)

    Examples:
      ondeck run --run-id 42 -- make test
      ondeck run --run-id 42 --queue-timeout-sec 60 -- sh -c 'echo "$HOSTNAME"'
    "#);
    assert_snapshot!(help("status"), @"
    Show what the pool has and what is wrong, then each machine

    Usage: ondeck status [OPTIONS]

    Options:
          --all    All machines: for status and watch also terminated ones, otherwise every one of the
                   pool
          --watch  Redraw in place every second, until interrupted; without a terminal, print one after
                   the other
      -h, --help   Print help

    (options of every command)

    A terminal gets as many columns as fit; a pipe or a file gets the same table always.
    A machine may be marked: silent (no heartbeat for three of its agent's periods), failed
    (its agent says so), overdue (past its threshold), retiring (it does not return to the
    pool), preserved (kept for people after a failed run).

    Examples:
      ondeck status
      ondeck status --watch
      ondeck status --all --json
      ondeck status --backend aws --pool acme/web
    ");
    assert_snapshot!(help("cost"), @"
    Show what machines, runs, classes and days cost, and what the pool saved

    Usage: ondeck cost [OPTIONS]

    Options:
          --since <TIME>   Beginning of the account, or of the runs of --from-github: a span such as 7d
                           or 12h, a date (midnight in UTC), or a time in RFC 3339 [default: 7d]
          --prices <FILE>  File with prices, in place of the table of the program
          --print-prices   Print the price table of the program, to begin a file for --prices with, and
                           nothing else
          --plot <DIR>     Directory in which to write a plot, of the days or of what waiting costs, for
                           light and for dark pages: cost-light.svg or simulate-light.svg, and -dark.svg
      -h, --help           Print help

    (options of every command)

    Amounts are list prices, in US dollars. An amount with ~ contains time that events do not
    tell: those of a process that was killed may be missing. A machine whose type has no price
    is listed as such and not counted. Savings may be negative. Events are kept for 30 days;
    with the local backend, for retention-min.

    Examples:
      ondeck cost
      ondeck cost --since 24h --json
      ondeck cost --since 2026-11-01 --plot docs/images --backend aws --pool acme/web
      ondeck cost --print-prices > prices.json
      ondeck cost --prices prices.json
    ");
    assert_snapshot!(help("explain"), @"
    Tell what happened to a run or a machine, and why

    Usage: ondeck explain [OPTIONS] <SUBJECT>

    Arguments:
      <SUBJECT>  Id of a run, a label of it, or id of a machine

    Options:
      -h, --help  Print help

    (options of every command)

    SUBJECT is the id of a run, a label (run id and suffix) or the id of a machine. What the
    records do not tell is said to be unknown: events of a process that was killed may be
    missing. Exits with code 2 if the pool knows nothing about SUBJECT.

    Examples:
      ondeck explain 42
      ondeck explain 42-large --json
      ondeck explain i-0123456789abcdef0 --backend aws --pool acme/web
    ");
    assert_snapshot!(help("connect"), @"
    Open a shell on a machine through AWS Session Manager

    Usage: ondeck connect [OPTIONS] <MACHINE>

    Arguments:
      <MACHINE>  Id of the machine, as ondeck status shows it

    Options:
      -h, --help  Print help

    (options of every command)

    Runs aws ssm start-session in its own place, so the AWS CLI and its session plugin must
    be installed, and the exit code is that of the session. The pool must have been refreshed
    with --connect ssm before the machine was launched.

    Examples:
      ondeck connect i-0123456789abcdef0 --backend aws --pool acme/web
    ");
    assert_snapshot!(help("permissions"), @"
    Check on AWS what the role of the current credentials may do

    Usage: ondeck permissions [OPTIONS] <TASK>

    Arguments:
      <TASK>  What to do with the permissions [possible values: check]

    Options:
          --role <ROLE>        Role whose permissions to check; the credentials must be the role's
                               [possible values: refresh, provision, release, operator, steward,
                               machine]
          --other-pool <NAME>  Another pool of the account, which the role must not reach; without it,
                               the requests name a pool that does not exist
          --instance-id <ID>   Id of this machine [default: on EC2, as the instance metadata says]
      -h, --help               Print help

    (options of every command)

    Sends requests that the role must be denied, and some that it must be allowed. None
    of them changes anything, even if it is allowed: EC2 gets dry runs, and requests to
    DynamoDB and SQS name items and queues that do not exist. Requests without such a
    form are skipped. Exits with code 9 if AWS decides otherwise than it should.

    Examples:
      ondeck permissions check --backend aws --pool acme/web --role release
      AWS_PROFILE=provision ondeck permissions check --backend aws --role provision --json
    ");
    assert_snapshot!(help("teardown"), @"
    Terminate a pool's machines, and delete what ondeck created for it

    Usage: ondeck teardown [OPTIONS]

    Options:
          --dry-run         Show what would change or be deleted, and change nothing
          --wait-min <MIN>  How long to wait for runs that own machines; teardown closes the pool for
                            that time [default: 0]
          --force           Terminate also machines that runs own
          --yes             Ask nothing: change the machines, delete the pool, or overwrite files that
                            differ
          --cancel          Open a pool again that an unfinished teardown has closed
      -h, --help            Print help

    GitHub:
          --github-token <TOKEN>          Token that may register runners; prefer the variable, because
                                          other users can see a command line
          --github-app-id <ID>            Instead of a token: id of a GitHub App that may register
                                          runners
          --github-app-private-key <PEM>  Private key of the GitHub App, in PEM; prefer the variable
          --github-url <URL>              Address of GitHub; set it for an Enterprise Server [default:
                                          GITHUB_SERVER_URL, or https://github.com]
          --runner-scope <SCOPE>          Level at which runners register: the repository or its
                                          organisation [default: repository] [possible values:
                                          repository, organisation]
          --repository <OWNER/NAME>       Repository that runners serve [default: GITHUB_REPOSITORY, or
                                          the pool; for init the remote origin]

    (options of every command)

    Refuses while runs own machines (exit code 12), unless it may wait for them or terminate
    them. From then on the pool is closed: provision fails with exit code 3, and refresh only
    cleans up. A teardown that was interrupted is finished by the next one. Stop the schedule
    of refresh first, since a refresh after it creates the pool again.

    Examples:
      ondeck teardown --dry-run
      ondeck teardown --backend aws --pool acme/web --wait-min 30
      ondeck teardown --backend aws --pool acme/web --force --yes --json
      ondeck teardown --cancel
    ");
    assert_snapshot!(help("demo"), @"
    Watch a pool work: real processes, a temporary home, under a minute

    Usage: ondeck demo [OPTIONS]

    Options:
          --dashboard  Show the pool in the browser too; needs a build with the feature dashboard
          --keep       Keep the temporary home with its store and logs, and print its path
      -h, --help       Print help

    (options of every command)

    Examples:
      ondeck demo
      ondeck demo --dashboard
      ondeck demo --keep
    ");
    assert_snapshot!(help("agent"), @"
    Run the agent of a machine; started by the machine itself

    Usage: ondeck agent [OPTIONS]

    Options:
          --instance-id <ID>            Id of this machine [default: on EC2, as the instance metadata
                                        says]
          --own-machine <TRUE|FALSE>    Whether this computer belongs to the pool alone; the agent then
                                        removes everything that a run leaves on it, also files of other
                                        users and Docker images [default: false] [possible values: true,
                                        false]
          --shutdown-command <COMMAND>  Command that shuts this machine down if EC2 cannot be asked to
                                        terminate it [default: shutdown -h now]
      -h, --help                        Print help

    AWS backend (for this call; otherwise as refresh stored them):
          --metadata-firewall <ON|OFF>  Keep jobs from the instance metadata service, and so from the
                                        role of their machine; needs nftables and cgroup v2 on the image
                                        [default: on] [possible values: on, off]
          --machine-logs <DESTINATION>  Where machines copy the log of their agent, so that it outlives
                                        them: off, or cloudwatch:GROUP for a log group of CloudWatch
                                        Logs that exists [default: off]
          --connect <OFF|SSM>           How ondeck connect reaches machines: off, or ssm for Session
                                        Manager, if the image has its agent [default: off] [possible
                                        values: off, ssm]

    (options of every command)

    Examples:
      ondeck agent --backend aws
      ondeck agent --instance-id local-7 --home /srv/ondeck
    ");
    assert_snapshot!(help("completions"), @"
    Print a script that completes commands and options in a shell

    Usage: ondeck completions [OPTIONS] <SHELL>

    Arguments:
      <SHELL>  Shell to complete for [possible values: bash, elvish, fish, powershell, zsh]

    Options:
      -h, --help  Print help

    (options of every command)

    Examples:
      ondeck completions bash > ~/.local/share/bash-completion/completions/ondeck
      ondeck completions fish > ~/.config/fish/completions/ondeck.fish
    ");
    assert_snapshot!(help("man"), @"
    Write the manual pages, one for each command

    Usage: ondeck man [OPTIONS] <DIR>

    Arguments:
      <DIR>  Existing directory for the pages

    Options:
      -h, --help  Print help

    (options of every command)

    Examples:
      ondeck man ~/.local/share/man/man1
    ");
}
