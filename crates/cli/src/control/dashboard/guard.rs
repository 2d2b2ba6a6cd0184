//! Which requests are answered.
//!
//! A page of another site must not read the pool, so a request for another host (which is how DNS
//! rebinding looks), or from another site, is refused. The token is compared in constant time.

use std::net::SocketAddr;

use hyper::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use ondeck_core::model::secret::Secret;

use super::access::is_loopback;

/// The path of the page itself.
pub(super) const PAGE: &str = "/";

#[derive(Debug)]
pub(super) struct Guard {
    /// The hosts that a browser may name; `None` if the token alone decides.
    hosts: Option<Vec<String>>,
    token: Option<Secret>,
    cookie: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Admitted,
    /// The request has the token in its address: the browser is to keep it, and to ask again without.
    Exchanged {
        cookie: String,
    },
    Refused(StatusCode, &'static str),
}

impl Guard {
    pub(super) fn new(address: SocketAddr, token: Option<Secret>) -> Guard {
        let port = address.port();
        let hosts = is_loopback(address.ip()).then(|| {
            let names = ["127.0.0.1", "[::1]", "localhost"].map(|name| format!("{name}:{port}"));
            names.into_iter().chain([address.to_string()]).collect()
        });
        Guard { hosts, token, cookie: format!("ondeck-dashboard-{port}") }
    }

    pub(super) fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        use Verdict::Refused;
        let Some(host) = host(uri, headers).filter(|host| self.is_own(host)) else {
            return Refused(StatusCode::FORBIDDEN, "this page is not served under that name");
        };
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Refused(StatusCode::METHOD_NOT_ALLOWED, "this page only shows");
        }
        if !is_same_site(uri, headers, host) {
            return Refused(StatusCode::FORBIDDEN, "other sites may not read this page");
        }
        let Some(token) = &self.token else { return Verdict::Admitted };
        // First, so that it leaves the address also if the browser has the cookie already.
        let in_address = (uri.path() == PAGE).then(|| token_of(uri)).flatten();
        if in_address.is_some_and(|text| is_equal(text.as_bytes(), token.expose().as_bytes())) {
            let (name, token) = (&self.cookie, token.expose());
            // Not strict: a browser sends no strict cookie when a link in a chat is followed.
            // `is_same_site` limits other sites to such a link.
            let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax");
            return Verdict::Exchanged { cookie };
        }
        let mut offered = self.offered(headers);
        if offered.any(|offered| is_equal(offered.as_bytes(), token.expose().as_bytes())) {
            return Verdict::Admitted;
        }
        Refused(StatusCode::UNAUTHORIZED, "open the address with ?token= that ondeck has printed")
    }

    fn is_own(&self, host: &str) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|own| own == host))
    }

    /// Every token that the headers have.
    fn offered<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let own = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        });
        bearer.into_iter().chain(own)
    }
}

/// The host that is asked; `None` if that is not clear.
fn host<'a>(uri: &Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    let is_clear = hosts.next().is_none() && uri.authority().is_none();
    is_clear.then_some(host)
}

/// Whether no page of another site has caused the request. A link to the page itself may be anywhere:
/// it tells nothing to the site that it is on.
fn is_same_site(uri: &Uri, headers: &HeaderMap, host: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_link = uri.path() == PAGE
        && text("sec-fetch-mode") == Some("navigate")
        && text("sec-fetch-dest") == Some("document");
    let site = matches!(text("sec-fetch-site"), None | Some("same-origin" | "none"));
    let origin = headers.get_all(ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let named = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        named == Some(host)
    });
    origin && (site || is_link)
}

fn token_of(uri: &Uri) -> Option<&str> {
    let parts = uri.query().unwrap_or_default().split('&');
    parts.filter_map(|part| part.strip_prefix("token=")).next()
}

/// Compares in a time that depends on the length of `expected` only.
fn is_equal(offered: &[u8], expected: &[u8]) -> bool {
    let unequal =
        expected.iter().enumerate().fold(offered.len() ^ expected.len(), |all, (n, byte)| {
            all | usize::from(offered.get(n).unwrap_or(&0) ^ byte)
        });
    std::hint::black_box(unequal) == 0
}

#[cfg(test)]
mod tests;
