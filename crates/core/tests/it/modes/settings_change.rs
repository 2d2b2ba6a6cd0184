//! A refresh that is given other settings: it applies all of them or none, also if a call
//! fails or it is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{pin_mut, poll};
use ondeck_core::model::credentials::{Credentials, TokenPurpose};
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::IntentId;
use ondeck_core::model::record::State;
use ondeck_core::model::secret::Secret;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::modes::refresh::{self, refresh, refresh_unchanged};
use ondeck_core::ports::{AgentStore, Machine, Store};
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, request, run, spec};

type Given<'a> = &'a [(&'a str, &'a str)];

fn map(given: Given<'_>) -> BTreeMap<String, String> {
    given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The stored settings, without the note of when everything was last checked.
async fn stored(harness: &Harness) -> BTreeMap<String, String> {
    let mut settings = Store::settings(&*harness.memory.store).await.unwrap();
    settings.remove("set-up-checked");
    settings
}

async fn refresh_given(harness: &Harness, given: Given<'_>) -> refresh::Outcome {
    refresh(&harness.plane, &map(given), &StopSignal::never()).await.unwrap()
}

/// Adds one machine of each kind that a refresh has to deal with.
async fn something_to_do(harness: &Harness) {
    for name in ["i-late", "i-orphan"] {
        harness.make_defective(name, MachineDefect::NeverBoots);
    }
    harness.idle("i-idle", "c6i.large").await;
    harness.put_idle("i-late", spec("c6i.large"), Duration::ZERO).await;
    harness.memory.compute.insert(Machine {
        id: id("i-orphan"),
        spec: spec("c6i.large"),
        intent: IntentId::new("x").unwrap(),
        launched_at: harness.plane.now().before(Duration::from_secs(3600)),
        image: None,
    });
}

/// Asserts that what was to be done is done, and that the idle machine can be used.
async fn assert_repaired(harness: &Harness, outcome: &refresh::Outcome, case: &str) {
    assert_eq!(outcome.reaped, [id("i-late")], "{case}");
    assert_eq!(outcome.orphans, [id("i-orphan")], "{case}");
    assert_eq!(harness.alive(), ["i-idle"], "{case}");
    let provisioned = harness.provision(&request("1", 1)).await;
    assert_eq!(provisioned.failure, None, "{case}");
    assert_eq!(provisioned.count(MachineSource::Warm), 1, "{case}");
}

fn credentials(harness: &Harness, name: &str) -> Credentials {
    Credentials {
        registration: Secret::new(format!("{name}-in")),
        removal: Secret::new(format!("{name}-out")),
        expires_at: harness.plane.now() + Duration::from_secs(7200),
    }
}

#[tokio::test]
async fn what_exists_is_checked_every_hour_after_a_failure_and_for_other_settings() {
    let harness = Harness::new().await;
    let given = [("idle-time-sec", "200")];
    refresh_given(&harness, &given).await;
    let checks = async |given: Given<'_>| {
        let before = harness.memory.pool.calls()["set_up"];
        let failure = refresh_given(&harness, given).await.failure;
        (harness.memory.pool.calls()["set_up"] > before, failure.is_some())
    };
    let writes = || harness.memory.store.calls().get("put_settings").copied().unwrap_or_default();
    let before = writes();
    assert_eq!(checks(&given).await, (false, false), "just checked");
    assert_eq!(checks(&[]).await, (false, false), "the stored settings are the same");
    assert_eq!(writes(), before, "nothing has changed, and nothing is written");
    assert_eq!(checks(&[("idle-time-sec", "201")]).await, (true, false), "another setting");
    assert_eq!(checks(&[("idle-time-sec", "")]).await, (true, false), "the default again");
    harness.sleep(Duration::from_secs(3_599)).await;
    assert_eq!(checks(&[]).await, (false, false));
    harness.sleep(Duration::from_secs(2)).await;
    assert_eq!(checks(&[]).await, (true, false), "an hour later");
    harness.memory.compute.refuse_set_up(true);
    assert_eq!(checks(&[]).await, (false, true), "the provider comes first");
    harness.memory.compute.refuse_set_up(false);
    assert_eq!(checks(&[]).await, (true, false), "the first after a failure");
    assert_eq!(checks(&[]).await, (false, false));
    assert_eq!(checks(&[("idle-time-sec", "soon")]).await, (false, true), "an invalid input");
    assert_eq!(checks(&[]).await, (false, false), "says nothing about what exists");
}

