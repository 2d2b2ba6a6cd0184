//! Several real processes that use one file at once.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::lifecycle::{Created, Idle, Instance, Verdict};
use ondeck_core::model::record::{MachineSpec, State};
use ondeck_core::ports::{Clock, RecordScope, Store};
use ondeck_local::{Db, Home, LocalStore};

use crate::harness::{LocalHarness, RealClock, child_arguments, instance, run, spawn};

const INSTANCES: usize = 200;
const PROCESSES: usize = 8;
const HOUR: Duration = Duration::from_secs(3_600);

async fn plant_idle(store: &LocalStore, n: usize) {
    let spec = MachineSpec {
        resource_class: "large".parse().unwrap(),
        instance_type: "c6i.large".to_owned(),
        usage_class: "spot".parse().unwrap(),
        cpu: 2,
        mem: 4_096,
    };
    let (id, now) = (instance(&format!("i-{n:03}")), RealClock.now());
    let register = Instance::<Created>::register(&id, &spec, &run("first"), now, HOUR);
    let verdict = store.write(register.change()).await.unwrap();
    let activate = register.settle(verdict).unwrap().activate(now, HOUR);
    let verdict = store.write(activate.change()).await.unwrap();
    let release = activate.settle(verdict).unwrap().release(now, HOUR);
    assert!(matches!(store.write(release.change()).await, Ok(Verdict::Agreed(_))));
}

#[tokio::test]
async fn processes_that_claim_at_once_share_the_instances_without_loss() {
    let harness = LocalHarness::new();
    let store = harness.store();
    for n in 0..INSTANCES {
        plant_idle(&store, n).await;
    }
    let claimants: Vec<_> = (0..PROCESSES)
        .map(|n| spawn("contention::claimant", &harness.home, &format!("claimant-{n}")))
        .collect();
    for mut claimant in claimants {
        assert!(claimant.wait().unwrap().success(), "no claimant met an error of any kind");
    }
    let mut owners = BTreeMap::new();
    for n in 0..PROCESSES {
        let name = format!("claimant-{n}");
        let won = std::fs::read_to_string(harness.home.dir().join(&name)).unwrap();
        for id in won.lines() {
            let before = owners.insert(id.to_owned(), name.clone());
            assert_eq!(before, None, "{id} was given to two");
        }
    }
    assert_eq!(owners.len(), INSTANCES, "no claim was lost");
    for record in store.list(RecordScope::All).await.unwrap().records {
        assert_eq!(record.state, State::Claimed);
        assert_eq!(record.run, Some(run(&owners[record.id.as_str()])), "{}", record.id);
    }
    let events = store.events().await.unwrap();
    let claims = events.iter().filter(|event| event.transition == "claim").count();
    assert_eq!(claims, INSTANCES, "an event for each claim");
}

/// A child process that claims instances.
#[tokio::test]
async fn claimant() {
    let Some((home, name)) = child_arguments() else { return };
    let store = LocalStore::new(Db::open(&home).unwrap());
    let mut won = String::new();
    for record in store.list(RecordScope::Live).await.unwrap().records {
        let Some(idle) = Instance::<Idle>::believe(&record) else { continue };
        let claim = idle.claim(&run(&name), RealClock.now(), HOUR);
        if matches!(store.write(claim.change()).await.unwrap(), Verdict::Agreed(_)) {
            won.push_str(&format!("{}\n", record.id));
        }
    }
    std::fs::write(home.dir().join(name), won).unwrap();
}

#[test]
fn any_number_of_processes_may_create_the_store_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().join("new/home"));
    let makers: Vec<_> = (0..PROCESSES).map(|_| spawn("contention::maker", &home, "m")).collect();
    for mut maker in makers {
        assert!(maker.wait().unwrap().success());
    }
    Db::open(&home).unwrap();
}

/// A child process that creates the store and exits, as the program does.
#[tokio::test]
async fn maker() {
    let Some((home, _)) = child_arguments() else { return };
    for n in 0..20 {
        let store = LocalStore::new(Db::create(&home).unwrap());
        let settings = BTreeMap::from([("n".to_owned(), n.to_string())]);
        store.put_settings(&settings).await.unwrap();
        assert!(!Store::settings(&store).await.unwrap().is_empty());
    }
}
