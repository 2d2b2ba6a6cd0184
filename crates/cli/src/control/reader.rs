//! Reads the pool again and again, never two readings at a time.
//!
//! One reading makes, on AWS with n machines, c classes and s shards of the index: 1 query for the
//! settings, s queries for the list, 2·⌈n/100⌉ batched reads for records and agent status, c calls for
//! the queues, and 1 for the count if there is a ceiling. Once a minute it also reads the latest
//! hand-overs, by at most 2·s queries and 1 batched read. Nothing is retried: the next reading is the
//! retry.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::record::EventRow;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::status::judgement::{Judgement, judge};
use ondeck_core::modes::status::{Asked, Reading};
use ondeck_core::ports::RecordScope;
#[cfg(feature = "watch")]
use tokio::sync::mpsc;

use crate::inputs::{Common, rows};

/// How long the hand-overs that were read are shown before they are read again, unless the caller
/// says otherwise.
pub(crate) const HAND_OVERS_KEPT: Duration = Duration::from_secs(60);

/// The pause between two readings that was asked for.
pub(crate) fn interval(common: &Common) -> Duration {
    let seconds = common.given.text_or_default(&rows::INTERVAL).and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

pub(crate) struct Reader {
    plane: Plane,
    scope: RecordScope,
    hand_overs_kept: Duration,
    /// The hand-overs that were read last, and when, by steady time.
    hand_overs: Option<(Vec<EventRow>, Duration)>,
}

impl Reader {
    pub(crate) fn new(plane: Plane, scope: RecordScope) -> Reader {
        Reader { plane, scope, hand_overs_kept: HAND_OVERS_KEPT, hand_overs: None }
    }

    /// The same, with another time for which hand-overs are shown before they are read again.
    #[cfg(feature = "dashboard")]
    pub(crate) fn keeping_hand_overs_for(self, hand_overs_kept: Duration) -> Reader {
        Reader { hand_overs_kept, ..self }
    }

    /// Reads the pool once. Fails if the store or a queue does not answer.
    pub(crate) async fn read(&mut self) -> Result<Judgement, Failure> {
        self.read_records(self.scope).await
    }

    /// The same, with the terminated machines whose records are still there.
    #[cfg(feature = "dashboard")]
    pub(crate) async fn read_all(&mut self) -> Result<Judgement, Failure> {
        self.read_records(RecordScope::All).await
    }

    async fn read_records(&mut self, scope: RecordScope) -> Result<Judgement, Failure> {
        let (now, kept) = (self.plane.clock.steady(), self.hand_overs_kept);
        let is_fresh = |at: Duration| now.saturating_sub(at) < kept;
        let hand_overs = !self.hand_overs.as_ref().is_some_and(|(_, at)| is_fresh(*at));
        let asked = Asked { scope, hand_overs, retries: false };
        let mut reading = Reading::take(&self.plane, asked).await?;
        match reading.hand_overs.take() {
            Some(read) => self.hand_overs = Some((read, now)),
            // Those that could not be read are asked for again when it is time.
            None if hand_overs => self.hand_overs = Some((self.known(), now)),
            None => {}
        }
        reading.hand_overs = Some(self.known());
        Ok(judge(reading))
    }

    fn known(&self) -> Vec<EventRow> {
        self.hand_overs.as_ref().map(|(known, _)| known.clone()).unwrap_or_default()
    }

    /// Goes on to read, with a pause after each reading. Ends when the receiver is dropped.
    #[cfg(feature = "watch")]
    pub(crate) fn start(mut self, pause: Duration) -> mpsc::Receiver<Result<Judgement, Failure>> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let reading = self.read().await;
                if sender.send(reading).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::model::settings::Settings;
    use ondeck_core::testkit::plane;

    use super::*;

    #[tokio::test]
    async fn hand_overs_are_read_once_a_minute_and_everything_else_each_time() {
        let (plane, ports) = plane();
        let settings = [("set-up-by".to_owned(), "test".to_owned())].into();
        plane.store.put_settings(&settings).await.unwrap();
        let classes = Settings::default().classes.names().count();
        plane
            .pool
            .set_up(&Settings::default().classes.names().cloned().collect::<Vec<_>>())
            .await
            .unwrap();
        let mut reader = Reader::new(plane, RecordScope::Live);
        for _ in 0..3 {
            reader.read().await.unwrap();
        }
        let calls = ports.store.calls();
        assert_eq!(calls.get("hand_overs"), Some(&1), "{calls:?}");
        assert_eq!(classes, 7);
        ports.clock.advance(HAND_OVERS_KEPT);
        reader.read().await.unwrap();
        assert_eq!(ports.store.calls().get("hand_overs"), Some(&2));
    }

    #[tokio::test]
    async fn a_store_out_of_reach_is_asked_once_and_again_by_the_next_reading() {
        let (plane, ports) = plane();
        let settings = [("set-up-by".to_owned(), "test".to_owned())].into();
        plane.store.put_settings(&settings).await.unwrap();
        plane
            .pool
            .set_up(&Settings::default().classes.names().cloned().collect::<Vec<_>>())
            .await
            .unwrap();
        let mut reader = Reader::new(plane, RecordScope::Live);
        ports.store.fail("list");
        reader.read().await.unwrap_err();
        ports.store.repair();
        reader.read().await.unwrap();
    }
}
