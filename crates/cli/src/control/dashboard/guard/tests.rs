use hyper::header::HeaderName;

use super::*;

const TOKEN: &str = "0123456789abcdef0123";

fn local() -> Guard {
    Guard::new("127.0.0.1:6633".parse().unwrap(), None)
}

fn elsewhere() -> Guard {
    Guard::new("0.0.0.0:6633".parse().unwrap(), Some(Secret::new(TOKEN)))
}

fn asked(guard: &Guard, method: &Method, path: &str, headers: &[(&str, &str)]) -> Verdict {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    guard.judge(method, &path.parse().unwrap(), &map)
}

fn status(verdict: &Verdict) -> u16 {
    match verdict {
        Verdict::Admitted => 200,
        Verdict::Exchanged { .. } => 303,
        Verdict::Refused(status, _) => status.as_u16(),
    }
}

fn got(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> u16 {
    status(&asked(guard, &Method::GET, path, headers))
}

#[test]
fn only_names_of_loopback_with_the_port_are_served() {
    for host in ["127.0.0.1:6633", "localhost:6633", "[::1]:6633"] {
        assert_eq!(got(&local(), "/", &[("host", host)]), 200, "{host}");
    }
    for host in
        ["evil.example:6633", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:6633", ""]
    {
        assert_eq!(got(&local(), "/events", &[("host", host)]), 403, "{host}");
    }
    assert_eq!(got(&local(), "/", &[]), 403);
    let two = [("host", "127.0.0.1:6633"), ("host", "evil.example")];
    assert_eq!(got(&local(), "/", &two), 403);
    let absolute = "http://evil.example/events";
    assert_eq!(got(&local(), absolute, &[("host", "127.0.0.1:6633")]), 403);
}

#[test]
fn nothing_but_reads_is_answered() {
    let host = [("host", "127.0.0.1:6633")];
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        assert_eq!(status(&asked(&local(), &method, "/", &host)), 405, "{method}");
    }
    assert_eq!(status(&asked(&local(), &Method::HEAD, "/", &host)), 200);
}

#[test]
fn a_page_of_another_site_reads_nothing() {
    let host = ("host", "localhost:6633");
    for origin in ["http://evil.example", "http://localhost:80", "null", "https://localhost:66330"]
    {
        assert_eq!(got(&local(), "/events", &[host, ("origin", origin)]), 403, "{origin}");
    }
    for site in ["cross-site", "same-site"] {
        let with = |path, mode, dest| {
            let site = ("sec-fetch-site", site);
            got(&local(), path, &[host, site, ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)])
        };
        assert_eq!(with("/events", "no-cors", "empty"), 403);
        assert_eq!(with("/story?of=1", "navigate", "document"), 403);
        assert_eq!(with("/", "navigate", "iframe"), 403);
        assert_eq!(with("/", "navigate", "document"), 200, "a link in a chat");
    }
    let own = [host, ("origin", "http://localhost:6633"), ("sec-fetch-site", "same-origin")];
    assert_eq!(got(&local(), "/events", &own), 200);
}

#[test]
fn elsewhere_every_path_needs_the_token() {
    let host = ("host", "ci.example:6633");
    let guard = elsewhere();
    for path in ["/", "/events", "/story?of=1", "/assets/main.js", "/nothing"] {
        assert_eq!(got(&guard, path, &[host]), 401, "{path}");
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(got(&guard, path, &[host, ("authorization", &bearer)]), 200, "{path}");
        let cookie = format!("other=1; ondeck-dashboard-6633={TOKEN}");
        assert_eq!(got(&guard, path, &[host, ("cookie", &cookie)]), 200, "{path}");
    }
    for wrong in ["", "0123456789abcdef012", "0123456789abcdef01234", "0123456789ABCDEF0123"] {
        let bearer = format!("Bearer {wrong}");
        assert_eq!(got(&guard, "/", &[host, ("authorization", &bearer)]), 401, "{wrong}");
        let cookie = format!("ondeck-dashboard-6633={wrong}");
        assert_eq!(got(&guard, "/", &[host, ("cookie", &cookie)]), 401, "{wrong}");
        assert_eq!(got(&guard, &format!("/?token={wrong}"), &[host]), 401, "{wrong}");
    }
    let another_port = format!("ondeck-dashboard-6634={TOKEN}");
    assert_eq!(got(&guard, "/", &[host, ("cookie", &another_port)]), 401);
}

#[test]
fn the_token_leaves_the_address_at_once() {
    let host = ("host", "ci.example:6633");
    let page = format!("/?token={TOKEN}");
    let cookie = format!("ondeck-dashboard-6633={TOKEN}; Path=/; HttpOnly; SameSite=Lax");
    let verdict = asked(&elsewhere(), &Method::GET, &page, &[host]);
    assert_eq!(verdict, Verdict::Exchanged { cookie: cookie.clone() });
    let kept = format!("ondeck-dashboard-6633={TOKEN}");
    let verdict = asked(&elsewhere(), &Method::GET, &page, &[host, ("cookie", &kept)]);
    assert_eq!(verdict, Verdict::Exchanged { cookie }, "the address is opened again");
    assert_eq!(got(&elsewhere(), "/?token=wrong", &[host, ("cookie", &kept)]), 200);
    assert_eq!(got(&elsewhere(), &format!("/events?token={TOKEN}"), &[host]), 401);
    let debug = format!("{:?}", elsewhere());
    assert!(!debug.contains(TOKEN), "{debug}");
}
