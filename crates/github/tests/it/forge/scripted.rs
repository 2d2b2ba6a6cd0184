//! A server with scripted answers, for answers that the stand-in never gives.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answers each request with the next answer, and repeats the last one.
pub(crate) struct Scripted {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub(crate) async fn with(answers: Vec<String>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = requests.lock().unwrap().len().min(answers.len() - 1);
                let request = exchange(stream, &answers[number]).await;
                requests.lock().unwrap().push(request);
            }
        });
        Scripted { url, seen }
    }

    /// Request line and headers of all requests so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Formats an HTTP answer. `headers` have the form `name: value`.
pub(crate) fn answer(status: u16, headers: &[&str], body: &str) -> String {
    let headers = headers.iter().map(|header| format!("{header}\r\n")).collect::<String>();
    let length = body.len();
    format!(
        "HTTP/1.1 {status} said\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n\
         {body}"
    )
}

async fn exchange(mut stream: TcpStream, answer: &str) -> String {
    let mut head = Vec::new();
    let mut part = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => break,
            Ok(count) => head.extend_from_slice(&part[..count]),
        }
    }
    // The client may have closed the connection; the test notices by its result.
    drop(stream.write_all(answer.as_bytes()).await);
    drop(stream.shutdown().await);
    String::from_utf8_lossy(&head).into_owned()
}
