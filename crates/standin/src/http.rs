//! The HTTP server of both stand-ins. It can cut connections, as faults need.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

type ResponseBody = Either<Full<Bytes>, Half>;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1_024;

/// Answers the requests of a server. If the caller gives up, the future of `handle` is dropped.
pub(crate) trait Handler: Send + Sync + 'static {
    fn handle(
        &self,
        connection: Connection,
        head: Parts,
        body: Bytes,
    ) -> impl Future<Output = Outcome> + Send;

    /// Called when a connection is closed, by the caller or because its process has ended.
    fn closed(&self, _connection: Connection) {}
}

/// The number of a connection, unique within this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Connection(u64);

impl Connection {
    fn new() -> Connection {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Connection(COUNT.fetch_add(1, Ordering::SeqCst))
    }
}

/// What the server does about a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered(Answer),
    /// Send half of the body, then close the connection.
    Halved(Answer),
    Cut(Cut),
}

impl Outcome {
    /// The status that the caller sees; `None` if it gets no answer.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Outcome::Answered(answer) | Outcome::Halved(answer) => Some(answer.status.as_u16()),
            Outcome::Cut(_) => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// How a connection is closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// By a TCP reset, as from a machine that does not know the connection.
    Reset,
    /// In order, as by a program that exits.
    Closed,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut off on purpose")
    }
}

impl std::error::Error for Cut {}

/// Listens on loopback only; on a free port if `port` is 0. Panics if the port is taken.
pub(crate) fn listen(port: u16) -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .unwrap_or_else(|error| panic!("cannot listen on port {port}: {error}"));
    listener.set_nonblocking(true).expect("a listener can be told not to block");
    listener
}

/// Whether a listener accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    /// New connections are refused, and existing ones are reset.
    Shut,
}

/// Serves one listener until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, handler: Arc<impl Handler>) {
    let (_always_open, gate) = watch::channel(Gate::Open);
    serve_at(listener, handler, gate).await;
}

/// Serves one listener whenever its gate is open, until the runtime ends.
pub(crate) async fn serve_at(
    listener: TcpListener,
    handler: Arc<impl Handler>,
    mut gate: watch::Receiver<Gate>,
) {
    let for_connections = gate.clone();
    let mut listener =
        tokio::net::TcpListener::from_std(listener).expect("the listener does not block");
    let address = listener.local_addr().expect("a listener has an address");
    loop {
        tokio::select! {
            () = until(&mut gate, Gate::Shut) => {}
            never = take_all(&listener, &handler, &for_connections) => match never {},
        }
        drop(listener);
        // This socket holds the port without listening, so no other process can get it meanwhile.
        let kept = keep(address).await;
        until(&mut gate, Gate::Open).await;
        listener = kept.listen(BACKLOG).expect("a bound socket can listen");
    }
}

async fn take_all(
    listener: &tokio::net::TcpListener,
    handler: &Arc<impl Handler>,
    gate: &watch::Receiver<Gate>,
) -> Infallible {
    loop {
        // Either the caller is gone already, or the error is temporary (too many open files).
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, handler.clone(), gate.clone()));
            }
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Waits until the gate is in this state. Waits forever if its sender is gone.
async fn until(gate: &mut watch::Receiver<Gate>, so: Gate) {
    if gate.wait_for(|now| *now == so).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Binds a socket to an address whose listener has just been dropped. Retries until it succeeds.
async fn keep(address: SocketAddr) -> TcpSocket {
    loop {
        let socket = TcpSocket::new_v4().expect("the system has sockets");
        socket.set_reuseaddr(true).expect("a new socket can be told so");
        match socket.bind(address) {
            Ok(()) => return socket,
            // The listener is still being closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Serves one connection until either side closes it.
async fn connection(
    stream: TcpStream,
    handler: Arc<impl Handler>,
    mut gate: watch::Receiver<Gate>,
) {
    // Without it, the connection is only slower.
    stream.set_nodelay(true).ok();
    let number = Connection::new();
    let reset = AtomicBool::new(false);
    let service = service_fn(|request| {
        let (handler, reset) = (&handler, &reset);
        Box::pin(async move {
            let answered = answer(number, request, handler.as_ref()).await;
            reset.store(matches!(answered, Err(Cut::Reset)), Ordering::SeqCst);
            answered
        })
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = until(&mut gate, Gate::Shut) => reset.store(true, Ordering::SeqCst),
        // An error is either the caller's or an injected one.
        _ = poll_fn(|context| connection.poll_without_shutdown(context)) => {}
    }
    handler.closed(number);
    let stream = connection.into_parts().io.into_inner();
    if reset.load(Ordering::SeqCst) {
        stream.set_zero_linger().ok();
    }
}

async fn answer(
    connection: Connection,
    request: Request<Incoming>,
    handler: &impl Handler,
) -> Result<Response<ResponseBody>, Cut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut::Closed)?.to_bytes();
    match handler.handle(connection, head, body).await {
        Outcome::Answered(answer) => Ok(response(answer, false)),
        Outcome::Halved(answer) => Ok(response(answer, true)),
        Outcome::Cut(cut) => Err(cut),
    }
}

fn response(answer: Answer, half: bool) -> Response<ResponseBody> {
    let Answer { status, headers, body } = answer;
    let length = HeaderValue::from(body.len());
    let body = if half { Either::Right(Half::of(&body)) } else { Either::Left(Full::new(body)) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

/// The first half of a body, then an error that closes the connection.
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
        // hyper flushes what it has written only while the body is pending.
        if !self.waited {
            self.waited = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(Cut::Closed)))
    }
}
