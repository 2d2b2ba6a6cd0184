//! What each transition demands and leaves, said a second time: stores are tested against the
//! guard, so a mistake in the guard itself shows nowhere else.

use super::*;
use crate::model::ids::ResourceClass;
use crate::model::requirements::UsageClass;

/// What the records of these tests count.
const COUNTS: Counts = Counts { generation: 4, runs: 3, missed_registrations: 1 };

const LEASE: Duration = Duration::from_millis(60_000);

fn noon() -> Timestamp {
    Timestamp::from_millis(1_000_000)
}

/// The threshold that is believed in, unless a case says otherwise.
fn ahead() -> Timestamp {
    noon() + Duration::from_millis(1)
}

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

fn record(state: State, run: Option<&str>, threshold: Option<Timestamp>) -> Record {
    Record {
        requested: crate::model::machine_label::RequestedLabel::OfRun,
        id: InstanceId::new("i-1").unwrap(),
        state,
        run: run.map(self::run),
        threshold,
        spec: MachineSpec {
            resource_class: ResourceClass::new("large").unwrap(),
            instance_type: "c6i.large".to_owned(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4096,
        },
        counts: COUNTS,
        created_at: Timestamp::from_millis(1),
        updated_at: Timestamp::from_millis(2),
        ticketed_at: Some(Timestamp::from_millis(3)),
        settings_version: None,
        reuse: Reuse::Always,
        departure: crate::model::departure::Departure::None,
        suffix: None,
    }
}

/// A record of the run `mine`, if the state has an owner.
fn mine(state: State) -> Record {
    record(state, state.is_owned().then_some("mine"), state.is_live().then(ahead))
}

fn believed<S: TypedState>(state: State) -> Instance<S> {
    Instance::believe(&mine(state)).expect("the phase covers the state")
}

/// Whether a change is made to a record in `state`, of each owner and with each threshold that
/// matters: `(mine, theirs, no owner)`, each at (past, now, just ahead, another ahead).
fn admitted(change: &Change, state: State) -> [[bool; 4]; 3] {
    let past = noon().before(Duration::from_millis(1));
    let thresholds = [past, noon(), ahead(), noon() + LEASE];
    [Some("mine"), Some("theirs"), None].map(|owner| {
        thresholds.map(|at| change.applied_to(Some(&record(state, owner, Some(at)))).is_some())
    })
}

const NEVER: [bool; 4] = [false; 4];
const ALWAYS: [bool; 4] = [true; 4];
const EXPIRED: [bool; 4] = [true, true, false, false];
const UNEXPIRED: [bool; 4] = [false, false, true, true];

/// The same record in the generations before and after.
fn of_other_generations(record: &Record) -> [Record; 2] {
    [COUNTS.generation - 1, COUNTS.generation + 1].map(|generation| Record {
        counts: Counts { generation, ..record.counts },
        ..record.clone()
    })
}

#[test]
fn transitions_of_an_owner_need_its_state_its_run_and_time_left() {
    let created: Instance<Created> = believed(State::Created);
    let claimed: Instance<Claimed> = believed(State::Claimed);
    let running: Instance<Running> = believed(State::Running);
    for (change, from) in [
        (created.activate(noon(), LEASE).change().clone(), State::Created),
        (claimed.commit(noon(), LEASE).change().clone(), State::Claimed),
        (claimed.give_back(noon(), LEASE).change().clone(), State::Claimed),
        (claimed.give_back_unregistered(noon(), LEASE).change().clone(), State::Claimed),
        (running.release(noon(), LEASE).change().clone(), State::Running),
        (running.renew(noon(), noon() + LEASE).change().clone(), State::Running),
        (running.preserve(noon(), noon() + LEASE).change().clone(), State::Running),
    ] {
        for state in State::ALL {
            let expected = if state == from { [UNEXPIRED, NEVER, NEVER] } else { [NEVER; 3] };
            assert_eq!(admitted(&change, state), expected, "{change:?} of {state}");
        }
        assert_eq!(change.applied_to(None), None, "{change:?} of nothing");
        for other in of_other_generations(&mine(from)) {
            assert_eq!(change.applied_to(Some(&other)), None, "{change:?} of {other:?}");
        }
    }
}

/// Another process whose clock is ahead has expired the machine.
#[test]
fn what_was_expired_stays_expired_by_a_clock_that_is_behind() {
    let ms = Duration::from_millis;
    let read = |state| Record { threshold: Some(noon() + LEASE), ..mine(state) };
    let created = Instance::<Created>::believe(&read(State::Created)).expect("created");
    let idle = Instance::<Idle>::believe(&read(State::Idle)).expect("idle");
    let claimed = Instance::<Claimed>::believe(&read(State::Claimed)).expect("claimed");
    let running = Instance::<Running>::believe(&read(State::Running)).expect("running");
    let announced = Instance::announced(&idle.ticket());
    for (change, state) in [
        (created.activate(noon(), LEASE).change().clone(), State::Created),
        (idle.claim(&run("mine"), noon(), LEASE).change().clone(), State::Idle),
        (announced.claim(&run("mine"), noon(), LEASE).change().clone(), State::Idle),
        (idle.renew(noon(), noon() + 2 * LEASE).change().clone(), State::Idle),
        (claimed.commit(noon(), LEASE).change().clone(), State::Claimed),
        (claimed.give_back(noon(), LEASE).change().clone(), State::Claimed),
        (running.release(noon(), LEASE).change().clone(), State::Running),
        (running.renew(noon(), noon() + LEASE).change().clone(), State::Running),
        (running.preserve(noon(), noon() + LEASE).change().clone(), State::Running),
    ] {
        let admits = |threshold| {
            change.applied_to(Some(&Record { threshold: Some(threshold), ..mine(state) })).is_some()
        };
        let thresholds =
            [ahead(), (noon() + LEASE).before(ms(1)), noon() + LEASE, noon() + LEASE + ms(1)];
        assert_eq!(thresholds.map(admits), [false, false, true, true], "{change:?}");
    }
}

#[test]
fn a_release_unless_renewed_needs_the_threshold_that_was_read() {
    let read = Record { threshold: Some(noon() + LEASE), ..mine(State::Running) };
    let running = Instance::<Running>::believe(&read).expect("running");
    let release = running.release_unless_renewed(noon(), LEASE).change().clone();
    let admits = |threshold| {
        let found = Record { threshold: Some(threshold), ..mine(State::Running) };
        release.applied_to(Some(&found)).is_some()
    };
    let ms = Duration::from_millis(1);
    let thresholds = [ahead(), (noon() + LEASE).before(ms), noon() + LEASE, noon() + LEASE + ms];
    assert_eq!(thresholds.map(admits), [false, false, true, false]);
    let late = running.release_unless_renewed(noon() + LEASE, LEASE).change().clone();
    assert_eq!(late.applied_to(Some(&read)), None, "its time is up");
}

#[test]
fn a_claim_and_a_renewal_need_the_generation_that_was_announced() {
    let idle: Instance<Idle> = believed(State::Idle);
    let announced = Instance::announced(&idle.ticket());
    for idle in [idle, announced] {
        let claim = idle.claim(&run("mine"), noon(), LEASE).change().clone();
        let renew = idle.renew(noon(), noon() + LEASE).change().clone();
        for change in [claim, renew] {
            for state in State::ALL {
                let unowned = if state == State::Idle { UNEXPIRED } else { NEVER };
                assert_eq!(admitted(&change, state), [NEVER, NEVER, unowned], "of {state}");
            }
            for other in of_other_generations(&mine(State::Idle)) {
                assert_eq!(change.applied_to(Some(&other)), None, "{other:?}");
            }
        }
    }
}

#[test]
fn expiring_needs_the_same_owner_and_the_same_generation() {
    for from in State::ALL.into_iter().filter(|state| state.is_live()) {
        let expire = believed::<Live>(from).expire(noon()).change().clone();
        for state in State::ALL {
            let expected = match state == from {
                true if state.is_owned() => [ALWAYS, NEVER, NEVER],
                true => [NEVER, NEVER, ALWAYS],
                false => [NEVER; 3],
            };
            assert_eq!(admitted(&expire, state), expected, "{from} expected, {state} found");
        }
        for other in of_other_generations(&mine(from)) {
            assert_eq!(expire.applied_to(Some(&other)), None, "{other:?}");
        }
    }
}

#[test]
fn reaping_needs_a_live_state_whose_time_is_up() {
    for from in State::ALL.into_iter().filter(|state| state.is_live()) {
        let reap = believed::<Live>(from).reap(noon()).change().clone();
        for state in State::ALL {
            let expected = if state.is_live() { [EXPIRED; 3] } else { [NEVER; 3] };
            assert_eq!(admitted(&reap, state), expected, "{from} expected, {state} found");
        }
        assert_eq!(reap.applied_to(Some(&mine(State::Terminated))), None);
        let expired = Record { threshold: Some(noon()), ..mine(from) };
        assert!(
            of_other_generations(&expired).iter().all(|it| reap.applied_to(Some(it)).is_some())
        );
    }
}

#[test]
fn only_what_has_no_record_is_registered() {
    let found = mine(State::Created);
    let register = Instance::register(&found.id, &found.spec, &run("mine"), noon(), LEASE);
    let change = register.change();
    for state in State::ALL {
        assert_eq!(admitted(change, state), [NEVER; 3], "of {state}");
    }
    let registered = Record {
        threshold: Some(noon() + LEASE),
        counts: Counts::default(),
        created_at: noon(),
        updated_at: noon(),
        ticketed_at: None,
        settings_version: None,
        suffix: None,
        ..found
    };
    assert_eq!(change.applied_to(None), Some(registered));
}

#[test]
fn a_transition_leaves_its_state_its_owner_its_threshold_its_counts_and_no_ticket() {
    let claimed: Instance<Claimed> = believed(State::Claimed);
    let leased = Some(noon() + LEASE);
    let claim = believed::<Idle>(State::Idle).claim(&run("mine"), noon(), LEASE);
    let activate = believed::<Created>(State::Created).activate(noon(), LEASE);
    let release = believed::<Running>(State::Running).release(noon(), LEASE);
    let commit = claimed.commit(noon(), LEASE);
    let give_back = claimed.give_back(noon(), LEASE);
    let unregistered = claimed.give_back_unregistered(noon(), LEASE);
    let renew_idle = believed::<Idle>(State::Idle).renew(noon(), noon() + LEASE);
    let renew_running = believed::<Running>(State::Running).renew(noon(), noon() + LEASE);
    let reap = believed::<Live>(State::Running).reap(ahead());
    let counts =
        |generation, runs, missed_registrations| Counts { generation, runs, missed_registrations };
    let owned = |state| record(state, Some("mine"), leased);
    let idle = || record(State::Idle, None, leased);
    for (change, from, next, counts) in [
        (claim.change(), State::Idle, owned(State::Claimed), COUNTS),
        (activate.change(), State::Created, owned(State::Running), counts(4, 4, 0)),
        (commit.change(), State::Claimed, owned(State::Running), counts(4, 4, 0)),
        (give_back.change(), State::Claimed, idle(), counts(5, 3, 1)),
        (unregistered.change(), State::Claimed, idle(), counts(5, 3, 2)),
        (release.change(), State::Running, idle(), counts(5, 3, 1)),
        (renew_idle.change(), State::Idle, idle(), COUNTS),
        (renew_running.change(), State::Running, owned(State::Running), COUNTS),
        (reap.change(), State::Running, record(State::Terminated, None, None), COUNTS),
    ] {
        let next = Record { updated_at: change.at(), ticketed_at: None, counts, ..next };
        assert_eq!(change.applied_to(Some(&mine(from))), Some(next), "{}", change.transition());
    }
}

#[test]
fn expiring_leaves_all_but_the_threshold() {
    for state in State::ALL.into_iter().filter(|state| state.is_live()) {
        let expire = believed::<Live>(state).expire(noon());
        let next = Record { threshold: Some(noon()), updated_at: noon(), ..mine(state) };
        assert_eq!(expire.change().applied_to(Some(&mine(state))), Some(next), "{state}");
    }
}

#[test]
fn a_change_is_known_again_by_all_that_it_leaves() {
    let claim = believed::<Idle>(State::Idle).claim(&run("mine"), noon(), LEASE);
    let found = mine(State::Created);
    let register = Instance::register(&found.id, &found.spec, &run("mine"), noon(), LEASE);
    for (change, before) in [(claim.change(), Some(mine(State::Idle))), (register.change(), None)] {
        let done = change.applied_to(before.as_ref()).expect("nothing stands against it");
        assert!(change.is_done_in(&done));
        for other in [
            Record { updated_at: ahead(), ..done.clone() },
            Record { state: State::Running, ..done.clone() },
            Record { run: Some(run("theirs")), ..done.clone() },
            Record { suffix: "large".parse().ok(), ..done.clone() },
            Record { threshold: Some(ahead()), ..done.clone() },
        ] {
            assert!(!change.is_done_in(&other), "{other:?}");
        }
    }
}

#[test]
fn the_stores_answer_is_believed_only_if_it_is_the_next_state() {
    let commit = || believed::<Claimed>(State::Claimed).commit(noon(), LEASE);
    let running = mine(State::Running);
    let settled = commit().settle(Verdict::Agreed(running.clone())).expect("it agreed");
    assert_eq!((settled.id(), settled.state()), (&running.id, State::Running));
    assert_eq!((settled.run(), settled.spec()), (Some(&run("mine")), &running.spec));
    let odd = commit().settle(Verdict::Agreed(mine(State::Idle))).unwrap_err();
    assert_eq!(odd.found, Some(mine(State::Idle)));
    let lost = commit().settle(Verdict::Refused(None)).unwrap_err();
    assert_eq!((lost.found, lost.unreadable), (None, None));
}

#[test]
fn a_refusal_says_what_stands_there() {
    let refused = |verdict| {
        let commit = believed::<Claimed>(State::Claimed).commit(noon(), LEASE);
        commit.settle(verdict).unwrap_err().to_string()
    };
    let row =
        crate::model::record::Unreadable { id: "i-1".to_owned(), problem: "cpu is odd".to_owned() };
    let expired = record(State::Claimed, Some("theirs"), Some(noon()));
    for (verdict, words) in [
        (Verdict::Refused(None), "there is no such record"),
        (Verdict::Refused(Some(mine(State::Idle))), "it is idle"),
        (Verdict::Refused(Some(mine(State::Running))), "it is running, owned by run mine"),
        (Verdict::Refused(Some(expired)), "it is claimed, owned by run theirs, past its threshold"),
        (Verdict::Unreadable(row.clone()), "unreadable record \"i-1\": cpu is odd"),
    ] {
        assert_eq!(refused(verdict), format!("commit of i-1 refused: {words}"));
    }
}

#[test]
fn a_record_is_believed_in_its_own_phase_alone() {
    fn covered<S: TypedState>() -> Vec<State> {
        State::ALL.into_iter().filter(|s| Instance::<S>::believe(&mine(*s)).is_some()).collect()
    }
    assert_eq!(covered::<Created>(), [State::Created]);
    assert_eq!(covered::<Idle>(), [State::Idle]);
    assert_eq!(covered::<Claimed>(), [State::Claimed]);
    assert_eq!(covered::<Running>(), [State::Running]);
    assert_eq!(covered::<Terminated>(), [State::Terminated]);
    assert_eq!(covered::<Live>(), State::ALL[..4]);
}
