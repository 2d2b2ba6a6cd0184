//! What a call tells to those who observe it: metrics in a file, lines for CloudWatch, traces. None of
//! it changes what the call comes to.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Answer, Background, Done, Driven, Home, Received, Receiver, until};

const TOKEN: &str = "s3cret-of-the-collector";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The value of the only sample of a metric with these words in its line.
#[track_caller]
fn value(text: &str, metric: &str, words: &str) -> f64 {
    let of = |line: &&str| line.starts_with(&format!("{metric}{{")) && line.contains(words);
    let lines: Vec<&str> = text.lines().filter(of).collect();
    let [line] = lines[..] else { panic!("{metric} {words}: {lines:?} in {text}") };
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn each_mode_writes_its_metrics_into_a_file() {
    let home = Home::with(&["--min-idle", "large=1"]);
    let file = home.outside().join("ondeck.prom");
    let metrics = |arguments: &[&str], code: i32| {
        let flag = format!("--metrics-file={}", file.display());
        home.ondeck(&[arguments, &[flag.as_str()]].concat()).exited(code);
        fs::read_to_string(&file).unwrap()
    };
    let text = metrics(&["refresh"], 0);
    assert_eq!(value(&text, "ondeck_refresh_success", ""), 1.0);
    assert_eq!(value(&text, "ondeck_machines", r#"state="idle""#), 1.0);
    assert_eq!(value(&text, "ondeck_machines", r#"state="running""#), 0.0);
    assert_eq!(value(&text, "ondeck_pool_tickets", r#"class="large""#), 1.0);
    let text = metrics(&["provision", "--run-id", "1", "--instance-count", "2"], 0);
    assert_eq!(value(&text, "ondeck_provision_machines", r#"source="warm""#), 1.0);
    assert_eq!(value(&text, "ondeck_provision_machines", r#"source="cold""#), 1.0);
    assert!(value(&text, "ondeck_provision_slowest_ready_seconds", "cold") > 0.0);
    assert!(!text.contains("ondeck_refresh"), "the last call only: {text}");
    let text = metrics(&["release", "--run-id", "1"], 0);
    assert_eq!(value(&text, "ondeck_release_machines", r#"result="pooled""#), 2.0);
    let flags = ["--machine-source", "pool", "--instance-count", "9"];
    let text = metrics(&[&["provision", "--run-id", "2"], &flags[..]].concat(), 4);
    assert_eq!(value(&text, "ondeck_provision_success", ""), 0.0);
    let names: Vec<_> = fs::read_dir(home.outside()).unwrap().flatten().collect();
    let is_left = |name: &std::ffi::OsString| name.to_string_lossy().starts_with(".ondeck-");
    assert!(!names.iter().any(|entry| is_left(&entry.file_name())), "{names:?}");
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o444, 0o444, "a collector is another user: {mode:o}");
}

#[test]
fn a_file_that_cannot_be_written_is_a_warning() {
    let home = Home::with(&[]);
    let file = home.outside().join("no-such-folder/ondeck.prom");
    let flags =
        [format!("--metrics-file={0}", file.display()), format!("--emf-file={0}", file.display())];
    let done = home.ondeck(&["refresh", &flags[0], &flags[1]]).succeeded();
    for words in ["the file of metrics is not written", "a line of metrics is not written"] {
        assert!(done.stderr.contains(words), "{}", done.stderr);
    }
}

#[test]
fn each_refresh_adds_a_line_for_cloudwatch() {
    let home = Home::with(&[]);
    let file = home.outside().join("emf.log");
    let flag = format!("--emf-file={}", file.display());
    home.ondeck(&["refresh", &flag]).succeeded();
    home.ondeck(&["refresh", "--min-idle", "none=1", &flag]).exited(2);
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let succeeded = lines.iter().map(|line| line["RefreshSucceeded"].as_u64().unwrap());
    assert_eq!(succeeded.collect::<Vec<_>>(), [1, 0], "{text}");
    let metrics = lines[0]["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    assert!(metrics.iter().any(|metric| metric["Name"] == "Reaped"), "{text}");
}

/// The mode with a collector for its traces.
fn traced(home: &Home, collector: &Receiver, arguments: &[&str]) -> Done {
    let mut command = home.command(arguments);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url("/otlp"))
        .env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{TOKEN}"))
        .env("OTEL_SERVICE_NAME", "ci-pool")
        .env("TRACEPARENT", PARENT);
    let done = Background::start(&mut command).finish();
    assert!(!done.stdout.contains(TOKEN) && !done.stderr.contains(TOKEN), "{}", done.stderr);
    done
}

fn spans(received: &Received) -> Vec<Value> {
    let body = received.json();
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "ci-pool");
    resource["scopeSpans"][0]["spans"].as_array().unwrap().clone()
}

fn names(spans: &[Value]) -> Vec<&str> {
    spans.iter().map(|span| span["name"].as_str().unwrap()).collect()
}

#[test]
fn each_mode_sends_one_trace_to_a_collector() {
    let (home, collector) = (Home::with(&[]), Receiver::start());
    for (arguments, expected) in [
        (&["refresh"][..], &["ondeck refresh", "setting up", "cleaning up"][..]),
        (
            &["provision", "--run-id", "1", "--instance-count", "2"],
            &["ondeck provision", "launching new machines", "cold machine", "register"],
        ),
        (&["release", "--run-id", "1"], &["ondeck release", "waiting for machines to deregister"]),
    ] {
        traced(&home, &collector, arguments).succeeded();
        let received = collector.take();
        let [received] = &received[..] else { panic!("one request: {received:?}") };
        assert_eq!(received.line, "POST /otlp/v1/traces HTTP/1.1");
        let authorization = format!("authorization: Bearer {TOKEN}");
        assert!(received.headers.contains(&authorization), "{:?}", received.headers);
        let spans = spans(received);
        let names = names(&spans);
        assert!(expected.iter().all(|name| names.contains(name)), "{expected:?} of {names:?}");
        assert_eq!(spans[0]["parentSpanId"], "b7ad6b7169203331");
        for span in &spans {
            assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
        }
        assert_eq!(spans[0]["status"]["code"], 1);
    }
}

#[test]
fn a_failure_is_traced_and_keeps_its_exit_code() {
    let (home, collector) = (Home::with(&[]), Receiver::start());
    let arguments = ["provision", "--run-id", "1", "--machine-source", "pool"];
    traced(&home, &collector, &arguments).exited(4);
    let spans = spans(&collector.take()[0]);
    assert_eq!(spans[0]["status"]["code"], 2, "{spans:?}");
    let message = spans[0]["status"]["message"].as_str().unwrap();
    assert!(message.contains("not enough idle machines"), "{message}");
}

#[test]
fn a_collector_that_refuses_or_is_silent_is_a_warning() {
    let (home, collector) = (Home::with(&[]), Receiver::start());
    for (answer, reason) in [
        (Answer::Refused(503, "later"), "the receiver answers 503 later"),
        (Answer::Redirected("http://127.0.0.1:1/".to_owned()), "the receiver redirects"),
        (Answer::Silence, "the trace is not sent: no answer"),
    ] {
        collector.answers(answer);
        let done = traced(&home, &collector, &["refresh", "--json"]).succeeded();
        assert!(done.stderr.contains(reason), "{reason}: {}", done.stderr);
        assert_eq!(done.json()["warnings"], serde_json::json!([]), "it is not part of the result");
        assert_eq!(collector.take().len(), 1);
    }
    let mut command = home.command(&["refresh"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://example.com/{TOKEN}"));
    let done = Background::start(&mut command).finish().succeeded();
    assert!(done.stderr.contains("the trace is not sent: the address is neither https"));
    assert!(!done.stderr.contains(TOKEN), "{}", done.stderr);
}

/// Machines and their jobs get no variable of the process that launches them.
#[test]
fn the_token_of_the_collector_reaches_no_machine() {
    let (home, collector) = (Home::with(&[]), Receiver::start());
    traced(&home, &collector, &["provision", "--run-id", "1"]).succeeded();
    let processes = home.processes();
    until("the agent is there", || !home.agents().is_empty());
    for pid in processes {
        for file in ["environ", "cmdline"] {
            let bytes = fs::read(Path::new("/proc").join(pid.to_string()).join(file));
            let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
            assert!(!text.contains(TOKEN), "{file} of {pid}");
        }
    }
}

/// Without a variable, no connection is made; without a recorded parent neither.
#[test]
fn nothing_is_sent_unless_it_is_asked_for() {
    let (home, collector) = (Home::with(&[]), Receiver::start());
    home.ondeck(&["refresh"]).succeeded();
    for (name, value) in
        [("OTEL_SDK_DISABLED", "true"), ("TRACEPARENT", &PARENT.replace("-01", "-00") as &str)]
    {
        let mut command = home.command(&["refresh"]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url("")).env(name, value);
        Background::start(&mut command).finish().succeeded();
    }
    assert_eq!(collector.count(), 0);
}
