//! The instance metadata service of one machine, version 2 only.

use std::collections::HashMap;
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
        let (status, text) = match (request.method(), request.uri().path()) {
            (&Method::PUT, "/latest/api/token") => {
                // The real service refuses requests that were forwarded by a proxy.
                if header("x-forwarded-for").is_some() {
                    (StatusCode::FORBIDDEN, String::new())
                } else {
                    self.token(header(TTL))
                }
            }
            (&Method::GET, _) if !self.admits(header(TOKEN)) => {
                (StatusCode::UNAUTHORIZED, "401 - Unauthorized".to_owned())
            }
            (&Method::GET, path) => {
                let region = &self.ec2.surroundings().region;
                match self.ec2.with(&self.id, |it| tell(it, region, path)).flatten() {
                    Some(text) => (StatusCode::OK, text),
                    None => (StatusCode::NOT_FOUND, "404 - Not Found".to_owned()),
                }
            }
            _ => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        if let Some(ttl) = request.headers().get(TTL) {
            response.headers_mut().insert(TTL, ttl.clone());
        }
        response
    }

    /// Issues a token that is valid for the requested seconds. Refuses less than one second or
    /// more than six hours.
    fn token(&self, ttl: Option<&str>) -> (StatusCode, String) {
        let ttl = ttl.and_then(|ttl| ttl.parse().ok()).filter(|ttl| (1..=21_600).contains(ttl));
        let Some(ttl) = ttl else { return (StatusCode::BAD_REQUEST, String::new()) };
        let token = format!("{:032x}", fastrand::u128(..));
        locked(&self.tokens).insert(token.clone(), Instant::now() + Duration::from_secs(ttl));
        (StatusCode::OK, token)
    }

    fn admits(&self, token: Option<&str>) -> bool {
        let until = token.and_then(|token| locked(&self.tokens).get(token).copied());
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// The metadata at a path; `None` is a 404.
fn tell(instance: &Instance, region: &str, path: &str) -> Option<String> {
    let machine = &instance.machine;
    if path == "/latest/dynamic/instance-identity/document" {
        return Some(identity(instance, region));
    }
    let name = path.strip_prefix("/latest/meta-data/")?;
    Some(match name {
        "instance-id" => machine.id.clone(),
        "instance-type" => machine.instance_type.clone(),
        "ami-id" => instance.image.clone(),
        "placement/region" => region.to_owned(),
        "services/partition" => "aws".to_owned(),
        "placement/availability-zone" => machine.zone.clone(),
        "instance-life-cycle" => machine.lifecycle.name().to_owned(),
        "spot/instance-action" => {
            let time = timestamps::iso(instance.notice?);
            json!({ "action": "terminate", "time": time }).to_string()
        }
        "spot/termination-time" => timestamps::iso(instance.notice?),
        "events/recommendations/rebalance" => {
            json!({ "noticeTime": timestamps::iso(instance.rebalance?) }).to_string()
        }
        "tags/instance" | "tags/instance/" if instance.metadata_tags => {
            machine.tags.keys().map(String::as_str).collect::<Vec<_>>().join("\n")
        }
        "iam/security-credentials" | "iam/security-credentials/" => instance.profile.clone()?,
        name => {
            if let Some(key) = name.strip_prefix("tags/instance/") {
                return machine.tags.get(key).filter(|_| instance.metadata_tags).cloned();
            }
            let role = name.strip_prefix("iam/security-credentials/")?;
            return (instance.profile.as_deref() == Some(role)).then(|| credentials(&machine.id));
        }
    })
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
        "privateIp": "127.0.0.1",
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
