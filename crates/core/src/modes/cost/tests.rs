use std::time::Duration;

use super::*;
use crate::model::departure::Departure;
use crate::model::money::Money;
use crate::model::record::Counts;
use crate::model::requirements::UsageClass;
use crate::model::reuse::Reuse;

const MINUTE: Duration = Duration::from_secs(60);

/// Minutes after 22:00 of a day: midnight is at 120.
fn at(minutes: u64) -> Timestamp {
    Timestamp::parse("2026-11-10T22:00:00Z").unwrap() + MINUTE * u32::try_from(minutes).unwrap()
}

fn minutes(count: u32) -> Duration {
    MINUTE * count
}

/// A dollar an hour for `one`, two for `two`, and hosted runners for a cent a minute.
fn prices() -> Prices {
    let text = r#"{"asOf": "2026-01-31", "source": "a test", "region": "here", "spotShare": 0.5,
        "onDemand": {"one.large": 1, "two.large": 2},
        "githubHosted": {"x64": {"2": 0.01}}}"#;
    Prices::from_json(text).unwrap()
}

fn dollars(amount: f64) -> Money {
    Money::from_dollars(amount).unwrap()
}

fn spec(class: &str, instance_type: &str) -> MachineSpec {
    MachineSpec {
        resource_class: class.parse().unwrap(),
        instance_type: instance_type.to_owned(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mem: 4096,
    }
}

fn row(
    id: &str,
    minute: u64,
    transition: &str,
    (from, to): (Option<State>, State),
    run: &str,
) -> EventRow {
    EventRow {
        instance: id.parse().unwrap(),
        at: at(minute),
        transition: transition.to_owned(),
        from,
        to,
        run: (!run.is_empty()).then(|| run.parse().unwrap()),
        why: String::new(),
    }
}

/// Boots for 10 minutes, serves run 1 for 30, is idle for 100, serves run 2 for 20 (one of them
/// claimed), is idle for 40: 200 minutes in all.
fn life(id: &str, of: &MachineSpec) -> Vec<EventRow> {
    use State::{Claimed, Created, Idle, Running, Terminated};
    let mut rows = vec![
        row(id, 0, "register", (None, Created), "1"),
        row(id, 10, "activate", (Some(Created), Running), "1"),
        row(id, 40, "release", (Some(Running), Idle), ""),
        row(id, 140, "claim", (Some(Idle), Claimed), "2"),
        row(id, 141, "commit", (Some(Claimed), Running), "2"),
        row(id, 160, "release", (Some(Running), Idle), ""),
        row(id, 200, "reap", (Some(Idle), Terminated), ""),
    ];
    rows[0].why = of.told();
    rows
}

fn record(id: &str, state: State, run: &str, changed: u64) -> Record {
    Record {
        requested: crate::model::machine_label::RequestedLabel::OfRun,
        id: id.parse().unwrap(),
        state,
        run: (!run.is_empty()).then(|| run.parse().unwrap()),
        suffix: None,
        threshold: None,
        spec: spec("large", "one.large"),
        counts: Counts::default(),
        reuse: Reuse::Always,
        departure: Departure::None,
        created_at: at(0),
        updated_at: at(changed),
        ticketed_at: None,
        settings_version: None,
    }
}

fn window(since: u64, until: u64) -> Window {
    let limits = StateLimits {
        created: minutes(15),
        claimed: minutes(5),
        running: minutes(60),
        idle: minutes(120),
    };
    Window { since: at(since), until: at(until), read_since: at(since).before(minutes(60)), limits }
}

fn of(events: &[EventRow], records: &[Record], since: u64, until: u64) -> Account {
    let account = account(events, records, &prices(), &window(since, until));
    assert_adds_up(&account);
    account
}

/// Machines, days and classes are the same time and money, counted in another way, and each machine's
/// uses are the time between its first and its last moment, unless events are missing.
fn assert_adds_up(account: &Account) {
    let mut sums = [Tally::default(); 3];
    account.machines.iter().for_each(|machine| sums[0] += machine.tally);
    account.days.values().for_each(|tally| sums[1] += *tally);
    account.classes.values().for_each(|tally| sums[2] += *tally);
    assert_eq!(sums, [account.total; 3]);
    for machine in &account.machines {
        assert_eq!(machine.tally.total().time, machine.to.since(machine.from), "{machine:?}");
    }
    let mut runs = Tally::default();
    account.runs.values().for_each(|run| runs += run.tally);
    assert_eq!(runs.busy, account.total.busy, "all busy time is of some run");
}

#[test]
fn busy_idle_and_booting_are_a_lifetime() {
    let account = of(&life("i-1", &spec("large", "one.large")), &[], 0, 300);
    let tally = account.total;
    assert_eq!(tally.booting, Part { time: minutes(10), money: dollars(10.0 / 60.0) });
    assert_eq!(tally.busy.time, minutes(50));
    assert_eq!(tally.idle.time, minutes(140));
    assert_eq!(tally.total().time, minutes(200));
    assert!(!tally.is_approximate());
    assert_eq!((tally.unpriced, account.unpriced.len()), (Duration::ZERO, 0));
    let run = |id: &str| account.runs[&Some(id.parse().unwrap())].tally.total().time;
    assert_eq!((run("1"), run("2")), (minutes(40), minutes(20)));
    let [machine] = &account.machines[..] else { panic!("one machine") };
    assert_eq!((machine.from, machine.to, machine.is_live), (at(0), at(200), false));
}

#[test]
fn days_are_split_at_midnight_in_utc_and_the_window_cuts() {
    let events = life("i-1", &spec("large", "one.large"));
    let account = of(&events, &[], 0, 300);
    let days: Vec<(Timestamp, Duration)> =
        account.days.iter().map(|(day, tally)| (*day, tally.total().time)).collect();
    let midnight = |day: &str| Timestamp::parse(&format!("{day}T00:00:00Z")).unwrap();
    let expected = [(midnight("2026-11-10"), minutes(120)), (midnight("2026-11-11"), minutes(80))];
    assert_eq!(days, expected);

    let cut = of(&events, &[], 150, 170);
    assert_eq!((cut.total.busy.time, cut.total.idle.time), (minutes(10), minutes(10)));
    assert!(!cut.total.is_approximate(), "the claim was read, before the window");
    assert_eq!(of(&events, &[], 201, 300).machines.len(), 0);
}

#[test]
fn without_the_earlier_events_the_state_at_the_beginning_is_known_from_the_next() {
    let events = life("i-1", &spec("large", "one.large"));
    // What was before the window, which the store still has for the kind of the machine.
    let read: Vec<EventRow> =
        events.iter().filter(|row| row.at >= at(90) || row.at == at(0)).cloned().collect();
    let account = of(&read, &[], 100, 300);
    assert_eq!(account.total.idle.time, minutes(80), "40 before the claim and 40 after");
    assert!(!account.total.is_approximate(), "no state has lasted longer than it may");
}

#[test]
fn each_lost_event_makes_it_approximate_and_loses_no_time() {
    let all = life("i-1", &spec("large", "one.large"));
    let certain = of(&all, &[], 0, 300).total;
    for lost in 0..all.len() {
        let mut events = all.clone();
        let event = events.remove(lost);
        // The record is deleted, but the kind is known from another reading.
        let ended = record("i-1", State::Terminated, "", 200);
        for records in [&[][..], &[ended]] {
            let account = of(&events, records, 0, 300);
            let tally = account.total;
            assert!(tally.is_approximate(), "{}: {account:#?}", event.transition);
            let off = |a: Part, b: Part| a.time.abs_diff(b.time);
            if records.is_empty() && [0, 6].contains(&lost) {
                continue;
            }
            assert_eq!(tally.total().time, certain.total().time, "{}", event.transition);
            for (found, expected) in [(tally.busy, certain.busy), (tally.idle, certain.idle)] {
                assert!(off(found, expected) <= tally.uncertain.time, "{}", event.transition);
            }
        }
    }
}

#[test]
fn a_lost_beginning_or_end_counts_as_long_as_it_may_have_lasted() {
    let mut events = life("i-1", &spec("large", "one.large"));
    events.pop();
    let account = of(&events, &[], 0, 400);
    assert_eq!(account.machines[0].to, at(160 + 120), "the longest idle time");
    assert_eq!(account.total.uncertain.time, minutes(120));
    assert!(!account.machines[0].is_live);
    let events = life("i-1", &spec("large", "one.large"))[1..].to_vec();
    let account = of(&events, &[record("i-1", State::Terminated, "", 200)], 0, 400);
    assert_eq!(account.machines[0].from, at(0), "as its record says");
    assert_eq!(account.total.uncertain.time, minutes(10));
    let window = Window { read_since: at(0).before(minutes(60)), ..window(0, 400) };
    let account = super::account(&events, &[], &prices(), &window);
    assert_eq!(account.machines[0].tally.total().time, minutes(200), "cut where the window begins");
}

#[test]
fn a_live_machine_costs_until_now() {
    let events = life("i-1", &spec("large", "one.large"))[..3].to_vec();
    let idle = record("i-1", State::Idle, "", 40);
    let account = of(&events, &[idle], 0, 90);
    assert_eq!(account.total.idle.time, minutes(50));
    assert!(!account.total.is_approximate() && account.machines[0].is_live);

    let claimed = record("i-1", State::Running, "2", 80);
    let account = of(&events, &[claimed], 0, 90);
    assert_eq!(account.total.uncertain.time, minutes(40), "a claim in between was lost");
    assert_eq!(account.total.idle.time, minutes(20), "half of it");
    assert_eq!(account.total.busy.time, minutes(30 + 20 + 10));
}

#[test]
fn a_record_without_events_is_counted() {
    // Idle since before the reading: nothing has happened in the window.
    let account = of(&[], &[record("i-1", State::Idle, "", 5)], 100, 130);
    assert_eq!(account.total.idle.time, minutes(30));
    assert!(!account.total.is_approximate());
    // It became idle within the window, and no event tells it.
    let account = of(&[], &[record("i-1", State::Idle, "", 120)], 100, 130);
    assert_eq!(account.total.total().time, minutes(30));
    assert_eq!(account.total.uncertain.time, minutes(20));
    assert_eq!(of(&[], &[record("i-1", State::Terminated, "", 5)], 100, 130).machines.len(), 0);
}

#[test]
fn two_classes_and_one_type_without_a_price() {
    let mut events = life("i-1", &spec("large", "one.large"));
    events.extend(life("i-2", &spec("xlarge", "two.large")));
    events.extend(life("i-3", &spec("xlarge", "three.large")));
    let account = of(&events, &[], 0, 300);
    let class = |name: &str| account.classes[&Some(name.parse().unwrap())];
    let costs = |name: &str, amount: f64| {
        let found = class(name).total().money.dollars();
        assert!((found - amount).abs() < 1e-6, "{name}: {found} for {amount}");
    };
    costs("large", 200.0 / 60.0);
    costs("xlarge", 400.0 / 60.0);
    assert_eq!(class("xlarge").unpriced, minutes(200), "it is not free");
    assert_eq!(account.unpriced, [("three.large".to_owned(), 1)].into());
    let mut unknown = events.clone();
    unknown.iter_mut().for_each(|row| row.why.clear());
    let account = of(&unknown, &[], 0, 300);
    assert_eq!(account.unpriced, [(String::new(), 3)].into());
    assert_eq!(account.total.total().money, Money::ZERO);
    assert_eq!((account.always_cold, account.hosted), (None, None));
}

#[test]
fn against_always_cold_idling_may_cost_more_than_boots() {
    let account = of(&life("i-1", &spec("large", "one.large")), &[], 0, 300);
    let cold = account.always_cold.unwrap();
    assert_eq!((cold.hand_overs, cold.warm, cold.boots), (2, 1, 1));
    assert_eq!((cold.mean_boot, cold.waiting_saved), (minutes(10), minutes(10)));
    assert_eq!(cold.boots_would_cost, dollars(1.0).for_span(minutes(10)).times(2));
    let spent = account.total.booting.money + account.total.idle.money;
    assert_eq!(cold.boots_and_idle_cost, spent);
    assert_eq!(cold.saving(), cold.boots_would_cost - spent);
    assert!(cold.saving() < Money::ZERO, "140 idle minutes for one boot of 10");

    // Released and claimed at once, it saves a boot.
    let mut events = life("i-1", &spec("large", "one.large"));
    events[2].at = at(139);
    events[6].at = at(161);
    let account = of(&events, &[], 0, 300);
    assert!(account.always_cold.unwrap().saving() > Money::ZERO);
    // Without a boot, it is not known how long one takes.
    assert_eq!(of(&events, &[], 100, 300).always_cold, None);
}

#[test]
fn against_hosted_runners_each_job_is_rounded_up() {
    let mut events = life("i-1", &spec("large", "one.large"));
    events[2].at = at(40) + Duration::from_millis(1);
    let account = of(&events, &[], 0, 300);
    let hosted = account.hosted.unwrap();
    assert_eq!((hosted.jobs, hosted.minutes), (2, 31 + 19));
    assert_eq!(hosted.would_cost, dollars(0.5));
    assert_eq!(hosted.control_jobs_cost, dollars(0.04), "two for each of two runs");
    assert_eq!(hosted.machines_cost, account.total.total().money);
    assert!(hosted.saving() < Money::ZERO, "a dollar an hour is dearer than that");
    let mut large = spec("large", "one.large");
    large.cpu = 4;
    let account = of(&life("i-1", &large), &[], 0, 300);
    assert_eq!(account.hosted, None, "GitHub has none of that size");
    let both = [life("i-1", &large), life("i-2", &spec("large", "one.large"))].concat();
    let hosted = of(&both, &[], 0, 300).hosted.unwrap();
    assert_eq!((hosted.left_out, hosted.jobs), (1, 2));
}

#[test]
fn a_renewal_does_not_make_two_jobs_of_one() {
    let mut events = life("i-1", &spec("large", "one.large"));
    let running = (Some(State::Running), State::Running);
    events.push(row("i-1", 20, "renew", running, "1"));
    let hosted = of(&events, &[], 0, 300).hosted.unwrap();
    assert_eq!((hosted.jobs, hosted.minutes), (2, 30 + 19));
}

#[test]
fn machines_that_refresh_warms_up_are_idle_and_no_hand_over() {
    let mut events = life("i-1", &spec("large", "one.large"));
    for event in &mut events[..2] {
        event.run = Some("keep-warm-1".parse().unwrap());
    }
    let account = of(&events, &[], 0, 300);
    assert_eq!(account.total.booting.time, minutes(10));
    assert_eq!(account.total.idle.time, minutes(170));
    assert_eq!(account.total.busy.time, minutes(20));
    let cold = account.always_cold.unwrap();
    assert_eq!((cold.hand_overs, cold.warm, cold.boots), (1, 1, 1));
    assert_eq!(account.hosted.unwrap().jobs, 1);
}

#[test]
fn what_a_machine_is_can_be_read_from_the_event() {
    let spot = MachineSpec { usage_class: UsageClass::Spot, ..spec("a.b", "c7i-flex.large") };
    for why in [spot.told(), format!("launched, but never registered: {}", spot.told())] {
        assert_eq!(MachineSpec::told_in(&why), Some(spot.clone()), "{why}");
    }
    for why in ["", "launched", "one.large lent of large with 2 vCPU and 4096 MiB"] {
        assert_eq!(MachineSpec::told_in(why), None, "{why}");
    }
}
