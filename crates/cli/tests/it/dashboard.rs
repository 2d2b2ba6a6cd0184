//! `ondeck dashboard`: what it answers and refuses, and its page in a browser.

mod browser;
mod page;
pub(crate) mod requests;

use serde_json::Value;

use self::requests::{Answer, Events, asked, got};
use crate::doctor::{WARNED, ids};
use crate::harness::{Background, Driven, Home, until};

/// Everything that tells of the pool, the page first.
const READS: [&str; 6] = ["/", "/events", "/story?of=1", "/metrics", "/doctor", "/cost?since=24h"];

const TOKEN: &str = "a-token-of-the-operator-0123";

/// The dashboard of a pool.
pub(crate) struct Served {
    pub(crate) program: Background,
    pub(crate) address: String,
}

impl Served {
    /// On any port of this computer.
    pub(crate) fn of(pool: &impl Driven) -> Served {
        Served::on(pool, "127.0.0.1:0", &[])
    }

    pub(crate) fn on(pool: &impl Driven, listen: &str, variables: &[(&str, &str)]) -> Served {
        let listen = format!("--listen={listen}");
        let mut command = pool.command(&["dashboard", &listen, "--interval-sec=1", "-vv"]);
        command.envs(variables.iter().copied());
        let program = Background::start(&mut command);
        program.until_it_says("Ctrl-C ends it");
        let said = program.said();
        let url = said.lines().find_map(|line| line.strip_prefix("dashboard: http://")).unwrap();
        let address = url.split('/').next().unwrap().to_owned();
        Served { program, address }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// The machines that a change sends, sorted.
pub(crate) fn ids_in(change: &Value) -> Vec<String> {
    let set = change["set"].as_array().unwrap().iter();
    let mut ids: Vec<String> = set.map(|it| it["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

/// The address of this computer's loopback, for one that listens on all addresses.
fn on_loopback(served: &Served) -> String {
    format!("127.0.0.1:{}", served.address.rsplit(':').next().unwrap())
}

fn with_host(served: &Served, line: &str, host: &str) -> Answer {
    asked(&served.address, line, &[("host", host)])
}

#[test]
fn it_serves_its_own_name_only() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    let port = served.address.rsplit(':').next().unwrap().to_owned();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")]
    {
        assert_eq!(with_host(&served, "GET / HTTP/1.1", &host).status, 200, "{host}");
    }
    for path in READS.into_iter().chain(["/assets/main.js", "/nothing"]) {
        let line = format!("GET {path} HTTP/1.1");
        for host in
            [format!("rebound.example:{port}"), "rebound.example".into(), "127.0.0.1".into()]
        {
            let answer = with_host(&served, &line, &host);
            assert_eq!(answer.status, 403, "{path} of {host}");
            assert!(!answer.body.contains("ondeck-"), "{}", answer.body);
        }
        assert!(matches!(asked(&served.address, &line, &[]).status, 400 | 403));
    }
    let absolute = "GET http://rebound.example/events HTTP/1.1";
    assert_eq!(with_host(&served, absolute, &served.address).status, 403);
}

#[test]
fn it_answers_reads_only() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    for path in READS.into_iter().chain(["/nothing"]) {
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            let answer = with_host(&served, &format!("{method} {path} HTTP/1.1"), &served.address);
            assert_eq!(
                (answer.status, answer.header("allow")),
                (405, Some("GET, HEAD")),
                "{method}"
            );
        }
    }
    for path in ["/", "/events", "/assets/page.css"] {
        let answer = with_host(&served, &format!("HEAD {path} HTTP/1.1"), &served.address);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{path}");
    }
    assert_eq!(got(&served.address, "/nothing").status, 404);
    let story = got(&served.address, "/story?of=nothing");
    assert_eq!(story.status, 404);
    assert!(story.body.contains("the pool knows no such run"), "{}", story.body);
    assert_eq!(got(&served.address, "/story").status, 400);
}

#[test]
fn it_has_metrics_of_the_pool_as_it_is() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    home.provision("1", 2).succeeded();
    let answer = got(&served.address, "/metrics");
    let media_type = Some("text/plain; version=0.0.4; charset=utf-8");
    assert_eq!((answer.status, answer.header("content-type")), (200, media_type));
    let running =
        |line: &&str| line.starts_with("ondeck_machines{") && line.contains("state=\"running\"");
    let machines: Vec<&str> = answer.body.lines().filter(running).collect();
    assert!(matches!(machines[..], [line] if line.ends_with(" 2")), "{}", answer.body);
    home.release("1").succeeded();
    let idle = got(&served.address, "/metrics").body;
    assert!(idle.lines().find(running).is_some_and(|line| line.ends_with(" 0")), "{idle}");
    let of_pool = |text: &str| {
        text.lines().find(|it| it.starts_with("ondeck_idle_machines{")).map(|it| it.ends_with(" 0"))
    };
    assert_eq!((of_pool(&answer.body), of_pool(&idle)), (Some(true), Some(false)), "{idle}");
}

#[test]
fn other_sites_read_nothing() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    let host = ("host", served.address.as_str());
    for path in READS.into_iter().skip(1).chain(["/assets/main.js"]) {
        let line = format!("GET {path} HTTP/1.1");
        for header in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(asked(&served.address, &line, &[host, header]).status, 403, "{header:?}");
        }
    }
}

