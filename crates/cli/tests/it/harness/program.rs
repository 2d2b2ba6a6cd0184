//! The program as a process: started, listened to, signalled, killed, waited for.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use super::{LIMIT, look_again_soon, signal, until};

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    /// The exit code; negative where a signal ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Goes on only if it exited with 0.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Done {
        self.exited(0)
    }

    /// Goes on only if it exited with this code.
    #[track_caller]
    pub(crate) fn exited(self, code: i32) -> Done {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self
    }

    /// The one object on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("{error}: {}", self.stdout),
        }
    }

    /// Where its machines came from, sorted.
    #[track_caller]
    pub(crate) fn sources(&self) -> Vec<String> {
        let mut sources = column(&self.json(), "source");
        sources.sort();
        sources
    }

    /// The ids of its machines, sorted.
    #[track_caller]
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids = column(&self.json(), "instanceId");
        ids.sort();
        ids
    }
}

fn column(answer: &Value, name: &str) -> Vec<String> {
    let instances = answer["instances"].as_array().into_iter().flatten();
    instances.map(|instance| instance[name].as_str().unwrap().to_owned()).collect()
}

/// The same command, but begun by a shell that does something first and ends in `exec "$0" "$@"`.
pub(crate) fn begun_by(script: &str, program: &Command) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A command that runs beside the test.
pub(crate) struct Background {
    child: Child,
    stdout: Tap,
    stderr: Tap,
}

impl Background {
    pub(crate) fn start(command: &mut Command) -> Background {
        let mut child = command.spawn().unwrap();
        let stdout = Tap::on(child.stdout.take().unwrap());
        let stderr = Tap::on(child.stderr.take().unwrap());
        Background { child, stdout, stderr }
    }

    /// Waits for these words on stderr, or on stdout.
    #[track_caller]
    pub(crate) fn until_it_says(&self, words: &str) {
        until(&format!("it says {words:?}"), || {
            self.stderr.text().contains(words) || self.stdout.text().contains(words)
        });
    }

    /// What it has said so far, on stdout and then on stderr.
    pub(crate) fn said(&self) -> String {
        self.stdout.text() + &self.stderr.text()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it, as `kill -9` does, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Done {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            let said = || self.stdout.text() + &self.stderr.text();
            assert!(since.elapsed() < LIMIT * 3, "it does not end, having said: {}", said());
            look_again_soon();
        };
        let code = status.code().or(status.signal().map(|number| -number)).unwrap();
        Done { code, stdout: self.stdout.close(), stderr: self.stderr.close() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and need not be.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads a pipe to its end, so that the writer is never blocked by a full one.
struct Tap {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Tap {
    fn on(mut pipe: impl Read + Send + 'static) -> Tap {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Tap { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn close(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.text()
    }
}
