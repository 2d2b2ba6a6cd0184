//! Creates queues, and repairs those that were changed by hand.

use std::collections::HashMap;

use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{PortError, PortResult};

use super::{SqsPool, incomplete};
use crate::error::{SQS, port_error, unavailable};
use crate::names::{CLASS_TAG, MANAGED_BY, POOL_TAG};

/// What a queue is like.
///
/// Messages are kept for as long as SQS keeps any, which is fourteen days. A ticket that vanished
/// while its machine is idle would leave the machine unused until its threshold, and refresh does
/// not announce it a second time; one that is kept for too long says itself when it has expired,
/// and is dropped by the run that receives it. The time of hiding is given with each receive; this one is
/// for people who look into a queue by hand.
const ATTRIBUTES: [(QueueAttributeName, &str); 5] = [
    (QueueAttributeName::MessageRetentionPeriod, "1209600"),
    (QueueAttributeName::VisibilityTimeout, "30"),
    (QueueAttributeName::ReceiveMessageWaitTimeSeconds, "0"),
    (QueueAttributeName::DelaySeconds, "0"),
    (QueueAttributeName::SqsManagedSseEnabled, "true"),
];

impl SqsPool {
    /// Makes the queue of a class, or mends it. Where nothing is amiss this takes two calls. Those
    /// that follow the first are repeated by themselves.
    pub(super) async fn set_up_queue(&self, class: &ResourceClass) -> PortResult<()> {
        let brought_about = async {
            match self.create(class).await? {
                Some(url) => self.urls.remember(class, &url),
                None => self.mend_attributes(class).await?,
            }
            self.mend_tags(class).await
        };
        brought_about.await.map_err(|error| match error {
            // A queue that was made a moment ago may be unknown to the server that is asked next.
            PortError::NotSetUp { what } => PortError::Unavailable {
                service: SQS,
                reason: format!("does not answer yet: {what}"),
            },
            other => other,
        })
    }

    /// Gives the queue's address, also if it was there already and is like this one; nothing, if
    /// it is there and different. ListQueues would tell of all queues in one call, but only after
    /// a while, and needs a permission for the whole account.
    async fn create(&self, class: &ResourceClass) -> PortResult<Option<String>> {
        const ACTION: &str = "CreateQueue";
        let request = self
            .client
            .create_queue()
            .queue_name(self.names.queue(class))
            .set_attributes(Some(wanted_attributes()))
            .set_tags(Some(self.wanted_tags(class)));
        let error = match self.call(request.send()).await {
            Ok(answer) => {
                return answer.queue_url.map(Some).ok_or_else(|| incomplete(ACTION, "QueueUrl"));
            }
            Err(error) => error,
        };
        match error.code().map(|code| code.trim_start_matches("AWS.SimpleQueueService.")) {
            Some("QueueAlreadyExists" | "QueueNameExists") => Ok(None),
            Some("QueueDeletedRecently") => Err(unavailable(
                SQS,
                ACTION,
                &format_args!(
                    "deleted less than a minute ago, and not to be made again before that is \
                     over: queue of class {class}"
                ),
            )),
            _ => Err(port_error(SQS, ACTION, &error)),
        }
    }

    async fn mend_attributes(&self, class: &ResourceClass) -> PortResult<()> {
        let ask = |url| {
            let request = self.client.get_queue_attributes().queue_url(url);
            request.attribute_names(QueueAttributeName::All).send()
        };
        let asked = || self.on_queue(class, "GetQueueAttributes", ask);
        let answer = self.patience.retried(asked).await?;
        let found = answer.attributes.unwrap_or_default();
        let mut amiss = wanted_attributes();
        amiss.retain(|name, value| found.get(name) != Some(value));
        // An operator who has set a key for the queue wants more than the default. SQS accepts
        // one way of encrypting at a time.
        if found.get(&QueueAttributeName::KmsMasterKeyId).is_some_and(|key| !key.is_empty()) {
            amiss.remove(&QueueAttributeName::SqsManagedSseEnabled);
        }
        if amiss.is_empty() {
            return Ok(());
        }
        let mut names: Vec<String> = amiss.keys().map(ToString::to_string).collect();
        names.sort();
        let set = |url| {
            let request = self.client.set_queue_attributes().queue_url(url);
            request.set_attributes(Some(amiss.clone())).send()
        };
        self.patience.retried(|| self.on_queue(class, "SetQueueAttributes", set)).await?;
        tracing::info!(%class, "queue was changed by hand; repaired: {}", names.join(", "));
        Ok(())
    }

    /// Tags of other people are theirs to keep.
    async fn mend_tags(&self, class: &ResourceClass) -> PortResult<()> {
        let ask = |url| self.client.list_queue_tags().queue_url(url).send();
        let answer = self.patience.retried(|| self.on_queue(class, "ListQueueTags", ask)).await?;
        let found = answer.tags.unwrap_or_default();
        let mut amiss = self.wanted_tags(class);
        amiss.retain(|key, value| found.get(key) != Some(value));
        if amiss.is_empty() {
            return Ok(());
        }
        let set = |url| self.client.tag_queue().queue_url(url).set_tags(Some(amiss.clone())).send();
        self.patience.retried(|| self.on_queue(class, "TagQueue", set)).await?;
        tracing::info!(%class, "queue's tags put right");
        Ok(())
    }

    fn wanted_tags(&self, class: &ResourceClass) -> HashMap<String, String> {
        let (manager, ondeck) = MANAGED_BY;
        let tags = [
            (POOL_TAG, self.names.pool.to_string()),
            (CLASS_TAG, class.to_string()),
            (manager, ondeck.to_owned()),
        ];
        tags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

fn wanted_attributes() -> HashMap<QueueAttributeName, String> {
    ATTRIBUTES.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}
