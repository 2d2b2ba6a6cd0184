//! Chromium without a screen, driven by the DevTools protocol through a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ondeck_standin::not_applicable;
use serde_json::{Value, json};

use crate::harness::within;

/// Longer than anything here takes on a busy computer.
const LIMIT: Duration = Duration::from_secs(90);

const OPTIONS: [&str; 14] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=Translate,OptimizationHints,MediaRouter",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// How a page is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) scheme: &'static str,
}

pub(super) const DESK: Look = Look { width: 1440, height: 1000, scheme: "light" };

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// What the page has complained about.
    problems: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it. `None` where there is none, which is said.
    pub(super) fn start() -> Option<Browser> {
        let found = Command::new("chromium").arg("--version").stderr(Stdio::null()).output();
        if !found.is_ok_and(|answer| answer.status.success()) {
            not_applicable("chromium");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        // The protocol is on the descriptors 3 and 4.
        let pipe = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;
        let mut child = Command::new("/bin/sh")
            .args(["-c", pipe, "chromium"])
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let messages = read(child.stdout.take().unwrap());
        let mut browser = Browser {
            child,
            commands,
            messages,
            session: None,
            last: 0,
            problems: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser.look(DESK);
        Some(browser)
    }

    /// Sets size and colour scheme. Nothing moves, so that a picture is the same each time.
    pub(super) fn look(&mut self, look: Look) {
        let Look { width, height, scheme } = look;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    pub(super) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        let is_there = format!("location.href.startsWith({url:?})");
        let loaded = format!("{is_there} && document.readyState === 'complete'");
        self.until("the page is loaded", &loaded);
    }

    /// What an expression of the page is, or comes to.
    #[track_caller]
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &asked);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, expression: &str) {
        let holds = within(LIMIT, || self.value(expression) == true);
        if !holds {
            let shown = self.value("document.body.innerText");
            panic!("not so: {what}: {expression}\n{}", shown.as_str().unwrap_or_default());
        }
    }

    /// Types a text where the focus is.
    pub(super) fn types(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Presses a key that has a name, such as `ArrowDown`.
    pub(super) fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            "/" => 191,
            "Tab" => 9,
            other => panic!("no code is known of {other}"),
        };
        let text = match key {
            "Enter" => "\r",
            "/" => "/",
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Writes a picture of what is on the screen.
    pub(super) fn picture(&mut self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        std::fs::write(path, decoded(shot["data"].as_str().unwrap())).unwrap();
    }

    /// Writes a picture of the whole page, also of what is below the screen.
    pub(super) fn whole_picture(&mut self, path: &Path) {
        let size = |name: &str| format!("document.documentElement.{name}");
        let (width, height) = (self.value(&size("scrollWidth")), self.value(&size("scrollHeight")));
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let asked = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = self.call("Page.captureScreenshot", &asked);
        std::fs::write(path, decoded(shot["data"].as_str().unwrap())).unwrap();
    }

    /// What the page has complained about since it was opened: errors, and violations of its policy.
    pub(super) fn problems(&mut self) -> Vec<String> {
        // All messages before the answer have arrived with it.
        self.value("0");
        self.problems.clone()
    }

    #[track_caller]
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let message = self.messages.recv_timeout(LIMIT).expect(method);
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.problems.push(params["exceptionDetails"].to_string());
            }
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                self.problems.push(params["entry"]["text"].to_string());
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Each message of the browser, which ends with a zero.
fn read(pipe: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for message in BufReader::new(pipe).split(0).map_while(Result::ok) {
            if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn decoded(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| LETTERS.iter().position(|letter| *letter == byte));
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len()), 0_usize, 0);
    for digit in digits {
        bits = ((bits << 6) | digit) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(((bits >> count) & 0xff) as u8);
        }
    }
    bytes
}
