//! A receiver of HTTP requests on loopback, as a webhook or a collector is one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// What the receiver does about a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Accepted,
    /// With this status and this body.
    Refused(u16, &'static str),
    Redirected(String),
    Silence,
}

/// A request that has arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Method, path and version.
    pub(crate) line: String,
    /// Each as `name: value`.
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Received {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_str(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error}: {}", self.body),
        }
    }
}

/// Listens until the test ends.
pub(crate) struct Receiver {
    address: SocketAddr,
    state: Arc<Mutex<(Answer, Vec<Received>)>>,
}

impl Receiver {
    pub(crate) fn start() -> Receiver {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new((Answer::Accepted, Vec::new())));
        let for_requests = state.clone();
        std::thread::spawn(move || {
            let mut silenced = Vec::new();
            for stream in listener.incoming().flatten() {
                silenced.extend(serve(stream, &for_requests));
            }
        });
        Receiver { address, state }
    }

    /// An address of this receiver.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers so from now on.
    pub(crate) fn answers(&self, answer: Answer) {
        self.state.lock().unwrap().0 = answer;
    }

    /// How many requests have arrived.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().1.len()
    }

    /// The requests that have arrived since the last call.
    pub(crate) fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.state.lock().unwrap().1)
    }
}

/// Takes one request. Gives the connection back if it is not to be answered, so that it stays open.
fn serve(mut stream: TcpStream, state: &Mutex<(Answer, Vec<Received>)>) -> Option<TcpStream> {
    let received = read(&stream)?;
    let answer = {
        let mut state = state.lock().unwrap();
        state.1.push(received);
        state.0.clone()
    };
    let (status, header, body) = match answer {
        Answer::Accepted => (200, String::new(), "ok"),
        Answer::Refused(status, body) => (status, String::new(), body),
        Answer::Redirected(to) => (307, format!("location: {to}\r\n"), ""),
        Answer::Silence => return Some(stream),
    };
    let length = body.len();
    // The caller may have gone.
    drop(write!(
        stream,
        "HTTP/1.1 {status} x\r\n{header}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    ));
    None
}

fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        match header.trim_end() {
            "" => break,
            header => headers.push(header.to_owned()),
        }
    }
    let length = headers.iter().find_map(|header| {
        let (name, value) = header.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    Some(Received { line: line.trim_end().to_owned(), headers, body })
}
