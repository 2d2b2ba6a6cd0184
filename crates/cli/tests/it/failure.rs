//! Provision when machines are not to be had, do not get ready, or are not what the pool says.

use std::process::{Command, Stdio};

use ondeck_standin::not_applicable;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Background, Driven, Home, begun_by, signal, until};

/// For a machine's script: true on the first machine that gets here, and on no other.
const FIRST: &str = r#"mkdir "$ONDECK_HOME_DIR/first" 2>/dev/null"#;

fn error(answer: &Value) -> [&str; 3] {
    ["kind", "message", "hint"].map(|part| answer["error"][part].as_str().unwrap())
}

#[test]
fn a_release_reports_every_machine_also_one_that_cannot_be_reached() {
    let home = Home::with(&[]);
    let ids = home.provision("1", 3).succeeded().ids();
    let refuse = format!(
        "CREATE TRIGGER refuse BEFORE UPDATE ON instances WHEN OLD.id = '{}'
         BEGIN SELECT RAISE(ABORT, 'the disk is broken'); END",
        ids[1]
    );
    home.file().execute_batch(&refuse).unwrap();
    let done = home.release("1").exited(6);
    let answer = done.json();
    let outcomes: Vec<(&str, &str)> = answer["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["instanceId"].as_str().unwrap(), one["outcome"].as_str().unwrap()))
        .collect();
    let mut expected = [(&*ids[0], "pooled"), (&*ids[1], "not-reached"), (&*ids[2], "pooled")];
    expected.sort_unstable();
    let mut found = outcomes.clone();
    found.sort_unstable();
    assert_eq!(found, expected, "{answer}");
    let lost =
        answer["instances"].as_array().unwrap().iter().find(|one| one["instanceId"] == ids[1]);
    assert!(lost.unwrap()["reason"].as_str().unwrap().contains("the disk is broken"), "{answer}");
    let [kind, message, hint] = error(&answer);
    assert_eq!(kind, "unavailable");
    assert!(
        message.starts_with(&format!("machines could not be reached: {}: ", ids[1])),
        "{message}"
    );
    assert!(hint.starts_with("retry the release"), "{hint}");
    assert_eq!(home.standings(), ["idle", "idle", "running 1"]);
    assert_eq!(home.tickets(), 2);

    let text = home.ondeck(&["release", "--run-id", "1"]).exited(6);
    assert!(text.stdout.contains("not-reached"), "{}", text.stdout);
    home.file().execute_batch("DROP TRIGGER refuse").unwrap();
    let rest = home.release("1").succeeded();
    assert_eq!(rest.ids(), [ids[1].clone()]);
    assert_eq!(home.standings(), ["idle"; 3]);
}

#[test]
fn no_capacity_at_all() {
    let home = Home::with(&["--local-launch-failure=MaxSpotInstanceCountExceeded"]);
    let answer = home.provision("1", 2).exited(4).json();
    assert_eq!(answer["status"], "failed");
    assert_eq!(answer["instances"], json!([]));
    let message = "not enough capacity, 0 of 2 machines launched: MaxSpotInstanceCountExceeded";
    let hint = "allow more instance types, or use --capacity-fallback";
    assert_eq!(error(&answer), ["no-capacity", message, hint]);
    home.assert_empty();

    home.refresh(&["--local-launch-failure="]);
    home.provision("1", 2).succeeded();
}

#[test]
fn partial_capacity_gives_the_warm_ones_back_and_ends_the_new_ones() {
    let home = Home::with(&["--local-capacity=3"]);
    let mut warm = home.warm_up(2);
    warm.sort();
    let answer = home.provision("1", 5).exited(4).json();
    let [kind, message, _] = error(&answer);
    assert_eq!(kind, "no-capacity");
    assert_eq!(
        message,
        "not enough capacity, 1 of 3 machines launched: InsufficientInstanceCapacity: \
         1 of 3 launched, the home's capacity is 3"
    );
    assert_eq!(home.standings(), ["idle", "idle"]);
    assert_eq!(home.tickets(), 2);
    assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), warm);
    // They had registered for the run, and have taken that back.
    for instance in home.status()["instances"].as_array().unwrap() {
        assert_eq!(instance["signal"], "UD_REMOVE_REG_OK");
    }
    // The machine that was terminated may have registered. Its runner is then offline, and refresh
    // removes it.
    home.refresh(&[]);
    assert_eq!(home.number("SELECT count(*) FROM runners"), 0);

    let next = home.provision("2", 2).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned(); 2], warm));
}

