//! The connection to AWS: region, credentials, endpoints and time limits, decided once for all three
//! services.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use ondeck_core::ports::{PortError, PortResult, Random};
use ondeck_core::runtime::retry::RequestRetry;
use tokio::sync::Semaphore;

use crate::names::{Names, PoolName};
use crate::skew::{AwsClock, ObserveSkew, Skew};
use crate::wire::{CONNECT, Wire};

/// The time limit of one call, including its answer.
const CALL: Duration = Duration::from_secs(8);
/// The number of calls under way at the same time. Reaping hundreds of machines must not open
/// hundreds of connections.
const AT_ONCE: usize = 32;

/// The variables from which [`Cloud::connect`] takes credentials and what it was not told. A process
/// that starts another one for the same pool hands these on.
pub const VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_SQS",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
];

/// What to connect to. A missing value is looked up where the AWS CLI looks: variables, the profile,
/// or the instance metadata.
#[derive(Debug, Clone)]
pub struct Options {
    pub pool: PoolName,
    pub region: Option<String>,
    /// The endpoint of all services, for emulators; `None` for those of AWS.
    pub endpoint_url: Option<String>,
}

/// A connection to AWS, for one pool. A clone shares it.
#[derive(Clone)]
pub struct Cloud {
    pub(crate) config: SdkConfig,
    pub(crate) names: Names,
    pub(crate) skew: Arc<Skew>,
    pub(crate) wire: Wire,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) patience: RequestRetry,
    /// Known once the table has been described.
    pub(crate) account: Arc<OnceLock<Account>>,
}

/// The account that the pool is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// `aws`, or that of another family of regions, such as `aws-cn`.
    partition: String,
    id: String,
}

impl Account {
    /// The account in an ARN: `arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE`.
    pub(crate) fn of_arn(arn: &str) -> Option<Account> {
        let mut parts = arn.split(':').skip(1);
        let (partition, id) = (parts.next()?, parts.nth(2)?);
        let sound = !partition.is_empty() && !id.is_empty() && parts.next().is_some();
        sound.then(|| Account { partition: partition.to_owned(), id: id.to_owned() })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The address of a queue, as SQS would give it.
    pub(crate) fn queue_url(&self, region: &str, queue: &str) -> String {
        // Documented in the AWS General Reference for each partition.
        let domain = match &*self.partition {
            "aws-cn" => "amazonaws.com.cn",
            "aws-iso" => "c2s.ic.gov",
            "aws-iso-b" => "sc2s.sgov.gov",
            "aws-iso-e" => "cloud.adc-e.uk",
            "aws-iso-f" => "csp.hci.ic.gov",
            "aws-eusc" => "amazonaws.eu",
            _ => "amazonaws.com",
        };
        format!("https://sqs.{region}.{domain}/{}/{queue}", self.id)
    }

    /// What precedes the id of an EC2 instance in its ARN.
    pub(crate) fn instance_arn_prefix(&self, region: &str) -> String {
        format!("arn:{}:ec2:{region}:{}:instance/", self.partition, self.id)
    }
}

impl Cloud {
    /// Reads the configuration. It makes no request, unless only the instance metadata knows the
    /// region. Fails with [`PortError::Unusable`] if no region is known.
    pub async fn connect(options: Options, random: Arc<dyn Random>) -> PortResult<Cloud> {
        let skew = Arc::new(Skew::default());
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts(CALL))
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            // The SDK would correct each client's clock by what that client has seen, on top of the
            // one correction that all of them share here.
            .disable_clock_skew_correction(true)
            .time_source(skew.clock());
        if let Some(region) = options.region {
            loader = loader.region(Region::new(region));
        }
        if let Some(url) = options.endpoint_url {
            loader = loader.endpoint_url(url);
        }
        let config = loader.load().await;
        if config.region().is_none() {
            return Err(PortError::Unusable {
                service: "AWS",
                reason: "no region is set".to_owned(),
                hint: "give --aws-region, or set AWS_REGION".to_owned(),
            });
        }
        let names = Names::of(&options.pool);
        let (wire, gate) = (Wire::default(), Arc::new(Semaphore::new(AT_ONCE)));
        let patience = RequestRetry::new(Arc::new(skew.clock()), random);
        Ok(Cloud { config, names, skew, wire, gate, patience, account: Arc::default() })
    }

    /// The clock of the records, by which every process of the pool goes.
    pub fn clock(&self) -> AwsClock {
        self.skew.clock()
    }

    /// A client of SQS.
    pub(crate) fn sqs(&self) -> aws_sdk_sqs::Client {
        self.sqs_with_time_limit(CALL)
    }

    /// A client of SQS whose calls may take this long.
    pub(crate) fn sqs_with_time_limit(&self, limit: Duration) -> aws_sdk_sqs::Client {
        let config = aws_sdk_sqs::config::Builder::from(&self.config)
            .timeout_config(timeouts(limit))
            .interceptor(ObserveSkew(self.skew.clone()))
            .http_client(self.wire.clone())
            .build();
        aws_sdk_sqs::Client::from_conf(config)
    }

    pub fn region(&self) -> &str {
        self.config.region().map_or("", |region| region.as_ref())
    }
}

fn timeouts(of_call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(of_call).build()
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cloud({} in {})", self.names.pool, self.region())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_a_table_names_its_machines() {
        let arn = "arn:aws-cn:dynamodb:cn-north-1:111122223333:table/ondeck-acme";
        let account = Account::of_arn(arn).unwrap();
        assert_eq!(
            account.instance_arn_prefix("cn-north-1"),
            "arn:aws-cn:ec2:cn-north-1:111122223333:instance/"
        );
        let url = account.queue_url("cn-north-1", "q_i-1");
        assert_eq!(url, "https://sqs.cn-north-1.amazonaws.com.cn/111122223333/q_i-1");
        let machines = Account::of_arn("arn:aws:ec2:us-east-1:111122223333:instance/").unwrap();
        let url = machines.queue_url("us-east-1", "q_i-1");
        assert_eq!(url, "https://sqs.us-east-1.amazonaws.com/111122223333/q_i-1");
        for bad in ["", "arn:aws", "arn:aws:dynamodb:r::table/x", "arn::dynamodb:r:1:table/x"] {
            assert_eq!(Account::of_arn(bad), None, "{bad}");
        }
    }
}
