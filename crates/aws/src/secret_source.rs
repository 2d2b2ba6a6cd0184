//! Secrets of refresh that AWS keeps: a SecureString of the SSM Parameter Store, or a secret of Secrets
//! Manager. They are read with the role's own credentials and held in memory only.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{PortError, PortResult};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::error::{SECRETS_MANAGER, SYSTEMS_MANAGER};
use crate::raw_client::RawClient;

/// How long a secret is used before it is read again. A process that is called each minute reads it
/// six times an hour, and a key that was replaced is known after ten minutes.
const FRESH: Duration = Duration::from_secs(600);

const SSM: &str = "ssm:";
const SECRETS: &str = "secretsmanager:";

/// The longest name of either service.
const LONGEST: usize = 2048;

/// The secrets that this process has read, by their source.
static READ: Mutex<Vec<(SecretSource, SystemTime, Secret)>> = Mutex::new(Vec::new());

/// Where AWS keeps a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSource {
    service: Service,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    ParameterStore,
    SecretsManager,
}

impl SecretSource {
    /// Reads an input. Fails with what is wrong with it.
    pub fn parse(text: &str) -> Result<SecretSource, String> {
        let (service, name) = if let Some(name) = text.strip_prefix(SSM) {
            (Service::ParameterStore, name)
        } else if let Some(name) = text.strip_prefix(SECRETS) {
            (Service::SecretsManager, name)
        } else {
            return Err(format!("is neither {SSM}NAME nor {SECRETS}ARN: {}", quoted(text)));
        };
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/_+=.@:!-".contains(&byte);
        if name.is_empty() || name.len() > LONGEST || !name.bytes().all(fits) {
            return Err(format!("names no secret: {}", quoted(text)));
        }
        Ok(SecretSource { service, name: name.to_owned() })
    }

    /// The secret. It is read from AWS, unless this process has read it within the last ten minutes.
    pub async fn read(&self, cloud: &Cloud) -> PortResult<Secret> {
        let now = SystemTime::now();
        if let Some(known) = self.known(now) {
            return Ok(known);
        }
        let secret = self.ask(&RawClient::new(cloud)).await?;
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        read.retain(|(source, ..)| source != self);
        read.push((self.clone(), now, secret.clone()));
        Ok(secret)
    }

    /// By the wall clock, because a process that was frozen meanwhile has not seen the time pass.
    fn known(&self, now: SystemTime) -> Option<Secret> {
        let read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, at, secret) = read.iter().find(|(source, ..)| source == self)?;
        let is_fresh = now.duration_since(*at).is_ok_and(|age| age < FRESH);
        is_fresh.then(|| secret.clone())
    }

    async fn ask(&self, client: &RawClient) -> PortResult<Secret> {
        // The names of operations and members are those of the services' API references.
        let (id, call, request, path) = match self.service {
            Service::ParameterStore => (
                SYSTEMS_MANAGER,
                "ssm:GetParameter",
                json!({ "Name": self.name, "WithDecryption": true }),
                "/Parameter/Value",
            ),
            Service::SecretsManager => (
                SECRETS_MANAGER,
                "secretsmanager:GetSecretValue",
                json!({ "SecretId": self.name }),
                "/SecretString",
            ),
        };
        let answer = client.send(call, &request).await?;
        let unusable = |reason: String, hint: &str| PortError::Unusable {
            service: id,
            reason,
            hint: hint.to_owned(),
        };
        // Neither the answer nor a part of it is quoted.
        if !answer.code.is_empty() || answer.status >= 300 {
            let reason = format!("{self} cannot be read: {} {}", answer.status, answer.code);
            return Err(unusable(reason, "create it, and allow the role to read and decrypt it"));
        }
        let text = answer.body.pointer(path).and_then(Value::as_str).map(str::trim);
        match text.filter(|text| !text.is_empty()) {
            Some(text) => Ok(Secret::new(text)),
            None => Err(unusable(format!("{self} holds no text"), "store the secret as a text")),
        }
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.service {
            Service::ParameterStore => SSM,
            Service::SecretsManager => SECRETS,
        };
        write!(f, "{prefix}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_its_service() {
        for text in [
            "ssm:/ondeck/acme/app-key",
            "ssm:app-key",
            "secretsmanager:app-key",
            "secretsmanager:arn:aws:secretsmanager:eu-central-1:111122223333:secret:app-key-AbC",
        ] {
            assert_eq!(SecretSource::parse(text).unwrap().to_string(), text);
        }
        for (text, problem) in [
            ("/ondeck/acme/app-key", "neither ssm:NAME nor secretsmanager:ARN"),
            ("ssm:", "names no secret"),
            ("ssm:a b", "names no secret"),
            ("secretsmanager:a\nb", "names no secret"),
        ] {
            assert!(SecretSource::parse(text).unwrap_err().contains(problem), "{text}");
        }
    }

    #[test]
    fn a_secret_is_read_again_after_ten_minutes_and_after_the_clock_was_set_back() {
        let source = SecretSource::parse("ssm:known").unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        READ.lock().unwrap().push((source.clone(), at, Secret::new("text")));
        assert!(source.known(at + Duration::from_secs(599)).is_some());
        assert!(source.known(at + Duration::from_secs(600)).is_none());
        assert!(source.known(at - Duration::from_secs(1)).is_none());
        assert!(SecretSource::parse("ssm:other").unwrap().known(at).is_none());
    }
}
