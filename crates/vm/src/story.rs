//! The story: one machine from its launch to its end, by way of two runs.

mod account;
mod looks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use ondeck_standin::{Conclusion, JobId, Machine, MachineState};
use serde_json::Value;

use crate::StoryArguments;
use crate::console::{self, say, tail, wait};
use crate::guest;
use crate::shell::Shell;
use account::{Account, REPOSITORY};

/// How long the guest may take to boot and run its user data. An emulated processor on two busy
/// cores needs two minutes.
const BOOT: Duration = Duration::from_secs(420);
/// How long anything else may take.
const LIMIT: Duration = Duration::from_secs(180);
/// How long an idle machine stays in the pool. Long enough to look around on it between two runs.
const IDLE_SEC: &str = "60";
/// How long past that the machine shuts down.
const GRACE_SEC: &str = "5";
/// The lines of the console that are printed after a failure.
const LAST_LINES: usize = 40;

/// Plays the story. Fails with the reason, after the last lines of the machine's console.
pub(crate) fn play(arguments: &StoryArguments) -> Result<(), String> {
    let kvm = guest::kvm_works(&arguments.machine.image, &arguments.machine.folder);
    say(if kvm { "the processor runs the guest" } else { "the processor is emulated" });
    let account = Account::open(arguments, kvm)?;
    let runner_label = arguments.runner_label.clone();
    let story = Story { account, runner_label, started: Instant::now() };
    // Waits of the stand-ins panic when they take too long.
    let played = catch_unwind(AssertUnwindSafe(|| story.all()));
    let reason = match played {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(reason)) => reason,
        Err(panic) => match panic.downcast_ref::<String>() {
            Some(text) => text.clone(),
            None => "a check has failed; its words are above".to_owned(),
        },
    };
    for machine in story.account.gateway.ec2().machines() {
        say(&format!("\nthe last lines of the console of {} ({:?}):", machine.id, machine.state));
        say(&tail(&console::read(&machine.log), LAST_LINES));
    }
    say("");
    Err(reason)
}

struct Story {
    account: Account,
    /// The setting of the pool.
    runner_label: String,
    started: Instant,
}

impl Story {
    /// Whether machines register while they are idle.
    fn registers_idle(&self) -> bool {
        self.runner_label == "machine"
    }

