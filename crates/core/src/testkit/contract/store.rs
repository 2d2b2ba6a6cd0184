use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use super::arrange::{
    DesiredRecord, agreed, arrange, instance, make, morning, ms, noon, run, spec,
};
use super::ceiling::machine_count;
use super::readiness::{readiness, the_requested_label};
use super::transitions::{
    all_or_none, every_transition, the_departure, the_label, the_note_of_the_ticket, the_reuse,
};
use crate::lifecycle::{Created, Idle, Instance, Live, Verdict};
use crate::model::credentials::{Credentials, TokenPurpose};
use crate::model::demand::{Demand, FailedRescues};
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
use crate::model::intent::Intent;
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::record::{EventRow, State};
use crate::model::requirements::UsageClass;
use crate::model::secret::Secret;
use crate::model::settings::SettingsVersion;
use crate::model::signal::{AgentStatus, Report, Signal};
use crate::modes::provision::ProvisionOptions;
use crate::ports::{AgentStore, Listing, PortError, RecordScope, Store};

/// What a store does with the agent status of a record that it removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusOfRemoved {
    Deleted,
    /// It expires by itself, some time after the agent's last write.
    Expires,
}

/// The contract of a store. `store` must be empty.
pub async fn store_suite<S: Store + AgentStore>(store: &S, status_of_removed: StatusOfRemoved) {
    settings(store).await;
    listings(store).await;
    status(store).await;
    ticketed(store).await;
    removal(store, status_of_removed).await;
    forgetting(store, status_of_removed).await;
    intents(store).await;
    machine_count(store).await;
    credentials(store).await;
    demands(store).await;
    the_note_of_the_ticket(store).await;
    the_label(store).await;
    the_requested_label(store).await;
    readiness(store, status_of_removed).await;
    the_reuse(store).await;
    the_departure(store).await;
    replaced_settings(store).await;
    settings_versions(store).await;
    hand_overs(store).await;
    writes_together(store).await;
    claims_at_once(store).await;
    all_or_none(store).await;
    every_transition(store).await;
}

/// Sixty-four runs claim one instance concurrently, through several handles of the same store. One
/// of them gets it, and its run is the owner.
pub async fn claim_race<S: Store + AgentStore>(stores: &[&S]) {
    stores[0].set_up().await.expect("the store can be set up");
    let id = instance("i-race");
    let desired = DesiredRecord::new(State::Idle, &run("first"), noon() + ms(60_000));
    let record = arrange(stores[0], &id, &desired).await;
    let idle = Instance::<Idle>::believe(&record).expect("idle");
    let changes: Vec<_> = (0..64)
        .map(|n| idle.claim(&run(&format!("claimant-{n}")), noon(), ms(60_000)).change().clone())
        .collect();
    let writes = changes.iter().enumerate().map(|(n, c)| stores[n % stores.len()].write(c));
    let verdicts = join_all(writes).await;
    let winners: Vec<usize> = verdicts
        .iter()
        .enumerate()
        .filter(|(_, verdict)| agreed(verdict.as_ref().expect("the store answers")))
        .map(|(n, _)| n)
        .collect();
    let [winner] = winners.as_slice() else {
        panic!("one claim wins, and no more: {winners:?}");
    };
    let record = stores[0].record(&id).await.expect("the store answers").expect("a record");
    assert_eq!(record.run, Some(run(&format!("claimant-{winner}"))), "the owner is the winner");
}

