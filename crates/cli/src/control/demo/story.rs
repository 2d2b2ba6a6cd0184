//! The story, chapter by chapter.

use std::collections::BTreeMap;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::State;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::harness::{DemoHarness, Done};
use super::narrator::Narrator;
use super::{audit, failed};

/// Deadlines for a story of under a minute. Only their size differs from real life.
const SETTINGS: [&str; 19] = [
    "refresh",
    "--local-boot-ms=1500",
    "--heartbeat-period-sec=0.5",
    "--claim-registration-timeout-sec=3",
    "--claim-timeout-sec=20",
    "--created-timeout-sec=20",
    "--validation-timeout-sec=15",
    "--idle-time-sec=40",
    "--max-runtime-min=1",
    "--release-timeout-sec=10",
    "--self-termination-grace-sec=1",
    "--boot-deadline-sec=5",
    "--agent-poll-waiting-sec=0.1",
    "--agent-poll-running-sec=0.2",
    "--signal-poll-sec=0.05",
    "--ticket-hold-sec=5",
    "--pickup-patience-sec=0.5",
    "--retention-min=60",
    "--registration-token-refresh-min=30",
];

/// The rows of the closing table.
pub(super) struct Summary {
    rows: Vec<Vec<String>>,
}

struct Story<'a> {
    harness: &'a DemoHarness,
    narrator: &'a Narrator,
    summary: Summary,
}

/// Plays the whole story. Fails at the first claim that does not hold.
pub(super) async fn play(harness: &DemoHarness, narrator: &Narrator) -> Result<(), Failure> {
    let mut story = Story { harness, narrator, summary: Summary { rows: Vec::new() } };
    story.an_empty_pool().await?;
    let cold = story.a_cold_provision().await?;
    story.jobs_find_their_machines().await?;
    story.a_warm_provision(cold).await?;
    story.a_race().await?;
    story.a_machine_dies().await?;
    story.a_provision_is_killed().await?;
    story.one_expires_and_is_reaped().await?;
    story.one_terminates_itself().await?;
    story.a_last_refresh().await?;
    story.closing().await
}

