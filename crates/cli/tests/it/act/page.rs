//! A release page on loopback: files by path, and a note of what was asked for.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// The version that is released there: that of this checkout.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Answers until the process of the test ends.
#[derive(Clone)]
pub(crate) struct Page {
    url: String,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Default)]
struct Shelf {
    files: BTreeMap<String, Vec<u8>>,
    redirects: BTreeMap<String, String>,
    asked: Vec<String>,
}

impl Page {
    /// With one release: this program, for both platforms, and for the agent too.
    pub(crate) fn with_release(program: &[u8]) -> Page {
        let page = Page::empty();
        let digest = sha256(program);
        let mut sums = String::new();
        for name in ["ondeck", "ondeck-agent"] {
            for target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
                let file = format!("{name}-{VERSION}-{target}");
                sums += &format!("{digest}  {file}\n");
                page.put(&file, program);
            }
        }
        page.put("SHA256SUMS", sums.as_bytes());
        page
    }

    fn empty() -> Page {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let page = Page { url, shelf: shelf.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shelf = shelf.clone();
                // An error means that the client hung up, and the client knows that.
                std::thread::spawn(move || drop(answer(stream, &shelf)));
            }
        });
        page
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Puts a file into the release, or another in its place.
    pub(crate) fn put(&self, file: &str, bytes: &[u8]) {
        let path = format!("/v{VERSION}/{file}");
        self.shelf.lock().unwrap().files.insert(path, bytes.to_owned());
    }

    /// Answers for a file of the release with another address.
    pub(crate) fn redirect(&self, file: &str, to: &str) {
        let path = format!("/v{VERSION}/{file}");
        self.shelf.lock().unwrap().redirects.insert(path, to.to_owned());
    }

    /// Puts a file beside the release.
    pub(crate) fn put_beside(&self, path: &str, bytes: &[u8]) {
        self.shelf.lock().unwrap().files.insert(path.to_owned(), bytes.to_owned());
    }

    /// The files of the release that were asked for since the last time, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.shelf.lock().unwrap().asked)
    }
}

fn answer(mut stream: TcpStream, shelf: &Mutex<Shelf>) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?).lines();
    let request = head.next().transpose()?.unwrap_or_default();
    for line in head {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let found = shelf.lock().unwrap().files.get(&path).cloned();
    let elsewhere = shelf.lock().unwrap().redirects.get(&path).cloned();
    shelf.lock().unwrap().asked.push(path);
    let (status, body) = match found {
        Some(bytes) => ("200 OK", bytes),
        None => ("404 Not Found", Vec::new()),
    };
    if let Some(to) = elsewhere {
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body)
}

/// By the program that the Action uses, too.
fn sha256(bytes: &[u8]) -> String {
    let mut sum = Command::new("sha256sum");
    let mut sum = sum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(bytes).unwrap();
    let said = sum.wait_with_output().unwrap().stdout;
    String::from_utf8(said).unwrap()[..64].to_owned()
}