/// The events by which runs were given machines are found by their time, the newest first.
async fn hand_overs<S: Store + AgentStore>(store: &S) {
    // A day of its own, which the other cases write nothing on.
    let day = noon() + ms(3 * 24 * 3_600_000);
    let (cold, warm) = (instance("i-handed-cold"), instance("i-handed-warm"));
    let label = |name: &str| Label::from(&run(name));
    let at = |minutes: u64| day + ms(minutes * 60_000);
    let hour = ms(3_600_000);
    let register = |id: &InstanceId, for_run: &str, minutes| {
        Instance::<Created>::register(id, &spec(), label(for_run), at(minutes), hour)
    };
    let new = make(store, register(&cold, "first", 0)).await;
    make(store, new.activate(at(1), hour)).await;
    let new = make(store, register(&warm, "second", 0)).await;
    let running = make(store, new.activate(at(2), hour)).await;
    let idle = make(store, running.release(at(3), hour)).await;
    let claimed = make(store, idle.claim(label("third"), at(4), hour)).await;
    make(store, claimed.commit(at(5), hour)).await;
    store.finish().await.expect("the events are written");
    let found = async |since, until, most| {
        let found = store.hand_overs(at(since), at(until), most).await.expect("the store answers");
        let name = |event: &EventRow| (event.transition.clone(), event.run.clone());
        found.iter().map(name).collect::<Vec<_>>()
    };
    let of = |transition: &str, name: &str| (transition.to_owned(), Some(run(name)));
    let all = [of("commit", "third"), of("activate", "second"), of("activate", "first")];
    assert_eq!(found(0, 60, 100).await, all, "all of them, the newest first");
    assert_eq!(found(1, 5, 100).await, all, "both ends of the span are part of it");
    assert_eq!(found(2, 4, 100).await, all[1..2], "only those of the span");
    assert_eq!(found(0, 60, 2).await, all[..2], "the latest");
    assert_eq!(found(6, 60, 100).await, [], "none");
    let from_the_day_before = store.hand_overs(day.before(ms(24 * 3_600_000)), at(60), 100).await;
    assert_eq!(from_the_day_before.expect("the store answers").len(), 3, "over midnight");
}

/// Writes that are made together are decided one by one, by the record as it is and not by the one
/// that the caller has read.
async fn writes_together<S: Store + AgentStore>(store: &S) {
    const COUNT: usize = 60;
    let mut writes = Vec::new();
    let states = [State::Created, State::Running, State::Idle, State::Claimed];
    for n in 0..COUNT {
        let id = instance(&format!("i-together-{n}"));
        let desired = DesiredRecord::new(states[n % 4], &run("together"), noon().before(ms(1)));
        let record = arrange(store, &id, &desired).await;
        let live = Instance::<Live>::believe(&record).expect("live");
        let reap = live.reap(noon()).because("together").change().clone();
        match n {
            // Another process has reaped the first, and moved the second since it was read.
            0 => drop(store.write(&reap).await.expect("the store answers")),
            1 => {
                let expire = live.expire(noon().before(ms(5)));
                assert!(agreed(&store.write(expire.change()).await.expect("the store answers")));
            }
            _ => {}
        }
        writes.push((reap, record));
    }
    let absent = (writes[2].0.clone(), writes[2].1.clone());
    let verdicts = store.write_all(&writes).await;
    assert_eq!(verdicts.len(), COUNT, "an answer for each");
    for (n, verdict) in verdicts.into_iter().enumerate() {
        let verdict = verdict.expect("the store answers");
        assert_eq!(agreed(&verdict), n != 0, "{n}: {verdict:?}");
        let id = instance(&format!("i-together-{n}"));
        let record = store.record(&id).await.expect("the store answers").expect("a record");
        assert_eq!((record.state, record.run), (State::Terminated, None), "{n}");
        if let Verdict::Agreed(after) = verdict {
            assert_eq!((after.state, after.updated_at), (State::Terminated, noon()), "{n}");
        }
    }
    let again = store.write_all(&[absent]).await;
    let again = again.into_iter().next().expect("an answer").expect("the store answers");
    assert!(!agreed(&again), "a second time it is refused: {again:?}");
    assert!(store.write_all(&[]).await.is_empty());
}