#[test]
fn every_answer_forbids_what_the_page_does_not_need() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    let page = got(&served.address, "/");
    let assets = page.body.split('"').filter(|text| text.starts_with("/assets/"));
    let answered = READS.into_iter().filter(|path| *path != "/events");
    let paths = answered.chain(["/nothing"]).chain(assets);
    for path in paths {
        let answer = got(&served.address, path);
        let policy = answer.header("content-security-policy").unwrap();
        for rule in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    let host = ("host", served.address.as_str());
    let large = "a".repeat(40_000);
    let answer = asked(&served.address, "GET / HTTP/1.1", &[host, ("x-large", &large)]);
    assert_eq!(answer.status, 431);
    let many: Vec<(&str, &str)> =
        std::iter::once(host).chain((0..200).map(|_| ("x", "y"))).collect();
    assert_eq!(asked(&served.address, "GET / HTTP/1.1", &many).status, 431);
}

#[test]
fn elsewhere_it_needs_the_token() {
    let home = Home::with(&[]);
    let served = Served::on(&home, "0.0.0.0:0", &[("ONDECK_DASHBOARD_TOKEN", TOKEN)]);
    let address = on_loopback(&served);
    let host = ("host", "ci.example");
    for path in READS.into_iter().chain(["/assets/main.js"]) {
        let line = format!("GET {path} HTTP/1.1");
        assert_eq!(asked(&address, &line, &[host]).status, 401, "{path}");
        let wrong = ("authorization", "Bearer a-token-of-the-operator-0124");
        assert_eq!(asked(&address, &line, &[host, wrong]).status, 401, "{path}");
    }
    let page = format!("GET /?token={TOKEN} HTTP/1.1");
    let exchanged = asked(&address, &page, &[host]);
    assert_eq!((exchanged.status, exchanged.header("location")), (303, Some("/")));
    assert!(!exchanged.body.contains(TOKEN));
    let cookie = exchanged.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let again = asked(&address, &page, &[host, ("cookie", cookie)]);
    assert_eq!((again.status, again.header("location")), (303, Some("/")), "opened again");
    for path in ["/", "/assets/main.js", "/nothing"] {
        let answer = asked(&address, &format!("GET {path} HTTP/1.1"), &[host, ("cookie", cookie)]);
        assert_eq!(answer.status, if path == "/nothing" { 404 } else { 200 });
        assert!(!answer.body.contains(TOKEN), "{path}");
        assert_eq!(answer.header("set-cookie"), None);
    }
    let cut = cookie.strip_suffix('3').unwrap();
    assert_eq!(asked(&address, "GET / HTTP/1.1", &[host, ("cookie", cut)]).status, 401);
    assert!(!served.program.said().contains(TOKEN), "neither on stdout nor in the log");
}

#[test]
fn a_token_is_made_where_none_is_given() {
    let home = Home::with(&[]);
    let served = Served::on(&home, "0.0.0.0:0", &[]);
    let said = served.program.said();
    let token = said.split("/?token=").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    let address = on_loopback(&served);
    let bearer = format!("Bearer {token}");
    assert_eq!(got(&address, "/").status, 401);
    let headers = [("host", address.as_str()), ("authorization", bearer.as_str())];
    assert_eq!(asked(&address, "GET / HTTP/1.1", &headers).status, 200);
    assert_eq!(said.matches(token).count(), 1, "{said}");
    assert!(token.len() >= 40, "{token}");
}