/// Makes one step of set-up fail.
type Fault = fn(&Harness);

const FAULTS: [(&str, FailureKind, Fault); 5] = [
    ("the provider", FailureKind::Unavailable, |h| h.memory.compute.refuse_set_up(true)),
    ("the queues", FailureKind::Unavailable, |h| h.memory.pool.refuse_set_up(true)),
    ("the forge", FailureKind::Forge, |h| h.memory.forge.refuse_set_up(true)),
    ("the credentials", FailureKind::Forge, |h| {
        h.memory.forge.move_to("elsewhere");
        h.memory.forge.refuse_to_mint(true);
    }),
    ("the write", FailureKind::Unavailable, |h| h.memory.store.refuse_settings(true)),
];

#[tokio::test]
async fn a_step_of_set_up_that_fails_changes_no_setting_and_keeps_no_repair_from_being_done() {
    for (case, kind, fault) in FAULTS {
        let harness = Harness::with(&[("idle-time-sec", "200")]).await;
        something_to_do(&harness).await;
        let before = stored(&harness).await;
        fault(&harness);
        let given = [("idle-time-sec", "9"), ("forge", "github"), ("min-idle", "xlarge=2")];
        let outcome = refresh_given(&harness, &given).await;
        assert_eq!(outcome.failure.as_ref().map(|failure| failure.kind), Some(kind), "{case}");
        assert!(!outcome.set_up, "{case}");
        assert_eq!(stored(&harness).await, before, "{case}");
        assert_repaired(&harness, &outcome, case).await;
    }
}

#[tokio::test]
async fn settings_that_cannot_be_used_change_nothing_either() {
    for given in [
        &[("idle-time-sec", "9"), ("min-idle", "huge=1")][..],
        &[("idle-time-sec", "9"), ("claim-timeout-sec", "100")],
        &[("idle-time-sec", "9"), ("heartbeat-period-sec", "61")],
        &[("idle-time-sec", "soon")],
        &[("resource-class-config", "{}")],
    ] {
        let harness = Harness::new().await;
        something_to_do(&harness).await;
        let before = stored(&harness).await;
        let outcome = refresh_given(&harness, given).await;
        let kind = outcome.failure.as_ref().map(|failure| failure.kind);
        assert_eq!(kind, Some(FailureKind::InvalidInput), "{given:?}");
        assert_eq!(stored(&harness).await, before, "{given:?}");
        assert_repaired(&harness, &outcome, &format!("{given:?}")).await;
    }
}

#[tokio::test]
async fn a_caller_that_has_no_settings_to_give_has_the_repairs_done() {
    let harness = Harness::new().await;
    something_to_do(&harness).await;
    let before = stored(&harness).await;
    let failure = Failure::invalid("idle-time-sec is not a number");
    let outcome = refresh_unchanged(&harness.plane, failure.clone(), &StopSignal::never()).await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.failure, Some(failure.clone()));
    assert_eq!(stored(&harness).await, before);
    assert_repaired(&harness, &outcome, "no settings").await;

    let (plane, _) = ondeck_core::testkit::plane();
    let first = refresh_unchanged(&plane, failure.clone(), &StopSignal::never()).await;
    assert_eq!(first.unwrap_err(), failure, "there are no settings to go by");
}

#[tokio::test]
async fn a_first_refresh_that_fails_stores_nothing() {
    for given in [&[("min-idle", "huge=1")][..], &[("created-timeout-sec", "1")]] {
        let (plane, memory) = ondeck_core::testkit::plane();
        let failure = refresh(&plane, &map(given), &StopSignal::never()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidInput, "{given:?}");
        assert!(Store::settings(&*memory.store).await.is_err(), "{given:?}");
    }
}

