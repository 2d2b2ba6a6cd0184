//! The way to AWS: region, credentials, endpoints and time limits, decided once for all three
//! services.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use ondeck_core::ports::{PortError, PortResult, Random};
use ondeck_core::runtime::retry::RequestRetry;
use tokio::sync::Semaphore;

use crate::names::{Names, PoolName};
use crate::skew::{AwsClock, Skew};
use crate::wire::{CONNECT, Wire};

/// How long one call may take, its answer included.
const CALL: Duration = Duration::from_secs(8);
/// How many calls are under way at once. Reaping hundreds of machines must not
/// open hundreds of connections.
const AT_ONCE: usize = 32;

/// What AWS needs to be told. What is missing is taken from where AWS's own programs take it:
/// variables, profile, or the machine itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which pool.
    pub pool: PoolName,
    /// Which region.
    pub region: Option<String>,
    /// Where all services are, instead of where AWS has them.
    pub endpoint_url: Option<String>,
}

/// The way to AWS, for one pool. Cheap to clone.
#[derive(Clone)]
pub struct Cloud {
    pub(crate) config: SdkConfig,
    pub(crate) names: Names,
    pub(crate) skew: Arc<Skew>,
    pub(crate) wire: Wire,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) patience: RequestRetry,
}

impl Cloud {
    /// Reads the configuration. Nothing is contacted yet, except for the region where only the
    /// machine itself can tell it.
    pub async fn connect(options: Options, random: Arc<dyn Random>) -> PortResult<Cloud> {
        let skew = Arc::new(Skew::default());
        let timeouts =
            TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(CALL);
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build())
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
        Ok(Cloud { config, names, skew, wire, gate, patience })
    }

    /// The time that all of the pool's machines and its records go by.
    pub fn clock(&self) -> AwsClock {
        self.skew.clock()
    }

    /// The region in use.
    pub fn region(&self) -> &str {
        self.config.region().map_or("", |region| region.as_ref())
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cloud({} in {})", self.names.pool, self.region())
    }
}
