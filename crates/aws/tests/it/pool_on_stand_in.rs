//! What the port promises, asked of the SQS of the stand-in, which benchmarks use.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use ondeck_core::ports::Pool;
use ondeck_core::testkit::contract::{pool_duplicates_suite, pool_passes_untouched, pool_suite};
use ondeck_standin::{AwsFault, AwsFaultRule, Gateway, Occurrence};

use crate::checked;
use crate::queues::{class, own_name, pool_at};

#[expect(
    clippy::disallowed_methods,
    reason = "the stand-in's clock is the real one, and the suite lets time pass by a plain function"
)]
fn let_time_pass(span: Duration) {
    std::thread::sleep(span);
}

fn url(gateway: &Gateway) -> String {
    gateway.endpoint("control").url().to_owned()
}

#[tokio::test]
async fn the_pool_fulfils_its_contract() {
    let gateway = checked::gateway_with_own_sqs();
    pool_suite(&pool_at(&own_name(), &url(&gateway)).await, &let_time_pass).await;
    gateway.assert_requests_valid();
    gateway.assert_nothing_denied();
}

#[tokio::test]
async fn the_pool_may_deliver_twice() {
    let gateway = checked::gateway_with_own_sqs();
    let twice = AwsFaultRule::new(AwsFault::DuplicateDelivery).occurrence(Occurrence::First(1));
    gateway.endpoint("control").inject(twice);
    pool_duplicates_suite(&pool_at(&own_name(), &url(&gateway)).await).await;
}

#[tokio::test]
async fn bodies_are_passed_on_untouched() {
    let gateway = checked::gateway_with_own_sqs();
    let pool = pool_at(&own_name(), &url(&gateway)).await;
    let class = class("raw");
    pool.set_up(std::slice::from_ref(&class)).await.unwrap();
    let config = aws_sdk_sqs::config::Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "b", None, None, "test"))
        .endpoint_url(url(&gateway));
    let client = Client::from_conf(config.build());
    let listed = client.list_queues().queue_name_prefix("ondeck-").send().await.unwrap();
    let [queue] = listed.queue_urls() else { panic!("{:?}", listed.queue_urls()) };
    for text in ["{ no ticket", "é\n\t<&\"'> \\u0041", " "] {
        client.send_message().queue_url(queue).message_body(text).send().await.unwrap();
        pool_passes_untouched(&pool, &class, text).await;
    }
}