/// Every call of the ports in memory yields once, so each poll of the refresh ends at another call.
#[tokio::test]
async fn a_refresh_that_is_killed_anywhere_has_stored_all_settings_or_none() {
    let given = map(&[("idle-time-sec", "200"), ("claim-timeout-sec", "299"), ("x", "y")]);
    let (mut kept, mut changed) = (0, 0);
    for polls in 1..200 {
        let harness = Harness::new().await;
        let before = stored(&harness).await;
        harness.memory.forge.set_credentials(vec![credentials(&harness, "new")]);
        harness.memory.forge.move_to("elsewhere");
        harness.idle("i-idle", "c6i.large").await;
        let stop = StopSignal::never();
        let finished = {
            let refreshing = refresh(&harness.plane, &given, &stop);
            pin_mut!(refreshing);
            let mut finished = false;
            for _ in 0..polls {
                finished = finished || poll!(refreshing.as_mut()).is_ready();
            }
            finished
        };
        let after = stored(&harness).await;
        let token = harness.memory.store.token(TokenPurpose::Registration).await.unwrap();
        if after == before {
            kept += 1;
            assert_eq!(token, None, "credentials of settings that are not in force");
        } else {
            changed += 1;
            assert!(given.iter().all(|(name, value)| after.get(name) == Some(value)), "{after:?}");
            assert!(token.is_some(), "settings without the credentials that they need");
        }
        let provisioned = harness.provision(&request("1", 1)).await;
        assert_eq!(provisioned.count(MachineSource::Warm), 1, "killed after {polls} polls");
        if finished {
            break;
        }
    }
    assert!(kept > 5 && changed > 5, "{kept} times nothing, {changed} times everything");
}

#[tokio::test]
async fn credentials_of_the_settings_in_force_are_renewed_though_the_given_ones_are_refused() {
    let harness = Harness::new().await;
    let minted = |name: &str| credentials(&harness, name);
    harness.memory.forge.set_credentials(vec![minted("second"), minted("first")]);
    harness.refresh().await;
    harness.sleep(Duration::from_secs(31 * 60)).await;
    let outcome = refresh_given(&harness, &[("min-idle", "huge=1")]).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::InvalidInput);
    let token = harness.memory.store.token(TokenPurpose::Registration).await.unwrap().unwrap();
    assert_eq!(token.secret, Secret::new("second-in"));
}

/// The runs and runners of another forge say nothing about the machines of this pool.
#[tokio::test]
async fn a_forge_that_is_not_that_of_the_settings_in_force_is_not_gone_by() {
    let harness = Harness::new().await;
    assert!(harness.provision(&request("1", 1)).await.failure.is_none());
    harness.release("1").await;
    harness.sleep(Duration::from_secs(400)).await;
    harness.refresh().await;
    harness.memory.forge.move_to("elsewhere");
    harness.memory.forge.refuse_to_mint(true);
    harness.memory.forge.queue_job(&run("1"));
    let outcome = refresh_given(&harness, &[("forge", "github")]).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Forge);
    assert_eq!((outcome.rescued, outcome.stranded), (vec![], vec![]));
    assert!(harness.alive().is_empty(), "no machine was launched for a run of another forge");
}

/// Settings of an earlier version may contradict each other. That must not cost machines.
#[tokio::test]
async fn a_contradiction_that_is_stored_is_a_warning() {
    let harness = Harness::new().await;
    let contradiction = map(&[("created-timeout-sec", "100")]);
    harness.plane.store.put_settings(&contradiction).await.unwrap();
    let outcome = harness.refresh_with(&[("idle-time-sec", "200")]).await;
    assert_eq!(outcome.warnings.len(), 1, "{:?}", outcome.warnings);
    assert!(outcome.warnings[0].starts_with("created-timeout-sec (100) must be more than"));
    assert!(harness.provision(&request("1", 1)).await.failure.is_none());
    assert!(harness.release("1").await.failure().is_none());
    assert_eq!(harness.state("i-0001"), State::Idle);
    let mut asked = request("2", 1);
    asked.times.0.push(("validation-timeout-sec", Duration::from_secs(120)));
    let refused = harness.provision(&asked).await.failure.unwrap();
    assert_eq!(refused.kind, FailureKind::InvalidInput, "{refused}");
}
