//! Where the page is served, and to whom.

use std::net::{IpAddr, SocketAddr};

use ondeck_core::inputs::Given;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::secret::Secret;

use crate::inputs::rows;

/// The address to listen on, and the token that a page must know.
#[derive(Debug)]
pub(crate) struct Access {
    pub(super) address: SocketAddr,
    /// `None` where only this computer reaches the page, and none was given.
    pub(super) token: Option<Secret>,
    /// Whether the token was made here, so that its user has to be told.
    is_made: bool,
}

impl Access {
    /// Reads the inputs. Fails if a token is needed and none can be made.
    pub(super) fn of(given: &Given) -> Result<Access, Failure> {
        let address = given.text_or_default(&rows::LISTEN).and_then(|text| text.parse().ok());
        let address = address.ok_or_else(|| Failure::invalid("listen is not an address"))?;
        match given.secret(&rows::DASHBOARD_TOKEN) {
            Some(token) => Ok(Access { address, token: Some(token), is_made: false }),
            None if is_loopback(address.ip()) => Ok(Access::local(address)),
            None => Ok(Access { address, token: Some(random_token()?), is_made: true }),
        }
    }

    /// Any free port of this computer, without a token.
    #[cfg(feature = "local")]
    pub(crate) fn on_any_port() -> Access {
        Access::local(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn local(address: SocketAddr) -> Access {
        Access { address, token: None, is_made: false }
    }

    /// What to open in a browser, if it listens on this address.
    pub(super) fn url(&self, address: SocketAddr) -> String {
        match &self.token {
            Some(token) if self.is_made => format!("http://{address}/?token={}", token.expose()),
            Some(_) => format!("http://{address}/?token=…, with the token that was given"),
            None => format!("http://{address}/"),
        }
    }
}

/// Whether only this computer reaches the address.
pub(super) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// 160 random bits as text.
fn random_token() -> Result<Secret, Failure> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("no token can be made: {error}");
        Failure::new(FailureKind::Unexpected, message).hint("give ONDECK_DASHBOARD_TOKEN")
    })?;
    Ok(Secret::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(inputs: &[(&ondeck_core::inputs::Input, &str)]) -> Access {
        let mut given = Given::default();
        inputs.iter().for_each(|(input, text)| given.insert(input, *text));
        Access::of(&given).unwrap()
    }

    #[test]
    fn any_address_but_loopback_needs_a_token() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(access(&[(&rows::LISTEN, address)]).token, None, "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.7:1", "[::ffff:192.0.2.7]:1"] {
            let made = access(&[(&rows::LISTEN, address)]);
            let token = made.token.clone().unwrap();
            assert_eq!(token.expose().len(), 40, "{address}");
            assert!(made.url(made.address).ends_with(&format!("/?token={}", token.expose())));
            assert_ne!(token, access(&[(&rows::LISTEN, address)]).token.unwrap());
        }
    }

    #[test]
    fn a_given_token_holds_everywhere_and_is_not_shown() {
        let token = "a-token-of-the-operator";
        for address in ["127.0.0.1:1", "0.0.0.0:1"] {
            let access = access(&[(&rows::LISTEN, address), (&rows::DASHBOARD_TOKEN, token)]);
            assert_eq!(access.token.as_ref().unwrap().expose(), token);
            assert!(!access.url(access.address).contains(token));
            assert!(!format!("{access:?}").contains(token));
        }
    }
}