#[test]
fn no_secret_is_in_an_answer() {
    let home = Home::with(&["--pre-runner-script=echo script-secret-1"]);
    let machine = home.provision("1", 1).succeeded().ids().concat();
    home.file()
        .execute(
            "INSERT INTO credentials VALUES (1, 'registration-secret-2', 'removal-secret-3', '2030-01-01T00:00:00Z')",
            [],
        )
        .unwrap();
    let served = Served::of(&home);
    let mut events = Events::of(&served.address);
    let (name, state) = events.next();
    let update = events.until("change", |_| true);
    assert_eq!((name.as_str(), state["at"].is_null()), ("state", true));
    let story = got(&served.address, &format!("/story?of={machine}"));
    assert_eq!(story.status, 200);
    let told: Value = serde_json::from_str(&story.body).unwrap();
    assert_eq!(told["subject"], "machine");
    let [metrics, doctor, cost] = ["/metrics", "/doctor", "/cost?since=24h"].map(|path| {
        let answer = got(&served.address, path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    });
    for text in [state.to_string(), update.to_string(), story.body, metrics, doctor, cost] {
        assert!(!text.contains("secret"), "{text}");
    }
}

/// Secrets of the program's surroundings, each with the word in it.
pub(crate) const SECRETS: [(&str, &str); 5] = [
    ("ONDECK_GITHUB_TOKEN", "ghp_secret-of-github"),
    ("ONDECK_GITHUB_APP_PRIVATE_KEY", "secret-of-the-app"),
    ("ONDECK_NOTICE_WEBHOOK", "https://hooks.example/secret-of-notices"),
    ("AWS_SECRET_ACCESS_KEY", "secret-of-aws"),
    ("AWS_SESSION_TOKEN", "secret-of-the-session"),
];

/// Whatever each path answers, with these headers. The statuses are those of a pool that can be read, or
/// of one that cannot.
pub(crate) fn assert_tells_no_secret(
    served: &Served,
    headers: &[(&str, &str)],
    run: &str,
) -> Vec<u16> {
    let host = ("host", served.address.as_str());
    let headers = [&[host], headers].concat();
    let of_run = format!("GET /story?of={run} HTTP/1.1");
    let lines = [
        "GET / HTTP/1.1",
        &of_run,
        "GET /metrics HTTP/1.1",
        "GET /doctor HTTP/1.1",
        "GET /cost?since=24h HTTP/1.1",
        "GET /cost?since=secre HTTP/1.1",
        "GET /story?of=none HTTP/1.1",
        "GET /story HTTP/1.1",
        "GET /nothing HTTP/1.1",
        "POST / HTTP/1.1",
    ];
    let mut statuses = Vec::new();
    for line in lines {
        for headers in
            [&headers[..], &[("host", "other.example")], &[host, ("authorization", "Bearer no")]]
        {
            let answer = asked(&served.address, line, headers);
            let told = format!("{:?} {}", answer.headers, answer.body);
            assert!(!told.contains("secret"), "{line}: {told}");
            statuses.push(answer.status);
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

#[test]
fn no_secret_of_its_surroundings_is_in_an_answer_or_a_failure() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let change = |sql: &str| home.file().execute(sql, []).unwrap();
    change("REPLACE INTO settings VALUES ('notice-webhook', 'https://hooks.example/secret-2')");
    let own = ("ONDECK_DASHBOARD_TOKEN", "a-secret-of-the-dashboard-0123");
    let bearer = format!("Bearer {}", own.1);
    let behind_token = Served::on(&home, "127.0.0.1:0", &[&SECRETS[..], &[own]].concat());
    let open = Served::on(&home, "127.0.0.1:0", &SECRETS);
    let with_token = [("authorization", bearer.as_str())];
    assert_eq!(
        assert_tells_no_secret(&behind_token, &with_token, "1"),
        [200, 400, 401, 403, 404, 405]
    );
    let mut events = Events::of(&open.address);
    assert!(!events.until("change", |_| true).to_string().contains("secret"));

    change("ALTER TABLE instances RENAME TO lost");
    let trouble = events.until("trouble", |_| true);
    assert!(!trouble.to_string().contains("secret"), "{trouble}");
    for (served, headers) in [(&behind_token, &with_token[..]), (&open, &[])] {
        let statuses = assert_tells_no_secret(served, headers, "1");
        assert!(statuses.iter().any(|status| *status >= 500), "{statuses:?}");
        assert!(!served.program.said().replace(own.1, "").contains("secret"), "nor in the log");
    }
}

fn json(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_str(&answer.body).unwrap()
}

#[test]
fn what_doctor_finds_and_what_the_pool_cost_are_those_of_the_commands() {
    let home = Home::with(&["--reuse=never", "--max-runs-per-machine=5"]);
    home.provision("1", 2).succeeded();
    home.release("1").succeeded();
    let served = Served::of(&home);
    let examined = json(&got(&served.address, "/doctor"));
    assert!(examined["at"].as_u64().is_some(), "{examined}");
    assert_eq!(ids(&examined["doctor"]), ["settings-contradict"]);
    let told = home.ondeck(&["doctor", "--json"]).exited(WARNED).json();
    assert_eq!(examined["doctor"], told);

    let account = json(&got(&served.address, "/cost?since=24h"));
    let told = home.ondeck(&["cost", "--since=24h", "--json"]).succeeded().json();
    for part in ["schemaVersion", "isPartial", "prices", "unpriced"] {
        assert_eq!(account[part], told[part], "{part}");
    }
    assert_eq!(account["runs"][0]["runId"], "1");
    assert_eq!(account["runs"][0]["cost"], told["runs"][0]["cost"], "what is over stays the same");
    for bad in ["/cost", "/cost?since=", "/cost?since=soon", "/cost?since=31d", "/cost?of=1"] {
        assert_eq!(got(&served.address, bad).status, 400, "{bad}");
    }
}

#[test]
fn a_pool_that_is_gone_is_still_examined() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    home.file().execute("ALTER TABLE settings RENAME TO hidden", []).unwrap();
    let examined = json(&got(&served.address, "/doctor"));
    assert_ne!(ids(&examined["doctor"]), [""; 0], "{examined}");
    let account = got(&served.address, "/cost?since=24h");
    assert_eq!(account.status, 503, "{}", account.body);
    assert!(json(&account)["message"].is_string());
}

#[test]
fn pages_get_the_pool_and_then_what_changes() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    let mut events = Events::of(&served.address);
    events.until("change", |change| change["summary"].is_object());
    let ids = home.provision("1", 2).succeeded().ids();
    let mut running = std::collections::BTreeSet::new();
    events.until("change", |change| {
        let set = change["set"].as_array().unwrap().iter();
        let own = set.filter(|it| it["state"] == "running" && it["run"] == "1");
        running.extend(own.map(|it| it["id"].as_str().unwrap().to_owned()));
        running.len() == 2
    });
    assert_eq!(Vec::from_iter(running), ids);
    home.release("1").succeeded();
    events.until("change", |change| change["summary"]["states"]["idle"] == 2);
    // Another page begins with all of it.
    let (name, state) = Events::of(&served.address).next();
    assert_eq!((name.as_str(), state["machines"].as_array().unwrap().len()), ("state", 2));
    home.ondeck(&["terminate", &ids[0], "--yes"]).succeeded();
    events.until("change", |change| {
        let mut changes = change["changes"].as_array().unwrap().iter();
        changes.any(|it| it["id"] == *ids[0] && it["to"] == "terminated")
    });
    served.program.signal(rustix::process::Signal::INT);
    served.program.finish().succeeded();
}

#[test]
fn a_pool_that_cannot_be_read_is_said_to_be_so_and_is_read_again() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    let mut events = Events::of(&served.address);
    events.until("change", |_| true);
    let file = home.file();
    file.execute("ALTER TABLE instances RENAME TO hidden", []).unwrap();
    let trouble = events.until("trouble", |_| true);
    assert!(!trouble["message"].as_str().unwrap().is_empty(), "{trouble}");
    let pause = |it: &Value| it["next"].as_u64().unwrap() - it["since"].as_u64().unwrap();
    let again = events.until("trouble", |_| true);
    assert!(again["since"] == trouble["since"] && pause(&again) > pause(&trouble));
    file.execute("ALTER TABLE hidden RENAME TO instances", []).unwrap();
    events.until("change", |_| true);
}

#[test]
fn what_cannot_be_served_is_an_error_of_the_command() {
    let home = Home::with(&[]);
    let served = Served::of(&home);
    let listen = format!("--listen={}", served.address);
    let done = home.ondeck(&["dashboard", &listen]).exited(2);
    assert!(done.stderr.contains("cannot listen on"), "{}", done.stderr);
    for bad in ["--listen=localhost", "--listen=6633", "--dashboard-token=short"] {
        home.ondeck(&["dashboard", bad]).exited(2);
    }
    home.ondeck(&["dashboard", "--json"]).exited(2);
    Home::bare().ondeck(&["dashboard", "--listen=127.0.0.1:0"]).exited(3);
    until("the first one still serves", || got(&served.address, "/").status == 200);
}
