//! The modes as programs, and the disturbances.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::inputs::Mode;
use ondeck_core::inputs::times::Times;
use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::modes::drill::{Ask, Cancelled, Ended, How, Programs};
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::provision::SourcePolicy;
use ondeck_core::ports::PortResult;
use ondeck_core::runtime::stop::StopSignal;
use rustix::process::Signal;
use serde_json::Value;

use super::children::{Children, Said};
#[cfg(feature = "local")]
use crate::control::backend::LocalFiles;
#[cfg(feature = "local")]
use crate::inputs::Backend;
use crate::inputs::{Common, rows};

/// The variable in which the command for interruptions finds its machine.
const MACHINE: &str = "ONDECK_DRILL_MACHINE";
/// How long that command may take. An experiment of AWS begins within a minute.
const INTERRUPTING: Duration = Duration::from_secs(300);

pub(super) struct Modes {
    children: Children,
    plane: Plane,
    interrupt: Option<String>,
    /// Where the processes of machines are noted. `None` if machines are no processes.
    #[cfg(feature = "local")]
    files: Option<LocalFiles>,
}

impl Modes {
    /// Fails if this program, or the files of a local pool, cannot be found.
    pub(super) fn new(
        common: &Common,
        plane: Plane,
        times: &Times,
        stop: StopSignal,
    ) -> Result<Modes, Failure> {
        // Longer than any mode waits for machines.
        let at_most = times.created_timeout + times.claim_timeout + times.release_timeout;
        let children = Children::new(common, stop, at_most).map_err(|error| {
            Failure::new(FailureKind::Unexpected, format!("own program not found: {error}"))
        })?;
        Ok(Modes {
            children,
            plane,
            interrupt: common.given.owned(&rows::INTERRUPT_COMMAND),
            #[cfg(feature = "local")]
            files: match common.compute {
                Backend::Local => Some(LocalFiles::open(common)?),
                Backend::Aws => None,
            },
        })
    }

    async fn run(&self, mode: Mode, arguments: &[OsString]) -> Ended {
        let command = self.children.command(mode, arguments);
        ended(self.children.run(command, |_| None).await)
    }
}

#[async_trait]
impl Programs for Modes {
    async fn provision(&self, ask: &Ask) -> Ended {
        self.run(Mode::Provision, &arguments(ask)).await
    }

    async fn cancel(&self, ask: &Ask, how: How) -> Cancelled {
        let mut arguments = arguments(ask);
        // Its log tells each change of a record when it is made.
        arguments.push("-v".into());
        let command = self.children.command(Mode::Provision, &arguments);
        let mut machine = None;
        let signal = match how {
            How::Interrupt => Signal::INT,
            How::Kill => Signal::KILL,
        };
        let said = self.children.run(command, |line| {
            machine = machine.take().or_else(|| taken(line, &ask.run));
            machine.is_some().then_some(signal)
        });
        let ended = ended(said.await);
        Cancelled { ended, machine }
    }

    async fn release(&self, run: &RunId) -> Ended {
        self.run(Mode::Release, &["--run-id".into(), run.as_str().into()]).await
    }

    async fn refresh(&self) -> Ended {
        self.run(Mode::Refresh, &[]).await
    }

