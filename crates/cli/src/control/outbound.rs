//! Requests that send one text to an address of the operator's and need no answer. The address and the
//! headers may be secret, so no error repeats them.

use std::time::Duration;

use ondeck_core::model::secret::Secret;
use ondeck_github::http::{Redirects, address, builder, with_causes};

/// The longest code of an answer that is shown.
const LONGEST_CODE: usize = 40;

/// What is wrong with an address. The reason of [`address`] may repeat it.
const UNSAFE: &str = "is neither https without a user nor http on this computer";

/// Fails unless the address is https, or http on this computer. The error completes a sentence.
pub(crate) fn check(url: &Secret) -> Result<(), &'static str> {
    address(url.expose()).map(drop).map_err(|_| UNSAFE)
}

/// Sends a JSON object, and returns once the receiver has accepted it. A redirect is not followed,
/// because it would take the text to another receiver. Fails with the reason, without the address; the
/// text may have arrived nevertheless.
pub(crate) async fn post(
    url: &Secret,
    headers: &[(String, Secret)],
    body: String,
    at_most: Duration,
) -> Result<(), String> {
    let url = address(url.expose()).map_err(|_| format!("the address {UNSAFE}"))?;
    let secret = url.to_string();
    let client = match builder(&url, Redirects::Nowhere).timeout(at_most).build() {
        Ok(client) => client,
        Err(error) => return Err(with_causes(&error.without_url())),
    };
    let mut request = client.post(url).header("content-type", "application/json").body(body);
    for (name, value) in headers {
        request = request.header(name, value.expose());
    }
    let mut answer = match request.send().await {
        Ok(answer) => answer,
        Err(error) if error.is_timeout() => {
            return Err(format!("no answer within {} s", at_most.as_secs_f32()));
        }
        Err(error) => return Err(with_causes(&error.without_url())),
    };
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    if status.is_redirection() {
        return Err(format!("the receiver redirects, which is not followed: {}", status.as_u16()));
    }
    // Without a body, or with one that cannot be read, the status says enough.
    let body = answer.chunk().await.ok().flatten().unwrap_or_default();
    let code = code(&body).filter(|code| !secret.contains(code)).unwrap_or_default();
    Err(format!("the receiver answers {} {code}", status.as_u16()).trim_end().to_owned())
}

/// The code in an answer, such as `channel_is_archived` of Slack. Another text is none, since it may
/// repeat what was sent.
fn code(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    ((1..=LONGEST_CODE).contains(&text.len()) && text.bytes().all(fits)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_with_tls_or_on_this_computer_are_used_and_none_is_repeated() {
        for good in ["https://hooks.slack.com/services/T/B/x", "http://127.0.0.1:9/x"] {
            assert_eq!(check(&Secret::new(good)), Ok(()), "{good}");
        }
        for bad in ["http://hooks.slack.com/x", "hooks.slack.com", "https://me:it@slack.com", ""] {
            assert_eq!(check(&Secret::new(bad)), Err(UNSAFE), "{bad}");
        }
    }

    #[test]
    fn only_a_code_of_an_answer_is_shown() {
        assert_eq!(code(b"channel_is_archived\n"), Some("channel_is_archived"));
        let long = [b'a'; LONGEST_CODE + 1];
        for body in [&b""[..], b"<html>", b"https://hooks.slack.com/T0/x", b"\xff", &long] {
            assert_eq!(code(body), None, "{body:?}");
        }
    }
}
