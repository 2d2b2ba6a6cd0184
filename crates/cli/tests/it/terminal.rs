//! What a terminal shows, as snapshots with ids and durations replaced.

use insta::assert_snapshot;
use rustix::process::Signal;

use crate::harness::{Done, Driven, Home, signal};

/// The exit code and both streams.
fn seen(home: &Home, done: &Done) -> String {
    let dir = home.dir().display().to_string();
    let stream = |text: &str| {
        let text = text.replace(&dir, "HOME");
        text.lines().filter(|line| !is_progress(line)).map(masked).collect::<Vec<_>>()
    };
    let (stdout, stderr) = (stream(&done.stdout), stream(&done.stderr));
    [vec![format!("exit {}", done.code)], stdout, stderr].concat().join("\n")
}

/// Replaces ids and durations. Those of the summary may have any length. Ids keep their width, because tables are laid out by it.
fn masked(line: &str) -> String {
    if line.starts_with("refresh: within the last ") {
        return "refresh: within the last #".to_owned();
    }
    if line.starts_with("oldest idle: ") {
        return "oldest idle: # (i-#################)".to_owned();
    }
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    let mask = |(n, word): (usize, &&str)| match *word {
        id if id.starts_with("i-0") => "i-#################".to_owned(),
        _ if is_before_ms(&words[n..]) => "#".to_owned(),
        span if is_span(span) => span.replace(|c: char| c.is_ascii_digit(), "#"),
        word => word.to_owned(),
    };
    words.iter().enumerate().map(mask).collect::<Vec<_>>().join(" ")
}

fn is_before_ms(words: &[&str]) -> bool {
    matches!(words, [number, next, ..] if next.starts_with("ms") && number.parse::<u64>().is_ok())
}

/// Whether the word is like `4.2s`, `1m` or `59s`.
fn is_span(word: &str) -> bool {
    word.strip_suffix(['s', 'm', 'h']).is_some_and(|number| number.parse::<f64>().is_ok())
}

/// Progress lines appear only for slow stages, so they depend on the speed of the computer.
fn is_progress(line: &str) -> bool {
    let modes = ["provision: ", "release: ", "refresh: ", "run: "];
    modes.iter().any(|mode| line.starts_with(mode)) && line.ends_with(" s)")
}

