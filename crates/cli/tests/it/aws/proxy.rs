//! The control plane behind a proxy, which the usual variables name.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use super::harness::{AwsHarness, LAUNCH, TIMES};
use crate::harness::{Background, Done, Driven};

/// A name that no resolver knows, so that only a proxy leads to it.
const ENDPOINT: &str = "aws.ondeck.invalid";

/// As long as anything may take on a busy computer.
const SOON: Duration = Duration::from_secs(60);

/// Runs the program with these variables in place of those of the harness.
fn run(harness: &AwsHarness, arguments: &[&str], variables: &[(&str, &str)]) -> Done {
    let mut command = harness.command(arguments);
    command.envs(variables.iter().copied());
    Background::start(&mut command).finish()
}

/// The endpoint of the stand-in is a proxy for requests without TLS: it answers them for any host.
#[test]
fn requests_to_all_services_go_through_the_proxy() {
    let harness = AwsHarness::bare();
    let endpoint = format!("http://{ENDPOINT}");
    for (variable, run_id) in [("HTTP_PROXY", "1"), ("http_proxy", "2")] {
        let variables =
            [("AWS_ENDPOINT_URL", endpoint.as_str()), (variable, harness.control.url())];
        let refresh = [&["refresh"], &TIMES[..], &LAUNCH[..]].concat();
        run(&harness, &refresh, &variables).succeeded();
        let run_id = format!("--run-id={run_id}");
        run(&harness, &["provision", "--json", &run_id], &variables).succeeded();
        run(&harness, &["release", &run_id], &variables).succeeded();
    }
}

/// What a client says first to a proxy that refuses it.
fn first_lines(listener: TcpListener) -> mpsc::Receiver<String> {
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if lines.send(refuse(stream).unwrap_or_default()).is_err() {
                return;
            }
        }
    });
    received
}

fn refuse(stream: TcpStream) -> std::io::Result<String> {
    let (mut first, mut reader) = (String::new(), BufReader::new(stream));
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let answer = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    reader.into_inner().write_all(answer)?;
    Ok(first.trim_end().to_owned())
}

#[test]
fn requests_with_tls_ask_the_proxy_for_a_tunnel() {
    let harness = AwsHarness::bare();
    let endpoint = format!("https://{ENDPOINT}");
    for variable in ["HTTPS_PROXY", "https_proxy"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let lines = first_lines(listener);
        let variables = [("AWS_ENDPOINT_URL", endpoint.as_str()), (variable, proxy.as_str())];
        run(&harness, &["status"], &variables).exited(6);
        assert_eq!(lines.recv_timeout(SOON).unwrap(), format!("CONNECT {ENDPOINT}:443 HTTP/1.1"));
    }
}

/// Without the proxy, the name of the endpoint leads nowhere.
#[test]
fn hosts_that_need_no_proxy_are_asked_directly() {
    let harness = AwsHarness::with(&[]);
    let endpoint = format!("http://{ENDPOINT}");
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("HTTP_PROXY", harness.control.url()),
        ("NO_PROXY", "example.com"),
    ];
    run(&harness, &["status"], &variables).succeeded();
    let direct = [&variables[..2], &[("NO_PROXY", ENDPOINT)]].concat();
    let done = run(&harness, &["status"], &direct).exited(6);
    assert!(done.stderr.contains("out of reach"), "{done:?}");
}