#[test]
fn a_spot_run_falls_back_to_what_is_to_be_had_if_it_may() {
    let catalogue = r#"[{"type":"c6i.large","cpu":2,"mem":4096,"spot":false}]"#;
    let home = Home::with(&["--local-catalogue", catalogue]);
    let spot = ["provision", "--json", "--run-id", "1", "--usage-class", "spot"];
    home.ondeck(&spot).exited(4);
    home.assert_empty();
    let answer = home.ondeck(&[&spot[..], &["--capacity-fallback"]].concat()).succeeded().json();
    assert_eq!(answer["instances"][0]["usageClass"], "on-demand");
}

#[test]
fn one_of_five_that_never_gets_ready_ends_all_five() {
    let script = format!("{FIRST} && sleep 1000 || true");
    let home = Home::with(&["--pre-runner-script", &script, "--validation-timeout-sec=3"]);
    let answer = home.provision("1", 5).exited(5).json();
    let [kind, message, hint] = error(&answer);
    assert_eq!(kind, "not-ready");
    assert!(message.contains("did not become ready: not ready within 3 s"), "{message}");
    assert!(hint.contains("read the machine's log and check the pre-runner script"), "{hint}");
    home.assert_empty();
    assert_eq!(home.number("SELECT count(*) FROM machines WHERE ended_at <> ''"), 5);

    home.refresh(&["--validation-timeout-sec=30"]);
    assert_eq!(home.provision("1", 5).succeeded().sources(), ["cold"; 5]);
}

#[test]
fn a_script_that_fails_is_told_at_once_in_its_own_words() {
    let script = "echo 'mount: disk is full' >&2; exit 3";
    let home = Home::with(&["--pre-runner-script", script, "--validation-timeout-sec=45"]);
    let done = home.provision("1", 2).exited(5);
    let answer = done.json();
    let [kind, message, _] = error(&answer);
    assert_eq!(kind, "not-ready");
    assert!(message.contains("the pre-runner script failed"), "{message}");
    assert!(message.contains("exit status: 3: mount: disk is full"), "{message}");
    assert!(answer["timings"]["totalMs"].as_u64().unwrap() < 30_000, "{answer}");
    home.assert_empty();
}

#[test]
fn a_machine_that_dies_before_it_registers_is_noticed_by_its_pulse() {
    let script = format!("{FIRST} && kill -9 $PPID || true");
    let home = Home::with(&["--pre-runner-script", &script, "--validation-timeout-sec=45"]);
    let answer = home.provision("1", 2).exited(5).json();
    let [_, message, _] = error(&answer);
    assert!(message.contains("its heartbeat stopped"), "{message}");
    home.assert_empty();
}

#[test]
fn warm_ones_go_back_to_the_pool_when_new_ones_do_not_get_ready() {
    let home = Home::with(&[]);
    let warm = home.warm_up(1);
    home.refresh(&["--pre-runner-script=exit 1"]);
    home.provision("1", 2).exited(5);
    assert_eq!(home.standings(), ["idle"]);
    let next = home.provision("2", 1).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], warm));
}

#[test]
fn a_claim_notices_a_machine_without_pulse_ends_it_and_goes_on() {
    let home = Home::with(&["--heartbeat-period-sec=1"]);
    let warm = home.warm_up(2);
    signal(home.agents()[&warm[0]], Signal::STOP);
    until("its pulse is stale", || {
        let status = home.status();
        let mut instances = status["instances"].as_array().unwrap().iter();
        let stopped = instances.find(|instance| instance["instanceId"] == warm[0]).unwrap();
        stopped["heartbeatAgeMs"].as_u64().unwrap() > 3_000
    });
    let done = home.provision("1", 1).succeeded();
    assert_eq!((done.sources(), done.ids()), (vec!["warm".to_owned()], vec![warm[1].clone()]));
    let why = "discarded: its heartbeat stopped, or the clocks differ: its last heartbeat is";
    assert!(done.stderr.contains(why), "{}", done.stderr);
    assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), done.ids());
    assert_eq!(home.standings(), ["running 1"]);
}

#[test]
fn a_claim_gives_back_a_machine_that_does_not_register_and_goes_on() {
    let home = Home::with(&["--claim-registration-timeout-sec=3", "--heartbeat-period-sec=20"]);
    let warm = home.warm_up(2);
    signal(home.agents()[&warm[0]], Signal::STOP);
    let done = home.provision("1", 1).succeeded();
    assert_eq!((done.sources(), done.ids()), (vec!["warm".to_owned()], vec![warm[1].clone()]));
    assert_eq!(done.json()["search"]["givenBack"], 1, "{}", done.stderr);
    assert_eq!(home.standings(), ["idle", "running 1"]);
    assert_eq!(home.tickets(), 0, "its agent has not said that it left");
    signal(home.agents()[&warm[0]], Signal::CONT);
    until("its agent has left the run", || {
        home.refresh(&[]);
        home.tickets() == 1
    });
    assert_eq!(home.provision("2", 1).succeeded().ids(), [warm[0].clone()]);
}

