use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ondeck_github::{Package, Packages};
use sha2::{Digest, Sha256};

/// How a request is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// With the whole file.
    Whole,
    /// With the first half of the file; then the connection is closed.
    Cut,
    /// With this status and no body.
    Status(u16),
}

/// A server on loopback that serves one file.
pub(crate) struct Server {
    address: String,
    requests: Arc<AtomicUsize>,
    digest: String,
}

impl Server {
    /// Starts a server that gives these answers first, and then the whole file.
    pub(crate) fn start(content: Vec<u8>, answers: &[Answer]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/runner.tar.gz", listener.local_addr().unwrap());
        let digest = Sha256::digest(&content);
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let answers = Mutex::new(answers.to_vec());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut left = answers.lock().unwrap();
                let answer = if left.is_empty() { Answer::Whole } else { left.remove(0) };
                drop(left);
                // The client may have closed the connection.
                serve(stream.unwrap(), &content, answer).ok();
            }
        });
        Server { address, requests, digest }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The value of the packages setting that names its file.
    pub(crate) fn packages(&self, version: &str) -> String {
        self.packages_with(version, &self.digest)
    }

    pub(crate) fn packages_with(&self, version: &str, digest: &str) -> String {
        let package = Package { url: self.address.clone(), sha256: digest.to_owned() };
        let packages = ["linux-x64", "linux-arm64"].map(|it| (it.to_owned(), package.clone()));
        let packages = Packages { version: version.to_owned(), packages: packages.into() };
        serde_json::to_string(&packages).unwrap()
    }
}

fn serve(mut stream: TcpStream, content: &[u8], answer: Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (status, body) = match answer {
        Answer::Whole => (200, content),
        Answer::Cut => (200, &content[..content.len() / 2]),
        Answer::Status(status) => (status, &content[..0]),
    };
    let length = if status == 200 { content.len() } else { 0 };
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")?;
    stream.write_all(body)
}