#[test]
fn the_life_of_a_machine() {
    let home = Home::with(&[]);
    let see = |arguments: &[&str]| seen(&home, &home.ondeck(arguments));
    assert_snapshot!(see(&["status"]), @"
    exit 0
    no machines
    pool: empty
    warm: unknown, no event of the last 24 hours tells
    refresh: within the last #
    wrong: nothing
    ");
    assert_snapshot!(see(&["provision", "--run-id", "16203", "--instance-count", "2"]), @"
    exit 0
    instance             source  type       usage      ready after
    i-#################  cold    c6i.large  on-demand  # ms
    i-#################  cold    c6i.large  on-demand  # ms
    run 16203: 0 warm, 2 cold, 0 adopted after # ms; its jobs use runs-on: 16203
    ");
    assert_snapshot!(see(&["status"]), @"
    exit 0
    machines: 2 (2 running), all large
    pool: empty
    warm: 0 %, 0 of the last 2 machines that runs were given
    refresh: within the last #
    wrong: nothing

    instance             state    mark  run    threshold  heartbeat  class  type       usage      signal
    i-#################  running        16203  in #m ##s  #.#s ago   large  c6i.large  on-demand  UD_REG_OK
    i-#################  running        16203  in #m ##s  #.#s ago   large  c6i.large  on-demand  UD_REG_OK
    ");
    assert_snapshot!(see(&["release", "--run-id", "16203"]), @"
    exit 0
    instance             outcome  reason
    i-#################  pooled
    i-#################  pooled
    run 16203 released after # ms
    ");
    assert_snapshot!(see(&["release", "--run-id", "16203"]), @"
    exit 0
    run 16203 has no machines
    ");
    assert_snapshot!(see(&["status"]), @"
    exit 0
    machines: 2 (2 idle), all large
    pool: large 2
    warm: 0 %, 0 of the last 2 machines that runs were given
    oldest idle: # (i-#################)
    refresh: within the last #
    wrong: nothing

    instance             state  mark  run  threshold  heartbeat  class  type       usage      signal
    i-#################  idle         -    in ##s     #.#s ago   large  c6i.large  on-demand  UD_REMOVE_REG_OK
    i-#################  idle         -    in ##s     #.#s ago   large  c6i.large  on-demand  UD_REMOVE_REG_OK
    ");
    assert_snapshot!(see(&["refresh"]), @"
    exit 0
    set up
    ");
    assert_snapshot!(see(&["refresh", "--min-idle=large=3"]), @"
    exit 0
    set up
    1 machines launched to keep the pool warm
    2 idle machines kept for longer
    min-idle costs, in machine-hours a week: large 504
    ");
}

#[test]
fn a_refresh_that_cleans_up() {
    let home = Home::with(&["--self-termination-grace-sec=60", "--release-timeout-sec=0.5"]);
    home.provision("1", 1).succeeded();
    home.kill_before("activate", &["provision", "--run-id", "2"]);
    home.release("2").succeeded();
    home.agents().into_values().for_each(|pid| signal(pid, Signal::STOP));
    assert_snapshot!(seen(&home, &home.ondeck(&["release", "--run-id", "1"])), @"
    exit 8
    instance             outcome  reason
    i-#################  expired  no answer within 0.5 s: last signal UD_REG_OK for run 1
    run 1 released after # ms
    error: machines did not return to the pool and were expired: i-#################
    hint: they terminate on their own, or run ondeck refresh to terminate them now
    ");
    assert_snapshot!(seen(&home, &home.ondeck(&["refresh"])), @"
    exit 0
    set up
    2 expired machines terminated
    2 offline runners removed
    ");
    assert_snapshot!(seen(&home, &home.ondeck(&["status", "--all"])), @"
    exit 0
    no machines
    pool: empty
    warm: 0 %, 0 of the last 1 machine that runs were given
    refresh: within the last #
    wrong: nothing

    instance             state       mark  run  threshold  heartbeat  class  type       usage      signal
    i-#################  terminated        -    -          #.#s ago   large  c6i.large  on-demand  UD_REG_OK
    i-#################  terminated        -    -          #.#s ago   large  c6i.large  on-demand  UD_REG_OK
    ");
}

#[test]
fn errors_and_hints() {
    let home = Home::bare();
    let see = |arguments: &[&str]| seen(&home, &home.ondeck(arguments));
    assert_snapshot!(see(&["provision", "--run-id", "1"]), @"
    exit 3
    error: not set up: there is no store at HOME/ondeck.db
    hint: run ondeck refresh first
    ");
    home.refresh(&["--local-capacity=1"]);
    assert_snapshot!(see(&["provision", "--run-id", "1", "--instance-count", "2"]), @"
    exit 4
     WARN InsufficientInstanceCapacity: 1 of 2 launched, the home's capacity is 1
    error: not enough capacity, 1 of 2 machines launched: InsufficientInstanceCapacity: 1 of 2 launched, the home's capacity is 1
    hint: allow more instance types, or use --capacity-fallback
    ");
    assert_snapshot!(see(&["provision", "--run-id", "1", "--resource-class", "huge"]), @"
    exit 2
    error: resource class not configured: huge
    hint: configured classes are large, xlarge, 2xlarge, 4xlarge, 8xlarge, 12xlarge, 16xlarge
    ");
    assert_snapshot!(see(&["provision", "--run-id", "1", "--instance-count", "0"]), @"
    exit 2
    error: invalid value '0' for '--instance-count <COUNT>': 0 is not in 1..=1000

    For more information, try '--help'.
    ");
    assert_snapshot!(see(&["provision"]), @"
    exit 2
    error: no run id given
    hint: give --run-id, or set ONDECK_RUN_ID or GITHUB_RUN_ID
    ");
    assert_snapshot!(see(&["run", "--run-id", "1", "--queue-timeout-sec=0", "--", "true"]), @"
    exit 4
    error: no machine took the job in time, label: 1
    hint: ondeck provision --run-id 1 gives the run machines
    ");
    home.refresh(&["--pre-runner-script=echo no disk >&2; exit 3"]);
    assert_snapshot!(see(&["provision", "--run-id", "1"]), @"
    exit 5
    error: machine i-################# did not become ready: it signalled UD_FAILED: the pre-runner script failed: the script ended with exit status: 3: no disk
    hint: read the machine's log and check the pre-runner script
    ");
}
