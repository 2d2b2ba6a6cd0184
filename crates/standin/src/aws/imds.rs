//! The instance metadata service of one machine, version 2 only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::aws::ec2::{Ec2, Instance};
use crate::http::listen;
use crate::sync::locked;
use crate::timestamps;

const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN: &str = "x-aws-ec2-metadata-token";
/// Below this are the tags of a machine.
const TAGS: &str = "tags/instance";
/// The hardware address of a machine's only network interface, as its metadata service states it.
pub const MACHINE_MAC: &str = "0a:00:00:00:00:01";
/// Machines are processes of this computer.
const PRIVATE_IP: &str = "127.0.0.1";

/// A running metadata service. Dropping it stops the service.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) url: String,
    listening: AbortHandle,
}

impl Drop for Metadata {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Starts the metadata service of a machine on a free port.
pub(crate) fn start(ec2: &Ec2, id: &str) -> Metadata {
    let listener = listen(0);
    let address = listener.local_addr().expect("a listener has an address");
    let service =
        Arc::new(Service { ec2: ec2.clone(), id: id.to_owned(), tokens: Mutex::default() });
    let listening = tokio::spawn(async move {
        let listener = TcpListener::from_std(listener).expect("the listener does not block");
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request: Request<Incoming>| {
                    let response = service.answer(&request);
                    async move { Ok::<_, std::convert::Infallible>(response) }
                });
                // An error means that the caller is gone.
                http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.ok();
            });
        }
    });
    Metadata { url: format!("http://{address}"), listening: listening.abort_handle() }
}

#[derive(Debug)]
struct Service {
    ec2: Ec2,
    id: String,
    tokens: Mutex<HashMap<String, Instant>>,
}

impl Service {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let header = |name| request.headers().get(name).and_then(|it| it.to_str().ok());
        let (status, answer) = match (request.method(), request.uri().path()) {
            (&Method::PUT, "/latest/api/token") => {
                // The real service refuses requests that were forwarded by a proxy.
                if header("x-forwarded-for").is_some() {
                    (StatusCode::FORBIDDEN, Vec::new())
                } else {
                    self.token(header(TTL))
                }
            }
            (&Method::GET, _) if !self.admits(header(TOKEN)) => {
                (StatusCode::UNAUTHORIZED, b"401 - Unauthorized".to_vec())
            }
            (&Method::GET, path) => {
                let region = &self.ec2.surroundings().region;
                match self.ec2.with(&self.id, |it| tell(it, region, path)).flatten() {
                    Some(answer) => (StatusCode::OK, answer),
                    None => (StatusCode::NOT_FOUND, b"404 - Not Found".to_vec()),
                }
            }
            _ => (StatusCode::METHOD_NOT_ALLOWED, Vec::new()),
        };
        let mut response = Response::new(Full::new(Bytes::from(answer)));
        *response.status_mut() = status;
        if let Some(ttl) = request.headers().get(TTL) {
            response.headers_mut().insert(TTL, ttl.clone());
        }
        response
    }

    /// Issues a token that is valid for the requested seconds. Refuses less than one second or
    /// more than six hours.
    fn token(&self, ttl: Option<&str>) -> (StatusCode, Vec<u8>) {
        let ttl = ttl.and_then(|ttl| ttl.parse().ok()).filter(|ttl| (1..=21_600).contains(ttl));
        let Some(ttl) = ttl else { return (StatusCode::BAD_REQUEST, Vec::new()) };
        let token = format!("{:032x}", fastrand::u128(..));
        locked(&self.tokens).insert(token.clone(), Instant::now() + Duration::from_secs(ttl));
        (StatusCode::OK, token.into())
    }

    fn admits(&self, token: Option<&str>) -> bool {
        let until = token.and_then(|token| locked(&self.tokens).get(token).copied());
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// The answer for a path; `None` is a 404. Each version of the service has the same answers here.
fn tell(instance: &Instance, region: &str, path: &str) -> Option<Vec<u8>> {
    let (version, path) = path.strip_prefix('/')?.split_once('/')?;
    let is_date =
        version.len() == 10 && version.bytes().all(|it| it.is_ascii_digit() || it == b'-');
    if version != "latest" && !is_date {
        return None;
    }
    match path {
        "dynamic/instance-identity" | "dynamic/instance-identity/" => Some("document".into()),
        "dynamic/instance-identity/document" => Some(identity(instance, region).into()),
        "user-data" => instance.machine.user_data.clone(),
        _ => {
            let name = path.strip_prefix("meta-data")?;
            let name = if name.is_empty() { name } else { name.strip_prefix('/')? };
            entry(&metadata(instance, region), name).map(Into::into)
        }
    }
}

/// The value of this name, or else the list of what is below it; `None` if there is neither.
fn entry(all: &BTreeMap<String, String>, name: &str) -> Option<String> {
    if let Some(value) = all.get(name) {
        return Some(value.clone());
    }
    let folder = name.trim_end_matches('/');
    let below = |known: &&String| folder.is_empty() || known.starts_with(&format!("{folder}/"));
    let names: BTreeSet<String> = all
        .keys()
        .filter(below)
        .map(|known| {
            let rest = known[folder.len()..].trim_start_matches('/');
            // Names of tags may contain slashes.
            let is_tag = folder == TAGS;
            match rest.split_once('/').filter(|_| !is_tag) {
                Some((first, _)) => format!("{first}/"),
                None => rest.to_owned(),
            }
        })
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join("\n"))
}

