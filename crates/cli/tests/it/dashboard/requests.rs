//! A client of HTTP that may say anything.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Sends a request with these headers and nothing else, and reads the answer.
pub(crate) fn asked(address: &str, line: &str, headers: &[(&str, &str)]) -> Answer {
    let mut stream = connected(address);
    stream.write_all(head(line, headers).as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let (status, headers) = answered(&mut reader);
    let mut body = Vec::new();
    reader.read_to_end(&mut body).unwrap();
    Answer { status, headers, body: String::from_utf8(body).unwrap() }
}

/// The same for a page of the address itself.
pub(crate) fn got(address: &str, path: &str) -> Answer {
    asked(address, &format!("GET {path} HTTP/1.1"), &[("host", address)])
}

fn connected(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn head(line: &str, headers: &[(&str, &str)]) -> String {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{line}\r\n{headers}connection: close\r\n\r\n")
}

fn answered(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut lines = reader.lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.take_while(|line| !line.is_empty()).map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_lowercase(), value.trim().to_owned())
    });
    (status, headers.collect())
}

/// The server-sent events of a page.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    pub(crate) fn of(address: &str) -> Events {
        let mut stream = connected(address);
        let request = head("GET /events HTTP/1.1", &[("host", address)]);
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        assert_eq!(answered(&mut reader).0, 200);
        Events(reader)
    }

    /// The next event: its name and its data.
    pub(crate) fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the events have ended");
            // Sizes of chunks and empty lines are between the events.
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.trim_end().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data.trim_end()).unwrap());
            }
        }
    }

    /// The data of the next event with this name for which it holds.
    pub(crate) fn until(&mut self, name: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let (own, data) = self.next();
            if own == name && holds(&data) {
                return data;
            }
        }
    }
}
