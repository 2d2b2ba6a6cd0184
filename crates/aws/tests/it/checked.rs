//! The emulators of DynamoDB and SQS, by way of a gateway that refuses requests that AWS's own models
//! do not know. The emulators themselves take much of it.

use std::sync::OnceLock;

use ondeck_standin::emulators::Emulators;
use ondeck_standin::{Gateway, GatewayOptions};

/// Where both are, for as long as the process lives.
pub(crate) fn emulators() -> String {
    static GATEWAY: OnceLock<Gateway> = OnceLock::new();
    let start = || {
        let options = GatewayOptions::on(&Emulators::running());
        Gateway::start(GatewayOptions { refuse_unknown: true, ..options })
    };
    GATEWAY.get_or_init(start).endpoint("control").url().to_owned()
}