/// Claims that are made at the same moment are decided one by one, and a run has the machines whose
/// claims were made.
async fn claims_at_once<S: Store + AgentStore>(store: &S) {
    const COUNT: usize = 40;
    let (hour, mine) = (ms(3_600_000), run("at-once"));
    let mut claims = Vec::new();
    for n in 0..COUNT {
        let id = instance(&format!("i-at-once-{n}"));
        let desired = DesiredRecord::new(State::Idle, &run("before"), noon() + hour);
        let record = arrange(store, &id, &desired).await;
        let idle = Instance::<Idle>::believe(&record).expect("idle");
        if n % 4 == 0 {
            make(store, idle.claim(&run("sooner"), noon(), hour)).await;
        }
        claims.push(idle.claim(&mine, noon(), hour).change().clone());
    }
    // The last one is asked for twice.
    claims.push(claims[COUNT - 1].clone());
    let verdicts = join_all(claims.iter().map(|claim| store.write(claim))).await;
    let mut made = 0;
    for (n, verdict) in verdicts.iter().enumerate().take(COUNT - 1) {
        match verdict.as_ref().expect("the store answers") {
            Verdict::Agreed(after) if n % 4 != 0 => {
                assert_eq!((after.state, &after.run), (State::Claimed, &Some(mine.clone())), "{n}");
                made += 1;
            }
            Verdict::Refused(Some(found)) if n % 4 == 0 => {
                assert_eq!(found.run, Some(run("sooner")), "{n}");
            }
            other => panic!("{n}: {other:?}"),
        }
    }
    let twice = verdicts[COUNT - 1..].iter().flatten().filter(|verdict| agreed(verdict));
    assert_eq!(twice.count(), 1, "it is made once");
    let owned = store.of_run(&mine).await.expect("the store answers").records;
    assert_eq!(owned.len(), made + 1);
}

async fn settings<S: Store + AgentStore>(store: &S) {
    store.set_up().await.expect("the store can be set up");
    store.set_up().await.expect("setting up twice is setting up once");
    let unset = Store::settings(store).await;
    assert!(matches!(unset, Err(PortError::NotSetUp { .. })), "no settings yet: {unset:?}");
    type Texts = &'static [(&'static str, &'static str)];
    let map = |texts: Texts| -> BTreeMap<String, String> {
        texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    };
    let cases: [(Texts, Texts); 4] = [
        (&[("a", "1"), ("b", "x")], &[("a", "1"), ("b", "x")]),
        (&[("a", "2\n\"é\"")], &[("a", "2\n\"é\""), ("b", "x")]),
        (&[("b", ""), ("c", "")], &[("a", "2\n\"é\"")]),
        (&[], &[("a", "2\n\"é\"")]),
    ];
    for (changes, expected) in cases {
        store.put_settings(&map(changes)).await.expect("settings can be written");
        assert_eq!(Store::settings(store).await, Ok(map(expected)), "after {changes:?}");
        assert_eq!(AgentStore::settings(store).await, Ok(map(expected)), "as the agent reads it");
    }
}

/// A setting is replaced only if it is as the caller has read it.
async fn replaced_settings<S: Store + AgentStore>(store: &S) {
    let others = BTreeMap::from([("other".to_owned(), "o".to_owned())]);
    store.put_settings(&others).await.expect("settings can be written");
    for (current, next, expected) in [
        ("x", "1", None),
        ("x", "", None),
        ("", "1\n\"é\"", Some("1\n\"é\"")),
        ("", "2", Some("1\n\"é\"")),
        ("1", "2", Some("1\n\"é\"")),
        ("1\n\"é\"", "2", Some("2")),
        ("2", "2", Some("2")),
        ("1", "", Some("2")),
        ("2", "", None),
        ("2", "3", None),
        ("", "", None),
        ("", "4", Some("4")),
    ] {
        let before = Store::settings(store).await.expect("the store answers");
        let is_so = before.get("replaced").map_or("", String::as_str) == current;
        let replaced = store.replace_setting("replaced", current, next).await;
        assert_eq!(replaced, Ok(is_so), "{current:?} to {next:?}");
        let after = Store::settings(store).await.expect("the store answers");
        let stored = after.get("replaced").map(String::as_str);
        assert_eq!(stored, expected, "{current:?} to {next:?}");
        assert_eq!(after.get("other").map(String::as_str), Some("o"), "the others stay");
    }
}

