//! The command line of the simulation. `cargo xtask sim` builds and runs it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ondeck_sim::{
    CallFault, Case, History, Judge, Plan, SCENES, ScaleOptions, Scenario, Scene, explore, grouped,
    play, play_scale, play_seeds, readable_journal, shrink, sweep, violation_report,
};

const HELP: &str = "\
Usage: cargo xtask sim [OPTIONS]
  --seeds N       play the histories of N seeds (default 1000)
  --from SEED     start with this seed (default 0)
  --fresh N       also play N seeds derived from the current time;
                  with --seeds 0, play only these
  --violations N  stop after N seeds that violate an invariant (default 5)
  --seed SEED     play one history and print it; if it violates an invariant, shrink it first
  --whole         with --seed, print every event whole, also reads and heartbeats
  --exhaustive    explore every history of the small scenes instead of playing seeds
  --scene NAME    explore only this scene
  --brief         explore only the scenes that take seconds
  --sweep         inject each fault into each call of each scenario's process
  --scenario NAME, --call N, --fault KIND
                  sweep only these; call 0 prints the scenario without a fault
  --scale         play an hour of 10,000 machines and 2,000 runs with a refresh every minute, and count
                  calls and units by partition key; fail if a key is above 80 % of its limit
  --judge         play the seeds, the sweep or the brief scenes until an invariant is violated,
                  and print only which found it
";

/// The exit code if an invariant was violated.
const VIOLATED: u8 = 1;
/// The exit code if the command line is invalid.
const INVALID: u8 = 2;
/// The search of a scene stops at this many states, because more would not fit into memory.
const MAX_STATES: u64 = 50_000_000;

#[derive(Default)]
struct Options {
    seeds: u64,
    from: u64,
    fresh: u64,
    one: Option<u64>,
    whole: bool,
    violations: usize,
    exhaustive: bool,
    brief: bool,
    scene: Option<String>,
    sweep: bool,
    scale: bool,
    judge: bool,
    scenario: Option<&'static str>,
    call: Option<u64>,
    fault: Option<CallFault>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("error: {problem}\nhint: cargo xtask sim --help");
            return ExitCode::from(INVALID);
        }
    };
    if let Some(seed) = options.one {
        return replay(seed, options.whole);
    }
    if options.judge {
        return run_judge(&options);
    }
    if options.exhaustive {
        return explore_scenes(options.scene.as_deref(), options.brief);
    }
    if options.sweep {
        return run_sweep(&options);
    }
    if options.scale {
        return run_scale();
    }
    let mut passed =
        options.seeds == 0 || play_range(options.from, options.seeds, options.violations);
    if passed && options.fresh > 0 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // Far above the seeds that are counted from 0.
        let from = (1 << 40) + since.map_or(0, |since| since.as_secs() * 1000);
        passed = play_range(from, options.fresh, options.violations);
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { seeds: 1000, violations: 5, ..Options::default() };
    while let Some(arg) = args.next() {
        let mut word = || args.next().ok_or_else(|| format!("a value must follow: {arg}"));
        let mut number = || {
            let value = word()?;
            value.parse().map_err(|_| format!("{arg} is not a number: {value}"))
        };
        match arg.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--fresh" => options.fresh = number()?,
            "--seed" => options.one = Some(number()?),
            "--whole" => options.whole = true,
            "--violations" => options.violations = usize::try_from(number()?).unwrap_or(5),
            "--exhaustive" => options.exhaustive = true,
            "--brief" => {
                options.exhaustive = true;
                options.brief = true;
            }
            "--scene" => {
                options.exhaustive = true;
                options.scene = Some(word()?);
            }
            "--sweep" => options.sweep = true,
            "--scale" => options.scale = true,
            "--judge" => options.judge = true,
            "--call" => options.call = Some(number()?),
            "--scenario" => options.scenario = Some(scenario(&word()?)?),
            "--fault" => options.fault = Some(call_fault(&word()?)?),
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("unknown option: {arg}")),
        }
    }
    Ok(Some(options))
}

fn run_scale() -> ExitCode {
    let started = Instant::now();
    let result = play_scale(&ScaleOptions::default());
    print!("{}", result.shown());
    println!("\nplayed in {:.0} s", started.elapsed().as_secs_f64());
    if result.keys_above_limit().is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) }
}

fn run_judge(options: &Options) -> ExitCode {
    let judge = match (options.sweep, options.exhaustive) {
        (true, _) => Judge::Sweep,
        (_, true) => Judge::BriefScenes,
        _ => Judge::Seeds(options.from..options.from + options.seeds),
    };
    match judge.judge() {
        Some(how) => {
            println!("found by {how}");
            ExitCode::from(VIOLATED)
        }
        None => {
            println!("no invariant violated");
            ExitCode::SUCCESS
        }
    }
}

fn play_range(from: u64, count: u64, max_violations: usize) -> bool {
    let started = Instant::now();
    println!("playing the histories of seeds {from} to {}", from + count - 1);
    let played = play_seeds(from..from + count, max_violations);
    print!("{}", played.totals.shown());
    println!("  {:<16} {:.1} s", "took", started.elapsed().as_secs_f64());
    println!("  {:<16} {}", "violations", grouped(played.violations.len() as u64));
    if let Some((seed, history)) = played.violations.first() {
        print!("{}", shrunk_report(*seed, history).0);
    }
    for (seed, history) in played.violations.iter().skip(1) {
        let words = history.violation.as_ref().map(ToString::to_string).unwrap_or_default();
        println!("seed {seed} also violates an invariant: {words}");
    }
    played.violations.is_empty()
}

