//! Notices: a webhook is told once what refresh finds, and a webhook that fails delays nothing.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Answer, Background, Done, Driven, Home, Receiver, until};

/// The part of the address that must not be seen anywhere.
const SECRET: &str = "T0-s3cret-of-the-address";
const WAITS: &str = "jobs wait for a run that has not asked for machines: 5";

/// A pool, a webhook, and a job of run 5 that waits for a machine.
struct Scene {
    home: Home,
    webhook: Receiver,
    job: Option<Background>,
}

impl Scene {
    fn new() -> Scene {
        let home = Home::with(&[]);
        let job = home.start(&["run", "--run-id", "5", "--", "true"]);
        until("the job is queued", || home.texts("SELECT state FROM jobs") == ["queued"]);
        Scene { home, webhook: Receiver::start(), job: Some(job) }
    }

    fn start(&self, arguments: &[&str]) -> Background {
        let mut command = self.home.command(&[&["refresh", "--json", "-vv"], arguments].concat());
        command.env("ONDECK_NOTICE_WEBHOOK", self.webhook.url(&format!("/services/{SECRET}")));
        Background::start(&mut command)
    }

    /// Refreshes, which never fails because of the webhook, and never shows its address.
    #[track_caller]
    fn refresh(&self, arguments: &[&str]) -> Done {
        let done = self.start(arguments).finish().succeeded();
        assert!(!done.stdout.contains(SECRET), "{}", done.stdout);
        assert!(!done.stderr.contains(SECRET), "{}", done.stderr);
        done
    }

    /// What the webhook was told by this refresh.
    #[track_caller]
    fn told(&self, arguments: &[&str]) -> Vec<Value> {
        self.refresh(arguments);
        self.webhook.take().iter().map(|received| received.json()).collect()
    }

    /// Run 5 gets its machine, and its job ends.
    fn serve(&mut self) {
        self.home.provision("5", 1).succeeded();
        self.job.take().unwrap().finish().succeeded();
    }
}

