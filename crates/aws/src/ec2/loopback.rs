//! A server on loopback that answers what it is told to, and remembers what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_config::{Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use ondeck_core::runtime::retry::RequestRetry;
use ondeck_core::testkit::FixedRandom;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::cloud::Cloud;
use crate::names::Names;
use crate::skew::Skew;

pub(crate) const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
pub(crate) const TOKEN: &str = "IQoJb3JpZ2luX2VjEXAMPLETOKEN==";

/// What to do about a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Answer with a status and a body.
    Say(u16, String),
    /// The same, by another clock.
    SayAt(u16, String, &'static str),
    /// Promise a body, give half of it and hang up.
    Cut(String),
    HangUp,
    Silence,
}

/// One request, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Asked {
    /// The value of a header, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = |line: &'_ String| {
            let (key, _) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(key.len() + 1)
        };
        let found = self.headers.iter().find_map(|line| value(line).map(|at| line[at..].trim()));
        found.unwrap_or_default()
    }

    /// The parameters, in order.
    pub(crate) fn params(&self) -> Vec<(String, String)> {
        form_urlencoded::parse(self.body.as_bytes()).into_owned().collect()
    }

    /// One parameter, or nothing.
    pub(crate) fn param(&self, name: &str) -> String {
        let found = self.params().into_iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<Asked>,
    connections: usize,
}

/// The server. It ends with the test's runtime.
#[derive(Debug, Clone)]
pub(crate) struct Loopback {
    pub(crate) url: String,
    script: Arc<Mutex<Script>>,
}

impl Loopback {
    pub(crate) async fn replying(replies: impl IntoIterator<Item = Reply>) -> Loopback {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let replies = replies.into_iter().collect();
        let script = Arc::new(Mutex::new(Script { replies, ..Script::default() }));
        let server = Loopback { url, script };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepting.script.lock().unwrap().connections += 1;
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        server
    }

    /// Answers with these documents, all of them a success.
    pub(crate) async fn saying(documents: impl IntoIterator<Item = String>) -> Loopback {
        Loopback::replying(documents.into_iter().map(|document| Reply::Say(200, document))).await
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.script.lock().unwrap().asked.clone()
    }

    /// The actions that were asked for, in order.
    pub(crate) fn actions(&self) -> Vec<String> {
        self.asked().iter().map(|asked| asked.param("Action")).collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.script.lock().unwrap().connections
    }

    /// The way to this server, with credentials that a test can look for.
    pub(crate) fn cloud(&self) -> Cloud {
        let keys = Credentials::new("AKIDEXAMPLE", SECRET, Some(TOKEN.to_owned()), None, "test");
        let config = SdkConfig::builder()
            .region(Region::new("us-east-1"))
            .endpoint_url(&self.url)
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .build();
        let names = Names::of(&"Acme/Web".parse().unwrap());
        let gate = Arc::new(Semaphore::new(4));
        let (skew, wire) = (Arc::new(Skew::default()), crate::wire::Wire::default());
        let patience = RequestRetry::new(Arc::new(skew.clock()), Arc::new(FixedRandom(0)));
        Cloud { config, names, skew, wire, gate, patience, account: Arc::default() }
    }

    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(asked) = read(&mut stream).await {
            let reply = {
                let mut script = self.script.lock().unwrap();
                script.asked.push(asked);
                script.replies.pop_front()
            };
            // More was asked than expected: no test should hang for that.
            let reply = reply.unwrap_or(Reply::Say(418, String::new()));
            match reply {
                Reply::Say(status, body) => write(&mut stream, status, &body, "").await,
                Reply::SayAt(status, body, date) => {
                    write(&mut stream, status, &body, &format!("Date: {date}\r\n")).await;
                }
                Reply::Cut(body) => {
                    let length = body.len() * 2;
                    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                    stream.write_all(text.as_bytes()).await.unwrap();
                    return;
                }
                Reply::HangUp => return,
                Reply::Silence => std::future::pending().await,
            }
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            header => headers.push(header.to_owned()),
        }
    }
    let mut asked = Asked { headers, body: String::new() };
    let mut body = vec![0; asked.header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    asked.body = String::from_utf8(body).ok()?;
    Some(asked)
}

async fn write(stream: &mut BufReader<TcpStream>, status: u16, body: &str, more: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n{more}\r\n");
    // The caller may have given up and closed the connection.
    let _given_up = stream.write_all(format!("{head}{body}").as_bytes()).await;
}

/// An error as EC2 has them.
pub(crate) fn error(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code>\
         <Message>{message}</Message></Error></Errors><RequestID>1</RequestID></Response>"
    )
}
