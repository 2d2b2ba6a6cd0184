//! The addresses of GitHub's server and its APIs.

use ondeck_core::model::failure::Failure;
use reqwest::Url;

use crate::http;

#[derive(Debug)]
pub(crate) struct Addresses {
    /// The server that runners register with, without a trailing slash.
    pub(crate) server: String,
    /// Whether GitHub operates the server. `false` for Enterprise Server.
    pub(crate) hosted: bool,
    pub(crate) api: Url,
    pub(crate) releases: Url,
}

impl Addresses {
    /// Parses the addresses, and derives the API's from the server's if `api` is `None`. Fails if an
    /// address is invalid, or if the server has a port: actions/runner asks the default port all the
    /// same. On loopback a port is accepted, because the runner of our stand-in keeps it.
    pub(crate) fn new(server: &str, api: Option<&str>, releases: &str) -> Result<Self, Failure> {
        let server = address("server", server)?;
        if server.path() != "/" {
            return Err(Failure::invalid(format!("GitHub's server has a path: {server}"))
                .hint("write only https:// and the name of the server"));
        }
        if let Some(port) = server.port()
            && !http::is_loopback(&server)
        {
            return Err(Failure::invalid(format!("GitHub's server has a port: {port}")).hint(
                "use the address without a port: actions/runner drops it when it registers",
            ));
        }
        let api = match api {
            Some(api) => address("API", api)?,
            None => address("API", &api_of(&server))?,
        };
        let releases = address("runner releases", releases)?;
        let hosted = is_hosted(&server);
        let server = server.as_str().trim_end_matches('/').to_owned();
        Ok(Addresses { server, hosted, api, releases })
    }
}

fn address(what: &str, text: &str) -> Result<Url, Failure> {
    let url = http::address(text).and_then(|url| {
        let plain = url.query().is_none() && url.fragment().is_none();
        if plain { Ok(url) } else { Err("has a query or a fragment".to_owned()) }
    });
    url.map_err(|problem| {
        Failure::invalid(format!("the address of GitHub's {what} {problem}"))
            .hint("write it like https://github.com")
    })
}

fn api_of(server: &Url) -> String {
    if is_hosted(server) {
        return format!("https://api.{}", server.host_str().unwrap_or_default());
    }
    format!("{}/api/v3", server.as_str().trim_end_matches('/'))
}

fn is_hosted(server: &Url) -> bool {
    let host = server.host_str().unwrap_or_default();
    host == "github.com" || host.ends_with(".ghe.com")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASES: &str = "https://api.github.com";

    #[test]
    fn the_api_follows_from_the_server() {
        for (server, api, hosted) in [
            ("https://github.com", "https://api.github.com/", true),
            ("https://github.com/", "https://api.github.com/", true),
            ("https://octo.ghe.com", "https://api.octo.ghe.com/", true),
            ("https://ghe.example.com", "https://ghe.example.com/api/v3", false),
            ("https://ghe.example.com:443", "https://ghe.example.com/api/v3", false),
            ("http://127.0.0.1:4000", "http://127.0.0.1:4000/api/v3", false),
            ("https://notghe.com", "https://notghe.com/api/v3", false),
        ] {
            let addresses = Addresses::new(server, None, RELEASES).unwrap();
            assert_eq!(addresses.api.as_str(), api);
            assert_eq!(addresses.hosted, hosted, "{server}");
            let server = server.trim_end_matches('/').trim_end_matches(":443");
            assert_eq!(addresses.server, server);
        }
        let given =
            Addresses::new("https://github.com", Some("https://proxy.example.com/gh"), RELEASES);
        assert_eq!(given.unwrap().api.as_str(), "https://proxy.example.com/gh");
    }

    #[test]
    fn an_invalid_address_is_reported_with_its_purpose() {
        for (server, api, releases, problem) in [
            ("github.com", None, RELEASES, "GitHub's server is not an address"),
            ("http://ghe.example.com", None, RELEASES, "neither https"),
            ("https://github.com/acme", None, RELEASES, "has a path"),
            ("https://ghe.example.com:8443", None, RELEASES, "GitHub's server has a port: 8443"),
            ("https://github.com?x", None, RELEASES, "has a query"),
            ("https://github.com", Some("api"), RELEASES, "GitHub's API is not an address"),
            ("https://github.com", None, "ftp://x", "runner releases is neither https"),
        ] {
            let error = Addresses::new(server, api, releases).unwrap_err();
            assert!(error.message.contains(problem), "{error}");
        }
    }
}