/// A change leaves in the record which settings it was decided by, or what was there before.
async fn settings_versions<S: Store + AgentStore>(store: &S) {
    let id = instance("i-v1");
    let version = |text: &str| SettingsVersion::parse(text);
    let read = async || {
        let record = store.record(&id).await.expect("the store answers").expect("a record");
        (Instance::<Live>::believe(&record).expect("live"), record.settings_version)
    };
    let register = Instance::<Created>::register(&id, &spec(), &run("v"), noon(), ms(60_000));
    let written = store.write(register.under(version("one")).change()).await;
    assert!(agreed(&written.expect("the store answers")));
    let (instance, found) = read().await;
    assert_eq!(found, version("one"), "as registered");
    for (given, expected) in [(None, "one"), (version("two"), "two"), (None, "two")] {
        let change = instance.expire(noon()).under(given.clone());
        assert!(agreed(&store.write(change.change()).await.expect("the store answers")));
        assert_eq!(read().await.1, version(expected), "after {given:?}");
    }
    let (instance, _) = read().await;
    let reap = instance.reap(noon() + ms(1));
    assert!(agreed(&store.write(reap.change()).await.expect("the store answers")));
}

async fn credentials<S: Store + AgentStore>(store: &S) {
    let purposes = [TokenPurpose::Registration, TokenPurpose::Removal];
    for purpose in purposes {
        assert_eq!(store.token(purpose).await, Ok(None), "none yet");
    }
    for (registration, removal) in [("AAAA", "RRR"), ("BBB", "SSS")] {
        let credentials = Credentials {
            registration: Secret::new(registration),
            removal: Secret::new(removal),
            expires_at: noon(),
        };
        let changes =
            BTreeMap::from([("minted".to_owned(), format!("note on {}", registration.len()))]);
        store.put_credentials(&credentials, &changes).await.expect("credentials can be written");
        let settings = Store::settings(store).await.expect("the store answers");
        assert_eq!(settings.get("minted"), changes.get("minted"), "stored in the same write");
        for purpose in purposes {
            let token = credentials.token(purpose);
            assert_eq!(store.token(purpose).await, Ok(Some(token)), "the last ones count");
        }
    }
    let settings = Store::settings(store).await.unwrap_or_default();
    let told = format!("{settings:?}");
    assert!(!told.contains("BBB") && !told.contains("SSS"), "settings are readable by all: {told}");
}

async fn demands<S: Store + AgentStore>(store: &S) {
    let asked = ProvisionOptions {
        class: ResourceClass::new("xlarge").expect("a sound name"),
        usage: UsageClass::Spot,
        types: Some("c7i.* m*".parse().expect("sound patterns")),
        capacity_fallback: true,
        ..ProvisionOptions::default()
    };
    let demand = |run: &RunId, suffix: Option<&str>, count| Demand {
        run: run.clone(),
        options: ProvisionOptions {
            count,
            label_suffix: suffix.map(|it| it.parse().expect("a sound suffix")),
            ..asked.clone()
        },
        times: BTreeMap::from([("max-runtime-min".to_owned(), "90".to_owned())]),
        at: noon(),
        failed_rescues: Some(FailedRescues { times: 2, at: noon() }),
        lease: None,
        rerun: None,
        labels: Vec::new(),
    };
    let (one, other, none) = (run("asked"), run("asked-too"), run("asked-not"));
    for count in [1, 3] {
        store.put_demand(&demand(&one, None, count)).await.expect("a demand can be written");
        let found = store.demands(std::slice::from_ref(&one)).await;
        assert_eq!(found, Ok(vec![demand(&one, None, count)]), "the last one counts");
        let found = store.demands(std::slice::from_ref(&none)).await;
        assert_eq!(found, Ok(Vec::new()), "no demand stored");
    }
    store.forget(noon() + ms(60_000)).await.expect("the store forgets");
    let found = store.demands(std::slice::from_ref(&one)).await;
    assert_eq!(found, Ok(vec![demand(&one, None, 3)]), "jobs are run again later");

    let labelled = [
        demand(&one, None, 3),
        demand(&one, Some("8xlarge"), 1),
        demand(&one, Some("large"), 7),
        demand(&other, Some("large"), 2),
    ];
    for demand in labelled.iter().skip(1).rev() {
        store.put_demand(demand).await.expect("a demand can be written");
    }
    let found = store.demands(&[other.clone(), none, one.clone(), one.clone()]).await;
    assert_eq!(found, Ok(labelled.to_vec()), "one of each label, ordered, none twice");
    let fewer = demand(&one, Some("large"), 4);
    store.put_demand(&fewer).await.expect("a demand can be written");
    let found = store.demands(std::slice::from_ref(&one)).await;
    let expected = vec![labelled[0].clone(), labelled[1].clone(), fewer];
    assert_eq!(found, Ok(expected), "a label replaces its own demand only");
    assert_eq!(store.demands(&[]).await, Ok(Vec::new()), "of no run");

    let current = demand(&other, Some("large"), 2);
    let leased = |holder| current.clone().leased(holder, noon() + ms(1_000));
    assert_eq!(store.replace_demand(Some(&current), &leased(1)).await, Ok(true));
    assert_eq!(
        store.replace_demand(Some(&current), &leased(2)).await,
        Ok(false),
        "it was replaced"
    );
    assert_eq!(store.demands(&[other]).await, Ok(vec![leased(1)]));
    assert_eq!(store.replace_demand(Some(&leased(1)), &current).await, Ok(true));
    let unknown = demand(&run("asked-never"), None, 1);
    assert_eq!(store.replace_demand(Some(&unknown), &unknown).await, Ok(false), "there is none");
    let of_unknown = std::slice::from_ref(&unknown.run);
    assert_eq!(store.demands(of_unknown).await, Ok(Vec::new()));
    let leased = |holder| unknown.clone().leased(holder, noon() + ms(1_000));
    assert_eq!(store.replace_demand(None, &leased(1)).await, Ok(true), "there was none");
    assert_eq!(store.replace_demand(None, &leased(2)).await, Ok(false), "there is one");
    assert_eq!(store.demands(of_unknown).await, Ok(vec![leased(1)]));

    // Provisioned on one day, and again near the end of the time for which that is kept.
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let of_day =
        |name: &str, days| Demand { at: noon() + days * DAY, ..demand(&run(name), None, 1) };
    let (first, again) = (of_day("asked-twice", 0), of_day("asked-twice", 29));
    assert_eq!(store.replace_demand(None, &first).await, Ok(true));
    assert_eq!(store.replace_demand(Some(&first), &again).await, Ok(true));
    let leased = again.clone().leased(1, noon() + 29 * DAY);
    assert_eq!(store.replace_demand(Some(&again), &leased).await, Ok(true));
    assert_eq!(store.replace_demand(None, &of_day("asked-later", 31)).await, Ok(true));
    let found = store.demands(std::slice::from_ref(&again.run)).await;
    assert_eq!(found, Ok(vec![leased]), "kept as one of the later day");
}