fn warnings(done: &Done) -> String {
    let json = done.json();
    let warnings = json["warnings"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    warnings.filter(|warning| *warning != WAITS).collect()
}

#[test]
fn a_finding_is_told_once_again_while_it_lasts_and_when_it_has_ended() {
    let mut scene = Scene::new();
    scene.refresh(&[]);
    let received = scene.webhook.take();
    let [first] = &received[..] else { panic!("{received:?}") };
    assert_eq!(first.line, format!("POST /services/{SECRET} HTTP/1.1"));
    assert!(first.headers.iter().any(|it| it.to_lowercase() == "content-type: application/json"));
    let told = first.json();
    assert_eq!(told["text"], format!("ondeck, pool {}\n• new: {WAITS}", pool(&told)));
    let new = &told["ondeck"]["new"];
    assert_eq!((&new[0]["kind"], &new[0]["subject"]), (&json!("stranded-run"), &json!("5")));
    assert_eq!(scene.told(&[]), Vec::<Value>::new(), "once");

    let told = scene.told(&["--notice-repeat-min", "0.0001"]);
    assert_eq!(told.len(), 1, "{told:?}");
    let lasting = &told[0]["ondeck"]["lasting"];
    assert_eq!((&lasting[0]["text"], &lasting[0]["since"]), (&json!(WAITS), &new[0]["since"]));

    scene.serve();
    let told = scene.told(&[]);
    assert_eq!(told.len(), 1, "{told:?}");
    let ended = "\n• resolved: no jobs wait for run 5 any more";
    assert!(told[0]["text"].as_str().unwrap().ends_with(ended), "{told:?}");
    assert_eq!(scene.told(&[]), Vec::<Value>::new());
}

fn pool(told: &Value) -> &str {
    told["ondeck"]["pool"].as_str().unwrap()
}

#[test]
fn a_dead_machine_is_told() {
    let home = Home::with(&["--heartbeat-period-sec=0.2", "--rescue=off"]);
    let webhook = Receiver::start();
    let machine = home.provision("1", 1).succeeded().ids().concat();
    crate::harness::signal(home.agents()[&machine], rustix::process::Signal::KILL);
    let mut told = Vec::new();
    until("the dead machine is told", || {
        let mut command = home.command(&["refresh"]);
        let done = command.env("ONDECK_NOTICE_WEBHOOK", webhook.url("/x"));
        Background::start(done).finish().succeeded();
        told = webhook.take();
        !told.is_empty()
    });
    let new = &told[0].json()["ondeck"]["new"];
    assert_eq!(new[0]["kind"], "dead-machine", "{new}");
    assert_eq!(new[0]["subject"], machine.as_str(), "{new}");
}

#[test]
fn a_webhook_that_refuses_is_a_warning_and_is_told_by_the_next_refresh() {
    let scene = Scene::new();
    let elsewhere = Receiver::start();
    const AGAIN: &str = "a notice was not sent, the next refresh tries again: ";
    for (answer, reason) in [
        (Answer::Refused(500, "rollup_error"), "the receiver answers 500 rollup_error"),
        (Answer::Refused(404, "<b>no</b>"), "the receiver answers 404"),
        (
            Answer::Redirected(elsewhere.url("/")),
            "the receiver redirects, which is not followed: 307",
        ),
        (Answer::Silence, "no answer within 5 s"),
    ] {
        scene.webhook.answers(answer);
        assert_eq!(warnings(&scene.refresh(&[])), format!("{AGAIN}{reason}"));
        assert_eq!(scene.webhook.take().len(), 1, "{reason}: it was asked once");
    }
    assert_eq!(elsewhere.count(), 0, "it was not redirected");
    scene.webhook.answers(Answer::Accepted);
    assert_eq!(scene.told(&[]).len(), 1);
    assert_eq!(scene.told(&[]).len(), 0);
}

/// A refresh under a limit has to be over in time, so it sends only if there is time.
#[test]
fn a_refresh_under_a_limit_tells_too() {
    let scene = Scene::new();
    assert_eq!(scene.told(&["--time-limit-sec", "45"]).len(), 1);
}

#[test]
fn a_refresh_that_is_killed_while_it_tells_is_followed_by_one_that_tells_again() {
    let scene = Scene::new();
    scene.webhook.answers(Answer::Silence);
    let killed = scene.start(&[]);
    until("it tells", || scene.webhook.count() == 1);
    killed.kill();
    scene.webhook.answers(Answer::Accepted);
    scene.webhook.take();
    until("it is told again", || scene.told(&[]).len() == 1);
    assert_eq!(scene.told(&[]).len(), 0);
}

#[test]
fn an_address_that_cannot_be_used_is_a_warning_without_the_address() {
    let scene = Scene::new();
    for address in ["http://example.com/", "https://me:pass@example.com/", "example.com/"] {
        let address = format!("{address}{SECRET}");
        let mut command = scene.home.command(&["refresh", "--json"]);
        command.env("ONDECK_NOTICE_WEBHOOK", &address);
        let done = Background::start(&mut command).finish().succeeded();
        let expected = "no notices are sent: notice-webhook is neither https without a user nor http \
                        on this computer";
        assert_eq!(warnings(&done), expected, "{address}");
        assert!(!(done.stdout + &done.stderr).contains(SECRET), "{address}");
    }
}

/// Every file under a folder.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files(&path, found),
            kind if kind.is_file() => {
                found.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
            }
            _ => {}
        }
    }
}

#[test]
fn the_address_is_in_no_file_of_the_pool_and_github_is_told_to_mask_it() {
    let scene = Scene::new();
    let (output, summary) =
        (scene.home.outside().join("output"), scene.home.outside().join("summary"));
    let mut command = scene.home.command(&["refresh"]);
    command
        .env("ONDECK_NOTICE_WEBHOOK", scene.webhook.url(&format!("/services/{SECRET}")))
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_OUTPUT", &output)
        .env("GITHUB_STEP_SUMMARY", &summary);
    let done = Background::start(&mut command).finish().succeeded();
    assert_eq!(scene.webhook.take().len(), 1);
    let masks = done.stderr.lines().filter(|line| line.contains(SECRET));
    let masks: Vec<&str> = masks.collect();
    assert!(masks.iter().all(|line| line.starts_with("::add-mask::")), "{masks:?}");
    assert_eq!(masks.len(), 1, "{}", done.stderr);
    scene.webhook.answers(Answer::Refused(500, ""));
    scene.refresh(&["--notice-repeat-min", "0.0001"]);
    let mut found = Vec::new();
    files(scene.home.outside(), &mut found);
    assert!(found.iter().any(|(name, _)| name.ends_with("ondeck.db")), "{found:?}");
    for (name, bytes) in found {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(SECRET), "the address is in {name}");
    }
}
