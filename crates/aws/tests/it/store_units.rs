//! The units that the simulation counts at scale are those that the gateway counts for the same calls
//! of this store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::lifecycle::{Idle, Instance, Live, Pending, TypedState, Verdict};
use ondeck_core::model::demand::Demand;
use ondeck_core::model::ids::{InstanceId, IntentId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::Record;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::modes::provision::Request;
use ondeck_core::ports::{RecordScope, Store};
use ondeck_core::testkit::VirtualClock;
use ondeck_sim::{AtOnce, Meter, MeteredStore, MeteredTable};
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{Gateway, GatewayOptions};

use crate::store_harness::{HOUR, StoreHarness, instance, noon, run, spec};

/// Read and write units by index and partition key.
type UnitsByKey = BTreeMap<(Option<String>, String), (f64, f64)>;

const MACHINES: usize = 30;

async fn make<S: TypedState>(store: &dyn Store, pending: Pending<S>) -> Instance<S> {
    let verdict = store.write(pending.change()).await.unwrap();
    pending.settle(verdict).unwrap()
}

/// The life of some machines, one call after the other.
async fn live(store: &dyn Store) {
    let settings = [("index-shards", "2"), ("agent-key-prefix", ""), ("ami", "ami-1")];
    let mut settings: BTreeMap<String, String> =
        settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    settings.insert("pre-runner-script".to_owned(), "#".repeat(5_000));
    store.put_settings(&settings).await.unwrap();
    store.settings().await.unwrap();

    let ids: Vec<InstanceId> = (0..MACHINES).map(|n| instance(&format!("i-{n:017x}"))).collect();
    let mut idle: Vec<Instance<Idle>> = Vec::new();
    for id in &ids {
        let created = make(store, Instance::register(id, &spec(), &run("7"), noon(), HOUR)).await;
        let running = make(store, created.activate(noon(), HOUR * 2)).await;
        idle.push(make(store, running.release(noon(), HOUR * 3)).await);
    }
    let tickets: Vec<Ticket> = idle.iter().map(Instance::ticket).collect();
    store.mark_ticketed(&tickets, noon()).await.unwrap();
    let mut claimed = Vec::new();
    for idle in &idle[..20] {
        claimed.push(make(store, idle.claim(&run("8"), noon(), HOUR)).await);
    }
    let commits = claimed[..5].iter().map(|it| it.commit(noon(), HOUR).change().clone());
    assert!(store.write_all_or_none(&commits.collect::<Vec<_>>()).await.unwrap());
    let late = idle[0].claim(&run("9"), noon(), HOUR);
    assert!(matches!(store.write(late.change()).await.unwrap(), Verdict::Refused(_)));
    store.of_run(&run("8")).await.unwrap();
    store.of_run(&run("none")).await.unwrap();
    store.records(&ids[..5]).await.unwrap();
    store.list(RecordScope::Live).await.unwrap();
    store.agent_status(&ids).await.unwrap();

    let now = noon() + HOUR * 2;
    let expired = store.expired(now).await.unwrap();
    assert_eq!(expired.records.len(), 20);
    let reap = |record: &Record| {
        let live = Instance::<Live>::believe(record).unwrap();
        (live.reap(now).change().clone(), record.clone())
    };
    let reaps: Vec<_> = expired.records.iter().map(reap).collect();
    for verdict in store.write_all(&reaps).await {
        assert!(matches!(verdict.unwrap(), Verdict::Agreed(_)));
    }
    assert_eq!(store.forget(now + HOUR).await.unwrap(), 20);
    launch(store).await;
    store.finish().await.unwrap();
}

/// What a provision writes beside the records.
async fn launch(store: &dyn Store) {
    let intent = Intent {
        id: IntentId::new("8-1").unwrap(),
        run: run("8"),
        class: Some("large".parse().unwrap()),
        count: 2,
        usage: UsageClass::Spot,
        deadline: noon() + HOUR,
        outcome: String::new(),
    };
    store.put_intent(&intent).await.unwrap();
    assert_eq!(store.open_intents().await.unwrap().len(), 1);
    store.put_intent(&Intent { outcome: "2 machines".to_owned(), ..intent }).await.unwrap();
    store.open_intents().await.unwrap();
    let asked =
        |seconds| Demand::of(&Request::of_run(run("8")), noon() + Duration::from_secs(seconds));
    store.put_demand(&asked(0)).await.unwrap();
    store.put_demand(&asked(9)).await.unwrap();
    assert!(store.replace_demand(Some(&asked(9)), &asked(9)).await.unwrap());
    assert!(!store.replace_demand(Some(&asked(0)), &asked(9)).await.unwrap());
    assert!(store.replace_demand(Some(&asked(9)), &asked(20)).await.unwrap());
    assert!(!store.replace_demand(None, &asked(20)).await.unwrap());
    let other = Demand { run: run("9"), ..asked(20) };
    assert!(store.replace_demand(None, &other).await.unwrap());
    store.demands(&[run("8"), run("none")]).await.unwrap();
}

#[tokio::test]
async fn the_meter_of_the_simulation_agrees_with_the_gateway() {
    let harness = StoreHarness::set_up().await;
    let emulators = Emulators::running();
    let options = GatewayOptions::at(&emulators.dynamodb, &emulators.ministack);
    let gateway = Gateway::start(GatewayOptions { measure_units: true, ..options });
    let endpoint = gateway.endpoint("control");
    live(&harness.store_through(endpoint.url()).await).await;
    gateway.assert_all_measured();
    let measured: UnitsByKey = endpoint
        .consumed()
        .into_iter()
        .map(|(key, units)| ((key.index, key.value), (units.reads, units.writes)))
        .collect();

    let meter = Meter::default();
    let clock = Arc::new(VirtualClock::new());
    let table = MeteredTable::new(clock, meter.clone(), Arc::new(AtOnce));
    live(&MeteredStore::new(&table)).await;
    let metered: UnitsByKey = meter
        .take()
        .keys
        .into_iter()
        .map(|(key, used)| {
            let total = (used.total.reads, used.total.writes);
            ((key.index.map(str::to_owned), key.value), total)
        })
        .collect();
    let keys: std::collections::BTreeSet<_> = measured.keys().chain(metered.keys()).collect();
    let differ = keys.into_iter().filter(|key| measured.get(key) != metered.get(key));
    let differ: Vec<String> = differ
        .map(|key| format!("{key:?}: {:?}, metered {:?}", measured.get(key), metered.get(key)))
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
    harness.done().await;
}