/// What a violation consists of, and the journal of the shrunk history that it is about.
fn shrunk_report(seed: u64, history: &History) -> (String, Vec<String>) {
    let Some(violation) = &history.violation else { return <(String, Vec<String>)>::default() };
    let shrunk = shrink(&Plan::of(seed), violation.invariant);
    (format!("\n{}", violation_report(seed, history, &shrunk)), shrunk.history.journal)
}

fn replay(seed: u64, whole: bool) -> ExitCode {
    let history = play(&Plan::of(seed), true);
    let violates = history.violation.is_some();
    let (report, journal) = match violates {
        true => shrunk_report(seed, &history),
        false => (String::new(), history.journal),
    };
    print!("{report}");
    let lines = match (whole, violates) {
        (true, _) => journal,
        (false, true) => Vec::new(),
        (false, false) => readable_journal(&journal),
    };
    for line in lines {
        println!("{line}");
    }
    if violates {
        return ExitCode::from(VIOLATED);
    }
    println!("{} events, no invariant violated", grouped(history.steps));
    ExitCode::SUCCESS
}

/// Explores the scenes, one on each processor at a time.
fn explore_scenes(only: Option<&str>, brief: bool) -> ExitCode {
    let is_wanted =
        |scene: &&Scene| only.is_none_or(|only| only == scene.name) && (scene.brief || !brief);
    let scenes: Vec<&Scene> = SCENES.iter().filter(is_wanted).collect();
    if scenes.is_empty() {
        let names: Vec<&str> = SCENES.iter().map(|scene| scene.name).collect();
        eprintln!("error: unknown scene: {}", only.unwrap_or_default());
        eprintln!("hint: scenes are {}", names.join(" "));
        return ExitCode::from(INVALID);
    }
    println!(
        "{:<8} {:>11} {:>13} {:>10} {:>8} {:>8}  participants; faults",
        "scene", "states", "steps", "ends", "longest", "took"
    );
    let next = AtomicUsize::new(0);
    let passed = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(scene) = scenes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !show_scene(scene) {
                        passed.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if passed.into_inner() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) }
}

fn show_scene(scene: &Scene) -> bool {
    let started = Instant::now();
    let found = explore(scene, MAX_STATES);
    let mut text = format!(
        "{:<8} {:>11} {:>13} {:>10} {:>8} {:>6.1} s  {}; {}\n",
        scene.name,
        grouped(found.states),
        grouped(found.steps),
        grouped(found.ends),
        found.longest,
        started.elapsed().as_secs_f64(),
        scene.participants,
        scene.faults_in_words()
    );
    if let Some((violation, journal)) = &found.violation {
        let lines = readable_journal(journal).join("\n");
        text += &format!("{lines}\n=> {violation}\n");
        text += &format!("replay it with: cargo xtask sim --exhaustive --scene {}\n", scene.name);
    } else if !found.complete {
        text += &format!("{} is too large to be explored completely\n", scene.name);
    }
    print!("{text}");
    found.complete
}

fn scenario(name: &str) -> Result<&'static str, String> {
    let names: Vec<&str> = Scenario::all().iter().map(|scenario| scenario.name).collect();
    let known = names.iter().find(|known| **known == name).copied();
    known.ok_or_else(|| format!("none of {}: {name}", names.join(", ")))
}

fn call_fault(name: &str) -> Result<CallFault, String> {
    let names = CallFault::ALL.map(CallFault::as_str);
    let known = CallFault::ALL.into_iter().find(|fault| fault.as_str() == name);
    known.ok_or_else(|| format!("none of {}: {name}", names.join(", ")))
}

fn run_sweep(options: &Options) -> ExitCode {
    if let (Some(name), Some(0)) = (options.scenario, options.call) {
        let without_fault = Case { scenario: name, call: 0, fault: CallFault::FailOnce };
        print!(
            "{}",
            without_fault
                .replay()
                .map(|history| without_fault.report(&history))
                .unwrap_or_default()
        );
        return ExitCode::SUCCESS;
    }
    let started = Instant::now();
    let wanted = |case: &Case| {
        options.scenario.is_none_or(|name| case.scenario == name)
            && options.call.is_none_or(|call| u64::from(case.call) == call)
            && options.fault.is_none_or(|fault| case.fault == fault)
    };
    let swept = sweep(wanted);
    print!("{}", swept.shown());
    println!("took {:.1} s", started.elapsed().as_secs_f64());
    for (case, violation) in &swept.violations {
        println!("{case:?} violates an invariant: {violation}");
    }
    // A single case is printed even if it violates no invariant.
    let shown = swept.violations.first().map(|(case, _)| *case).or(swept.only);
    if let Some(case) = shown
        && let Some(history) = case.replay()
    {
        print!("\n{}", case.report(&history));
    }
    if swept.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) }
}
