//! Connections: how many there may be, and for how long.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ondeck_core::model::failure::{Failure, FailureKind};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

use super::routes::App;

/// More browsers than an operator opens; each has at most six connections.
const CONNECTIONS: usize = 96;
/// How long a client may take for the head of a request, also between two requests.
const HEAD: Duration = Duration::from_secs(10);
const HEAD_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;
/// A page connects again, and begins with a complete picture.
const LONGEST: Duration = Duration::from_secs(3600);
/// The pause after a connection that could not be accepted, such as for lack of file descriptors.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// Begins to listen. Returns the address, with the port that was chosen if the given one is 0.
pub(super) async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let refused = |error: std::io::Error| {
        let message = format!("cannot listen on {address}: {error}");
        Failure::new(FailureKind::InvalidInput, message)
            .hint("another dashboard may be there; choose another address with --listen")
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

/// Accepts connections until the future is dropped, which ends them as well.
pub(super) async fn serve(listener: TcpListener, app: Arc<App>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let app = app.clone();
                connections.spawn(async move {
                    connection(stream, app).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!("connection not accepted: {error}");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, app: Arc<App>) {
    // Small messages are to arrive at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("connection without nodelay: {error}");
    }
    // Raised when the page does not read what it is sent.
    let cut = Arc::new(Notify::new());
    let answer = service_fn(|request: Request<Incoming>| {
        let (app, cut) = (app.clone(), cut.clone());
        // No body is read.
        let (head, _) = request.into_parts();
        async move { Ok::<_, Infallible>(app.answer(&head, cut).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::debug!("connection ended: {error}");
        },
        () = cut.notified() => {}
        () = tokio::time::sleep(LONGEST) => {}
    }
}
