//! Copies the log of an agent to CloudWatch Logs, so that it outlives the machine.
//!
//! The copy holds what the agent itself logs, which is also what it writes to the console. The output
//! of jobs is not part of it. Nothing waits for an upload but the end of the machine, and that for a few
//! seconds at the most.

mod buffer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::InstanceId;
use serde_json::{Value, json};
use tokio::sync::Mutex;

pub use self::buffer::LogBuffer;
use self::buffer::LogLine;
use crate::cloud::Cloud;
use crate::inputs::OFF;
use crate::raw_client::RawClient;

/// How long lines wait for others, so that they are sent together.
const EVERY: Duration = Duration::from_secs(20);
/// The longest pause after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// How long the end of a machine waits for the last upload.
const AT_THE_END: Duration = Duration::from_secs(5);

/// What precedes the group in the setting.
const CLOUDWATCH: &str = "cloudwatch:";
/// The longest name of a log group.
const LONGEST_GROUP: usize = 512;

/// Where logs are copied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDestination {
    group: String,
}

impl LogDestination {
    /// Reads the setting; `None` if it is off. Fails with what is wrong with it.
    pub fn parse(text: &str) -> Result<Option<LogDestination>, String> {
        if text == OFF {
            return Ok(None);
        }
        let Some(group) = text.strip_prefix(CLOUDWATCH) else {
            return Err(format!("is neither off nor {CLOUDWATCH}GROUP: {}", quoted(text)));
        };
        // What the API takes for `logGroupName`.
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/#".contains(&byte);
        if group.is_empty() || group.len() > LONGEST_GROUP || !group.bytes().all(fits) {
            return Err(format!("names no log group: {}", quoted(text)));
        }
        Ok(Some(LogDestination { group: group.to_owned() }))
    }
}

/// The copy of one machine's log.
pub struct MachineLogs {
    client: RawClient,
    group: String,
    /// A stream of its own for each machine, below the name of the pool, so that a policy can tell pools
    /// apart.
    stream: String,
    buffer: LogBuffer,
    has_stream: AtomicBool,
    /// Held while lines are sent, so that they arrive in order.
    sending: Mutex<()>,
}

impl MachineLogs {
    pub fn new(
        cloud: &Cloud,
        destination: LogDestination,
        instance: &InstanceId,
        buffer: LogBuffer,
    ) -> MachineLogs {
        MachineLogs {
            client: RawClient::new(cloud),
            group: destination.group,
            stream: format!("{}/{instance}", cloud.names.pool.resource_name()),
            buffer,
            has_stream: AtomicBool::new(false),
            sending: Mutex::new(()),
        }
    }

    /// Sends what is logged, every 20 s, for as long as the machine lives. After a failure it pauses
    /// for longer, up to ten minutes, and says why, once for each reason.
    pub async fn send_at_intervals(self: Arc<Self>) {
        let (mut pause, mut told) = (EVERY, String::new());
        loop {
            tokio::time::sleep(pause).await;
            match self.send().await {
                Ok(()) => (pause, told) = (EVERY, String::new()),
                Err(why) => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    if why != told {
                        tracing::warn!("the log is not copied: {why}");
                        told = why;
                    }
                }
            }
        }
    }

    /// Sends what is left, for at most 5 s. The machine ends in any case.
    pub async fn send_at_the_end(&self) {
        match tokio::time::timeout(AT_THE_END, self.send_all()).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!("the end of the log is not copied: {why}"),
            Err(_) => tracing::warn!("the end of the log is not copied: no answer in time"),
        }
    }

    async fn send_all(&self) -> Result<(), String> {
        while !self.buffer.is_empty() {
            self.send().await?;
        }
        Ok(())
    }

    /// Sends one batch. One that was not taken is kept, as far as there is room.
    async fn send(&self) -> Result<(), String> {
        let _order = self.sending.lock().await;
        let mut batch = self.buffer.take();
        if batch.is_empty() {
            return Ok(());
        }
        // A caller that gives up drops the batch, which returns the lines.
        self.put(batch.lines()).await?;
        batch.discard();
        Ok(())
    }

    async fn put(&self, lines: &[LogLine]) -> Result<(), String> {
        if !self.has_stream.load(Ordering::Relaxed) {
            let stream = json!({ "logGroupName": self.group, "logStreamName": self.stream });
            self.call("CreateLogStream", &stream, "ResourceAlreadyExistsException").await?;
            self.has_stream.store(true, Ordering::Relaxed);
        }
        let event = |line: &LogLine| json!({ "timestamp": line.at_millis, "message": line.text });
        let events: Vec<Value> = lines.iter().map(event).collect();
        let request = json!({
            "logGroupName": self.group, "logStreamName": self.stream, "logEvents": events,
        });
        let put = self.call("PutLogEvents", &request, "").await;
        if put.is_err() {
            // An operator may have deleted the stream.
            self.has_stream.store(false, Ordering::Relaxed);
        }
        put
    }

    /// Calls an operation. An answer with the code `as_good` is a success.
    async fn call(&self, operation: &str, request: &Value, as_good: &str) -> Result<(), String> {
        let answer = self.client.send_once(&format!("logs:{operation}"), request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status < 300 || (!as_good.is_empty() && answer.code == as_good) {
            return Ok(());
        }
        let said = answer.body["message"].as_str().unwrap_or_default();
        Err(format!("{operation} in log group {}: {} {said}", self.group, answer.code))
    }
}

impl fmt::Debug for MachineLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MachineLogs({} {})", self.group, self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_off_or_a_log_group() {
        let group = |text: &str| LogDestination::parse(text).map(|it| it.map(|it| it.group));
        assert_eq!(group("off"), Ok(None));
        assert_eq!(group("cloudwatch:/ondeck/web"), Ok(Some("/ondeck/web".to_owned())));
        for wrong in ["", "on", "cloudwatch", "cloudwatch:", "cloudwatch:a b", "s3://bucket/x"] {
            assert!(group(wrong).is_err(), "{wrong}");
        }
        assert!(group(&format!("cloudwatch:{}", "g".repeat(513))).is_err());
    }
}
