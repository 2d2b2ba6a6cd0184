//! `ondeck simulate`: its sources, what it prints, and whether a pool behaves as it has predicted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ondeck_core::model::requirements::UsageClass;
use ondeck_standin::{GitHub, GitHubOptions, Permission};
use serde_json::{Value, json};

use crate::harness::{Done, Driven, Home};
use crate::json::assert_valid;

const TOKEN: &str = "ghp_simulateToken0123456789";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/histories").join(name)
}

/// Runs the command on a history of these lines, which are written beside the home.
fn simulate(home: &Home, lines: &str, arguments: &[&str]) -> Done {
    let file = home.outside().join("history.csv");
    fs::write(&file, lines).unwrap();
    let file = file.display().to_string();
    home.ondeck(&[&["simulate", "--history", &file], arguments].concat())
}

const SMALL: &str = "start,machines,minutes,class\n2026-11-02T08:30:00Z,2,10,large\n\
                     2026-11-02T08:50:00Z,2,10,large\n2026-11-02T09:40:00Z,1,5,xlarge\n";

#[test]
fn the_generated_history_of_the_examples_follows_from_its_seed() {
    let home = Home::bare();
    let printed = home.ondeck(&["simulate", "--generate", "1", "--print-history"]).succeeded();
    let kept = fs::read_to_string(example("office-week.csv")).unwrap();
    assert!(printed.stdout == kept, "examples/histories/office-week.csv is not of seed 1");
    let other = home.ondeck(&["simulate", "--generate", "2", "--print-history"]).succeeded();
    assert_ne!(other.stdout, kept);
    assert!(!home.dir().exists(), "it makes no home");
}

#[test]
fn every_history_of_the_examples_can_be_read() {
    let home = Home::bare();
    let folder = example("");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path().display().to_string();
        if file.ends_with(".csv") {
            let read = home.ondeck(&["simulate", "--history", &file, "--print-history"]);
            assert!(read.succeeded().stdout.lines().count() > 50, "{file}");
            count += 1;
        }
    }
    assert_eq!(count, 3);
}

