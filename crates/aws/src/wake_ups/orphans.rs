//! Deletes the queues of machines that are gone.

use std::collections::HashSet;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use futures_util::future::join_all;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, PortResult};

use crate::cloud::Cloud;
use crate::error::{SQS, port_error};
use crate::pool::is_missing;

/// The most queues that one page of a list has.
const PAGE: i32 = 1_000;

/// Deletes the queues that belong to none of these machines and are older than `grace`. Returns how many.
/// One call if there is none.
pub(crate) async fn prune(
    cloud: &Cloud,
    existing: &[InstanceId],
    grace: Duration,
) -> PortResult<usize> {
    let client = cloud.sqs();
    let known: HashSet<String> = existing.iter().map(|id| cloud.names.wake_queue(id)).collect();
    let is_orphan = |url: &String| url.rsplit('/').next().is_some_and(|name| !known.contains(name));
    let urls = list(&client, cloud.names.wake_queue_prefix()).await?;
    let orphans: Vec<String> = urls.into_iter().filter(is_orphan).collect();
    let before = cloud.clock().now().before(grace);
    let deletions = orphans.iter().map(|url| delete_if_older(cloud, &client, url, before));
    let deleted: PortResult<Vec<bool>> = join_all(deletions).await.into_iter().collect();
    Ok(deleted?.into_iter().filter(|deleted| *deleted).count())
}

/// The addresses of the queues whose names begin like this. Lags.
pub(crate) async fn list(client: &Client, prefix: String) -> PortResult<Vec<String>> {
    let (mut urls, mut token) = (Vec::new(), None);
    loop {
        let list = client.list_queues().queue_name_prefix(&prefix).max_results(PAGE);
        let page = list.set_next_token(token).send().await;
        let page = page.map_err(|error| port_error(SQS, "ListQueues", &error))?;
        urls.extend(page.queue_urls.unwrap_or_default());
        token = page.next_token.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(urls);
        }
    }
}

/// Deletes a queue that was created before this moment. One that is gone already is no error: lists lag.
async fn delete_if_older(
    cloud: &Cloud,
    client: &Client,
    url: &str,
    before: Timestamp,
) -> PortResult<bool> {
    let _turn = cloud.gate.acquire().await.expect("the gate is never closed");
    let ask = client.get_queue_attributes().queue_url(url);
    let ask = ask.attribute_names(QueueAttributeName::CreatedTimestamp);
    let created = match ask.send().await {
        Ok(answer) => answer.attributes.unwrap_or_default(),
        Err(error) if is_missing(&error) => return Ok(false),
        Err(error) => return Err(port_error(SQS, "GetQueueAttributes", &error)),
    };
    let created = created.get(&QueueAttributeName::CreatedTimestamp);
    let created = created.and_then(|seconds| seconds.parse::<u64>().ok());
    if created.is_none_or(|seconds| Timestamp::from_millis(seconds.saturating_mul(1_000)) > before)
    {
        return Ok(false);
    }
    match client.delete_queue().queue_url(url).send().await {
        Ok(_) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(port_error(SQS, "DeleteQueue", &error)),
    }
}