fn ids(listing: &Listing) -> Vec<String> {
    assert!(listing.unreadable.is_empty(), "unreadable: {:?}", listing.unreadable);
    let mut ids: Vec<String> = listing.records.iter().map(|r| r.id.to_string()).collect();
    ids.sort();
    ids
}

async fn listings<S: Store + AgentStore>(store: &S) {
    let (mine, other) = (run("listed"), run("listed-too"));
    let (past, ahead) = (noon().before(ms(1)), noon() + ms(1));
    for (name, state, run, threshold) in [
        ("i-l1", State::Created, &mine, ahead),
        ("i-l2", State::Claimed, &mine, past),
        ("i-l3", State::Running, &mine, noon()),
        ("i-l4", State::Idle, &mine, past),
        ("i-l5", State::Terminated, &mine, past),
        ("i-l6", State::Running, &other, ahead),
    ] {
        let record =
            arrange(store, &instance(name), &DesiredRecord::new(state, run, threshold)).await;
        assert_eq!((record.state, record.threshold.is_some()), (state, state.is_live()));
    }
    let of_mine = store.of_run(&mine).await.expect("the store answers");
    assert_eq!(ids(&of_mine), ["i-l1", "i-l2", "i-l3"], "what the run holds now");
    let of_none = store.of_run(&run("unknown")).await.expect("the store answers");
    assert!(ids(&of_none).is_empty(), "a run that holds nothing");
    let expired = store.expired(noon()).await.expect("the store answers");
    assert_eq!(ids(&expired), ["i-l2", "i-l3", "i-l4"], "a threshold of now is past");
    let before = store.expired(past.before(ms(1))).await.expect("the store answers");
    assert!(ids(&before).is_empty(), "nothing was past then");
    let live = store.list(RecordScope::Live).await.expect("the store answers");
    assert_eq!(ids(&live), ["i-l1", "i-l2", "i-l3", "i-l4", "i-l6"], "the live ones");
    let all = store.list(RecordScope::All).await.expect("the store answers");
    assert_eq!(ids(&all).len(), 6, "all of them");
    assert_eq!(store.record(&instance("i-l0")).await, Ok(None), "there is no such record");
    let asked = ["i-l5", "i-l0", "i-l6", "i-l5"].map(instance);
    let found = store.records(&asked).await.expect("the store answers");
    assert_eq!(ids(&found), ["i-l5", "i-l6"], "each that exists once, in any state");
    assert!(ids(&store.records(&[]).await.expect("the store answers")).is_empty(), "of none");
}

