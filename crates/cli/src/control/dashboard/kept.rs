//! Answers that take many calls. One is kept for a while, so that asking again, also from another page,
//! takes none.

use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::Mutex;

/// The last answer to one kind of question.
#[derive(Debug)]
pub(super) struct Kept {
    time: Duration,
    /// The question, when it was asked, by steady time, and the answer.
    last: Mutex<Option<(String, Duration, Bytes)>>,
}

impl Kept {
    /// Keeps an answer for this time.
    pub(super) fn during(time: Duration) -> Kept {
        Kept { time, last: Mutex::default() }
    }

    /// The answer to this question at `now`, by steady time: the last one if it is of the same question and not too old, and else
    /// what `make` returns. Questions wait for each other. A failure is not kept.
    pub(super) async fn answer<E>(
        &self,
        question: &str,
        now: Duration,
        make: impl Future<Output = Result<String, E>>,
    ) -> Result<Bytes, E> {
        let mut last = self.last.lock().await;
        if let Some((of, at, answer)) = &*last
            && of == question
            && now.saturating_sub(*at) < self.time
        {
            return Ok(answer.clone());
        }
        let answer = Bytes::from(make.await?);
        *last = Some((question.to_owned(), now, answer.clone()));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_kept_for_its_question_and_its_time() {
        let kept = Kept::during(Duration::from_secs(60));
        let ask = async |question: &str, at: u64, answer: Result<&str, &'static str>| {
            let answer = answer.map(str::to_owned);
            let told = kept.answer(question, Duration::from_secs(at), async { answer }).await;
            told.map(|it| String::from_utf8_lossy(&it).into_owned())
        };
        assert_eq!(ask("24h", 100, Ok("first")).await.unwrap(), "first");
        assert_eq!(ask("24h", 159, Ok("second")).await.unwrap(), "first");
        assert_eq!(ask("7d", 159, Ok("third")).await.unwrap(), "third");
        assert_eq!(ask("7d", 219, Err("no")).await, Err("no"));
        assert_eq!(ask("7d", 220, Ok("fourth")).await.unwrap(), "fourth");
    }
}
