//! The runtime API of Lambda, version 2018-06-01, as a custom runtime sees it on loopback.
//!
//! A test calls the function with an event and waits for the answer. As in Lambda, the next call is
//! only delivered after the last one was answered or its process is gone.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;

use crate::http::{self, Answer, Connection, Handler, Outcome};
use crate::sync::locked;

/// How a call of a function has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum FunctionAnswer {
    Answered(Value),
    /// With an error: the header with its type, and what the function says about it.
    Failed(String, Value),
}

/// A function that this process calls.
#[derive(Debug)]
pub struct Lambda {
    address: String,
    state: Arc<State>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Debug, Default)]
struct State {
    inner: Mutex<Inner>,
    /// Woken when there is a call to deliver.
    called: Notify,
    /// Woken when the function has said something.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// Calls that were not delivered, each with its id, its event and its deadline.
    waiting: VecDeque<(String, Value, SystemTime)>,
    answers: Vec<(String, FunctionAnswer)>,
    /// What the function has said about a start that failed.
    init_errors: Vec<Value>,
    calls: u32,
}

impl Lambda {
    /// Starts the API on a free port.
    pub fn start() -> Lambda {
        let listener = http::listen(0);
        let address = listener.local_addr().expect("a listener has an address").to_string();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("the runtime starts");
        let state = Arc::new(State::default());
        runtime.spawn(http::serve(listener, state.clone()));
        Lambda { address, state, _runtime: runtime }
    }

    /// What `AWS_LAMBDA_RUNTIME_API` is to be.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Calls the function with an event, which has so much time. Returns the id of the call.
    pub fn call(&self, event: &Value, time: Duration) -> String {
        let mut inner = locked(&self.state.inner);
        inner.calls += 1;
        let id = format!("call-{}", inner.calls);
        inner.waiting.push_back((id.clone(), event.clone(), SystemTime::now() + time));
        drop(inner);
        self.state.called.notify_one();
        id
    }

    /// Waits for the answer to a call; `None` if there is none in time.
    pub fn answer(&self, id: &str, at_most: Duration) -> Option<FunctionAnswer> {
        let find = |inner: &Inner| {
            let found = inner.answers.iter().find(|(of, _)| of == id);
            found.map(|(_, answer)| answer.clone())
        };
        self.wait(at_most, find)
    }

    /// Waits until the function has said that it cannot start.
    pub fn init_error(&self, at_most: Duration) -> Option<Value> {
        self.wait(at_most, |inner| inner.init_errors.first().cloned())
    }

    fn wait<T>(&self, at_most: Duration, find: impl Fn(&Inner) -> Option<T>) -> Option<T> {
        let inner = locked(&self.state.inner);
        let waited = self
            .state
            .answered
            .wait_timeout_while(inner, at_most, |inner| find(inner).is_none())
            .unwrap_or_else(PoisonError::into_inner);
        find(&waited.0)
    }
}

impl State {
    async fn next(&self) -> Answer {
        loop {
            if let Some((id, event, deadline)) = locked(&self.inner).waiting.pop_front() {
                let millis = deadline.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let mut answer = accepted(StatusCode::OK, event.to_string());
                for (name, value) in [
                    ("lambda-runtime-aws-request-id", id),
                    ("lambda-runtime-deadline-ms", millis.as_millis().to_string()),
                ] {
                    let value = HeaderValue::from_str(&value).expect("it is plain text");
                    answer.headers.insert(name, value);
                }
                return answer;
            }
            self.called.notified().await;
        }
    }

    fn ended(&self, id: &str, how: &str, error_type: &str, body: Value) -> Answer {
        let answer = match how {
            "response" => FunctionAnswer::Answered(body),
            "error" => FunctionAnswer::Failed(error_type.to_owned(), body),
            _ => return accepted(StatusCode::NOT_FOUND, String::new()),
        };
        locked(&self.inner).answers.push((id.to_owned(), answer));
        self.answered.notify_all();
        accepted(StatusCode::ACCEPTED, r#"{"status":"OK"}"#.to_owned())
    }
}

fn accepted(status: StatusCode, body: String) -> Answer {
    Answer { status, headers: HeaderMap::new(), body: body.into() }
}

impl Handler for State {
    async fn handle(&self, _connection: Connection, head: Parts, body: Bytes) -> Outcome {
        let path = head.uri.path().strip_prefix("/2018-06-01/runtime/").unwrap_or_default();
        let parts: Vec<&str> = path.split('/').collect();
        let text = serde_json::from_slice(&body).unwrap_or_default();
        let header = head.headers.get("lambda-runtime-function-error-type");
        let error_type = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
        Outcome::Answered(match (&head.method, parts.as_slice()) {
            (&Method::GET, ["invocation", "next"]) => self.next().await,
            (&Method::POST, ["invocation", id, how]) => self.ended(id, how, error_type, text),
            (&Method::POST, ["init", "error"]) => {
                locked(&self.inner).init_errors.push(text);
                self.answered.notify_all();
                accepted(StatusCode::ACCEPTED, r#"{"status":"OK"}"#.to_owned())
            }
            _ => accepted(StatusCode::NOT_FOUND, String::new()),
        })
    }
}