    fn all(&self) -> Result<(), String> {
        let Account { gateway, github, .. } = &self.account;
        self.step("refresh creates table, queues and launch template", || self.set_up())?;

        let first = self.account.start(&["provision", "--json", "--run-id", "1001"])?;
        let machine = self.step("CreateFleet starts the machine", || {
            let up = |machines: &[Machine]| machines.iter().any(|it| it.pid.is_some());
            let machines = gateway.ec2().wait(LIMIT, up).map_err(|all| format!("{all:?}"))?;
            Ok(machines[0].clone())
        })?;
        let says = |words: &'static str, at_most| {
            wait(words, at_most, || {
                let text = console::read(&machine.log);
                // It would print nothing more.
                let panic =
                    text.contains("Kernel panic").then(|| Err("the kernel panics".to_owned()));
                text.contains(words).then_some(Ok(())).or(panic)
            })?
        };
        self.step("the kernel boots", || says("Linux version", BOOT))?;
        self.step("cloud-init starts", || says("Cloud-init v.", BOOT))?;
        self.step("user data has fetched the agent, checked its digest and run it", || {
            says("ondeck: agent: ondeck", BOOT)
        })?;
        self.step("systemd has started the agent", || {
            says("ondeck: the agent has been started", BOOT)
        })?;
        self.step("the agent sends heartbeats", || {
            wait("a heartbeat", LIMIT, || {
                let machine = self.only_instance().ok()?;
                machine["heartbeatAgeMs"].as_u64().map(drop)
            })
        })?;
        let label = self.step("provision returns with the new machine", || {
            let told = first.finish()?;
            expect(&told["instances"][0]["source"], "cold")?;
            expect(&told["instances"][0]["instanceId"], &machine.id)?;
            label_of(&told)
        })?;
        self.step("its runner is online at GitHub with the run's label", || self.online(&label))?;
        let mut shell = self.step("root's shell on the guest answers", || {
            Shell::connect(&guest::shell_of(&self.account.folder, &machine.id), LIMIT)
        })?;
        let job = self.queue("1001", &label, looks::FIRST_JOB);
        self.step("the runner takes a job", || {
            let runs = |it: &ondeck_standin::Job| it.log.contains("waiting\n");
            github.wait_until(job, LIMIT, runs);
            Ok(())
        })?;
        self.step("the machine is as it should be while the job runs", || {
            looks::during_a_job(&self.account, &machine, &mut shell)
        })?;
        self.step("the job succeeds", || {
            shell.run("runuser -u runner -- touch /tmp/go")?;
            looks::first_job(&self.done(job)?)
        })?;
        self.step("release: the runner is deregistered, the machine cleaned and idle", || {
            self.account.ondeck(&["release", "--json", "--run-id", "1001"])?;
            self.expect_left(&label)?;
            expect(&self.only_instance()?["state"], "idle")
        })?;
        self.step("nothing of the first run is left on the machine", || {
            looks::after_a_run(&self.account, &machine, &mut shell)
        })?;
        let names = self.names();
        let label = self.step("a second run claims the machine", || {
            let told = self.account.ondeck(&["provision", "--json", "--run-id", "1002"])?;
            expect(&told["instances"][0]["source"], "warm")?;
            expect(&told["instances"][0]["instanceId"], &machine.id)?;
            label_of(&told)
        })?;
        self.step("its runner is online with the new label", || {
            self.online(&label)?;
            match self.registers_idle() && self.names() != names {
                true => Err(format!("{:?} was registered before, not {names:?}", self.names())),
                false => Ok(()),
            }
        })?;
        self.step("the second run's job succeeds", || {
            let job = self.queue("1002", &label, "ls -A ~ /tmp; echo served");
            let log = self.done(job)?;
            if log.contains("left") {
                return Err(format!("the second run sees what the first has left: {log}"));
            }
            Ok(())
        })?;
        self.step("release: the machine is idle again", || {
            self.account.ondeck(&["release", "--json", "--run-id", "1002"])?;
            self.expect_left(&label)
        })?;
        drop(shell);
        self.step("past its deadline the machine powers itself off", || {
            let off = |machines: &[Machine]| {
                machines.iter().all(|it| it.state == MachineState::Terminated)
            };
            let ended =
                gateway.ec2().wait(LIMIT, off).map_err(|all| format!("still on: {all:?}"))?;
            if !ended[0].reason.starts_with("Client.InstanceInitiatedShutdown") {
                return Err(format!("it has not ended by itself: {}", ended[0].reason));
            }
            says("Power down", Duration::from_secs(5))
        })?;
        self.step("it has removed its runner", || self.expect_no_runner())?;
        self.step("refresh and the audit find nothing left", || self.nothing_left(&machine))
    }

    /// Plays one step, and prints how long it took and when it was over.
    fn step<T>(&self, what: &str, play: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let begun = Instant::now();
        let played = play();
        let (since, took) = (self.started.elapsed().as_secs_f32(), begun.elapsed().as_secs_f32());
        let word = if played.is_ok() { "ok" } else { "FAILED" };
        say(&format!("{since:7.1} s  {took:6.1} s  {word:6}  {what}"));
        played.map_err(|reason| format!("{what}: {reason}"))
    }

    fn set_up(&self) -> Result<(), String> {
        let (url, digest) = &self.account.agent;
        self.account.ondeck(&[
            "refresh",
            "--json",
            "--ami=ami-0123456789abcdef0",
            "--subnet-ids=subnet-0a subnet-0b",
            "--security-group-ids=sg-0123456789abcdef0",
            "--iam-instance-profile=ondeck-machine",
            &format!("--agent-url={url}"),
            &format!("--agent-sha256={digest}"),
            &format!("--validation-timeout-sec={}", BOOT.as_secs()),
            "--created-timeout-sec=600",
            "--claim-timeout-sec=600",
            &format!("--idle-time-sec={IDLE_SEC}"),
            &format!("--self-termination-grace-sec={GRACE_SEC}"),
            &format!("--runner-label={}", self.runner_label),
        ])?;
        Ok(())
    }

    fn queue(&self, run: &str, label: &str, script: &str) -> JobId {
        self.account.github.queue_job(REPOSITORY, run, &[label], script)
    }

    /// Waits until a job has succeeded, and returns its log.
    fn done(&self, job: JobId) -> Result<String, String> {
        let job = self.account.github.wait_for_job(job, LIMIT);
        match job.conclusion {
            Some(Conclusion::Success) => Ok(job.log),
            other => Err(format!("the job has ended as {other:?}: {}", job.log)),
        }
    }

    fn online(&self, label: &str) -> Result<(), String> {
        let online = self.account.github.wait_for_runners(LIMIT, |runners| {
            runners.len() == 1 && runners[0].online && runners[0].labels == [label]
        });
        online.map(drop).ok_or_else(|| format!("{:?}", self.account.github.runners()))
    }

    /// Waits until the machine has left the registration with this label. One that registers while it is
    /// idle is online under another label then.
    fn expect_left(&self, label: &str) -> Result<(), String> {
        if !self.registers_idle() {
            return self.expect_no_runner();
        }
        let ready = self.account.github.wait_for_runners(LIMIT, |runners| {
            runners.len() == 1 && runners[0].online && runners[0].labels != [label]
        });
        ready.map(drop).ok_or_else(|| format!("{:?}", self.account.github.runners()))
    }

    /// The names of the runners that GitHub lists.
    fn names(&self) -> Vec<String> {
        self.account.github.runners().into_iter().map(|runner| runner.name).collect()
    }

    fn expect_no_runner(&self) -> Result<(), String> {
        let left = self.account.github.runners();
        if left.is_empty() { Ok(()) } else { Err(format!("runners are left: {left:?}")) }
    }

    fn only_instance(&self) -> Result<Value, String> {
        let status = self.account.ondeck(&["status", "--json"])?;
        match status["instances"].as_array().map(Vec::as_slice) {
            Some([one]) => Ok(one.clone()),
            _ => Err(format!("not one machine: {status}")),
        }
    }

    fn nothing_left(&self, machine: &Machine) -> Result<(), String> {
        let Account { gateway, .. } = &self.account;
        // The ticket of the machine may be hidden for a while.
        wait("an empty pool", LIMIT, || {
            self.account.ondeck(&["refresh", "--json"]).ok()?;
            let status = self.account.ondeck(&["status", "--json"]).ok()?;
            let is_empty = status["instances"] == serde_json::json!([])
                && status["pool"].as_object()?.values().all(|count| *count == 0);
            is_empty.then_some(())
        })?;
        self.expect_no_runner()?;
        let alive = gateway.ec2().machines().into_iter().filter(|it| it.state.is_up()).count();
        if alive > 0 {
            return Err(format!("machines are up: {alive}"));
        }
        looks::console_has_no_secret(&self.account, machine)?;
        gateway.assert_requests_valid();
        gateway.assert_nothing_denied();
        self.account.github.assert_requests_valid();
        Ok(())
    }
}

/// The only label that a provision has printed.
fn label_of(told: &Value) -> Result<String, String> {
    match told["labels"].as_array().map(Vec::as_slice) {
        Some([Value::String(label)]) => Ok(label.clone()),
        _ => Err(format!("not one label: {told}")),
    }
}

fn expect(found: &Value, wanted: &str) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found} instead of {wanted}")) }
}
