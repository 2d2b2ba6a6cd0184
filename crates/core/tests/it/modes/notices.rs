//! Notices: what refresh finds is told once, again while it lasts, and when it has ended.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::finding::{Notice, NoticeItem};
use ondeck_core::modes::notices::{NotTold, announce};
use ondeck_core::ports::{Notifier, PortError};

use super::harness::{Harness, id, request, run};

const DAY: Duration = Duration::from_secs(24 * 3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// Keeps what it is told, each item as `new: …`, `still: …` or `resolved: …`.
#[derive(Default)]
struct Ear {
    told: Mutex<Vec<String>>,
    is_deaf: Mutex<bool>,
}

impl Ear {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

#[async_trait]
impl Notifier for Ear {
    async fn notify(&self, notice: &Notice) -> Result<(), String> {
        assert!(!notice.is_empty(), "there is something to tell");
        if *self.is_deaf.lock().unwrap() {
            return Err("it is deaf".to_owned());
        }
        let Notice { new, lasting, resolved } = notice;
        for (word, items) in [("new", new), ("still", lasting), ("resolved", resolved)] {
            let lines = items.iter().map(|NoticeItem { finding, .. }| finding);
            let lines = lines.map(|finding| format!("{word}: {}", finding.text));
            self.told.lock().unwrap().extend(lines);
        }
        Ok(())
    }
}

/// Refreshes, and tells what was found. Gives what was told.
async fn refreshed(harness: &Harness, ear: &Ear) -> Vec<String> {
    let outcome = harness.refresh().await;
    announce(&harness.plane, &outcome.findings, DAY, ear).await.unwrap();
    ear.take()
}

#[tokio::test]
async fn a_stranded_run_is_told_once_then_each_day_and_when_it_has_machines() {
    let (harness, ear) = (Harness::new().await, Ear::default());
    assert_eq!(refreshed(&harness, &ear).await, Vec::<String>::new(), "nothing to tell");
    harness.memory.forge.queue_job(&run("2"));
    const TEXT: &str = "jobs wait for a run that has not asked for machines: 2";
    assert_eq!(refreshed(&harness, &ear).await, [format!("new: {TEXT}")]);
    assert_eq!(refreshed(&harness, &ear).await, Vec::<String>::new(), "once");
    harness.sleep(DAY).await;
    assert_eq!(refreshed(&harness, &ear).await, [format!("still: {TEXT}")]);
    harness.provision(&request("2", 1)).await;
    assert_eq!(refreshed(&harness, &ear).await, ["resolved: no jobs wait for run 2 any more"]);
    assert_eq!(refreshed(&harness, &ear).await, Vec::<String>::new());
    let settings = harness.plane.store.settings().await.unwrap();
    assert!(!settings.contains_key("notices-told"), "nothing is left: {settings:?}");
}

#[tokio::test]
async fn a_machine_that_has_died_is_told_and_so_is_its_end() {
    let (harness, ear) = (Harness::with(&[("rescue", "off")]).await, Ear::default());
    harness.provision(&request("1", 1)).await;
    harness.memory.forge.open(run("1"));
    harness.memory.compute.kill(&id("i-0001"));
    harness.sleep(MINUTE).await;
    let told = refreshed(&harness, &ear).await;
    let [told] = &told[..] else { panic!("{told:?}") };
    let begins = "new: machine i-0001 of run 1 has sent no heartbeat for ";
    assert!(told.starts_with(begins), "{told}");
    harness.sleep(31 * MINUTE).await;
    let ended = "resolved: machine i-0001 is terminated, or sends heartbeats again";
    assert_eq!(refreshed(&harness, &ear).await, [ended]);
}

#[tokio::test]
async fn a_deadline_of_the_runner_is_told_once() {
    let (harness, ear) = (Harness::new().await, Ear::default());
    harness.memory.forge.give_notice("the version is served until tomorrow");
    let told = refreshed(&harness, &ear).await;
    assert_eq!(told, ["new: the version is served until tomorrow"]);
    assert_eq!(refreshed(&harness, &ear).await, Vec::<String>::new());
}

/// A forge that limits requests says nothing about runs.
#[tokio::test]
async fn what_a_refresh_could_not_look_at_has_not_ended() {
    let (harness, ear) = (Harness::new().await, Ear::default());
    harness.memory.forge.queue_job(&run("2"));
    assert_eq!(refreshed(&harness, &ear).await.len(), 1);
    harness.memory.forge.limit_after(Some(0));
    assert_eq!(refreshed(&harness, &ear).await, Vec::<String>::new());
    harness.memory.forge.limit_after(None);
    harness.memory.forge.clear_jobs();
    assert_eq!(refreshed(&harness, &ear).await, ["resolved: no jobs wait for run 2 any more"]);
}

#[tokio::test]
async fn what_was_not_sent_is_sent_by_the_next_refresh() {
    let (harness, ear) = (Harness::new().await, Ear::default());
    harness.memory.forge.queue_job(&run("2"));
    let findings = harness.refresh().await.findings;
    *ear.is_deaf.lock().unwrap() = true;
    let error = announce(&harness.plane, &findings, DAY, &ear).await.unwrap_err();
    assert_eq!(error, NotTold::NotSent("it is deaf".to_owned()));
    *ear.is_deaf.lock().unwrap() = false;
    assert_eq!(announce(&harness.plane, &findings, DAY, &ear).await, Ok(1));
}

/// Of two refreshes at once, one tells. One that was killed while it did is followed by another.
#[tokio::test]
async fn two_refreshes_tell_once_and_one_that_was_killed_is_repeated() {
    struct Never;
    #[async_trait]
    impl Notifier for Never {
        async fn notify(&self, _notice: &Notice) -> Result<(), String> {
            std::future::pending().await
        }
    }
    let (harness, ear) = (Harness::new().await, Ear::default());
    harness.memory.forge.queue_job(&run("2"));
    let findings = harness.refresh().await.findings;
    let tell = || announce(&harness.plane, &findings, DAY, &ear);
    let (one, other) = tokio::join!(tell(), tell());
    assert_eq!((one.unwrap() + other.unwrap(), ear.take().len()), (1, 1));

    let (harness, ear) = (Harness::new().await, Ear::default());
    harness.memory.forge.queue_job(&run("2"));
    let findings = harness.refresh().await.findings;
    let killed = announce(&harness.plane, &findings, DAY, &Never);
    tokio::select! {
        _ = killed => panic!("it never ends"),
        () = harness.sleep(Duration::from_secs(1)) => {}
    }
    assert_eq!(announce(&harness.plane, &findings, DAY, &ear).await, Ok(0), "it may be sending");
    harness.sleep(Duration::from_secs(15)).await;
    assert_eq!(announce(&harness.plane, &findings, DAY, &ear).await, Ok(1));
    assert_eq!(announce(&harness.plane, &findings, DAY, &ear).await, Ok(0));
}

#[tokio::test]
async fn a_store_that_does_not_answer_costs_at_most_a_second_notice() {
    let (harness, ear) = (Harness::new().await, Ear::default());
    harness.memory.forge.queue_job(&run("2"));
    let findings = harness.refresh().await.findings;
    harness.memory.store.fail("settings");
    let error = announce(&harness.plane, &findings, DAY, &ear).await.unwrap_err();
    assert!(matches!(error, NotTold::LogUnread(PortError::Unavailable { .. })), "{error}");
    assert_eq!(ear.take(), Vec::<String>::new());
    harness.memory.store.repair();
    harness.memory.store.lose_answers("replace_setting", 1);
    // Its own lease looks like that of another refresh.
    assert_eq!(announce(&harness.plane, &findings, DAY, &ear).await, Ok(0));
    harness.sleep(Duration::from_secs(15)).await;
    assert_eq!(announce(&harness.plane, &findings, DAY, &ear).await, Ok(1));
}

/// Agents of every machine read the settings: the log must not make them new.
#[tokio::test]
async fn telling_changes_no_version_of_the_settings() {
    let (harness, ear) = (Harness::new().await, Ear::default());
    let before = harness.plane.settings().await.unwrap().version;
    harness.memory.forge.queue_job(&run("2"));
    assert_eq!(refreshed(&harness, &ear).await.len(), 1);
    let settings = harness.plane.settings().await.unwrap();
    assert_eq!(settings.version, before);
    assert!(!settings.backend.contains_key("notices-told"));
    assert_eq!(harness.refresh().await.failure, None);
}
