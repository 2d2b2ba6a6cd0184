//! The runner's listener: the program that waits for jobs.
//!
//! It is started by itself and not by `run.sh`, which says 0 for almost every way to end and
//! starts it again on its own: whoever supervises it would know neither.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::Clock;
use ondeck_processes::{Process, kill_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::program::{self, Said, bounded, finish, follow_all};

/// A listener, dead or alive.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    leader: Process,
    phase: watch::Receiver<Phase>,
    busy: Arc<AtomicBool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Starting,
    Listening,
    Over(Death),
}

/// How a listener ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Death {
    code: Option<i32>,
    signal: Option<i32>,
    words: String,
}

impl Listener {
    /// Starts one. `note` is told of its group before anything else can happen; where it fails,
    /// the listener is ended again.
    pub(crate) fn start(
        clock: Arc<dyn Clock>,
        mut command: Command,
        note: impl FnOnce(Process) -> Result<(), String>,
    ) -> Result<Listener, String> {
        command.env("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1");
        let child = program::spawn(&mut command)?;
        let leader = Process::of_child(&child).ok_or("the listener was gone at once")?;
        if let Err(why) = note(leader) {
            kill_group(leader);
            return Err(why);
        }
        let (phases, phase) = watch::channel(Phase::Starting);
        let busy = Arc::new(AtomicBool::new(false));
        tokio::spawn(attend(clock, child, phases, busy.clone()));
        Ok(Listener { leader, phase, busy })
    }

    /// Waits until it can take jobs.
    pub(crate) async fn listening(&self) -> Result<(), Death> {
        match self.wait(|phase| *phase != Phase::Starting).await {
            Phase::Over(death) => Err(death),
            Phase::Starting | Phase::Listening => Ok(()),
        }
    }

    /// Waits until it is dead.
    pub(crate) async fn over(&self) -> Death {
        match self.wait(|phase| matches!(phase, Phase::Over(_))).await {
            Phase::Over(death) => death,
            Phase::Starting | Phase::Listening => Death::unseen(),
        }
    }

    /// Whether it is.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Over(_))
    }

    /// Asks it to end, which makes it cancel its job and give up its session, and waits for that:
    /// with a job not longer than `busy`, without one not longer than `idle`. What is left then
    /// is for others to kill.
    pub(crate) async fn interrupt(&self, clock: &dyn Clock, busy: Duration, idle: Duration) {
        let patience = if self.busy.load(Ordering::Relaxed) { busy } else { idle };
        self.leader.interrupt();
        if bounded(clock, patience, self.over()).await.is_none() {
            tracing::warn!("the listener did not end in {} s", patience.as_secs_f32());
        }
    }

    /// Kills it with its group, and gives its last words.
    pub(crate) async fn kill(&self, clock: &dyn Clock) -> String {
        const DYING: Duration = Duration::from_secs(10);
        kill_group(self.leader);
        bounded(clock, DYING, self.over()).await.map_or_else(String::new, |death| death.words)
    }

    async fn wait(&self, until: impl FnMut(&Phase) -> bool) -> Phase {
        let mut phase = self.phase.clone();
        // It is not attended to any longer only if the whole program ends.
        let found = phase.wait_for(until).await;
        found.map_or(Phase::Over(Death::unseen()), |phase| phase.clone())
    }
}

/// Listens to a listener until it is dead, and says so when nothing more is to be heard.
async fn attend(
    clock: Arc<dyn Clock>,
    mut child: Child,
    phases: watch::Sender<Phase>,
    busy: Arc<AtomicBool>,
) {
    let said = Said::default();
    let phases = Arc::new(phases);
    let each = {
        let phases = phases.clone();
        Arc::new(move |line: &str| heed(line, &phases, &busy))
    };
    let readers = follow_all(&mut child, &said, &said, &each);
    let waited = child.wait().await;
    finish(&*clock, readers).await;
    let death = waited.map_or_else(|_| Death::unseen(), |status| Death::of(status, &said.text()));
    phases.send_replace(Phase::Over(death));
}

/// The listener says in English what it does, and in no other way.
fn heed(line: &str, phases: &watch::Sender<Phase>, busy: &AtomicBool) {
    if line.is_empty() {
        return;
    }
    if line.ends_with(": Listening for Jobs") {
        phases.send_if_modified(|phase| {
            let starting = *phase == Phase::Starting;
            if starting {
                *phase = Phase::Listening;
            }
            starting
        });
    } else if line.contains(": Running job: ") {
        busy.store(true, Ordering::Relaxed);
    } else if line.contains(" completed with result: ") {
        busy.store(false, Ordering::Relaxed);
    }
    tracing::info!("runner: {line}");
}

impl Death {
    fn of(status: ExitStatus, said: &str) -> Death {
        Death { code: status.code(), signal: status.signal(), words: output_tail(said) }
    }

    fn unseen() -> Death {
        Death { code: None, signal: None, words: String::new() }
    }

    /// Why, for a person. What is to be done about an old version depends on whence it came.
    pub(crate) fn reason(&self, version: &str, on_image: bool) -> String {
        let Death { code, signal, words } = self;
        // Versions before 2.333 know no code for being too old.
        if *code == Some(7) || words.contains("deprecated and cannot receive messages") {
            let remedy = if on_image {
                "set actions-runner-version to a newer one, or renew the image"
            } else {
                "set actions-runner-version to latest"
            };
            return format!("this version of actions/runner is deprecated: {version}; {remedy}");
        }
        let what = match (code, signal) {
            (Some(0), _) => "the listener ended".to_owned(),
            (Some(1), _) => "the listener gave up".to_owned(),
            (Some(2), _) => "the listener met an error that may pass".to_owned(),
            (Some(3 | 4), _) => "the listener ended to be updated".to_owned(),
            (Some(5), _) => "another listener has this runner's session".to_owned(),
            (Some(6), _) => "the listener ended because it was configured anew".to_owned(),
            (Some(code), _) => format!("the listener ended with code {code}"),
            (None, Some(signal)) => format!("the listener was ended by signal {signal}"),
            (None, None) => "the listener ended unseen".to_owned(),
        };
        if words.is_empty() { what } else { format!("{what}: {words}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_end_has_its_words() {
        let death = |code, signal, words: &str| Death { code, signal, words: words.to_owned() };
        let old =
            "An error occured: Runner version v2.300.0 is deprecated and cannot receive messages.";
        for (death, on_image, reason) in [
            (death(Some(0), None, "Exiting..."), false, "the listener ended: Exiting..."),
            (death(Some(1), None, "no"), false, "the listener gave up: no"),
            (death(Some(2), None, ""), false, "the listener met an error that may pass"),
            (death(Some(3), None, ""), false, "the listener ended to be updated"),
            (death(Some(4), None, ""), false, "the listener ended to be updated"),
            (death(Some(5), None, "x"), false, "another listener has this runner's session: x"),
            (death(Some(6), None, ""), false, "the listener ended because it was configured anew"),
            (
                death(Some(7), None, "old"),
                false,
                "this version of actions/runner is deprecated: 2.300.0; set actions-runner-version to latest",
            ),
            (
                death(Some(1), None, old),
                true,
                "this version of actions/runner is deprecated: 2.300.0; set actions-runner-version to a newer one, or renew the image",
            ),
            (death(Some(134), None, ""), false, "the listener ended with code 134"),
            (death(None, Some(9), ""), false, "the listener was ended by signal 9"),
            (Death::unseen(), false, "the listener ended unseen"),
        ] {
            assert_eq!(death.reason("2.300.0", on_image), reason);
        }
    }
}