impl Story<'_> {
    async fn an_empty_pool(&mut self) -> Result<(), Failure> {
        self.narrator.chapter("There is no pool yet. Refresh creates one.")?;
        self.narrator.command(&["refresh", "--local-boot-ms=1500", "--idle-time-sec=40", "..."]);
        let done = self.harness.ondeck(&SETTINGS).await?;
        self.expect(&done, 0, "refresh")?;
        let status = self.status().await?;
        self.hold(live(&status).is_empty(), "the pool is empty, no machine is alive")
    }

    async fn a_cold_provision(&mut self) -> Result<u64, Failure> {
        self.narrator
            .chapter("Run 101 requests two machines. The pool is empty, so both are launched.")?;
        let done = self.provision("101", 2).await?;
        self.hold(sources(&done) == [("cold", 2)].into(), "two machines, both cold")?;
        Ok(total_ms(&done))
    }

    async fn jobs_find_their_machines(&mut self) -> Result<(), Failure> {
        self.narrator.chapter("Jobs run only on machines with the label of their run.")?;
        let hello = "echo \"run $ONDECK_RUN_ID on $ONDECK_INSTANCE_ID\"";
        let early = ["run", "--run-id", "102", "--", "sh", "-c", hello];
        self.narrator.command(&early);
        let early = self.harness.start(&early)?;
        self.narrator
            .aside("run 102 has no machine yet, so its job waits, although two machines are free");
        let job = ["run", "--run-id", "101", "--", "sh", "-c", hello];
        self.narrator.command(&job);
        let done = self.harness.ondeck(&job).await?;
        self.narrator.say(done.stdout.trim_end());
        self.hold(
            done.code == 0 && done.stdout.starts_with("run 101 on i-"),
            "the job ran on a machine of run 101",
        )?;

        self.release("101", &[]).await?;
        let done = self.provision("102", 1).await?;
        self.hold(sources(&done) == [("warm", 1)].into(), "run 102 gets one of them, warm")?;
        let output = early
            .wait_with_output()
            .await
            .map_err(|error| failed(format!("the waiting job was lost: {error}")))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.narrator.say(text.trim_end());
        let mine = ids(&done).first().map(ToString::to_string).unwrap_or_default();
        self.hold(text.trim_end() == format!("run 102 on {mine}"), "the waiting job ran on it")?;
        self.release("102", &[]).await
    }

    async fn a_warm_provision(&mut self, cold: u64) -> Result<(), Failure> {
        self.narrator.chapter("Run 103 requests two machines. Both are warm.")?;
        let done = self.provision("103", 2).await?;
        self.hold(sources(&done) == [("warm", 2)].into(), "two machines, both from the pool")?;
        let warm = total_ms(&done).max(1);
        let times = cold as f64 / warm as f64;
        self.narrator
            .good(&format!("cold took {cold} ms, warm {warm} ms: {times:.1} times as fast"));
        self.release("103", &[]).await
    }

    async fn a_race(&mut self) -> Result<(), Failure> {
        self.narrator.chapter("Runs 105 and 106 compete for the last idle machine.")?;
        let done = self.provision("104", 1).await?;
        self.expect(&done, 0, "provision")?;
        self.narrator.command(&["provision", "--run-id", "105", "&"]);
        self.narrator.command(&["provision", "--run-id", "106"]);
        let (one, other) = tokio::join!(
            self.harness.ondeck(&["provision", "--run-id", "105"]),
            self.harness.ondeck(&["provision", "--run-id", "106"]),
        );
        let (one, other) = (one?, other?);
        self.record("105", &one);
        self.record("106", &other);
        let winner = if sources(&one).contains_key("warm") { "105" } else { "106" };
        let mut both: Vec<BTreeMap<&str, usize>> = vec![sources(&one), sources(&other)];
        both.sort();
        let split = both == [[("cold", 1)].into(), [("warm", 1)].into()];
        self.hold(split, &format!("run {winner} claimed it; the other run got a new machine"))?;
        self.hold(ids(&one) != ids(&other), "the two runs do not share a machine")?;
        for run in ["104", "105", "106"] {
            self.release(run, &[]).await?;
        }
        Ok(())
    }

    async fn a_machine_dies(&mut self) -> Result<(), Failure> {
        self.narrator.chapter(
            "An idle machine dies. The next claim notices, terminates it and takes another.",
        )?;
        let status = self.status().await?;
        let victim = oldest_in_pool(&status)?;
        kill(self.harness, &victim).await?;
        self.narrator
            .say(&format!("kill -9 {victim}, the next to be claimed; the pool still lists it"));
        let done = self.provision("107", 1).await?;
        self.hold(sources(&done) == [("warm", 1)].into(), "run 107 gets a warm machine")?;
        self.hold(!ids(&done).contains(&victim), "it is not the dead machine")?;
        let events = self.harness.local()?.store.events().await?;
        let reap = events.iter().find(|e| e.instance == victim && e.to == State::Terminated);
        let why = reap.map_or("", |event| event.why.as_str());
        self.hold(!why.is_empty(), &format!("the dead machine was terminated: {why}"))?;
        self.release("107", &[]).await
    }

    async fn a_provision_is_killed(&mut self) -> Result<(), Failure> {
        self.narrator.chapter("A provision is killed half-way, as in a cancelled workflow.")?;
        let arguments = ["provision", "--run-id", "108", "--instance-count", "4"];
        self.narrator.command(&arguments);
        let mut provision = self.harness.start(&arguments)?;
        let harness = self.harness;
        harness
            .until("run 108 has claimed and launched", || async move {
                let status = harness.ondeck(&["status"]).await?.json;
                let states = states_of_run(&status, "108");
                Ok(states.contains_key("claimed") && states.contains_key("created"))
            })
            .await?;
        provision.kill().await.map_err(|error| failed(format!("not killed: {error}")))?;
        let status = self.status().await?;
        let states = states_of_run(&status, "108");
        let created = states.get("created").copied().unwrap_or_default();
        let was_claimed = |one: &&Value| one["runId"] == "108" && one["state"] == "claimed";
        let claimed: Vec<Value> =
            instances(&status).filter(was_claimed).map(|one| one["instanceId"].clone()).collect();
        let left: Vec<String> = states.iter().map(|(state, n)| format!("{n} {state}")).collect();
        self.narrator.say(&format!("kill -9; it leaves {} machines behind", left.join(" and ")));
        self.summary.rows.push(row("108", "4", "", "", "killed"));

        self.release("108", &[]).await?;
        self.narrator.command(&["refresh"]);
        let done = self.harness.ondeck(&["refresh"]).await?;
        let reaped = done.json["reaped"].as_array().map_or(0, Vec::len);
        let told = format!("refresh terminates those that were new: {created}");
        self.hold(reaped == created, &told)?;
        let status = self.status().await?;
        self.hold(states_of_run(&status, "108").is_empty(), "no machine of run 108 is left")?;
        let is_idle = |id: &Value| {
            instances(&status).any(|one| one["instanceId"] == *id && one["state"] == "idle")
        };
        let told = format!("release has returned the claimed ones to the pool: {}", claimed.len());
        self.hold(claimed.iter().all(is_idle), &told)
    }

    async fn one_expires_and_is_reaped(&mut self) -> Result<(), Failure> {
        self.narrator.chapter("An idle machine exceeds its idle time. Refresh terminates it.")?;
        let done = self.provision("109", 1).await?;
        let id = ids(&done);
        self.release("109", &["--idle-time-sec", "1"]).await?;
        let (harness, id) = (self.harness, &id);
        self.narrator.command(&["refresh"]);
        harness
            .until("the machine is reaped", || async move {
                harness.ondeck(&["refresh"]).await?;
                let events = harness.local()?.store.events().await?;
                Ok(events.iter().any(|e| e.to == State::Terminated && id.contains(&e.instance)))
            })
            .await?;
        self.hold(
            harness.machines().await?.iter().all(|m| !id.contains(m)),
            "it is terminated, and its process is gone",
        )
    }

    async fn one_terminates_itself(&mut self) -> Result<(), Failure> {
        self.narrator.chapter(
            "Another one exceeds its idle time, and no refresh runs. It terminates itself.",
        )?;
        let done = self.provision("110", 1).await?;
        let id = ids(&done);
        self.release("110", &["--idle-time-sec", "0.5"]).await?;
        let (harness, id) = (self.harness, &id);
        harness
            .until("the machine terminates itself", || async move {
                Ok(harness.machines().await?.iter().all(|machine| !id.contains(machine)))
            })
            .await?;
        self.hold(true, "after its threshold and the grace period, its process is gone")
    }

    async fn a_last_refresh(&mut self) -> Result<(), Failure> {
        self.narrator.chapter("A last refresh marks that machine as terminated.")?;
        self.narrator.command(&["refresh"]);
        let done = self.harness.ondeck(&["refresh"]).await?;
        self.expect(&done, 0, "refresh")?;
        self.hold(live(&self.status().await?).is_empty(), "the pool is empty again")
    }

    async fn closing(&mut self) -> Result<(), Failure> {
        self.narrator.chapter("Summary of the runs.")?;
        let header = ["run", "requested", "warm", "cold", "ready after"];
        self.narrator
            .say(&crate::control::report::table(&header, std::mem::take(&mut self.summary.rows)));
        self.narrator.chapter("Audit of the event log, the store and the process list.")?;
        let mut sound = true;
        for finding in audit::audit(self.harness).await? {
            match finding.problem {
                None => self.narrator.good(&finding.claim),
                Some(problem) => {
                    sound = false;
                    self.narrator.bad(&format!("{}: {problem}", finding.claim));
                }
            }
        }
        if sound { Ok(()) } else { Err(failed("the audit found violations")) }
    }

    async fn provision(&mut self, run: &str, count: u64) -> Result<Done, Failure> {
        let count = count.to_string();
        let arguments = ["provision", "--run-id", run, "--instance-count", &count];
        self.narrator.command(&arguments);
        let done = self.harness.ondeck(&arguments).await?;
        self.expect(&done, 0, "provision")?;
        self.record(run, &done);
        let sources: Vec<String> =
            sources(&done).iter().map(|(source, n)| format!("{n} {source}")).collect();
        self.narrator.say(&format!("{} after {} ms", sources.join(", "), total_ms(&done)));
        Ok(done)
    }

    fn record(&mut self, run: &str, done: &Done) {
        let count = |source| sources(done).get(source).copied().unwrap_or(0).to_string();
        let ready = format!("{} ms", total_ms(done));
        let asked = done.json["requested"].to_string();
        self.summary.rows.push(row(run, &asked, &count("warm"), &count("cold"), &ready));
    }

    async fn release(&mut self, run: &str, options: &[&str]) -> Result<(), Failure> {
        let mut arguments = vec!["release", "--run-id", run];
        arguments.extend(options);
        self.narrator.command(&arguments);
        let done = self.harness.ondeck(&arguments).await?;
        self.expect(&done, 0, "release")
    }

    async fn status(&self) -> Result<Value, Failure> {
        Ok(self.harness.ondeck(&["status"]).await?.json)
    }

    fn expect(&self, done: &Done, code: i32, what: &str) -> Result<(), Failure> {
        if done.code == code {
            return Ok(());
        }
        let message = done.json["error"]["message"].as_str().unwrap_or("no message").to_owned();
        Err(failed(format!("{what} exited with {} instead of {code}: {message}", done.code)))
    }

    fn hold(&self, holds: bool, claim: &str) -> Result<(), Failure> {
        if holds {
            self.narrator.good(claim);
            return Ok(());
        }
        self.narrator.bad(claim);
        Err(failed(format!("does not hold: {claim}")))
    }
}

