//! HTTP clients for all requests to GitHub and to addresses of the operator. They connect over TLS, or without it to loopback only.

use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use ondeck_core::model::excerpt::one_line;
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{ClientBuilder, Url};

/// The name of the service in messages.
pub(crate) const GITHUB: &str = "GitHub";

/// How long a connection may take.
pub const CONNECT: Duration = Duration::from_secs(10);

const HOPS: usize = 5;

/// Which redirects are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// Only those to the same server, because requests carry a token.
    SameServer,
    /// Also those to other servers, as release downloads need.
    Anywhere,
    Nowhere,
}

/// Parses an address. Fails unless it is https, or http on loopback, without user and password. The
/// error completes a sentence ("… is not an address") and never contains the password.
pub fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("is not an address: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or a password".to_owned());
    }
    if url.scheme() == "https" || is_loopback(&url) {
        return Ok(url);
    }
    Err(format!("is neither https nor on this computer: {}", one_line(&url)))
}

/// Starts building a client for this address. It uses the proxy that the environment names, except
/// for loopback addresses.
pub fn builder(address: &Url, redirects: Redirects) -> ClientBuilder {
    let builder = ClientBuilder::new()
        .user_agent(concat!("ondeck/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .referer(false)
        .redirect(Policy::custom(move |attempt| follow_or_stop(attempt, redirects)));
    if is_loopback(address) { builder.no_proxy() } else { builder }
}

/// Joins the messages of an error and its causes, because reqwest's outermost message lacks details.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Whether two addresses have the same scheme, host and port.
pub fn same_server(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin()
}

/// Decides on a redirect. One that is not followed is returned to the caller as the answer.
fn follow_or_stop(attempt: Attempt<'_>, redirects: Redirects) -> Action {
    if attempt.previous().len() > HOPS {
        return attempt.error("too many redirects");
    }
    let allowed = attempt.previous().last().is_some_and(|from| {
        let to = attempt.url();
        let safe = to.scheme() == "https" || (is_loopback(from) && is_loopback(to));
        safe && match redirects {
            Redirects::SameServer => same_server(from, to),
            Redirects::Anywhere => true,
            Redirects::Nowhere => false,
        }
    });
    if allowed { attempt.follow() } else { attempt.stop() }
}

/// Whether an address is on this computer, without TLS.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host.parse::<IpAddr>().map_or(host == "localhost", |ip| ip.is_loopback());
    loopback && url.scheme() == "http"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tls_and_loopback_addresses_are_accepted() {
        for good in [
            "https://github.com",
            "http://127.0.0.1:8080/api",
            "http://[::1]:1",
            "http://localhost",
        ] {
            assert!(address(good).is_ok(), "{good}");
        }
        for (bad, problem) in [
            ("github.com", "is not an address"),
            ("http://github.com", "neither https"),
            ("http://127.0.0.1.example.com", "neither https"),
            ("ftp://127.0.0.1", "neither https"),
            ("https://user:hunter2@github.com", "holds a user"),
            ("http://hunter2@github.com", "holds a user"),
        ] {
            let error = address(bad).unwrap_err();
            assert!(error.contains(problem) && !error.contains("hunter2"), "{bad}: {error}");
        }
    }
}
