//! The one way in which requests leave this computer, for all three services: the same
//! connections, certificates and proxies.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// How long a connection may take.
pub(crate) const CONNECT: Duration = Duration::from_secs(3);

/// Connections to AWS. Credentials are fetched by others: what a machine asks its own metadata
/// service must not go through a proxy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wire(Arc<Connectors>);

/// Each made when the first call needs it: reading the certificates of this computer takes tens of
/// milliseconds.
#[derive(Debug, Default)]
struct Connectors {
    secure: OnceLock<SharedHttpConnector>,
    /// For endpoints without TLS, which need no certificates.
    plain: OnceLock<SharedHttpConnector>,
}

impl Wire {
    pub(crate) fn connector(&self) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Connectors { secure, plain } = &*self.0;
        match is_plain(request.uri()) {
            true => plain.get_or_init(|| connector(TrustStore::empty())).call(request),
            false => secure.get_or_init(|| connector(TrustStore::default())).call(request),
        }
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

/// Whether a request passes no TLS on its way. A proxy may ask for it.
fn is_plain(uri: &str) -> bool {
    const PROXIES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    uri.starts_with("http://") && PROXIES.iter().all(|name| std::env::var_os(name).is_none())
}

fn connector(trusted: TrustStore) -> SharedHttpConnector {
    let settings = HttpConnectorSettings::builder().connect_timeout(CONNECT).build();
    let context = TlsContext::builder().with_trust_store(trusted).build();
    SharedHttpConnector::new(
        Connector::builder()
            .connector_settings(settings)
            .proxy_config(ProxyConfig::from_env())
            .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
            .tls_context(context.expect("no certificate is given that could be malformed"))
            .build(),
    )
}
