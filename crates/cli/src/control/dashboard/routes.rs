//! What each path answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, LOCATION, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::modes::cost::Since;
use ondeck_core::modes::explain;
use ondeck_core::ports::{Clock as _, RecordScope};
use tokio::sync::{Mutex, Notify, Semaphore, mpsc};

use super::guard::{Guard, PAGE, Verdict};
use super::hub::Hub;
use super::kept::Kept;
use super::picture::Picture;
use super::{Source, assets};
use crate::control::metrics::{Snapshot, prometheus};
use crate::control::reader::Reader;
use crate::control::report::Report as _;
use crate::control::report::explain::ExplainReport;
use crate::surroundings::WallClock;

/// How many stories are read at the same time. Each is some reads of the store.
const STORIES: usize = 2;
/// The longest id of a run or a machine that is looked for.
const LONGEST_ID: usize = 300;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// On every answer. The page loads its own files only, is shown in no frame, and what it shows is kept
/// nowhere.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cache-control", "no-store"),
];

type Answer = Response<Either<Full<Bytes>, Messages>>;

/// Everything that a request may need.
pub(super) struct App {
    guard: Guard,
    pub(super) hub: Hub,
    pub(super) source: Source,
    stories: Semaphore,
    /// What reads the pool for `/metrics`, from the first request for them on.
    reader: Mutex<Option<Reader>>,
    examined: Kept,
    accounts: Kept,
}

#[derive(Clone, Copy)]
enum Route {
    /// A file of the page: its media type and its text.
    Asset(&'static str, &'static str),
    /// What the page shows, and every change of it, as server-sent events.
    Events,
    /// What has happened to a run or a machine, as `ondeck explain --json` prints it.
    Story,
    /// The pool as it is, for Prometheus.
    Metrics,
    /// What doctor finds.
    Doctor,
    /// What the pool has cost since a time.
    Cost,
}

fn route(path: &str) -> Option<Route> {
    match path {
        "/events" => Some(Route::Events),
        "/story" => Some(Route::Story),
        "/metrics" => Some(Route::Metrics),
        "/doctor" => Some(Route::Doctor),
        "/cost" => Some(Route::Cost),
        _ => {
            let asset = assets::ALL.iter().find(|(own, ..)| *own == path);
            asset.map(|(_, media_type, text)| Route::Asset(media_type, text))
        }
    }
}

impl App {
    /// `kept`: how long an answer that takes many calls is given again.
    pub(super) fn new(guard: Guard, hub: Hub, source: Source, kept: Duration) -> App {
        App {
            guard,
            hub,
            source,
            stories: Semaphore::new(STORIES),
            reader: Mutex::default(),
            examined: Kept::during(kept),
            accounts: Kept::during(kept),
        }
    }