fn report(signal: Signal, run: Option<&RunId>, detail: &str) -> Report {
    Report {
        machine_label: None,
        signal,
        run: run.cloned(),
        suffix: None,
        detail: detail.to_owned(),
        at: morning(),
        generation: None,
    }
}

async fn status<S: Store + AgentStore>(store: &S) {
    let [both, silent, beating, talking]: [InstanceId; 4] =
        ["i-s1", "i-s2", "i-s3", "i-s4"].map(instance);
    let beat = |at| Heartbeat::new(at, ms(5_000));
    let telling = Heartbeat {
        period: ms(1_234),
        protocol: 7,
        registration: Some(ms(2_345)),
        busy: true,
        interrupted: true,
        ..beat(noon())
    };
    for (id, beat) in [(&both, beat(morning())), (&both, telling), (&beating, beat(morning()))] {
        store.beat(id, &beat).await.expect("a beat is written");
    }
    let first = Report { generation: Some(7), ..report(Signal::Prepared, None, "") };
    let suffix = Some("large".parse().expect("a sound suffix"));
    let last = report(Signal::RegisterFailed, Some(&run("7")), "no \"token\"\nat all");
    let last = Report { suffix, ..last };
    store.report(&both, &first).await.expect("a signal is written");
    store.report(&both, &last).await.expect("a signal is written");
    store.report(&talking, &first).await.expect("a signal is written");
    let expected = [
        (talking, AgentStatus { readiness: None, heartbeat: None, report: Some(first) }),
        (silent, AgentStatus::default()),
        (
            both.clone(),
            AgentStatus { readiness: None, heartbeat: Some(telling), report: Some(last.clone()) },
        ),
        (beating, AgentStatus { readiness: None, heartbeat: Some(beat(morning())), report: None }),
        (both, AgentStatus { readiness: None, heartbeat: Some(telling), report: Some(last) }),
    ];
    let (ids, expected): (Vec<_>, Vec<_>) = expected.into_iter().unzip();
    assert_eq!(
        store.agent_status(&ids).await,
        Ok(expected),
        "the latest of each, in the order asked"
    );
    assert_eq!(store.agent_status(&[]).await, Ok(Vec::new()), "of no instance");

    let late = ids[2].clone();
    let own = MachineLabel::new(format!("m{}", "5".repeat(32))).ok();
    let registered = report(Signal::Registered, Some(&run("8")), "");
    let newer = Report { at: noon(), machine_label: own, ..registered };
    let older = report(Signal::Deregistered, Some(&run("7")), "");
    for said in [&newer, &older, &newer] {
        store.report(&late, said).await.expect("a signal is written, or not needed any more");
        let status =
            store.agent_status(std::slice::from_ref(&late)).await.expect("the store answers");
        assert_eq!(status[0].report.as_ref(), Some(&newer), "what arrives late changes nothing");
    }
}

async fn ticketed<S: Store + AgentStore>(store: &S) {
    let id = instance("i-m1");
    let desired = DesiredRecord::new(State::Idle, &run("marked"), noon());
    let record = arrange(store, &id, &desired).await;
    let ticket = Instance::<Idle>::believe(&record).expect("idle").ticket();
    let mut stale = ticket.clone();
    stale.threshold = noon() + ms(1);
    let owned = instance("i-m2");
    let claimed =
        arrange(store, &owned, &DesiredRecord::new(State::Claimed, &run("m"), noon())).await;
    let mut taken = ticket.clone();
    taken.instance_id = owned.clone();
    let mut unknown = ticket.clone();
    unknown.instance_id = instance("i-m3");

    store.mark_ticketed(&[stale, taken, unknown], noon()).await.expect("the store answers");
    assert_eq!(store.record(&id).await, Ok(Some(record.clone())), "another idle state's ticket");
    assert_eq!(store.record(&owned).await, Ok(Some(claimed)), "not idle any more");
    assert_eq!(store.record(&instance("i-m3")).await, Ok(None), "a note makes no record");

    store.mark_ticketed(&[ticket], noon()).await.expect("the store answers");
    let noted = store.record(&id).await.expect("the store answers").expect("a record");
    assert_eq!(noted.ticketed_at, Some(noon()), "the very idle state that was announced");
    assert_eq!(noted.updated_at, record.updated_at, "a note is no transition");
}