#[test]
fn a_machine_that_does_not_answer_the_release_is_expired_and_said_so() {
    let home = Home::with(&["--release-timeout-sec=2", "--self-termination-grace-sec=60"]);
    let ids = home.provision("1", 1).succeeded().ids();
    home.agents().into_values().for_each(|pid| signal(pid, Signal::STOP));
    let answer = home.release("1").exited(8).json();
    assert_eq!(answer["status"], "failed");
    assert_eq!(answer["instances"][0]["outcome"], "expired");
    let [kind, message, hint] = error(&answer);
    assert_eq!(kind, "partly-released");
    assert_eq!(
        message,
        format!("machines did not return to the pool and were expired: {}", ids[0])
    );
    assert_eq!(hint, "they terminate on their own, or run ondeck refresh to terminate them now");
    assert_eq!(home.tickets(), 0);
    assert_eq!(home.refresh(&[])["reaped"], json!(ids));
    home.assert_empty();
}

#[test]
fn a_disk_that_takes_nothing_more_is_said_and_nothing_is_lost() {
    let home = Home::with(&[]);
    let warm = home.warm_up(1);
    let no_room = r#"trap "" XFSZ; ulimit -f 0; exec "$0" "$@""#;
    for mode in [["provision", "--run-id=2"], ["refresh", "--idle-time-sec=59"]] {
        let done = Background::start(&mut begun_by(no_room, &home.command(&mode))).finish();
        let done = done.exited(6);
        assert!(done.stderr.contains("disk I/O error"), "{}", done.stderr);
        assert!(
            done.stderr.contains("hint: retry; partial work expires on its own"),
            "{}",
            done.stderr
        );
    }
    assert_eq!(home.standings(), ["idle"]);
    let done = home.provision("2", 1).succeeded();
    assert_eq!((done.sources(), done.ids()), (vec!["warm".to_owned()], warm));
}

#[test]
fn without_proc_the_local_backend_is_refused() {
    let home = Home::with(&[]);
    let namespace = |more: &[&str], hide: &str| {
        let mut command = Command::new("unshare");
        command
            .args(more)
            .args(["--mount", "sh", "-c"])
            .arg(format!("{hide} && exec \"$0\" \"$@\""));
        command
    };
    // An empty folder, and the processes of another pid namespace.
    let ways = [
        (&[][..], "mount -t tmpfs none /proc"),
        (&["--user", "--map-root-user"], "mount -t tmpfs none /proc"),
        (&["--pid", "--fork"], "true"),
    ];
    for (more, hide) in ways {
        if !namespace(more, hide).arg("true").output().is_ok_and(|done| done.status.success()) {
            not_applicable(&format!("the right to mount: unshare {more:?}, then {hide}"));
            continue;
        }
        for arguments in [
            &["refresh"][..],
            &["provision", "--run-id", "1"],
            &["release", "--run-id", "1"],
            &["status"],
            &["run", "--run-id", "1", "--", "true"],
            &["agent", "--instance-id", "i-1"],
        ] {
            let program = home.command(arguments);
            let mut command = namespace(more, hide);
            command.arg(program.get_program()).args(arguments).env("ONDECK_HOME", home.dir());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let done = Background::start(&mut command).finish().exited(2);
            for part in ["the local backend needs /proc", "hint: mount it by: mount -t proc"] {
                assert!(done.stderr.contains(part), "{arguments:?}: {}", done.stderr);
            }
        }
    }
}

#[test]
fn the_store_that_cannot_be_opened_says_what_to_do() {
    let home = Home::with(&[]);
    // So few files that the program starts, and cannot open one more.
    let limited = |files: u32| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {files} && exec \"$0\" status"));
        command.arg(home.command(&[]).get_program()).env("ONDECK_HOME", home.dir());
        command.output().expect("sh starts")
    };
    let said = (6..40).map(limited).find_map(|done| {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        said.contains("cannot be used").then_some((done.status.code(), said))
    });
    let (code, said) = said.expect("one number of files is too small for the store");
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("Too many open files") && said.contains("ulimit -n"), "{said}");

    let other = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(other.path().join("ondeck.db")).expect("a folder in place of the file");
    let mut command = Command::new(home.command(&[]).get_program());
    let done = command.arg("refresh").env("ONDECK_HOME", other.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(6), "{said}");
    assert!(said.contains("it is a folder") && said.contains("move the folder away"), "{said}");
}
