//! The emulators of DynamoDB and SQS, by way of a gateway that enforces the policies and refuses
//! requests that AWS's own models do not know. The emulators themselves take much of it.

use std::sync::OnceLock;

use ondeck_standin::emulators::Emulators;
use ondeck_standin::{Gateway, GatewayOptions, PolicyPool, Role};

/// Where both are, for as long as the process lives.
pub(crate) fn emulators() -> String {
    static GATEWAY: OnceLock<Gateway> = OnceLock::new();
    let start = || gateway(GatewayOptions::on(&Emulators::running()));
    GATEWAY.get_or_init(start).endpoint("control").url().to_owned()
}

/// A gateway like that, with an SQS of its own in place of the emulator's.
pub(crate) fn gateway_with_own_sqs() -> Gateway {
    let options = GatewayOptions::on(&Emulators::running());
    gateway(GatewayOptions { sqs_in_process: true, ..options })
}

fn gateway(options: GatewayOptions) -> Gateway {
    let gateway = Gateway::start(GatewayOptions { refuse_unknown: true, ..options });
    // One store is both the control plane's and the agents' here, and its tests read events.
    let every_pool = PolicyPool {
        pool: "test/*".to_owned(),
        name: "ondeck-*".to_owned(),
        machine_role: "ondeck-machine".to_owned(),
    };
    let roles = [Role::Refresh, Role::Operator, Role::LocalMachine];
    gateway.grant("test", &every_pool, &roles);
    gateway
}