async fn removal<S: Store + AgentStore>(store: &S, status_of_removed: StatusOfRemoved) {
    let [gone, live] = ["i-r1", "i-r2"].map(instance);
    arrange(store, &gone, &DesiredRecord::new(State::Terminated, &run("r"), noon())).await;
    arrange(store, &live, &DesiredRecord::new(State::Running, &run("r"), noon())).await;
    for id in [&gone, &live] {
        store.beat(id, &Heartbeat::new(noon(), ms(5_000))).await.expect("a beat is written");
        store.report(id, &report(Signal::Prepared, None, "")).await.expect("a signal is written");
    }
    let asked = [gone.clone(), live.clone(), instance("i-r3")];
    store.remove(&asked).await.expect("the store answers");
    assert_eq!(store.record(&gone).await, Ok(None), "terminated, so removed");
    let kept = store.record(&live).await.expect("the store answers");
    assert!(kept.is_some(), "a live record is never removed");
    let status = store.agent_status(&[gone, live]).await.expect("the store answers");
    if status_of_removed == StatusOfRemoved::Deleted {
        assert_eq!(status[0], AgentStatus::default(), "what its agent wrote goes with it");
    }
    assert!(status[1].heartbeat.is_some() && status[1].report.is_some(), "the others' stays");
}

async fn forgetting<S: Store + AgentStore>(store: &S, status_of_removed: StatusOfRemoved) {
    let [old, live] = ["i-f1", "i-f2"].map(instance);
    arrange(store, &old, &DesiredRecord::new(State::Terminated, &run("f"), noon())).await;
    arrange(store, &live, &DesiredRecord::new(State::Idle, &run("f"), noon())).await;
    store.beat(&old, &Heartbeat::new(morning(), ms(5_000))).await.expect("a beat is written");
    let too_early = store.forget(morning()).await.expect("the store answers");
    assert_eq!(too_early, 0, "what ended at that moment did not end before it");
    let before = store.list(RecordScope::All).await.expect("the store answers").records;
    let terminated = before.iter().filter(|record| !record.state.is_live()).count();
    let forgotten = store.forget(morning() + ms(1)).await.expect("the store answers");
    assert_eq!(forgotten, terminated, "the records that had ended, and their number");
    let after = store.list(RecordScope::All).await.expect("the store answers").records;
    assert_eq!(after.len(), before.len() - terminated, "and no others");
    if status_of_removed == StatusOfRemoved::Deleted {
        let status = store.agent_status(&[old]).await;
        assert_eq!(status, Ok(vec![AgentStatus::default()]), "nor their agent status");
    }
}

async fn intents<S: Store + AgentStore>(store: &S) {
    let intent = |name: &str, outcome: &str| Intent {
        id: IntentId::new(name).expect("an id"),
        run: run("intending"),
        class: (name == "one").then(|| spec().resource_class),
        count: 3,
        usage: UsageClass::OnDemand,
        deadline: noon(),
        outcome: outcome.to_owned(),
    };
    for open in [intent("one", ""), intent("two", "")] {
        store.put_intent(&open).await.expect("an intent is written");
    }
    store.put_intent(&intent("two", "launched 3")).await.expect("an intent is written");
    let open = store.open_intents().await;
    assert_eq!(open, Ok(vec![intent("one", "")]), "only the one without an outcome is open");
    store.forget(noon() + ms(1)).await.expect("the store answers");
    let open = store.open_intents().await;
    assert_eq!(open, Ok(vec![intent("one", "")]), "an open intent is never forgotten");
}
