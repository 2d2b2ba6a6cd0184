//! The life of machines on an EC2 that others have written. It knows nothing of capacity,
//! requirements or client tokens; what those do is tested beside the code, word by word.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ondeck_aws::{Cloud, Ec2Compute, Options, PoolName};
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
use ondeck_core::model::requirements::{ClassSize, Requirements, UsageClass};
use ondeck_core::model::settings::Settings;
use ondeck_core::ports::{Compute, Order, PortError};
use ondeck_core::testkit::FixedRandom;
use ondeck_core::testkit::contract::compute_suite;
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{Gateway, GatewayOptions, PolicyPool, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A pool that no other test has.
fn pool() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let n = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("ec2-tests/P{}-{n}", std::process::id())
}

async fn cloud(pool: &str) -> Cloud {
    cloud_at(&Emulators::running().ministack, pool).await
}

async fn cloud_at(url: &str, pool: &str) -> Cloud {
    let options = Options {
        pool: pool.parse().unwrap(),
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(url.to_owned()),
    };
    Cloud::connect(options, Arc::new(FixedRandom(0))).await.unwrap()
}

struct Ec2Harness {
    pool: String,
    compute: Ec2Compute,
    settings: Settings,
}

impl Ec2Harness {
    async fn new() -> Ec2Harness {
        let pool = pool();
        let settings = Settings {
            backend: BTreeMap::from(
                [
                    ("ami", "ami-0123456789abcdef0"),
                    ("subnet-ids", "subnet-00000001 subnet-00000002"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
            ),
            ..Settings::default()
        };
        let compute = Ec2Compute::new(&cloud(&pool).await);
        Ec2Harness { pool, compute, settings }
    }

    fn order(&self, intent: &str, count: u32) -> Order {
        Order {
            intent: IntentId::new(intent).unwrap(),
            run: RunId::new("4711").unwrap(),
            count,
            requirements: Requirements {
                class: ResourceClass::new("large").unwrap(),
                size: ClassSize { cpu: 2, mem: 4096 },
                usage: UsageClass::Spot,
                types: "c* m*".parse().unwrap(),
            },
        }
    }

    async fn listed(&self) -> Vec<InstanceId> {
        let mut ids: Vec<InstanceId> =
            self.compute.machines().await.unwrap().into_iter().map(|machine| machine.id).collect();
        ids.sort();
        ids
    }

    /// The launch template's name, if there is one.
    async fn template(&self) -> String {
        let text = by_hand("Action=DescribeLaunchTemplates").await;
        let legible = self.pool.to_ascii_lowercase().replace('/', "-");
        let names = text.split("<launchTemplateName>").skip(1);
        let mut names = names.map(|rest| rest.split('<').next().unwrap_or_default());
        let ours = names.find(|name| name.starts_with(&format!("ondeck-{legible}-")));
        ours.unwrap_or_default().to_owned()
    }

    /// How many versions it has.
    async fn versions(&self) -> usize {
        let name = self.template().await;
        let action = "Action=DescribeLaunchTemplateVersions";
        let text = by_hand(&format!("{action}&LaunchTemplateName={name}")).await;
        text.matches("<versionNumber>").count()
    }
}

/// What the emulator answers to another client.
async fn by_hand(form: &str) -> String {
    let address = Emulators::running().ministack.replace("http://", "");
    let body = format!("Version=2016-11-15&{form}");
    let scope = "Credential=test/20260101/us-east-1/ec2/aws4_request";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\
         Authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

#[tokio::test]
async fn the_template_is_versioned_on_change_and_made_again_when_it_is_gone() {
    let mut harness = Ec2Harness::new().await;
    harness.compute.set_up(&harness.settings).await.unwrap();
    let name = harness.template().await;
    assert!(!name.is_empty());
    harness.compute.set_up(&harness.settings).await.unwrap();
    assert_eq!(harness.versions().await, 1, "nothing has changed");
    harness.settings.backend.insert("key-name".to_owned(), "mine".to_owned());
    harness.compute.set_up(&harness.settings).await.unwrap();
    harness.compute.set_up(&harness.settings).await.unwrap();
    assert_eq!(harness.versions().await, 2, "changed once");
    by_hand(&format!("Action=DeleteLaunchTemplate&LaunchTemplateName={name}")).await;
    assert_eq!(harness.template().await, "");
    let failed =
        harness.compute.launch(&harness.order("a1", 1), &harness.settings).await.unwrap_err();
    assert!(matches!(failed, PortError::NotSetUp { .. }), "{failed}");
    harness.compute.set_up(&harness.settings).await.unwrap();
    assert_eq!((harness.template().await, harness.versions().await), (name, 1));
}

#[tokio::test]
async fn refreshes_at_the_same_time_agree() {
    let harness = Ec2Harness::new().await;
    let all = futures_util::future::join_all((0..8).map(|_| async {
        let compute = Ec2Compute::new(&cloud(&harness.pool).await);
        compute.set_up(&harness.settings).await
    }))
    .await;
    for one in all {
        one.unwrap();
    }
    assert_eq!(harness.versions().await, 1);
}

/// On the stand-in, which knows client tokens, unlike the other EC2.
#[tokio::test]
async fn it_keeps_the_contract_of_compute() {
    let gateway = Gateway::start(GatewayOptions::on(&Emulators::running()));
    let harness = Ec2Harness::new().await;
    let pool = PolicyPool {
        pool: harness.pool.to_ascii_lowercase(),
        name: harness.pool.parse::<PoolName>().unwrap().resource_name(),
        machine_role: "ondeck-machine".to_owned(),
    };
    gateway.grant("test", &pool, &[Role::Refresh]);
    let settings = Settings {
        backend: BTreeMap::from(
            [("ami", "ami-0123456789abcdef0"), ("subnet-ids", "subnet-0a subnet-0b")]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        ),
        ..Settings::default()
    };
    let endpoint = gateway.endpoint("suite");
    let compute = Ec2Compute::new(&cloud_at(endpoint.url(), &harness.pool).await);
    compute_suite(&compute, &harness.order("suite", 3), &settings).await;
    gateway.assert_nothing_denied();
}

#[tokio::test]
async fn machines_are_launched_listed_and_ended() {
    let harness = Ec2Harness::new().await;
    let (compute, others) = (&harness.compute, Ec2Harness::new().await);
    compute.set_up(&harness.settings).await.unwrap();
    others.compute.set_up(&others.settings).await.unwrap();
    let strangers = others.compute.launch(&others.order("b1", 1), &others.settings).await.unwrap();
    let launched = compute.launch(&harness.order("a1", 3), &harness.settings).await.unwrap();
    assert!(launched.shortfalls.is_empty(), "{:?}", launched.shortfalls);
    let mut ids: Vec<InstanceId> = launched.machines.iter().map(|m| m.id.clone()).collect();
    ids.sort();
    assert_eq!(ids.len(), 3);
    assert!(launched.machines.iter().all(|machine| machine.spec.usage_class == UsageClass::Spot));
    assert_eq!(harness.listed().await, ids, "ours only");
    for machine in compute.machines().await.unwrap() {
        assert_eq!(machine.intent.as_str(), "a1");
        assert_eq!(machine.spec.resource_class.as_str(), "large");
        assert_eq!(machine.spec.mem, 4096);
        assert!(machine.launched_at.millis() > 0);
    }
    let unknown = InstanceId::new("i-00000000000000bad").unwrap();
    let not_ec2s = InstanceId::new("local-1").unwrap();
    let some = [ids[0].clone(), unknown, ids[1].clone(), not_ec2s];
    compute.terminate(&some).await.unwrap();
    assert_eq!(harness.listed().await, ids[2..]);
    compute.terminate(&some).await.unwrap();
    compute.terminate(&ids).await.unwrap();
    assert_eq!(harness.listed().await, []);
    assert_eq!(others.listed().await, [strangers.machines[0].id.clone()]);
    others.compute.terminate(&[strangers.machines[0].id.clone()]).await.unwrap();
}
