//! Windows that end no machine and no run: what a story tells of them, and that it tells nothing else.

use std::ops::Range;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{assert_tells, told};
use crate::harness::{Answer, Background, Driven, Home, Receiver, signal, until};

/// Whether run 2 has claimed a machine a while ago.
const CLAIMED_FOR_LONG: &str = "SELECT count(*) FROM events WHERE transition = 'claim'
    AND run = '2' AND at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-4 seconds')";

/// Asserts that the stories of a run and of its machine tell that the agent saw the claim so many seconds
/// late. They do as soon as the agent has sent a heartbeat after it.
#[track_caller]
pub(crate) fn assert_saw_late(pool: &impl Driven, machine: &str, run: &str, seconds: Range<f64>) {
    let delay = |subject: &str| told_delay(&told(pool, subject), machine, run);
    until("its story tells it", || delay(run).is_some());
    let after = delay(run).unwrap();
    assert!(seconds.contains(&after), "{after}");
    assert_eq!(delay(machine), Some(after));
    let saw = format!("saw the claim of run {run}");
    assert_tells(&told(pool, run), &["The run claimed", &saw, "passed the checks"]);
}

/// The delay in seconds that a story tells of an agent.
fn told_delay(story: &str, machine: &str, run: &str) -> Option<f64> {
    let saw = format!("The agent of {machine} saw the claim of run {run} ");
    let (_, rest) = story.split_once(&saw)?;
    let (span, rest) = rest.split_once(" after it was made, by its own clock. ").unwrap();
    assert!(rest.starts_with("It was not woken, and looked later, or"), "{story}");
    Some(span.strip_suffix('s').unwrap().trim().parse().unwrap())
}

/// Local agents are not woken but look several times a second. One that is stopped meanwhile is as late.
#[test]
fn an_agent_that_saw_its_claim_late() {
    let patient = ["--claim-registration-timeout-sec=60", "--claim-timeout-sec=120"];
    let home = Home::with(&[&["--heartbeat-period-sec=4"], &patient[..]].concat());
    let [machine] = &home.warm_up(1)[..] else { panic!("one machine") };
    let began = Instant::now();
    home.provision("1", 1).succeeded();
    let may_be_late = began.elapsed() >= Duration::from_secs(2);
    until("its registration is told", || {
        home.number("SELECT count(*) FROM heartbeats WHERE registration_ms IS NOT NULL") == 1
    });
    for story in [told(&home, "1"), told(&home, machine)] {
        assert!(may_be_late || told_delay(&story, machine, "1").is_none(), "{story}");
    }
    home.release("1").succeeded();

    let pid = home.agents()[machine];
    signal(pid, Signal::STOP);
    let provision = home.start(&["provision", "--run-id=2", "--machine-source=pool"]);
    until("it has been claimed for a while", || home.number(CLAIMED_FOR_LONG) > 0);
    signal(pid, Signal::CONT);
    provision.finish().succeeded();
    assert_saw_late(&home, machine, "2", 4.0..60.0);
}

#[test]
fn between_receive_and_put_back_of_pool() {
    let home = Home::with(&LOOKED_AT);
    let [machine] = &home.warm_up(1)[..] else { panic!("one machine") };
    kill_a_look_at_the_pool(&home, machine);
}

/// A pool whose runs wait for tickets that are hidden.
pub(crate) const LOOKED_AT: [&str; 2] = ["--ticket-hold-sec=5", "--pickup-patience-sec=20"];

/// Kills `ondeck pool list` with the ticket of the only idle machine, and asserts what is told of it and
/// of the next run.
pub(crate) fn kill_a_look_at_the_pool(pool: &impl Driven, machine: &str) {
    pool.kill_before("put-back", &["pool", "list"]);
    assert_tells(
        &told(pool, machine),
        &["Run warm-up released it", "It is idle", "The pool announces it since"],
    );
    let next = pool.provision("2", 1).succeeded();
    assert_eq!(next.ids().concat(), machine, "the queue shows the ticket again");
    // That it was a command and no run which held the ticket is not known.
    let story = told(pool, "2");
    let waited = "for tickets that other calls held";
    assert_tells(&story, &[waited, "The run claimed", "handed to the run"]);
    assert!(!story.contains("lost to"), "{story}");
}

#[test]
fn between_a_notice_and_its_record() {
    let home = Home::with(&["--heartbeat-period-sec=0.2"]);
    let webhook = Receiver::start();
    let refresh = || {
        let mut command = home.command(&["refresh"]);
        Background::start(command.env("ONDECK_NOTICE_WEBHOOK", webhook.url("/x")))
    };
    let machine = home.provision("1", 1).succeeded().ids().concat();
    let silent = "Its agent may be dead";
    signal(home.agents()[&machine], Signal::KILL);
    until("the machine is silent", || told(&home, &machine).contains(silent));
    let before = told(&home, "1");
    webhook.answers(Answer::Silence);
    let killed = refresh();
    until("it tells", || webhook.count() == 1);
    killed.kill();
    // The story is that of the machine: that operators were told of it is no part of it.
    let during = told(&home, &machine);
    assert_tells(&during, &["handed to run 1", "It is running, of run 1", silent]);
    let events = |story: &str| story.lines().filter(|line| line.contains(&machine)).count();
    assert_eq!(events(&told(&home, "1")), events(&before));
    webhook.answers(Answer::Accepted);
    webhook.take();
    until("the next refresh tells it again", || {
        refresh().finish().succeeded();
        !webhook.take().is_empty()
    });
    assert_tells(&told(&home, &machine), &["handed to run 1", silent]);
}

#[test]
fn between_the_calls_of_a_set_up() {
    let home = Home::bare();
    home.kill_before("put-settings", &["refresh"]);
    let unknown = home.ondeck(&["explain", "1"]).exited(3);
    assert!(unknown.stderr.contains("not set up"), "{}", unknown.stderr);
    let run = home.start(&["provision", "--run-id=1", "--registration-token-patience-sec=60"]);
    run.until_it_says("waiting for the first refresh to set up the pool");
    home.refresh(&[]);
    run.finish().succeeded();
    let waited = " for the first refresh to set up the pool";
    assert_tells(&told(&home, "1"), &["The run asked for 1", waited, "handed to the run"]);

    // In a pool that exists, a set-up that was killed is not seen: its settings are not in force.
    let before = told(&home, "1");
    home.kill_before("put-settings", &["refresh", "--self-termination-grace-sec=999"]);
    let words = |story: &str| story.lines().filter(|line| !line.contains(" in ")).count();
    assert_eq!(words(&told(&home, "1")), words(&before));
    home.release("1").succeeded();
    let idle = home.provision("2", 1).succeeded();
    assert_eq!(idle.sources(), ["warm"]);
    let story = told(&home, "2");
    assert_tells(&story, &["The run asked for 1", "The run claimed", "handed to the run"]);
    assert!(!story.contains("set up"), "{story}");
}
