//! What a machine can learn about itself from EC2, without any permission.

use std::fmt;
use std::time::Duration;

use aws_config::imds::Client;
use aws_config::imds::client::error::ImdsError;
use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::ids::{InstanceId, ProviderName};
use ondeck_core::ports::{PortError, PortResult};

use crate::compute::identity;
use crate::error::Chain;
use crate::names::{POOL_TAG, PoolName};

const SERVICE: &str = "instance metadata";

/// The instance metadata service, by its second version.
#[derive(Clone)]
pub struct Imds(Client);

impl Imds {
    /// Where `AWS_EC2_METADATA_SERVICE_ENDPOINT` says, or where EC2 has it.
    pub fn new() -> Imds {
        let limit = Duration::from_secs(2);
        // The caller retries, or asks again soon.
        let client = Client::builder()
            .max_attempts(1)
            .connect_timeout(limit)
            .read_timeout(limit)
            .operation_timeout(2 * limit);
        Imds(client.build())
    }

    /// The identity of this machine in records, as [`Ec2Compute`](crate::Ec2Compute) gives it to
    /// the control plane. Fails with [`PortError::Unavailable`] while EC2 does not answer.
    pub async fn instance_id(&self) -> PortResult<InstanceId> {
        let name = self.required("/latest/meta-data/instance-id").await?;
        ProviderName::new(name)
            .and_then(|name| identity(&name))
            .map_err(|error| PortError::Unavailable { service: SERVICE, reason: error.to_string() })
    }

    /// What IAM knows this machine by: its ARN, which policies call `ec2:SourceInstanceARN`.
    pub async fn arn(&self) -> PortResult<String> {
        let document = self.required("/latest/dynamic/instance-identity/document").await?;
        let partition = self.required("/latest/meta-data/services/partition").await?;
        arn(&document, &partition).ok_or_else(|| PortError::Unavailable {
            service: SERVICE,
            reason: "the identity document is malformed".to_owned(),
        })
    }

    /// The pool that this machine was launched for, from its tag.
    pub async fn pool(&self) -> PortResult<PoolName> {
        let name = self.required(&format!("/latest/meta-data/tags/instance/{POOL_TAG}")).await?;
        name.parse().map_err(|error: crate::InvalidPoolName| PortError::Unusable {
            service: SERVICE,
            reason: error.to_string(),
            hint: format!("correct the machine's tag {POOL_TAG}, or give the agent --pool"),
        })
    }

    /// The notice that EC2 will take this spot machine away, or is likely to, if there is one.
    pub(crate) async fn spot_notice(&self) -> PortResult<Option<String>> {
        if let Some(notice) = self.get("/latest/meta-data/spot/instance-action").await? {
            return Ok(Some(interruption(&notice)));
        }
        let notice = self.get("/latest/meta-data/events/recommendations/rebalance").await?;
        Ok(notice.map(|notice| rebalance(&notice)))
    }

    async fn required(&self, path: &str) -> PortResult<String> {
        let missing = || PortError::Unavailable {
            service: SERVICE,
            reason: format!("nothing there: {path}"),
        };
        self.get(path).await?.ok_or_else(missing)
    }

    /// What is there, or `None` where there is nothing.
    async fn get(&self, path: &str) -> PortResult<Option<String>> {
        match self.0.get(path).await {
            Ok(text) => Ok(Some(text.into())),
            Err(ImdsError::ErrorResponse(answer)) if answer.response().status().as_u16() == 404 => {
                Ok(None)
            }
            Err(error) => Err(PortError::Unavailable {
                service: SERVICE,
                reason: format!("{path}: {}", Chain(&error)),
            }),
        }
    }
}

/// The ARN of the machine that an identity document describes. A machine learns its account and
/// region there without any permission.
fn arn(document: &str, partition: &str) -> Option<String> {
    let document: serde_json::Value = serde_json::from_str(document).ok()?;
    let word = |name: &str| document[name].as_str().filter(|word| !word.is_empty());
    let (region, account, id) = (word("region")?, word("accountId")?, word("instanceId")?);
    Some(format!("arn:{partition}:ec2:{region}:{account}:instance/{id}"))
}

/// What a notice says. That there is one is what counts: the machine goes, readable or not.
pub(crate) fn interruption(notice: &str) -> String {
    let word = words_of(notice);
    one_line(&format!("EC2 will {} this spot machine at {}", word("action"), word("time")))
}

/// What a rebalance recommendation says: the machine has an elevated risk of interruption.
pub(crate) fn rebalance(notice: &str) -> String {
    let at = words_of(notice)("noticeTime");
    one_line(&format!("EC2 is likely to interrupt this spot machine, by its notice of {at}"))
}

fn words_of(notice: &str) -> impl Fn(&str) -> String + use<> {
    let notice: serde_json::Value = serde_json::from_str(notice).unwrap_or_default();
    move |name| notice[name].as_str().unwrap_or("?").to_owned()
}

impl Default for Imds {
    fn default() -> Imds {
        Imds::new()
    }
}

impl fmt::Debug for Imds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Imds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_document_names_the_machine() {
        let document = r#"{"accountId":"111122223333","region":"eu-west-1","instanceId":"i-1",
            "architecture":"x86_64"}"#;
        let expected = "arn:aws:ec2:eu-west-1:111122223333:instance/i-1";
        assert_eq!(arn(document, "aws").as_deref(), Some(expected));
        for malformed in ["", "{}", r#"{"accountId":1,"region":"r","instanceId":"i-1"}"#] {
            assert_eq!(arn(malformed, "aws"), None, "{malformed}");
        }
    }
}