fn row(run: &str, asked: &str, warm: &str, cold: &str, ready: &str) -> Vec<String> {
    [run, asked, warm, cold, ready].map(str::to_owned).to_vec()
}

fn instances(json: &Value) -> impl Iterator<Item = &Value> {
    json["instances"].as_array().into_iter().flatten()
}

fn ids(done: &Done) -> Vec<InstanceId> {
    live(&done.json)
}

/// The ids of all instances in an answer; status lists live ones only.
fn live(json: &Value) -> Vec<InstanceId> {
    let ids = instances(json).filter_map(|instance| instance["instanceId"].as_str());
    ids.filter_map(|id| InstanceId::new(id).ok()).collect()
}

fn sources(done: &Done) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for source in instances(&done.json).filter_map(|instance| instance["source"].as_str()) {
        *counts.entry(source).or_default() += 1;
    }
    counts
}

fn total_ms(done: &Done) -> u64 {
    done.json["timings"]["totalMs"].as_u64().unwrap_or(0)
}

fn states_of_run(status: &Value, run: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for instance in instances(status).filter(|instance| instance["runId"] == run) {
        *counts.entry(instance["state"].as_str().unwrap_or("").to_owned()).or_default() += 1;
    }
    counts
}

/// The machine with the oldest ticket, which will be claimed next.
fn oldest_in_pool(status: &Value) -> Result<InstanceId, Failure> {
    instances(status)
        .filter(|instance| instance["state"] == "idle")
        .min_by_key(|instance| instance["ticketedAt"].to_string())
        .and_then(|instance| InstanceId::new(instance["instanceId"].as_str()?).ok())
        .ok_or_else(|| failed("no machine is idle"))
}

/// Kills a machine's agent with SIGKILL.
async fn kill(harness: &DemoHarness, id: &InstanceId) -> Result<(), Failure> {
    let pid = harness.local()?.pid(id).await?;
    let pid = pid.and_then(Pid::from_raw).ok_or_else(|| failed(format!("no process of {id}")))?;
    rustix::process::kill_process(pid, Signal::KILL)
        .map_err(|error| failed(format!("not killed: {id}: {error}")))
}
