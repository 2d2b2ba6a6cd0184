//! HTTP on the caller's side, with connections that can be cut.

use std::fmt;
use std::future::poll_fn;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::call::Call;
use crate::fault::What;

use super::door::{DoorState, LogEntry};
use super::route::{self, Outcome};
use super::{Answer, Shared, locked};

type AnyBody = Either<Full<Bytes>, Half>;

/// Serves one door until the runtime ends.
pub(super) async fn serve(listener: TcpListener, door: Arc<DoorState>, shared: Arc<Shared>) {
    let listener =
        tokio::net::TcpListener::from_std(listener).expect("the listener does not block");
    loop {
        // An error here is the caller's (it has gone already) or passes (too many files).
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, door.clone(), shared.clone()));
            }
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Serves one connection until somebody closes it.
async fn connection(stream: TcpStream, door: Arc<DoorState>, shared: Arc<Shared>) {
    // A socket that cannot be told so is only slower.
    stream.set_nodelay(true).ok();
    let reset = AtomicBool::new(false);
    let service = service_fn(|request| {
        let (door, shared, reset) = (&door, &shared, &reset);
        Box::pin(async move {
            let answered = answer(request, door, shared).await;
            reset.store(matches!(answered, Err(Cut::Reset)), Ordering::SeqCst);
            answered
        })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Whatever went wrong was the caller's doing, or ours on purpose.
    poll_fn(|context| connection.poll_without_shutdown(context)).await.ok();
    let stream = connection.into_parts().io.into_inner();
    if reset.load(Ordering::SeqCst) {
        stream.set_zero_linger().ok();
    }
}

async fn answer(
    request: Request<Incoming>,
    door: &DoorState,
    shared: &Shared,
) -> Result<Response<AnyBody>, Cut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut::Closed)?.to_bytes();
    let call = Call::of(head.method, head.uri, head.headers, body);
    if let Some(models) = &shared.models {
        let violations = models.check(&call);
        locked(&shared.violations).extend(violations);
    }
    let plan = door.admit(&call);
    let mut noting = Noting::new(door, shared, &call, plan.what);
    let outcome = route::perform(shared, &call, plan).await;
    let (answer, half) = match outcome {
        Outcome::Answered(answer) => (answer, false),
        Outcome::Halved(answer) => (answer, true),
        Outcome::Cut(cut) => return Err(cut),
    };
    noting.entry.status = Some(answer.status.as_u16());
    Ok(response(answer, half))
}

fn response(answer: Answer, half: bool) -> Response<AnyBody> {
    let Answer { status, headers, body } = answer;
    let length = HeaderValue::from(body.len());
    let body = if half { Either::Right(Half::of(&body)) } else { Either::Left(Full::new(body)) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

/// Why a connection is closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// As by a machine that knows nothing of the connection.
    Reset,
    /// As by a program that ends.
    Closed,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut off on purpose")
    }
}

impl std::error::Error for Cut {}

/// The first half of a body, and then nothing.
#[derive(Debug)]
struct Half {
    data: Option<Bytes>,
    waited: bool,
}

impl Half {
    fn of(body: &Bytes) -> Half {
        Half { data: Some(body.slice(..body.len() / 2)), waited: false }
    }
}

impl Body for Half {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        // What was written so far leaves only while hyper has nothing else to do.
        if !self.waited {
            self.waited = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(Cut::Closed)))
    }
}

/// Logs a request when it is over, however it ends: a caller that gives up ends it too.
struct Noting<'a> {
    door: &'a DoorState,
    shared: &'a Shared,
    begun: Instant,
    entry: LogEntry,
}

impl<'a> Noting<'a> {
    fn new(
        door: &'a DoorState,
        shared: &'a Shared,
        call: &Call,
        fault: Option<What>,
    ) -> Noting<'a> {
        let entry = LogEntry {
            door: door.name().to_owned(),
            service: call.service,
            operation: call.operation.clone(),
            at: SystemTime::now(),
            took: std::time::Duration::ZERO,
            status: None,
            fault,
        };
        Noting { door, shared, begun: Instant::now(), entry }
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.entry.took = self.begun.elapsed();
        if let Some(watch) = &self.shared.watch {
            // Whoever has stopped listening does not want to know.
            watch.send(self.entry.clone()).ok();
        }
        self.door.note(self.entry.clone());
    }
}