/// All metadata of a machine, by name.
fn metadata(instance: &Instance, region: &str) -> BTreeMap<String, String> {
    let machine = &instance.machine;
    let host = format!("ip-{}.ec2.internal", PRIVATE_IP.replace('.', "-"));
    let mut all: BTreeMap<String, String> = [
        ("ami-id", instance.image.clone()),
        ("ami-launch-index", "0".to_owned()),
        ("hostname", host.clone()),
        ("instance-id", machine.id.clone()),
        ("instance-life-cycle", machine.lifecycle.name().to_owned()),
        ("instance-type", machine.instance_type.clone()),
        ("local-hostname", host),
        ("local-ipv4", PRIVATE_IP.to_owned()),
        ("mac", MACHINE_MAC.to_owned()),
        ("placement/availability-zone", machine.zone.clone()),
        ("placement/region", region.to_owned()),
        ("services/domain", "amazonaws.com".to_owned()),
        ("services/partition", "aws".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let interface = [
        ("device-number", "0"),
        ("local-ipv4s", PRIVATE_IP),
        ("mac", MACHINE_MAC),
        ("subnet-id", &machine.subnet),
    ];
    all.extend(interface.map(|(name, value)| {
        (format!("network/interfaces/macs/{MACHINE_MAC}/{name}"), value.to_owned())
    }));
    if let Some(notice) = instance.notice.map(timestamps::iso) {
        let action = json!({ "action": "terminate", "time": notice }).to_string();
        all.insert("spot/instance-action".to_owned(), action);
        all.insert("spot/termination-time".to_owned(), notice);
    }
    if let Some(time) = instance.rebalance.map(timestamps::iso) {
        let recommended = json!({ "noticeTime": time }).to_string();
        all.insert("events/recommendations/rebalance".to_owned(), recommended);
    }
    if instance.metadata_tags {
        let tags = machine.tags.iter();
        all.extend(tags.map(|(key, value)| (format!("{TAGS}/{key}"), value.clone())));
    }
    if let Some(role) = &instance.profile {
        all.insert(format!("iam/security-credentials/{role}"), credentials(&machine.id));
    }
    all
}

fn identity(instance: &Instance, region: &str) -> String {
    let machine = &instance.machine;
    json!({
        "accountId": "000000000000",
        "architecture": if instance.spec.threads_per_core == 1 { "arm64" } else { "x86_64" },
        "availabilityZone": machine.zone,
        "imageId": instance.image,
        "instanceId": machine.id,
        "instanceType": machine.instance_type,
        "pendingTime": timestamps::iso(machine.launched),
        "privateIp": PRIVATE_IP,
        "region": region,
        "version": "2017-09-30",
    })
    .to_string()
}

/// The access key of a machine, by which the gateway recognises its calls.
pub(crate) fn access_key(id: &str) -> String {
    let key: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("ASIA{}", key.to_ascii_uppercase())
}

/// Credentials that are unique to the machine, so that a test that finds one knows its machine.
fn credentials(id: &str) -> String {
    let now = SystemTime::now();
    let key: String = id.chars().filter(char::is_ascii_alphanumeric).collect();
    json!({
        "Code": "Success",
        "LastUpdated": timestamps::iso(now),
        "Type": "AWS-HMAC",
        "AccessKeyId": access_key(id),
        "SecretAccessKey": format!("standin-secret-{key}"),
        "Token": format!("standin-token-{key}"),
        "Expiration": timestamps::iso(now + Duration::from_secs(3_600)),
    })
    .to_string()
}
