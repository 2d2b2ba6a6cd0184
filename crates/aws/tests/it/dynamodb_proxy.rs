//! A proxy in front of DynamoDB: records every request, and a test decides what becomes of it.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A request that the proxy received.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The operation, such as `UpdateItem`.
    pub(crate) action: String,
    pub(crate) body: String,
}

/// What the proxy does with a request.
pub(crate) enum ProxyAction {
    /// Forwards the request and the answer.
    Pass,
    /// Forwards the request, and closes the connection instead of answering.
    Lose,
    /// Forwards the request and notifies the first; answers once the second is notified.
    Late(Arc<Notify>, Arc<Notify>),
    /// Answers with this status and this JSON, and forwards nothing.
    Answer(u16, String),
}

type Script = Box<dyn FnMut(&Call) -> ProxyAction + Send>;

pub(crate) struct DynamoDbProxy {
    pub(crate) endpoint: String,
    inner: Arc<Inner>,
}

struct Inner {
    upstream: String,
    calls: Mutex<Vec<Call>>,
    script: Mutex<Script>,
    open: AtomicUsize,
    most: AtomicUsize,
}

impl DynamoDbProxy {
    pub(crate) async fn on(upstream: &str) -> DynamoDbProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Inner {
            upstream: upstream.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned(),
            calls: Mutex::default(),
            script: Mutex::new(Box::new(|_| ProxyAction::Pass)),
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let shared = inner.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let inner = shared.clone();
                tokio::spawn(async move {
                    let open = inner.open.fetch_add(1, Ordering::SeqCst) + 1;
                    inner.most.fetch_max(open, Ordering::SeqCst);
                    // A connection that breaks off is what some tests are about.
                    drop(inner.serve(client).await);
                    inner.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        DynamoDbProxy { endpoint, inner }
    }

    /// Replaces the script, which decides what to do with each request.
    pub(crate) fn script(&self, script: impl FnMut(&Call) -> ProxyAction + Send + 'static) {
        *self.inner.script.lock().unwrap() = Box::new(script);
    }

    /// The calls since the last time this was called.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.inner.calls.lock().unwrap())
    }

    /// The operations of [`DynamoDbProxy::calls`], which it resets too.
    pub(crate) fn actions(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.action).collect()
    }

    /// The most connections that were open at once.
    pub(crate) fn most_connections(&self) -> usize {
        self.inner.most.load(Ordering::SeqCst)
    }
}

impl Inner {
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let mut upstream = TcpStream::connect(&self.upstream).await?;
        loop {
            let request = Message::read(&mut client).await?;
            let target = request.header("x-amz-target").unwrap_or_default();
            let call = Call {
                action: target.rsplit('.').next().unwrap_or_default().to_owned(),
                body: String::from_utf8_lossy(&request.body).into_owned(),
            };
            let action = (self.script.lock().unwrap())(&call);
            self.calls.lock().unwrap().push(call);
            if let ProxyAction::Answer(status, body) = action {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {length}\r\n\r\n");
                client.write_all(format!("{head}{body}").as_bytes()).await?;
                continue;
            }
            upstream.write_all(&request.bytes()).await?;
            let answer = Message::read(&mut upstream).await?;
            match action {
                ProxyAction::Lose => return Ok(()),
                ProxyAction::Late(carried_out, go_on) => {
                    carried_out.notify_one();
                    go_on.notified().await;
                    client.write_all(&answer.bytes()).await?;
                }
                _ => client.write_all(&answer.bytes()).await?,
            }
        }
    }
}

struct Message {
    head: String,
    body: Vec<u8>,
}

impl Message {
    async fn read(stream: &mut TcpStream) -> io::Result<Message> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let mut message = Message { head, body: Vec::new() };
        if message.header("transfer-encoding").is_some() {
            // JSON holds no line ends, so this is the end of the last chunk and nothing else.
            while !message.body.ends_with(b"\r\n0\r\n\r\n") {
                stream.read_buf(&mut message.body).await?;
            }
        } else {
            let length = message.header("content-length").map_or(0, |text| text.parse().unwrap());
            message.body.resize(length, 0);
            stream.read_exact(&mut message.body).await?;
        }
        Ok(message)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn bytes(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }
}
