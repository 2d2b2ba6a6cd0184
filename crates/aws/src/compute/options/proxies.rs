//! The proxies that machines use.

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::settings::InvalidSetting;

use super::{HTTP_PROXY, HTTPS_PROXY, NO_PROXY, Settings, invalid, word};

/// Hosts that no proxy reaches: the metadata service of EC2, by its addresses for IPv4 and IPv6, and
/// the machine itself. Without the former, a program that obeys the proxies has no credentials.
const NEVER: &str = "169.254.169.254,fd00:ec2::254,localhost,127.0.0.1,::1";

/// Proxies by the names of their variables; empty for none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proxies {
    http: String,
    https: String,
    none: String,
}

impl Proxies {
    pub(super) fn read(settings: &Settings) -> Result<Proxies, InvalidSetting> {
        let no_proxy = word(settings, NO_PROXY)?;
        let (http, https) = (proxy(settings, HTTP_PROXY)?, proxy(settings, HTTPS_PROXY)?);
        if http.is_empty() && https.is_empty() {
            return Ok(Proxies::default());
        }
        let none = no_proxy.map_or(NEVER.to_owned(), |more| format!("{NEVER},{more}"));
        Ok(Proxies { http, https, none })
    }

    /// The variables to set, with their values. Programs disagree about upper and lower case.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("http_proxy", &self.http),
            ("HTTP_PROXY", &self.http),
            ("https_proxy", &self.https),
            ("HTTPS_PROXY", &self.https),
            ("no_proxy", &self.none),
            ("NO_PROXY", &self.none),
        ]
        .into_iter()
        .map(|(name, value)| (name, value.as_str()))
        .filter(|(_, value)| !value.is_empty())
    }
}

fn proxy(settings: &Settings, name: &str) -> Result<String, InvalidSetting> {
    let Some(url) = word(settings, name)? else { return Ok(String::new()) };
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(invalid(name, format!("is neither http:// nor https://: {}", quoted(&url))));
    }
    if url.contains('@') {
        // Not repeated: it may be shown in a log.
        let problem = "holds credentials, which every job could read in user data";
        return Err(invalid(name, problem));
    }
    if url.contains(['$', '%']) {
        return Err(invalid(name, format!("holds $ or %: {}", quoted(&url))));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Proxies, InvalidSetting> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Proxies::read(&pairs.collect())
    }

    #[test]
    fn the_metadata_service_is_never_asked_by_a_proxy() {
        assert_eq!(read(&[]).unwrap().variables().count(), 0);
        assert_eq!(read(&[(NO_PROXY, "example.com")]).unwrap().variables().count(), 0);
        let url = "http://proxy.example.com:3128";
        let proxies = read(&[(HTTPS_PROXY, url), (NO_PROXY, ".amazonaws.com,10.0.0.0/8")]).unwrap();
        let variables: Vec<_> = proxies.variables().collect();
        let none = format!("{NEVER},.amazonaws.com,10.0.0.0/8");
        assert_eq!(
            variables,
            [("https_proxy", url), ("HTTPS_PROXY", url), ("no_proxy", &none), ("NO_PROXY", &none)]
        );
    }

    #[test]
    fn a_proxy_is_a_url_without_secrets() {
        for (value, problem) in [
            ("proxy:3128", "is neither http:// nor https://"),
            ("http://me:secret@proxy:3128", "holds credentials"),
            ("http://proxy/$(id)", "holds $ or %"),
            ("http://a b", "do not belong"),
        ] {
            let error = read(&[(HTTP_PROXY, value)]).unwrap_err().to_string();
            assert!(error.starts_with("http-proxy ") && error.contains(problem), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
