//! Starts one emulator on a free port and waits until it answers.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::retry::pause;
use crate::child::Background;
use crate::error::TaskError;

/// How long an emulator may take to answer. On an idle computer it takes two seconds.
const START: Duration = Duration::from_secs(60);
/// The time between two requests that test whether it answers.
const BEAT: Duration = Duration::from_millis(100);
/// How many lines of a log an error shows.
const LAST_LINES: usize = 20;

/// How to start an emulator and tell that it is ready.
pub(super) struct EmulatorSpec {
    pub(super) name: &'static str,
    /// Builds the command that starts it on a port. The caller redirects its output.
    pub(super) command: Box<dyn Fn(u16) -> Command>,
    /// A request that it answers with 200 once it is ready.
    pub(super) greeting: String,
    pub(super) log: PathBuf,
}

/// An emulator that has been started.
pub(super) struct Service {
    kind: EmulatorSpec,
    port: u16,
    process: Background,
}

impl Service {
    pub(super) fn start(kind: EmulatorSpec) -> Result<Service, TaskError> {
        let (port, process) = start(&kind)?;
        Ok(Service { kind, port, process })
    }

    /// The id of its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until the emulator answers. If it exits at once, it is started again on another port,
    /// because another process may have taken the first.
    pub(super) fn until_it_answers(&mut self) -> Result<(), TaskError> {
        let mut chances = 1;
        let started = Instant::now();
        loop {
            if let Some(error) = self.ended() {
                if chances == 0 {
                    return Err(error);
                }
                chances -= 1;
                (self.port, self.process) = start(&self.kind)?;
            }
            if answers(self.port, &self.kind.greeting).unwrap_or(false) {
                return Ok(());
            }
            if started.elapsed() > START {
                return Err(self.error(&format!("no answer within {} s", START.as_secs())));
            }
            pause(BEAT);
        }
    }

    /// The error to report if the emulator has stopped; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<TaskError> {
        match self.process.ended() {
            Ok(None) => None,
            Ok(Some(status)) => Some(self.error(&format!("has ended, {status}"))),
            Err(error) => Some(self.error(&error.to_string())),
        }
    }

    fn error(&self, what: &str) -> TaskError {
        let EmulatorSpec { name, log, .. } = &self.kind;
        let text = fs::read_to_string(log).unwrap_or_else(|error| error.to_string());
        TaskError::new(
            format!("{name}: {what}\n{}", last_lines(&text)),
            format!("the whole log is {}", log.display()),
        )
    }
}

fn start(kind: &EmulatorSpec) -> Result<(u16, Background), TaskError> {
    let failed = |error: io::Error| {
        let hint = "loopback ports, sh and the folder .tools have to be usable";
        TaskError::new(format!("{} does not start: {error}", kind.name), hint)
    };
    let port = free_port().map_err(failed)?;
    let log = File::create(&kind.log).map_err(failed)?;
    let mut command = (kind.command)(port);
    command.stderr(log.try_clone().map_err(failed)?).stdout(log);
    Ok((port, Background::start(&mut command).map_err(failed)?))
}

/// A port that is free now. The system assigns ports at random, so it likely stays free.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether the service answers a request with status 200.
fn answers(port: u16, request: &str) -> io::Result<bool> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status)?;
    Ok(status.ends_with(b" 200"))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_200_is_an_answer() {
        for (answer, ready) in [
            ("HTTP/1.1 200 OK\r\n\r\n", Some(true)),
            ("HTTP/1.1 503 \r\n\r\n", Some(false)),
            ("", None),
        ] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4];
                stream.read_exact(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                request
            });
            assert_eq!(answers(port, "PING").ok(), ready, "{answer}");
            assert_eq!(&server.join().unwrap(), b"PING");
        }
    }

    #[test]
    fn one_that_ends_is_started_once_more_on_another_port_and_then_given_up() {
        let folder = std::env::temp_dir().join(format!("ondeck-service-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let ports = folder.join("ports");
        let kind = EmulatorSpec {
            name: "Nothing",
            command: Box::new({
                let ports = ports.clone();
                move |port| {
                    let mut command = Background::command(Path::new("sh"));
                    command.args(["-c", "echo $1 >>$2; echo no use; exit 3", "sh"]);
                    command.arg(port.to_string()).arg(&ports);
                    command
                }
            }),
            greeting: String::new(),
            log: folder.join("log"),
        };
        let mut service = Service::start(kind).unwrap();
        let error = service.until_it_answers().unwrap_err();
        let expected = TaskError::new(
            "Nothing: has ended, exit status: 3\nno use",
            format!("the whole log is {}", folder.join("log").display()),
        );
        assert_eq!(error, expected);
        assert_eq!(fs::read_to_string(ports).unwrap().lines().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        let text: String = (1..=30).map(|number| format!("{number}\n")).collect();
        let shown = last_lines(&text);
        assert!(shown.starts_with("11\n") && shown.ends_with("\n30"), "{shown}");
        assert_eq!(last_lines("one"), "one");
        assert_eq!(last_lines(""), "");
    }
}