#[test]
fn a_bad_history_is_refused_with_its_line() {
    let home = Home::bare();
    let done = simulate(&home, &SMALL.replace(",1,5,", ",none,5,"), &[]).exited(2);
    assert!(
        done.stderr.contains("history.csv:4: machines is no number of machines: \"none\"\n"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("hint: write a whole number from 1 to 1000\n"), "{}", done.stderr);
    let done = home.ondeck(&["simulate", "--history", "no/such/file", "--json"]).exited(2);
    assert_eq!(done.json()["error"]["kind"], json!("invalid-input"));
    for (arguments, words) in [
        (&["simulate"][..], "no history given"),
        (&["simulate", "--generate", "1", "--idle-times-min", "5 5"], "names one twice: \"5\""),
        (&["simulate", "--generate", "1", "--min-idle-window", "weekdays"], "begins neither"),
        (&["simulate", "--from-github", "--repository", "acme/web"], "no token for GitHub given"),
    ] {
        let done = home.ondeck(arguments).exited(2);
        assert!(done.stderr.contains(words), "{}", done.stderr);
    }
}

#[test]
fn the_recommended_lines_are_a_file_of_a_pool() {
    let home = Home::bare();
    let folder = home.outside().display().to_string();
    let grid = [
        "--json",
        "--idle-times-min=5 20",
        "--min-idle-counts=1",
        "--min-idle-window=Mon-Fri 08:00-18:00 Europe/Berlin",
        "--usage-classes=spot",
        "--plot",
        &folder,
    ];
    let done = simulate(&home, SMALL, &grid).succeeded();
    assert_valid("simulate", &done);
    let answer = done.json();
    let points = answer["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert_eq!(answer["history"]["resourceClasses"], json!(["large", "xlarge"]));
    for point in points {
        assert_eq!((&point["runs"], &point["failed"]), (&json!(3), &json!(0)), "{answer:#}");
    }
    let chosen = &points[usize::try_from(answer["recommended"].as_u64().unwrap()).unwrap()];

    let file = home.outside().join("ondeck.toml");
    fs::write(&file, answer["ondeckToml"].as_str().unwrap()).unwrap();
    let file = file.display().to_string();
    home.ondeck(&["config", "check", "--config", &file]).succeeded();
    let shown = home.ondeck(&["config", "show", "--json", "--config", &file]).succeeded().json();
    let settings = shown["settings"].as_array().unwrap();
    let value =
        |name: &str| settings.iter().find(|it| it["setting"] == name).unwrap()["value"].clone();
    let seconds = chosen["idleTimeSeconds"].as_f64().unwrap().to_string();
    assert_eq!(value("idle-time-sec"), json!(seconds), "{shown:#}");
    let minimum = value("min-idle");
    let minimum = minimum.as_str().unwrap();
    for class in ["large", "xlarge"] {
        let entry = format!("Mon-Fri 08:00-18:00 Europe/Berlin {class}/spot=1");
        assert!(minimum.contains(&entry), "{shown:#}");
    }

    for name in ["simulate-light.svg", "simulate-dark.svg"] {
        let plot = fs::read_to_string(home.outside().join(name)).unwrap();
        assert!(plot.starts_with("<svg") && plot.contains("recommended: spot"), "{plot}");
    }
}

#[test]
fn the_same_call_prints_the_same_text() {
    let home = Home::bare();
    let grid = ["--idle-times-min=5 20", "--min-idle-counts=0 1", "--spot-interruptions=500"];
    let [first, again] = [0, 1].map(|_| simulate(&home, SMALL, &grid).succeeded().stdout);
    assert_eq!(first, again);
    assert!(first.contains("Recommended (*): "), "{first}");
    assert!(first.contains("[times]\nidle-time-sec = "), "{first}");
    assert_eq!(first.lines().filter(|line| line.starts_with("* ")).count(), 1, "{first}");
}

#[test]
fn the_runs_of_a_repository_are_a_history() {
    let github = GitHub::start(GitHubOptions::default());
    github.allow(TOKEN, "acme/web", &[Permission::ActionsRead]);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let jobs = [(minutes(1), minutes(10)), (minutes(2), minutes(4))];
    github.add_past_run("acme/web", "101", minutes(300), &jobs);
    github.add_past_run("acme/web", "102", minutes(200), &[(minutes(0), minutes(6))]);
    let home = Home::bare();
    let read = |token: &str| {
        let url = github.url();
        let arguments = [
            "simulate",
            "--from-github",
            "--repository=acme/web",
            "--github-url",
            url,
            "--print-history",
        ];
        let mut command = home.command(&arguments);
        crate::harness::Background::start(command.env("ONDECK_GITHUB_TOKEN", token)).finish()
    };
    let printed = read(TOKEN).succeeded().stdout;
    let runs: Vec<&str> =
        printed.lines().skip(1).map(|line| line.split_once(',').unwrap().1).collect();
    assert_eq!(runs, ["2,10,large", "1,6,large"], "{printed}");
    simulate(&home, &printed, &["--idle-times-min=5", "--min-idle-counts=0"]).succeeded();

    let refused = read("ghp_unknown").exited(7);
    assert!(!refused.stderr.contains("ghp_unknown"), "{}", refused.stderr);
}

/// A run of a history that is played: when it begins, its machines, and how long it takes, in minutes
/// of the prediction and seconds of the play.
type Played = (u64, u32, u64);

/// The warm share that is predicted for the recommended point, and the point. It tells something: neither
/// nearly no machine is warm, nor nearly each.
fn recommended(played: &[Played], grid: &[&str]) -> (f64, Value) {
    let mut lines = "start,machines,minutes\n".to_owned();
    for (start, machines, minutes) in played {
        let (hour, minute) = (8 + start / 60, start % 60);
        lines += &format!("2026-11-02T{hour:02}:{minute:02}:00Z,{machines},{minutes}\n");
    }
    let home = Home::bare();
    let grid = [&["--json", "--aim-percent=40"], grid].concat();
    let answer = simulate(&home, &lines, &grid).succeeded().json();
    let chosen = answer["recommended"].as_u64().unwrap();
    let point = answer["points"][usize::try_from(chosen).unwrap()].clone();
    let predicted = point["warmShare"].as_f64().unwrap();
    assert!((0.3..0.8).contains(&predicted), "it tells something: {answer:#}");
    (predicted, point)
}

/// A sixtieth of the idle time of a point, for a play in which a second stands for a minute.
fn idle_time(point: &Value) -> String {
    format!("--idle-time-sec={}", point["idleTimeSeconds"].as_f64().unwrap() / 60.0)
}

#[track_caller]
fn assert_as_predicted(predicted: f64, measured: f64) {
    assert!(
        (predicted - measured).abs() <= 0.10,
        "predicted {predicted:.3}, measured {measured:.3}"
    );
}

#[test]
fn a_pool_with_the_recommended_settings_is_as_warm_as_predicted() {
    let played = [(0, 2, 2), (8, 2, 2), (16, 3, 2), (46, 1, 2), (54, 2, 2), (62, 1, 2)];
    let grid = ["--idle-times-min=3 14 60", "--min-idle-counts=0"];
    let (predicted, point) = recommended(&played, &grid);
    assert_eq!(point["idleTimeSeconds"], json!(14.0 * 60.0), "neither extreme: {point:#}");
    let home = Home::with(&[&idle_time(&point)]);
    assert_as_predicted(predicted, play(&home, &played, UsageClass::OnDemand, None));
}

/// Without the minimum no run finds an idle machine: they are further apart than the idle time.
#[test]
fn a_pool_with_the_recommended_minimum_and_purchase_option_is_as_warm_as_predicted() {
    let played = [(0, 1, 2), (11, 3, 2), (22, 1, 2), (33, 3, 2), (44, 1, 2)];
    let grid = ["--idle-times-min=3", "--min-idle-counts=0 1", "--usage-classes=on-demand spot"];
    let (predicted, point) = recommended(&played, &grid);
    assert_eq!((&point["minIdle"], &point["usageClass"]), (&json!(1), &json!("spot")), "{point:#}");
    let home = Home::with(&[&idle_time(&point), "--min-idle=large/spot=1"]);
    // Five minutes are the default of --refresh-every-min.
    let every = Some(Duration::from_secs(5));
    assert_as_predicted(predicted, play(&home, &played, UsageClass::Spot, every));
    let spot = "SELECT count(*) FROM instances WHERE usage_class <> 'spot'";
    assert_eq!(home.number(spot), 0, "minimum and runs are of the same purchase option");
}

/// Plays a history in real time with the built program, and returns the share of machines that came
/// from the pool. A history says when its runs begin, so this waits for those moments. `refreshed` is
/// how often the pool is refreshed.
fn play(home: &Home, played: &[Played], usage: UsageClass, refreshed: Option<Duration>) -> f64 {
    let (began, usage) = (Instant::now(), format!("--usage-class={usage}"));
    let usage = usage.as_str();
    let end = began + Duration::from_secs(played.iter().map(|(start, _, _)| *start).max().unwrap());
    let sources: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(move || {
            let moments =
                refreshed.into_iter().flat_map(|every| (1..).map(move |n| began + every * n));
            for due in moments.take_while(|due| *due <= end) {
                pass(due.saturating_duration_since(Instant::now()));
                home.refresh(&[]);
            }
        });
        let runs: Vec<_> = played
            .iter()
            .enumerate()
            .map(|(number, (start, machines, length))| {
                scope.spawn(move || {
                    let due = began + Duration::from_secs(*start);
                    pass(due.saturating_duration_since(Instant::now()));
                    let run = (100 + number).to_string();
                    let machines = machines.to_string();
                    let wanted = ["--run-id", &run, "--instance-count", &machines, usage];
                    let provision = [&["provision", "--json"], &wanted[..]].concat();
                    let provisioned = home.ondeck(&provision).succeeded();
                    pass(Duration::from_secs(*length));
                    home.release(&run).succeeded();
                    provisioned.sources()
                })
            })
            .collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    let warm = sources.iter().filter(|source| *source == "warm").count();
    warm as f64 / sources.len() as f64
}

#[expect(
    clippy::disallowed_methods,
    reason = "a history is played at its times; there is no event"
)]
fn pass(span: Duration) {
    std::thread::sleep(span);
}