    /// Answers a request. `cut` is raised if the client does not read what it asked for.
    pub(super) async fn answer(&self, head: &Parts, cut: Arc<Notify>) -> Answer {
        let Parts { method, uri, headers, .. } = head;
        let mut answer = match self.guard.judge(method, uri, headers) {
            Verdict::Refused(status, why) => text(status, why),
            Verdict::Exchanged { cookie } => exchanged(&cookie),
            Verdict::Admitted => match route(uri.path()) {
                None => text(StatusCode::NOT_FOUND, "not found"),
                Some(Route::Asset(media_type, body)) => of(StatusCode::OK, media_type, body),
                Some(Route::Events) if *method == Method::HEAD => {
                    of(StatusCode::OK, "text/event-stream", "")
                }
                Some(Route::Events) => self.events(cut),
                Some(Route::Story) => self.story(uri.query().unwrap_or_default()).await,
                Some(Route::Metrics) => self.metrics().await,
                Some(Route::Doctor) => {
                    // An answer from before something broke does not count.
                    let wrong = self.hub.look(Picture::wrong);
                    let examined = self.source.examined();
                    told(self.examined.answer(&wrong, WallClock.steady(), examined).await, JSON)
                }
                Some(Route::Cost) => self.cost(uri.query().unwrap_or_default()).await,
            },
        };
        for (name, value) in HEADERS {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    fn events(&self, cut: Arc<Notify>) -> Answer {
        let Some(messages) = self.hub.subscribe(cut) else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open");
        };
        let mut answer = Response::new(Either::Right(Messages(messages)));
        let media_type = HeaderValue::from_static("text/event-stream");
        answer.headers_mut().insert(CONTENT_TYPE, media_type);
        answer
    }

    async fn story(&self, query: &str) -> Answer {
        let Some(subject) = subject(query) else {
            return text(StatusCode::BAD_REQUEST, "of=ID names a run, a label or a machine");
        };
        // It is never closed.
        let _turn = self.stories.acquire().await;
        told(self.story_of(&subject).await.map(|report| report.json()), JSON)
    }

    async fn metrics(&self) -> Answer {
        told(self.measured().await, EXPOSITION)
    }

    async fn cost(&self, query: &str) -> Answer {
        let since = query.strip_prefix("since=").and_then(|text| text.parse::<Since>().ok());
        let Some(since) = since else {
            return text(StatusCode::BAD_REQUEST, "since=SPAN names a span such as 24h or 7d");
        };
        let account = self.source.account(since);
        told(self.accounts.answer(query, WallClock.steady(), account).await, JSON)
    }

    /// Reads the pool anew for each request. Requests wait for each other.
    async fn measured(&self) -> Result<String, Failure> {
        let mut reader = self.reader.lock().await;
        let pool = self.source.connected().await?;
        let judgement = reader
            .get_or_insert_with(|| Reader::new(pool.plane.clone(), RecordScope::Live))
            .read()
            .await?;
        let name = self.source.name();
        Ok(prometheus(&Snapshot { pool: &name, status: Some(&judgement), call: None }))
    }

    async fn story_of(&self, subject: &str) -> Result<ExplainReport, Failure> {
        let pool = self.source.connected().await?;
        Ok(ExplainReport::of(explain::explain(&pool.plane, &*pool.history, subject).await?))
    }
}

/// The answer with this text, or why there is none.
fn told(result: Result<impl Into<Bytes>, Failure>, media_type: &'static str) -> Answer {
    match result {
        Ok(text) => of(StatusCode::OK, media_type, text),
        Err(failure) => of(status_of(&failure), JSON, refusal(&failure)),
    }
}

fn status_of(failure: &Failure) -> StatusCode {
    match failure.kind {
        FailureKind::InvalidInput => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn refusal(failure: &Failure) -> String {
    serde_json::json!({ "message": failure.message, "hint": failure.hint }).to_string()
}

/// The id that a query names. Its letters need not be escaped, except in a browser, which escapes some.
fn subject(query: &str) -> Option<String> {
    let text = query.strip_prefix("of=").filter(|text| !text.is_empty())?;
    let mut bytes = text.bytes();
    let mut read = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                read.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            b'&' => return None,
            byte => read.push(byte),
        }
    }
    String::from_utf8(read).ok().filter(|id| id.len() <= LONGEST_ID)
}

fn exchanged(cookie: &str) -> Answer {
    let mut answer = text(StatusCode::SEE_OTHER, "");
    let headers = answer.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static(PAGE));
    if let Ok(cookie) = cookie.parse() {
        headers.insert(SET_COOKIE, cookie);
    }
    answer
}

fn text(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = of(status, TEXT, text);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let methods = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(ALLOW, methods);
    }
    answer
}

fn of(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    *answer.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    answer.headers_mut().insert(CONTENT_TYPE, media_type);
    answer
}

/// The messages for one page, as they come.
pub(super) struct Messages(mpsc::Receiver<Bytes>);

impl Body for Messages {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_from_a_query() {
        for (query, id) in [
            ("of=i-0123", Some("i-0123")),
            ("of=42-large", Some("42-large")),
            ("of=a%20b%C3%A9", Some("a bé")),
            ("of=", None),
            ("", None),
            ("of=a&of=b", None),
            ("of=%", None),
            ("of=%zz", None),
            ("of=%ff", None),
        ] {
            assert_eq!(subject(query).as_deref(), id, "{query}");
        }
        assert_eq!(subject(&format!("of={}", "a".repeat(LONGEST_ID + 1))), None);
    }

    #[test]
    fn each_path_is_answered_once() {
        let mut paths: Vec<&str> = assets::ALL.iter().map(|(path, ..)| *path).collect();
        paths.extend(["/events", "/story", "/metrics", "/doctor", "/cost"]);
        let count = paths.len();
        assert!(paths.iter().all(|path| route(path).is_some()));
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), count);
        assert!(
            ["/x", "//", "/assets/", "/assets/../page.css"]
                .iter()
                .all(|path| route(path).is_none())
        );
    }
}
