//! Pools of their own on the shared emulator, and a gateway before it that counts calls and can
//! answer in its place.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ondeck_aws::{Cloud, Options, SqsPool};
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::testkit::FixedRandom;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::checked;

/// A pool name that is unique, also across earlier runs on the same emulator.
pub(crate) fn own_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    format!("t{}-{}/{count}", std::process::id(), since.as_millis())
}

/// A pool on the emulator.
pub(crate) async fn pool(name: &str) -> SqsPool {
    pool_at(name, &checked::emulators()).await
}

/// A pool whose calls go to `url`.
pub(crate) async fn pool_at(name: &str, url: &str) -> SqsPool {
    let options = Options {
        pool: name.parse().unwrap(),
        region: Some("us-east-1".to_owned()),
        endpoint_url: Some(url.to_owned()),
    };
    SqsPool::new(&Cloud::connect(options, Arc::new(FixedRandom(0))).await.unwrap())
}

pub(crate) fn class(name: &str) -> ResourceClass {
    ResourceClass::new(name).unwrap()
}

pub(crate) fn tickets(class: &ResourceClass, count: usize) -> Vec<Ticket> {
    let ticket = |n| {
        let json = json!({
            "instanceId": format!("i-{n}"), "usageClass": "spot", "instanceType": "c7i.large",
            "cpu": 2, "mem": 4096, "resourceClass": class, "threshold": "2030-01-01T00:00:00.000Z",
            "generation": 1,
        });
        Ticket::from_json(&json.to_string()).unwrap()
    };
    (0..count).map(ticket).collect()
}

/// One request, as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) action: String,
    pub(crate) body: Value,
    /// The moment of its signature.
    pub(crate) signed_at: String,
}

/// What the gateway says in place of the emulator.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Answer {
    pub(crate) fn ok(body: Value) -> Answer {
        Answer { status: 200, headers: Vec::new(), body }
    }

    /// An error, as SQS words it: by its name of today, and by that of the older protocol.
    pub(crate) fn error(status: u16, code: &str, old_code: &str, message: &str) -> Answer {
        let fault = if status < 500 { "Sender" } else { "Receiver" };
        let body = json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": message });
        Answer {
            status,
            headers: vec![("x-amzn-query-error", format!("{old_code};{fault}"))],
            body,
        }
    }

    pub(crate) fn with(mut self, header: &'static str, value: String) -> Answer {
        self.headers.push((header, value));
        self
    }
}

/// A way to the emulator that notes every call.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

type Script = dyn FnMut(&str, &mut Value) -> Option<Answer> + Send;

impl Gateway {
    /// `script` is asked about every call, by action and body. It may change the body, or answer
    /// itself; what it does not answer goes to the emulator.
    pub(crate) async fn start(
        script: impl FnMut(&str, &mut Value) -> Option<Answer> + Send + 'static,
    ) -> Gateway {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(script));
        let noted = seen.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (noted, script) = (noted.clone(), script.clone());
                let serve =
                    service_fn(move |request| handle(request, noted.clone(), script.clone()));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), serve);
                tokio::spawn(connection);
            }
        });
        Gateway { url, seen }
    }

    /// A gateway that only takes notes.
    pub(crate) async fn open() -> Gateway {
        Gateway::start(|_, _| None).await
    }

    /// What has come in since this was last asked.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// The actions among that, in order of arrival.
    pub(crate) fn actions(&self) -> Vec<String> {
        self.take().into_iter().map(|seen| seen.action).collect()
    }
}

async fn handle(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Arc<Mutex<Script>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers[name].to_str().unwrap().to_owned();
    let action = header("x-amz-target").trim_start_matches("AmazonSQS.").to_owned();
    let body = body.collect().await.unwrap().to_bytes();
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    let noted =
        Seen { action: action.clone(), body: body.clone(), signed_at: header("x-amz-date") };
    seen.lock().unwrap().push(noted);
    let answer = (script.lock().unwrap())(&action, &mut body);
    let Some(answer) = answer else {
        return Ok(pass_on(&head, &body).await);
    };
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::from(answer.body.to_string())).unwrap())
}

async fn pass_on(head: &hyper::http::request::Parts, body: &Value) -> Response<Full<Bytes>> {
    let mut request = Request::post(checked::emulators());
    for name in ["content-type", "x-amz-target", "authorization", "x-amz-date"] {
        request = request.header(name, &head.headers[name]);
    }
    let request = request.body(Full::<Bytes>::from(body.to_string())).unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut response = Response::builder().status(head.status);
    for name in ["content-type", "x-amzn-query-error"] {
        if let Some(value) = head.headers.get(name) {
            response = response.header(name, value);
        }
    }
    response.body(Full::from(body)).unwrap()
}
