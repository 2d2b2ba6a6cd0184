//! Credentials, asked for once and kept until shortly before they expire.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use ondeck_core::ports::PortResult;
use tokio::sync::Mutex;

use crate::error::{EC2, not_sent};

/// A call that is signed with them must arrive before they expire.
const SHORTLY_BEFORE: Duration = Duration::from_secs(60);
/// Where nothing says when they expire, they are looked for again now and then: a file may have
/// been written anew.
const NOW_AND_THEN: Duration = Duration::from_secs(15 * 60);

pub(crate) struct Keys {
    provider: Option<SharedCredentialsProvider>,
    held: Mutex<Option<Held>>,
}

struct Held {
    credentials: Credentials,
    until: SystemTime,
}

impl Keys {
    pub(crate) fn of(config: &SdkConfig) -> Keys {
        Keys { provider: config.credentials_provider(), held: Mutex::new(None) }
    }

    /// The credentials, for an action. However many ask at once, one of them fetches.
    pub(crate) async fn get(&self, action: &str, now: SystemTime) -> PortResult<Credentials> {
        let mut held = self.held.lock().await;
        if let Some(held) = held.as_ref().filter(|held| now < held.until) {
            return Ok(held.credentials.clone());
        }
        let provided = match &self.provider {
            Some(provider) => provider.provide_credentials().await,
            None => Err(CredentialsError::not_loaded("no credentials are configured")),
        };
        let credentials = provided.map_err(|error| not_sent(EC2, action, &error))?;
        let until = match credentials.expiry() {
            Some(expiry) => expiry.checked_sub(SHORTLY_BEFORE).unwrap_or(expiry),
            None => now + NOW_AND_THEN,
        };
        *held = Some(Held { credentials: credentials.clone(), until });
        Ok(credentials)
    }

    /// Lets go of credentials that were refused, so that the next call fetches new ones.
    pub(super) async fn forget(&self) {
        *self.held.lock().await = None;
    }

    #[cfg(test)]
    pub(super) async fn are_held(&self) -> bool {
        self.held.lock().await.is_some()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use aws_credential_types::provider::future;
    use ondeck_core::ports::PortError;

    use super::*;

    #[derive(Debug)]
    struct Counted {
        asked: Arc<AtomicU32>,
        lasting: Option<Duration>,
    }

    impl ProvideCredentials for Counted {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let expiry = self.lasting.map(|lasting| SystemTime::UNIX_EPOCH + lasting);
            future::ProvideCredentials::ready(Ok(Credentials::new("id", "key", None, expiry, "t")))
        }
    }

    fn keys(lasting: Option<Duration>) -> (Keys, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let provider = SharedCredentialsProvider::new(Counted { asked: asked.clone(), lasting });
        (Keys { provider: Some(provider), held: Mutex::new(None) }, asked)
    }

    #[tokio::test]
    async fn they_are_kept_until_shortly_before_they_expire() {
        let (keys, asked) = keys(Some(Duration::from_secs(3_600)));
        for (at, so_far) in [(0, 1), (3_539, 1), (3_540, 2), (3_541, 3)] {
            keys.get("Action", SystemTime::UNIX_EPOCH + Duration::from_secs(at)).await.unwrap();
            assert_eq!(asked.load(Ordering::Relaxed), so_far, "after {at} s");
        }
    }

    #[tokio::test]
    async fn without_an_expiry_they_are_looked_for_now_and_then() {
        let (keys, asked) = keys(None);
        for (at, so_far) in [(0, 1), (899, 1), (900, 2)] {
            keys.get("Action", SystemTime::UNIX_EPOCH + Duration::from_secs(at)).await.unwrap();
            assert_eq!(asked.load(Ordering::Relaxed), so_far, "after {at} s");
        }
        keys.forget().await;
        keys.get("Action", SystemTime::UNIX_EPOCH).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3, "forgotten");
    }

    #[tokio::test]
    async fn to_have_none_is_for_a_person() {
        let keys = Keys { provider: None, held: Mutex::new(None) };
        let error = keys.get("Action", SystemTime::UNIX_EPOCH).await.unwrap_err();
        assert!(matches!(error, PortError::Unusable { .. }), "{error}");
    }
}