    /// Kills the agent of a machine that is a process, as `kill -9` does. Terminates any other.
    async fn kill(&self, machine: &InstanceId) -> PortResult<()> {
        #[cfg(feature = "local")]
        if let Some(files) = &self.files {
            use ondeck_core::ports::PortError;
            use rustix::process::{Pid, kill_process};
            let out_of_reach =
                |reason: String| PortError::Unavailable { service: "compute", reason };
            let pid = files.pid(machine).await.map_err(|failure| out_of_reach(failure.message))?;
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                return Err(out_of_reach(format!("the process of {machine} is not known")));
            };
            let killed = kill_process(pid, Signal::KILL);
            return killed.map_err(|error| out_of_reach(format!("{machine}: {error}")));
        }
        self.plane.terminate(std::slice::from_ref(machine)).await
    }

    async fn interrupt(&self, machine: &InstanceId) -> Result<(), String> {
        let Some(shell) = &self.interrupt else { return Err("no command is given".to_owned()) };
        let mut command = tokio::process::Command::new("sh");
        command.arg("-c").arg(shell).env(MACHINE, machine.as_str()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let output = command.stderr(Stdio::piped()).output();
        let output = tokio::time::timeout(INTERRUPTING, output).await;
        let output = output
            .map_err(|_| format!("the command took more than {} s", INTERRUPTING.as_secs()))?
            .map_err(|error| format!("the command cannot be started: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = one_line(&String::from_utf8_lossy(&output.stderr).trim());
        Err(format!("the command ended with {}: {said}", output.status))
    }
}

fn arguments(ask: &Ask) -> Vec<OsString> {
    let Ask { run, source, class, usage, instance_type } = ask;
    let source = match source {
        SourcePolicy::Any => "any",
        SourcePolicy::Pool => "pool",
        SourcePolicy::New => "new",
    };
    let mut arguments = vec![
        "--run-id".to_owned(),
        run.to_string(),
        "--instance-count=1".to_owned(),
        format!("--machine-source={source}"),
        format!("--resource-class={class}"),
        format!("--usage-class={}", usage.as_str()),
    ];
    arguments.extend(instance_type.iter().map(|it| format!("--allowed-instance-types={it}")));
    arguments.into_iter().map(OsString::from).collect()
}

/// The machine that a line of a provision's log says the run has got.
fn taken(line: &str, run: &RunId) -> Option<InstanceId> {
    let is_taken = line.contains("state=claimed") || line.contains("state=created");
    if !is_taken || !line.contains(&format!("run=\"{run}\"")) {
        return None;
    }
    let (_, after) = line.split_once("instance=")?;
    after.split_whitespace().next()?.parse().ok()
}

/// What a mode said, as the drill reads it.
fn ended(said: std::io::Result<Said>) -> Ended {
    let said = match said {
        Ok(said) => said,
        Err(error) => {
            let error = format!("the program cannot be run: {error}");
            return Ended { code: 1, error, ..Ended::default() };
        }
    };
    let answer: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
    let texts = |name: &str| {
        let all = answer[name].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<String>>()
    };
    let had = answer["instances"].as_array().into_iter().flatten();
    let had = had.filter_map(|it| it["instanceId"].as_str()).map(str::to_owned);
    let machines = had.chain(texts("terminated")).chain(texts("returned"));
    let error = match (answer["error"]["message"].as_str(), said.code) {
        (Some(message), _) => one_line(&message),
        (None, 0) => String::new(),
        (None, _) => one_line(&said.last_line),
    };
    Ended {
        code: said.code,
        machines: machines.filter_map(|id| id.parse().ok()).collect(),
        clean_up_failures: texts("cleanUpFailures"),
        error,
        took: said.took,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_tells_the_machine_that_a_run_has_got() {
        let run: RunId = "drill-1-1".parse().unwrap();
        let of = |line: &str| taken(line, &run).map(|id| id.to_string());
        let claimed = r#" INFO claim instance=i-1 state=claimed run="drill-1-1" why="""#;
        assert_eq!(of(claimed).as_deref(), Some("i-1"));
        assert_eq!(of(&claimed.replace("claimed", "created")).as_deref(), Some("i-1"));
        assert_eq!(of(&claimed.replace("drill-1-1", "drill-1-10")), None);
        assert_eq!(of(&claimed.replace("state=claimed", "state=running")), None);
        assert_eq!(of("claiming an idle machine"), None);
    }

    #[test]
    fn the_answer_of_a_mode_is_read_also_after_a_failure() {
        let said = |code, stdout: &str, last_line: &str| {
            let (stdout, last_line) = (stdout.to_owned(), last_line.to_owned());
            ended(Ok(Said { code, stdout, last_line, took: Duration::ZERO }))
        };
        let done = said(0, r#"{"instances":[{"instanceId":"i-1"}]}"#, "");
        assert_eq!((done.words().as_str(), done.machines.len()), ("exit code 0", 1));
        let failed = r#"{"instances":[],"returned":["i-2"],"cleanUpFailures":["x"],
            "error":{"message":"interrupted"}}"#;
        let failed = said(130, failed, "error: interrupted");
        assert_eq!(failed.machines[0].as_str(), "i-2");
        assert_eq!(failed.clean_up_failures, ["x"]);
        assert_eq!(failed.words(), "exit code 130: interrupted");
        assert_eq!(said(-9, "", "").words(), "ended by signal 9");
        assert_eq!(said(1, "", "no such option").words(), "exit code 1: no such option");
    }
}
