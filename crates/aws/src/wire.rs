//! The one way in which requests leave this computer, for all three services: the same
//! connections, certificates and proxies.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// How long a connection may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(3);

/// Connections to AWS. Credentials are fetched by others: what a machine asks its own metadata
/// service must not go through a proxy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wire(Arc<OnceLock<SharedHttpConnector>>);

impl Wire {
    /// Made when the first call is: reading the certificates of this computer takes time.
    pub(crate) fn connector(&self) -> SharedHttpConnector {
        self.0.get_or_init(connector).clone()
    }
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        self.connector()
    }
}

fn connector() -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT).build();
    SharedHttpConnector::new(
        Connector::builder()
            .connector_settings(settings)
            .proxy_config(ProxyConfig::from_env())
            .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
            .build(),
    )
}
