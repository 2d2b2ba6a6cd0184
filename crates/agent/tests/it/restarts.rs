//! A runner that cannot be started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::label::Label;
use ondeck_core::model::record::State;
use ondeck_core::ports::Runner;

use crate::harness::{Harness, label};

/// A runner whose version GitHub refuses once it has registered. No newer one is known.
#[derive(Default)]
struct RefusedRunner {
    attempts: AtomicU32,
}

#[async_trait]
impl Runner for RefusedRunner {
    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn register(&self, _label: &Label) -> Result<(), String> {
        Ok(())
    }

    async fn revive(&self, _label: &Label) -> Result<(), String> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        Err("its version is refused".to_owned())
    }

    async fn work(&self, _label: &Label) -> String {
        "it died".to_owned()
    }

    async fn drain(&self, _why: &str) {}

    fn is_busy(&self) -> bool {
        false
    }

    fn has_worked(&self) -> bool {
        false
    }

    async fn stop(&self) -> Result<(), String> {
        Ok(())
    }

    async fn deregister(&self) -> Result<(), String> {
        Ok(())
    }

    async fn clean(&self) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test]
async fn a_refused_runner_is_started_about_once_a_minute() {
    let mut harness = Harness::with(&[]).await;
    let minute = Duration::from_secs(60);
    harness.insert_record(State::Running, 60 * minute);
    let runner = Arc::new(RefusedRunner::default());
    harness.boot_runner(runner.clone());
    let attempts = || runner.attempts.swap(0, Ordering::Relaxed);
    harness.sleep(2 * minute).await;
    let first = attempts();
    assert!((6..=16).contains(&first), "often at first: {first}");
    let report = harness.status().await.report.unwrap();
    let failure = report.failure_for(&label("1")).unwrap();
    assert!(failure.ends_with("UD_REG_FAILED: its version is refused"), "{failure}");
    harness.sleep(20 * minute).await;
    let later = attempts();
    assert!((20..=40).contains(&later), "every 30 to 60 s: {later}");
}
