//! The emulators, on connections that are kept.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::aws::call::Call;
use crate::aws::faults::answers;

use crate::http::Answer;

/// Emulators close what was idle for some seconds. We must be the first to, or a request is lost
/// now and then for no reason that is being tested.
const IDLE: Duration = Duration::from_secs(2);

/// DynamoDB Local gives every access key tables of its own, so all callers must have the same
/// one: machines have keys that the control plane has not.
const KEY: &str = "test";

/// The services that are elsewhere.
#[derive(Debug)]
pub(super) struct Upstreams {
    client: Client<HttpConnector, Full<Bytes>>,
    dynamodb: Upstream,
    sqs: Upstream,
}

#[derive(Debug)]
struct Upstream {
    base: String,
    host: HeaderValue,
}

impl Upstreams {
    pub(super) fn new(dynamodb: &str, sqs: &str) -> Upstreams {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Upstreams { client, dynamodb: Upstream::at(dynamodb), sqs: Upstream::at(sqs) }
    }

    pub(super) async fn dynamodb(&self, call: &Call) -> Answer {
        self.forward(&self.dynamodb, call).await
    }

    pub(super) async fn sqs(&self, call: &Call) -> Answer {
        self.forward(&self.sqs, call).await
    }

    async fn forward(&self, upstream: &Upstream, call: &Call) -> Answer {
        match self.ask(upstream, call).await {
            Ok(answer) => answer,
            // No status that AWS would give, so that nobody takes it for a fault of the plan.
            Err(error) => {
                let message = format!("cannot reach {}: {error}", upstream.base);
                answers::refusal(call.service, 502, "BadGateway", &message)
            }
        }
    }

    async fn ask(
        &self,
        upstream: &Upstream,
        call: &Call,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let path = call.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri = format!("{}{path}", upstream.base).parse()?;
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        let mut headers = without_framing(call.headers.clone());
        headers.insert(HOST, upstream.host.clone());
        if let Some(authorization) = headers.get(AUTHORIZATION).and_then(with_one_key) {
            headers.insert(AUTHORIZATION, authorization);
        }
        *request.headers_mut() = headers;
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status, headers: without_framing(head.headers), body })
    }
}

impl Upstream {
    fn at(url: &str) -> Upstream {
        let base = url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().unwrap_or_else(|_| panic!("not an address: {url}"));
        let host = uri.authority().unwrap_or_else(|| panic!("an address without a host: {url}"));
        let host = HeaderValue::from_str(host.as_str()).expect("a host is plain text");
        Upstream { base, host }
    }
}

/// Each connection frames its messages by itself.
fn without_framing(mut headers: HeaderMap) -> HeaderMap {
    for name in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers
}

/// `Credential=ASIA…/20261115/…` with the one key in its place.
fn with_one_key(authorization: &HeaderValue) -> Option<HeaderValue> {
    let (before, credential) = authorization.to_str().ok()?.split_once("Credential=")?;
    let (_, after) = credential.split_once('/')?;
    HeaderValue::from_str(&format!("{before}Credential={KEY}/{after}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_callers_have_one_key() {
        let header = |text: &str| HeaderValue::from_str(text).unwrap();
        let before =
            header("AWS4-HMAC-SHA256 Credential=ASIAX/20261115/r/dynamodb/aws4_request, S=1");
        let after =
            header("AWS4-HMAC-SHA256 Credential=test/20261115/r/dynamodb/aws4_request, S=1");
        assert_eq!(with_one_key(&before), Some(after));
        assert_eq!(with_one_key(&header("Basic abc")), None);
    }
}
